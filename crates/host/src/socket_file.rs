//! The file of a Unix socket: made for this process alone, and removed with it.

use crate::lock::FileLock;
use rustix::net::sockopt::socket_acceptconn;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A socket cannot be made at its path. The caller knows which option or setting names the path.
#[derive(thiserror::Error)]
pub enum SocketFileError {
    /// Another process has it.
    #[error("another process listens on {}", .0.display())]
    InUse(PathBuf),
    /// Something else is in its place.
    #[error("{} exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("cannot {what} {}: {source}", .path.display())]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

policy::readable_debug!(SocketFileError);

/// The file of a socket that listens, owned by whoever holds the lock beside it. Dropping it removes both files.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
    lock_path: PathBuf,
    lock: FileLock,
    /// Another process may go on with the socket.
    is_frozen: bool,
}

impl SocketFile {
    /// Makes the socket `path` with mode 0600, its directory with 0700 where there is none, and listens. The listener
    /// does not block.
    ///
    /// A socket file that a dead process left is replaced; that of a live process is left alone.
    ///
    /// # Errors
    /// [`SocketFileError::InUse`] if another process holds the lock.
    pub fn bind(path: &Path) -> Result<(Self, UnixListener), SocketFileError> {
        if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(system("make the directory", directory))?;
        }
        let lock_path = lock_path_of(path);
        let lock = FileLock::take(&lock_path).map_err(system("lock", &lock_path))?;
        let lock = lock.ok_or_else(|| SocketFileError::InUse(path.to_owned()))?;
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.file_type().is_socket() => {
                fs::remove_file(path).map_err(system("remove the stale socket", path))?;
            }
            Ok(_) => return Err(SocketFileError::NotASocket(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(system("look at", path)(error)),
        }
        let listener = UnixListener::bind(path).map_err(system("listen on", path))?;
        // The umask of a daemon has seen to this already; a library caller may have another one.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .map_err(system("set the mode of", path))?;
        listener.set_nonblocking(true).map_err(system("listen on", path))?;
        let inode = fs::symlink_metadata(path).map_err(system("look at", path))?.ino();
        let path = path.to_owned();
        Ok((Self { path, inode, lock_path, lock, is_frozen: false }, listener))
    }

    /// The socket of another process, which has sent the descriptors of its lock and of its listener; it is
    /// [frozen](Self::freeze). Clients that wait for an answer to connect(2) are there to be accepted.
    ///
    /// # Errors
    /// [`SocketFileError::InUse`] if the descriptors are none of a socket at `path`.
    pub fn succeed(
        path: &Path,
        lock: OwnedFd,
        listener: OwnedFd,
    ) -> Result<(Self, UnixListener), SocketFileError> {
        let lock_path = lock_path_of(path);
        let lock = FileLock::succeed(&lock_path, lock).map_err(system("lock", &lock_path))?;
        let metadata = fs::symlink_metadata(path).map_err(system("look at", path))?;
        let listener = UnixListener::from(listener);
        let bound = listener.local_addr().map_err(system("listen on", path))?;
        let is_ours = metadata.file_type().is_socket()
            && bound.as_pathname() == Some(path)
            && socket_acceptconn(&listener).is_ok_and(|listens| listens);
        let lock = lock.filter(|_| is_ours);
        let lock = lock.ok_or_else(|| SocketFileError::InUse(path.to_owned()))?;
        let (path, inode) = (path.to_owned(), metadata.ino());
        Ok((Self { path, inode, lock_path, lock, is_frozen: true }, listener))
    }

    /// The lock, of which a successor gets a copy.
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// Dropping this leaves the socket and its lock as they are from now on, for the other process that has both.
    pub fn freeze(&mut self) {
        self.lock.freeze();
        self.is_frozen = true;
    }

    /// This process goes on with the socket, and no other.
    pub fn thaw(&mut self) {
        self.lock.thaw();
        self.is_frozen = false;
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn lock_path_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketFileError {
    let path = path.to_owned();
    move |source| SocketFileError::System { what, path, source }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_frozen {
            return;
        }
        // A program that removed or replaced the file meanwhile had its reasons.
        if fs::symlink_metadata(&self.path).is_ok_and(|m| m.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
        let _ = fs::remove_file(&self.lock_path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_process_keeps_its_socket_and_a_dead_ones_is_replaced() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("run/control.sock");

        let (first, _listener) = SocketFile::bind(&path).expect("a free path");
        assert!(matches!(SocketFile::bind(&path), Err(SocketFileError::InUse(_))));
        let mode = |p: &Path| fs::metadata(p).expect("it exists").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().expect("it has one")), 0o700);
        drop(first);
        assert!(!path.exists());
        assert_eq!(fs::read_dir(path.parent().expect("it has one")).expect("readable").count(), 0);

        // A killed process leaves the file, but no lock.
        drop(UnixListener::bind(&path).expect("a free path"));
        assert!(path.exists());
        let (second, _listener) = SocketFile::bind(&path).expect("a stale socket is replaced");
        // A file that has taken its place is somebody else's.
        fs::remove_file(&path).expect("ours");
        fs::write(&path, "precious").expect("writable");
        drop(second);
        assert_eq!(fs::read_to_string(&path).expect("readable"), "precious");
    }

    #[test]
    fn a_successor_serves_the_clients_that_wait() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("control.sock");
        let copy = |of: BorrowedFd<'_>| of.try_clone_to_owned().expect("a descriptor");
        let (mut first, listener) = SocketFile::bind(&path).expect("a free path");
        let waiting = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
        let succeed = |listener: BorrowedFd<'_>| {
            SocketFile::succeed(&path, copy(first.lock()), copy(listener))
        };

        // Another listener is not believed, and the lock stays.
        let elsewhere = UnixListener::bind(directory.path().join("other")).expect("a free path");
        assert!(matches!(succeed(elsewhere.as_fd()), Err(SocketFileError::InUse(_))));
        assert!(matches!(SocketFile::bind(&path), Err(SocketFileError::InUse(_))));
        // One that gives up leaves it to its predecessor.
        drop(succeed(listener.as_fd()).expect("the same"));
        assert!(path.exists());
        assert!(matches!(SocketFile::bind(&path), Err(SocketFileError::InUse(_))));

        let (mut second, served) = succeed(listener.as_fd()).expect("the same");
        drop(listener);
        first.freeze();
        drop(first);
        assert!(path.exists());
        assert!(matches!(SocketFile::bind(&path), Err(SocketFileError::InUse(_))));
        served.accept().expect("it waits");
        drop(waiting);
        second.thaw();
        drop((second, served));
        assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 1, "the other");
    }

    #[test]
    fn an_ordinary_file_is_not_removed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("control.sock");
        fs::write(&path, "precious").expect("writable");
        assert!(matches!(SocketFile::bind(&path), Err(SocketFileError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).expect("readable"), "precious");
    }
}
