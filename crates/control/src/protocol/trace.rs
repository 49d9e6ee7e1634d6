//! The answer to [`Command::Trace`](super::Command::Trace).

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The predicted treatment of a packet in both directions, if it came now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceInfo {
    /// The packet as understood.
    pub packet: String,
    /// If it leaves this side.
    pub leaving: OneWayTraceInfo,
    /// If it comes to this side.
    pub arriving: OneWayTraceInfo,
}

/// The predicted treatment of a packet in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneWayTraceInfo {
    /// `clear` (it passes unprotected), `protected`, `kept` (until its tunnel is up) or `dropped`.
    pub verdict: String,
    /// `always`, `filter`, `tunnel` or `default`.
    pub decided_by: String,
    /// Number of the filter's rule, name of the tunnel, or `permit` or `deny`; `null` with `always`.
    pub rule: Option<String>,
    /// For people.
    pub message: String,
    /// SAs that it may take.
    pub sas: Vec<TracedSa>,
    /// Later rules that cover it, too, and are not asked.
    pub behind: Vec<String>,
    /// The same for packets with another mark or XFRM interface, which other tunnels take: of those, the message names
    /// the mark or interface.
    #[serde(default)]
    pub otherwise: Vec<OneWayTraceInfo>,
}

/// An SA that a packet may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedSa {
    /// 8 hexadecimal digits.
    pub spi: String,
    /// Algorithms.
    pub suite: String,
    /// `transport` or `tunnel`.
    pub mode: String,
    /// `native` (IP protocol 50), `udp`, or `ah` where it is an SA of AH.
    pub encapsulation: String,
    /// This side's address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Octets of the longest packet that fits; `null`: not enforced.
    pub inner_mtu: Option<usize>,
    /// True if it carries this packet.
    pub carries: bool,
}
