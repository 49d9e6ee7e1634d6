//! Why a connection has ended.

use std::io;

/// The reason why a connection has ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer refused it.
    Refused,
    /// A router, or the peer, said that it cannot be reached.
    Unreachable,
    /// The peer did not answer.
    TimedOut,
    /// The peer reset it.
    Reset,
    /// The gateway has stopped.
    Stopped,
}

impl From<End> for io::Error {
    fn from(end: End) -> Self {
        let (kind, text) = match end {
            End::Refused => (io::ErrorKind::ConnectionRefused, "the peer refused the connection"),
            End::Unreachable => {
                (io::ErrorKind::HostUnreachable, "a router or the peer said that it is unreachable")
            }
            End::TimedOut => (io::ErrorKind::TimedOut, "the peer does not answer"),
            End::Reset => (io::ErrorKind::ConnectionReset, "the peer reset the connection"),
            End::Stopped => (io::ErrorKind::NotConnected, "the gateway has stopped"),
        };
        Self::new(kind, text)
    }
}
