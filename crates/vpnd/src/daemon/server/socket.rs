//! The control socket, and what to do if it cannot be made.

use host::socket_file::{SocketFile, SocketFileError};
use std::fmt;
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// The control socket cannot be made.
#[derive(Debug)]
pub struct SocketError(SocketFileError);

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SocketFileError::InUse(path) => {
                let path = path.display();
                write!(
                    f,
                    "another vpnd is listening on {path}\n  stop it with: vpnctl --control {path} stop\n  or give this one \
                     another socket with --control SOCKET"
                )
            }
            other @ SocketFileError::NotASocket(_) => {
                write!(f, "{other}; remove it or name another socket with --control SOCKET")
            }
            other @ SocketFileError::System { path, source, .. } => {
                write!(f, "{other}; to have the control socket elsewhere: --control SOCKET")?;
                match (source.kind(), path.ancestors().find(|path| path.is_dir())) {
                    (ErrorKind::ReadOnlyFilesystem, Some(directory)) => {
                        let directory = directory.display();
                        write!(f, "\n  a container with a read-only root needs --tmpfs {directory}")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for SocketError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0)
    }
}

/// Listens on the control socket; [`SocketFile::bind`] tells how.
///
/// # Errors
/// If another daemon has the socket, or the system refuses.
pub fn bind(path: &Path) -> Result<(SocketFile, UnixListener), SocketError> {
    SocketFile::bind(path).map_err(SocketError)
}
