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
    /// The address and port of this side that it came to, and those of the peer.
    pub ends: (SocketAddr, SocketAddr),
    /// Fragment 1 of it, or all of it.
    pub octets: Vec<u8>,
    pub until: Until,
}

/// When a request is answered that has to wait.
#[derive(Debug)]
pub(crate) enum Until {
    /// When the data plane is prepared for the traffic that the peer names. The rule of this child tunnel stays as long
    /// as this is there.
    Prepared(#[expect(dead_code, reason = "it is held")] Arc<ChildTunnel>),
    /// When the peer has answered the Delete of a Child SA that this side has replaced.
    Deleted,
    Time(Instant),
}
