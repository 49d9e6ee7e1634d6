//! Files that a process has locked for as long as it uses what they stand for.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// A locked file. Dropping it unlocks it, even while a child process that is being started still has a copy of its
/// descriptor. The kernel unlocks it if the process is killed.
///
/// A process that is handed a copy of the descriptor has the same lock: the file is locked until both have closed it, or
/// one of them drops this while it is not frozen.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    /// Another process may go on with the lock.
    is_frozen: bool,
}

impl FileLock {
    /// Locks a file, which is made with mode 0600 where there is none; `None` if another owner has locked it.
    ///
    /// # Errors
    /// If the system refuses it, or the path is a symbolic link.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let locked = open_locked(path, |_| Ok(()))?;
        Ok(locked.map(|file| Self { file, is_frozen: false }))
    }

    /// The lock of another process, which has sent its descriptor; it is [frozen](Self::freeze). `None` if it is no lock
    /// on this file.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn succeed(path: &Path, descriptor: OwnedFd) -> io::Result<Option<Self>> {
        let file = succeed_to(path, descriptor)?;
        Ok(file.map(|file| Self { file, is_frozen: true }))
    }

    /// Dropping this leaves the file locked from now on, for the other process that has a copy of the descriptor.
    pub fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// This process goes on with the lock, and no other.
    pub fn thaw(&mut self) {
        self.is_frozen = false;
    }
}

impl AsFd for FileLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The file at `path`, if `descriptor` is one of it, and has it locked.
pub(crate) fn succeed_to(path: &Path, descriptor: OwnedFd) -> io::Result<Option<File>> {
    let file = File::from(descriptor);
    let ours = file.metadata()?;
    let is_there =
        fs::symlink_metadata(path).is_ok_and(|f| (f.dev(), f.ino()) == (ours.dev(), ours.ino()));
    if !is_there {
        return Ok(None);
    }
    // It succeeds where this very open file has the lock already, and fails where another one has.
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
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
        if !self.is_frozen {
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
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
    fn a_lock_passes_to_a_successor_without_a_moment_in_which_it_is_free() {
        let name = |suffix| {
            std::env::temp_dir().join(format!("file-lock-{}-passes{suffix}", std::process::id()))
        };
        let (path, other) = (name(""), name("-other"));
        let copy = |of: &FileLock| of.as_fd().try_clone_to_owned().expect("a descriptor");
        let mut first = FileLock::take(&path).expect("writable").expect("nobody has it");
        let others = FileLock::take(&other).expect("writable").expect("nobody has it");
        assert!(FileLock::succeed(&path, copy(&others)).expect("readable").is_none());
        assert!(is_locked(&other), "it is no business of the successor");
        let not_locked = File::open(&path).expect("readable");
        assert!(FileLock::succeed(&path, not_locked.into()).expect("readable").is_none());

        let sent = copy(&first);
        assert!(is_locked(&path));
        let succeed = |sent| FileLock::succeed(&path, sent).expect("readable").expect("the lock");
        // Neither a successor that gives up, nor a predecessor that ends, unlocks it.
        drop(succeed(copy(&first)));
        assert!(is_locked(&path), "the predecessor has it");
        let mut second = succeed(sent);
        first.freeze();
        drop(first);
        assert!(is_locked(&path), "the successor has it");
        second.thaw();
        drop(second);
        assert!(!is_locked(&path));
        // A successor that is killed takes nothing with it.
        let first = FileLock::take(&path).expect("writable").expect("nobody has it");
        drop(copy(&first));
        assert!(is_locked(&path));
        std::fs::remove_file(&path).expect("ours");
        std::fs::remove_file(&other).expect("ours");
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
