//! Files that a process has locked for as long as it uses what they stand for.

use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A locked file. Dropping it unlocks it, even while a child process that is being started still has a copy of its
/// descriptor. The kernel unlocks it if the process is killed.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks a file, which is made with mode 0600 where there is none; `None` if another owner has locked it.
    ///
    /// # Errors
    /// If the system refuses it, or the path is a symbolic link.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // The lock goes with the last descriptor in any case.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_one_owner_and_goes_through_no_link() {
        let name =
            |suffix| std::env::temp_dir().join(format!("file-lock-{}{suffix}", std::process::id()));
        let (path, link) = (name(""), name("-link"));
        let first = FileLock::take(&path).expect("writable").expect("nobody has it");
        assert!(FileLock::take(&path).expect("writable").is_none());
        drop(first);
        assert!(FileLock::take(&path).expect("writable").is_some());
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let refused = FileLock::take(&link).map(drop);
        std::fs::remove_file(&link).expect("ours");
        std::fs::remove_file(&path).expect("ours");
        assert!(refused.is_err());
    }
}
