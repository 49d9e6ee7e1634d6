//! Why a connection is not made.

use crate::end::End;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// A connection through a tunnel was not made.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No tunnel covers the traffic, and nothing leaves in the clear.
    #[error("no tunnel of the policy covers {remote}: {selectors}")]
    NoTunnel {
        /// The other end.
        remote: SocketAddr,
        /// The traffic that the tunnels cover.
        selectors: String,
    },
    /// This end has no address that the tunnel's local selectors cover.
    #[error(
        "tunnel {tunnel} covers {remote}, but none of this end's addresses: give one that lies in its local selectors"
    )]
    NoAddress {
        /// The other end.
        remote: SocketAddr,
        /// Name of the phase 2 tunnel.
        tunnel: String,
    },
    /// The tunnel did not come up.
    #[error("tunnel {tunnel}: {source}")]
    Tunnel {
        /// Name of the phase 2 tunnel.
        tunnel: String,
        /// The reason of key management.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The peer refused the connection.
    #[error("{remote} refused the connection")]
    Refused {
        /// The other end.
        remote: SocketAddr,
    },
    /// A router behind the tunnel, or the peer, said that the address cannot be reached.
    #[error("{remote} cannot be reached, said a router or host behind the tunnel")]
    Unreachable {
        /// The other end.
        remote: SocketAddr,
    },
    /// The tunnel is up, but nobody answers behind it.
    #[error("{remote} does not answer, though the tunnel is up")]
    TimedOut {
        /// The other end.
        remote: SocketAddr,
    },
    /// There is no memory or no port for one more connection.
    #[error("no {lacking} is left for a connection to {remote}; close others first")]
    Exhausted {
        /// The other end.
        remote: SocketAddr,
        /// Memory or port.
        lacking: &'static str,
    },
    /// A name has no address, or no server of DNS tells.
    #[error("name {}: {why}", .name.escape_debug())]
    Name {
        /// The name.
        name: String,
        /// The reason.
        why: String,
    },
    /// The gateway has stopped.
    #[error("the gateway has stopped")]
    Stopped,
}

policy::readable_debug!(ConnectError);

impl ConnectError {
    pub(crate) fn of(end: End, remote: SocketAddr) -> Self {
        match end {
            End::Refused | End::Reset => Self::Refused { remote },
            End::Unreachable => Self::Unreachable { remote },
            End::TimedOut => Self::TimedOut { remote },
            End::Stopped => Self::Stopped,
        }
    }
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        use io::ErrorKind;
        let kind = match error {
            ConnectError::NoTunnel { .. } => ErrorKind::NetworkUnreachable,
            ConnectError::NoAddress { .. } => ErrorKind::AddrNotAvailable,
            ConnectError::Tunnel { .. } => ErrorKind::NetworkDown,
            ConnectError::Refused { .. } => ErrorKind::ConnectionRefused,
            ConnectError::Unreachable { .. } | ConnectError::Name { .. } => {
                ErrorKind::HostUnreachable
            }
            ConnectError::TimedOut { .. } => ErrorKind::TimedOut,
            ConnectError::Exhausted { .. } => ErrorKind::OutOfMemory,
            ConnectError::Stopped => ErrorKind::NotConnected,
        };
        Self::new(kind, error)
    }
}
