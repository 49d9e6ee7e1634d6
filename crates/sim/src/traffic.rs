//! Numbered packets between hosts behind the gateways, and the account of what became of them.

use crate::host::HostId;
use crate::recorder::Refusal;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

/// A UDP packet over IPv4 with a flow and a number inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerPacket {
    /// Sender.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
    /// The flow it belongs to.
    pub flow: FlowId,
    /// Its number within the flow.
    pub number: u64,
}

/// Names a flow of a [`World`](crate::World).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u32);

/// A stream of packets from behind one gateway to behind another.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The gateway that protects it.
    pub from: HostId,
    /// Sender and receiver.
    pub ends: (SocketAddr, SocketAddr),
    /// Time between two packets; `None` once the flow has stopped.
    pub every: Option<Duration>,
    /// Packets offered to the gateway.
    pub offered: u64,
    /// Packets the gateway dropped for want of an SA.
    pub without_sa: u64,
    /// Packets that a plane would let out in the clear, because no rule covers them, or that can be read on the wire.
    pub in_the_clear: u64,
    /// How often each packet arrived.
    pub arrived: BTreeMap<u64, u32>,
    /// Packets the far gateway refused, by reason.
    pub refused: BTreeMap<Refusal, u64>,
}

impl Flow {
    /// Packets that were offered and have not arrived.
    pub fn missing(&self) -> u64 {
        self.offered - self.arrived.len() as u64
    }
}

const HEADERS: usize = 20 + 8;

impl InnerPacket {
    /// UDP.
    pub const PROTOCOL: u8 = 17;

    /// Octets of the whole packet.
    pub const LEN: usize = HEADERS + 4 + 8;

    /// Writes the packet with its IPv4 and UDP headers; the UDP checksum is left out (RFC 768).
    ///
    /// # Panics
    /// Where an end is not IPv4.
    pub fn encode(&self) -> Vec<u8> {
        let (SocketAddr::V4(source), SocketAddr::V4(destination)) = (self.source, self.destination)
        else {
            panic!("flows of the simulation are IPv4")
        };
        let mut octets = vec![0x45, 0, 0, Self::LEN as u8, 0, 0, 0x40, 0, 64, Self::PROTOCOL, 0, 0];
        octets.extend(source.ip().octets());
        octets.extend(destination.ip().octets());
        let checksum = checksum(&octets);
        octets[10..12].copy_from_slice(&checksum.to_be_bytes());
        octets.extend(source.port().to_be_bytes());
        octets.extend(destination.port().to_be_bytes());
        octets.extend([0, (Self::LEN - 20) as u8, 0, 0]);
        octets.extend(self.flow.0.to_be_bytes());
        octets.extend(self.number.to_be_bytes());
        octets
    }

    /// Whether its flow and number can be read in these octets.
    pub fn shows_in(&self, octets: &[u8]) -> bool {
        let payload = &self.encode()[HEADERS..];
        octets.windows(payload.len()).any(|w| w == payload)
    }

    /// Reads what [`InnerPacket::encode`] wrote.
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let octets: &[u8; Self::LEN] = octets.try_into().ok()?;
        let short = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
        let word = |at: usize| (u32::from(short(at)) << 16) | u32::from(short(at + 2));
        let end = |ip, port| SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::from_bits(ip), port));
        let headers_are_right = octets[0] == 0x45
            && octets[9] == Self::PROTOCOL
            && usize::from(short(2)) == Self::LEN
            && checksum(&octets[..20]) == 0;
        headers_are_right.then(|| Self {
            source: end(word(12), short(20)),
            destination: end(word(16), short(22)),
            flow: FlowId(word(28)),
            number: (u64::from(word(32)) << 32) | u64::from(word(36)),
        })
    }
}

/// RFC 1071.
fn checksum(octets: &[u8]) -> u16 {
    let sum: u32 = octets.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(c[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded + (folded >> 16)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_survives_the_round_trip() {
        let packet = InnerPacket {
            source: SocketAddr::from(([10, 1, 0, 7], 4000)),
            destination: SocketAddr::from(([10, 2, 0, 9], 4001)),
            flow: FlowId(3),
            number: u64::from(u32::MAX) + 5,
        };
        let octets = packet.encode();
        assert_eq!(InnerPacket::decode(&octets), Some(packet));
        assert_eq!(InnerPacket::decode(&octets[..39]), None);
        let mut damaged = octets;
        damaged[16] ^= 1;
        assert_eq!(InnerPacket::decode(&damaged), None);
    }
}
