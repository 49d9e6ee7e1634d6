//! Files that a process has locked for as long as it uses what they stand for.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

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
        let locked = open_locked(path, |_| Ok(()))?;
        Ok(locked.map(Self))
    }
}

/// How often a lock that another owner has is tried again, and the pause before each time. A program that was just
/// being started by a process that is killed has the lock until it runs, and so has a process that asks whether it is
/// taken. On a host whose processors are all busy, that is some tenths of a second.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Opens a file to read it and append to it, and locks it; `None` if another owner has locked it. `check` sees the file
/// before it is locked.
pub(crate) fn open_locked(
    path: &Path,
    check: impl Fn(&File) -> io::Result<()>,
) -> io::Result<Option<File>> {
    let mut tries = 0;
    loop {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        check(&file)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) if tries < TRIES => {
                tries += 1;
                std::thread::sleep(PAUSE);
                continue;
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        // The former owner may have removed the file after it was opened here and before it was locked.
        let ours = file.metadata()?;
        if fs::symlink_metadata(path).is_ok_and(|f| (f.dev(), f.ino()) == (ours.dev(), ours.ino()))
        {
            return Ok(Some(file));
        }
    }
}

/// Returns `true` if somebody has a file locked.
pub fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

/// Waits until nobody has a file locked. Returns at once if there is no such file.
///
/// # Errors
/// If the system refuses it.
pub fn await_unlocked(path: &Path) -> io::Result<()> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    loop {
        match flock(&file, FlockOperation::LockShared) {
            Err(rustix::io::Errno::INTR) => {}
            waited => return Ok(waited?),
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

    #[test]
    fn a_lock_is_waited_for_that_a_killed_process_leaves_to_its_child() {
        let path = std::env::temp_dir().join(format!("file-lock-{}-child", std::process::id()));
        let left = open_locked(&path, |_| Ok(())).expect("writable").expect("nobody has it");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(10 * PAUSE);
                drop(left);
            });
            assert!(FileLock::take(&path).expect("writable").is_some());
        });
        std::fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn the_end_of_a_lock_s_owner_is_waited_for() {
        let path = std::env::temp_dir().join(format!("file-lock-{}-awaited", std::process::id()));
        await_unlocked(&path).expect("there is no file");
        let lock = FileLock::take(&path).expect("writable").expect("nobody has it");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| await_unlocked(&path));
            assert!(!waiting.is_finished(), "it is locked");
            // As the owner of a device does.
            std::fs::remove_file(&path).expect("ours");
            drop(lock);
            waiting.join().expect("no panic").expect("it is unlocked");
        });
        await_unlocked(&path).expect("there is no file");
    }

    #[test]
    fn a_file_that_its_owner_removes_is_locked_by_one_of_those_who_wait() {
        use std::sync::atomic::{AtomicU32, Ordering};

        let path = std::env::temp_dir().join(format!("file-lock-{}-races", std::process::id()));
        let owners = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let Some(lock) = FileLock::take(&path).expect("writable") else { continue };
                        assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0, "it has two owners");
                        owners.fetch_sub(1, Ordering::SeqCst);
                        std::fs::remove_file(&path).expect("ours");
                        drop(lock);
                    }
                });
            }
        });
        let _ = std::fs::remove_file(&path);
    }
}
