//! The place where the endpoint listens: an address and a port, or a Unix socket.

use host::socket_file::{SocketFile, SocketFileError};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
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
    /// The address of the page in a browser; `None`: no browser connects to a Unix socket.
    pub fn page(&self) -> Option<String> {
        match self {
            Self::Tcp(address) => Some(format!("http://{address}/")),
            Self::Unix(_) => None,
        }
    }

    /// Returns `true` if other hosts may reach it.
    pub fn is_public(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().is_loopback())
    }
}

/// The endpoint cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The Unix socket cannot be made.
    #[error("{0}; listen of [metrics] in vpnd.toml can name another path")]
    Socket(#[from] SocketFileError),
    /// The system refused the address.
    #[error(
        "cannot serve metrics at {address}: {source}; listen of [metrics] in vpnd.toml can name another address"
    )]
    Address {
        /// The address and the port.
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
    /// At the path of a Unix socket, whose file goes with this value.
    Unix(UnixListener, SocketFile),
}

impl Bound {
    /// Listens. A Unix socket has mode 0600; one that a dead process has left is replaced.
    ///
    /// # Errors
    /// If the system refuses, or another process listens there.
    pub fn new(address: &Address) -> Result<Self, BindError> {
        match address {
            Address::Tcp(at) => {
                let failed = |source| BindError::Address { address: address.clone(), source };
                let listener = TcpListener::bind(at).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                Ok(Self::Tcp(listener))
            }
            Address::Unix(path) => {
                let (file, listener) = SocketFile::bind(path)?;
                Ok(Self::Unix(listener, file))
            }
        }
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
    fn an_error_names_the_setting() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("metrics.sock");
        let bound = Bound::new(&Address::Unix(path.clone())).expect("a free path");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let taken = Address::Tcp(listener.local_addr().expect("it is bound"));
        for (address, words) in [
            (Address::Unix(path), "another process listens on "),
            (taken, "cannot serve metrics at "),
        ] {
            let error = Bound::new(&address).expect_err("somebody listens").to_string();
            assert!(error.starts_with(words), "{error}");
            assert!(
                error.contains("; listen of [metrics] in vpnd.toml can name another "),
                "{error}"
            );
        }
        drop(bound);
    }
}
