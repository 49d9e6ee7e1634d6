//! The plane's calls to its owner.

use esp::plane::Notice;
use std::net::SocketAddr;
use std::sync::Arc;

/// The functions by which the plane tells its owner; it calls them on its worker threads, so neither may block.
#[derive(Clone)]
pub struct Hooks {
    /// Takes notices for key management.
    pub notice: Arc<dyn Fn(Notice) + Send + Sync>,
    /// Takes IKE messages.
    pub ike: Arc<dyn Fn(IkeDatagram) + Send + Sync>,
}

/// An IKE message that came to the port of ESP in UDP; the non-ESP marker is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IkeDatagram {
    /// The address and port it came to.
    pub local: SocketAddr,
    /// The address and port that it came from.
    pub remote: SocketAddr,
    /// The message, from the IKE header on.
    pub octets: Vec<u8>,
}
