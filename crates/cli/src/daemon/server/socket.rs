//! The socket file: made for this daemon alone, and removed with it.

use host::lock::FileLock;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The control socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another daemon has it.
    #[error(
        "another vpnd is listening on {}\n  stop it with: vpnctl --control {} stop\n  or give this one another socket with --control SOCKET",
        .0.display(), .0.display()
    )]
    InUse(PathBuf),
    /// Something else is in its place.
    #[error("{} exists and is not a socket; remove it or name another socket with --control SOCKET", .0.display())]
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

/// A listening control socket, owned by whoever holds the lock beside it.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    inode: u64,
    lock_path: PathBuf,
    _lock: FileLock,
}

impl ControlSocket {
    /// Makes the socket `path` with mode 0600, its directory with 0700 where there is none, and listens.
    ///
    /// A socket file that a dead daemon left is replaced; a live daemon is left alone.
    ///
    /// # Errors
    /// [`SocketError::InUse`] where another daemon lives there.
    pub fn bind(path: &Path) -> Result<(Self, UnixListener), SocketError> {
        let system = |what, path: &Path| {
            let path = path.to_owned();
            move |source| SocketError::System { what, path, source }
        };
        if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(system("make the directory", directory))?;
        }
        let lock_path = {
            let mut name = path.as_os_str().to_owned();
            name.push(".lock");
            PathBuf::from(name)
        };
        let lock = FileLock::take(&lock_path).map_err(system("lock", &lock_path))?;
        let lock = lock.ok_or_else(|| SocketError::InUse(path.to_owned()))?;
        match fs::symlink_metadata(path) {
            Ok(metadata) if std::os::unix::fs::FileTypeExt::is_socket(&metadata.file_type()) => {
                fs::remove_file(path).map_err(system("remove the stale socket", path))?;
            }
            Ok(_) => return Err(SocketError::NotASocket(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(system("look at", path)(error)),
        }
        let listener = UnixListener::bind(path).map_err(system("listen on", path))?;
        // The umask has seen to this already where the daemon set it; a library caller may not have.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .map_err(system("set the mode of", path))?;
        listener.set_nonblocking(true).map_err(system("listen on", path))?;
        let inode = fs::symlink_metadata(path).map_err(system("look at", path))?.ino();
        Ok((Self { path: path.to_owned(), inode, lock_path, _lock: lock }, listener))
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Whoever removed or replaced the file meanwhile has their reasons.
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
    fn a_live_daemon_keeps_its_socket_and_a_dead_ones_is_replaced() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("run/control.sock");

        let (first, _listener) = ControlSocket::bind(&path).expect("a free path");
        assert!(matches!(ControlSocket::bind(&path), Err(SocketError::InUse(_))));
        let mode = |p: &Path| fs::metadata(p).expect("it exists").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().expect("it has one")), 0o700);
        drop(first);
        assert!(!path.exists());
        assert_eq!(fs::read_dir(path.parent().expect("it has one")).expect("readable").count(), 0);

        // A killed daemon leaves the file, but no lock.
        drop(UnixListener::bind(&path).expect("a free path"));
        assert!(path.exists());
        ControlSocket::bind(&path).expect("a stale socket is replaced");
    }

    #[test]
    fn an_ordinary_file_is_not_removed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("control.sock");
        fs::write(&path, "precious").expect("writable");
        assert!(matches!(ControlSocket::bind(&path), Err(SocketError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).expect("readable"), "precious");
    }
}
