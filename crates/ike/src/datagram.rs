//! UDP datagrams as the engine takes them and gives them.

use std::net::SocketAddr;

/// A received UDP datagram without the non-ESP marker.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Where it arrived; port 500 or [`Config::natt_port`](crate::Config::natt_port).
    pub local: SocketAddr,
    /// Where it came from.
    pub remote: SocketAddr,
    /// The IKE message.
    pub octets: &'a [u8],
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// From where.
    pub local: SocketAddr,
    /// To where.
    pub remote: SocketAddr,
    /// The IKE message without non-ESP marker; the sender adds it on the port of NAT traversal.
    pub octets: Vec<u8>,
    /// A NAT keepalive: the one octet 0xff, sent without marker.
    pub keepalive: bool,
}
