//! A request that is answered later.

use crate::wire::header::Header;
use crate::wire::payload::Payload;
use policy::ChildTunnel;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// A request that is answered later.
#[derive(Debug)]
pub(crate) struct Postponed {
    pub header: Header,
    pub payloads: Vec<Payload>,
    /// Where it came to, and from.
    pub path: (SocketAddr, SocketAddr),
    /// Fragment 1 of it, or all of it.
    pub octets: Vec<u8>,
    /// The child tunnel that is asked for, if the data plane is being prepared for the traffic that the peer names. Its rule
    /// stays as long as this is there.
    pub child: Option<Arc<ChildTunnel>>,
    /// Otherwise when it is answered.
    pub due: Option<Instant>,
}
