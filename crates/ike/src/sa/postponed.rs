//! A request whose answer waits until the data plane is prepared for what it asks for.

use crate::wire::header::Header;
use crate::wire::payload::Payload;
use policy::ChildTunnel;
use std::net::SocketAddr;
use std::sync::Arc;

/// A request for a Child SA whose traffic the peer names.
#[derive(Debug)]
pub(crate) struct Postponed {
    pub header: Header,
    pub payloads: Vec<Payload>,
    /// Where it came to, and from.
    pub path: (SocketAddr, SocketAddr),
    /// Fragment 1 of it, or all of it.
    pub octets: Vec<u8>,
    /// The child tunnel that is asked for. Its rule stays as long as this is there.
    pub child: Arc<ChildTunnel>,
}
