//! Traffic: the selectors of an SA pair, the rules of the policy, and the headers of one packet.

#![forbid(unsafe_code)]

use crate::header::Header;
use crate::ip::IPV6_LEN;
use crate::prefetch;
use policy::{PortRange, Selector};
use std::net::IpAddr;

/// The traffic of one SA pair: any of `local` with any of `remote`, as agreed with the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TrafficSelectors {
    /// This side's.
    pub local: Vec<Selector>,
    /// The peer's.
    pub remote: Vec<Selector>,
}

/// Names one rule of the policy: the traffic of one phase 2 tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// Traffic that must be protected. While no outbound SA serves it, it is dropped and counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub id: RuleId,
    /// Name of the phase 2 tunnel, for counters and messages.
    pub tunnel: String,
    /// Its traffic.
    pub selectors: TrafficSelectors,
    /// A packet without an SA asks for one ([`Notice::Acquire`](crate::plane::Notice::Acquire)).
    pub trap: bool,
}

impl TrafficSelectors {
    /// Has them be in the cache.
    pub(crate) fn prefetch(&self) {
        prefetch::soon(self.local.as_slice());
        prefetch::soon(self.remote.as_slice());
    }

    /// Returns `true` if the selectors name ports.
    pub(crate) fn name_ports(&self) -> bool {
        self.local.iter().chain(&self.remote).any(|selector| selector.ports != PortRange::ANY)
    }

    /// Returns `true` if the selectors cover a packet that leaves this side; ports are `None` if the packet shows none.
    #[inline]
    pub fn covers(
        &self,
        protocol: u8,
        local: (IpAddr, Option<u16>),
        remote: (IpAddr, Option<u16>),
    ) -> bool {
        self.local.iter().any(|s| s.contains(protocol, local.0, local.1))
            && self.remote.iter().any(|s| s.contains(protocol, remote.0, remote.1))
    }
}

/// The headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PacketSummary {
    /// IP protocol number.
    pub protocol: u8,
    /// Source address and port.
    pub source: (IpAddr, Option<u16>),
    /// Destination address and port.
    pub destination: (IpAddr, Option<u16>),
}

impl PacketSummary {
    /// Reads the headers at the beginning of an IPv4 or IPv6 packet, of which the rest may be missing. `None` if it is
    /// none.
    pub fn of_beginning(octets: &[u8]) -> Option<Self> {
        let mut packet = octets.to_vec();
        let (field, not_counted) = match packet.first()? >> 4 {
            4 => (2, 0),
            _ => (4, IPV6_LEN),
        };
        let length = u16::try_from(packet.len().checked_sub(not_counted)?).ok()?;
        packet.get_mut(field..field + 2)?.copy_from_slice(&length.to_be_bytes());
        Header::parse(&packet).map(|header| header.summary())
    }
}
