//! The place where the endpoint listens: an address and a port, or a Unix socket.

use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The place where the endpoint listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and a port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        let wrong = || {
            format!(
                "{text:?} is neither an address with a port, as in \"127.0.0.1:9400\" or \"[::1]:9400\", nor the path of \
                 a Unix socket, as in \"/run/vpnd/metrics.sock\""
            )
        };
        text.parse().map(Self::Tcp).map_err(|_| wrong())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/metrics"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Address {
    /// Returns `true` if other hosts may reach it.
    pub fn is_public(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().is_loopback())
    }
}

/// The endpoint cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process has the socket.
    #[error(
        "another process listens on {}; stop it, or name another path in listen of [metrics] in vpnd.toml",
        .0.display()
    )]
    InUse(PathBuf),
    /// Something else is in the socket's place.
    #[error(
        "{} exists and is not a socket; remove it, or name another path in listen of [metrics] in vpnd.toml",
        .0.display()
    )]
    NotASocket(PathBuf),
    /// The system refused.
    #[error(
        "cannot serve metrics at {address}: {source}; listen of [metrics] in vpnd.toml names this place"
    )]
    System {
        /// The place.
        address: Address,
        /// The system's error.
        source: io::Error,
    },
}

/// A socket that listens.
#[derive(Debug)]
pub enum Bound {
    /// At an address and a port.
    Tcp(TcpListener),
    /// At the path of a Unix socket.
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket, which goes with this value.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Whoever has replaced the file meanwhile has their reasons.
        if fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Bound {
    /// Listens. A Unix socket has mode 0600; one that a dead process has left is replaced.
    ///
    /// # Errors
    /// If the system refuses, or another process listens there.
    pub fn new(address: &Address) -> Result<Self, BindError> {
        let system = |source| BindError::System { address: address.clone(), source };
        match address {
            Address::Tcp(at) => {
                let listener = TcpListener::bind(at).map_err(system)?;
                listener.set_nonblocking(true).map_err(system)?;
                Ok(Self::Tcp(listener))
            }
            Address::Unix(path) => {
                make_room(path, &system)?;
                let listener = UnixListener::bind(path).map_err(system)?;
                let inode = fs::symlink_metadata(path).map_err(system)?.ino();
                let file = SocketFile { path: path.clone(), inode };
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(system)?;
                listener.set_nonblocking(true).map_err(system)?;
                Ok(Self::Unix(listener, file))
            }
        }
    }
}

/// Removes the socket of a dead process.
fn make_room(path: &Path, system: &dyn Fn(io::Error) -> BindError) -> Result<(), BindError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(system(error)),
        Ok(file) if !file.file_type().is_socket() => Err(BindError::NotASocket(path.to_owned())),
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => Err(BindError::InUse(path.to_owned())),
            Err(_) => fs::remove_file(path).map_err(system),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_shown() {
        for (text, shown, public) in [
            ("127.0.0.1:9400", "http://127.0.0.1:9400/metrics", false),
            ("[::1]:9400", "http://[::1]:9400/metrics", false),
            ("0.0.0.0:9400", "http://0.0.0.0:9400/metrics", true),
            ("/run/vpnd/metrics.sock", "/run/vpnd/metrics.sock", false),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!((address.to_string().as_str(), address.is_public()), (shown, public));
        }
        for wrong in ["localhost:9400", "127.0.0.1", ":9400", "metrics.sock", "127.0.0.1:70000"] {
            let error = wrong.parse::<Address>().expect_err(wrong);
            assert!(error.contains("is neither an address with a port"), "{error}");
        }
    }

    #[test]
    fn a_socket_is_private_and_goes_with_its_process() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("metrics.sock");
        let address = Address::Unix(path.clone());
        drop(UnixListener::bind(&path).expect("a free path"));
        let bound = Bound::new(&address).expect("nobody listens on the old socket");
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
        assert!(matches!(Bound::new(&address), Err(BindError::InUse(_))));
        drop(bound);
        assert!(!path.exists());
        fs::write(&path, "a file").expect("writable");
        assert!(matches!(Bound::new(&address), Err(BindError::NotASocket(_))));
        let nowhere = Address::Unix(directory.path().join("no/such/directory"));
        let error = Bound::new(&nowhere).expect_err("no directory").to_string();
        assert!(error.contains("listen of [metrics] in vpnd.toml names this place"), "{error}");
    }
}
