//! Numbered packets between hosts behind the gateways, and the account of what became of them.

use crate::host::HostId;
use crate::recorder::Refusal;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// A UDP packet with a flow and a number inside.
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

/// UDP's header, and the flow with the number.
const MESSAGE: usize = 8 + 12;

impl InnerPacket {
    /// UDP.
    pub const PROTOCOL: u8 = 17;

    /// Octets of the whole packet over IPv4.
    pub const LEN: usize = 20 + MESSAGE;

    /// Writes the packet with its IP and UDP headers; the UDP checksum is left out (RFC 768).
    ///
    /// # Panics
    /// Where the ends are not of one family.
    pub fn encode(&self) -> Vec<u8> {
        let mut octets = match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => header_v4(source, destination),
            (IpAddr::V6(source), IpAddr::V6(destination)) => header_v6(source, destination),
            _ => panic!("the ends of a flow are of one family"),
        };
        octets.extend(self.source.port().to_be_bytes());
        octets.extend(self.destination.port().to_be_bytes());
        octets.extend([0, MESSAGE as u8, 0, 0]);
        octets.extend(self.payload());
        octets
    }

    fn payload(&self) -> [u8; 12] {
        let mut payload = [0; 12];
        payload[..4].copy_from_slice(&self.flow.0.to_be_bytes());
        payload[4..].copy_from_slice(&self.number.to_be_bytes());
        payload
    }

    /// Whether its flow and number can be read in these octets.
    pub fn shows_in(&self, octets: &[u8]) -> bool {
        let payload = self.payload();
        octets.windows(payload.len()).any(|w| w == payload)
    }

    /// Reads what [`InnerPacket::encode`] wrote.
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let (ip, message) = octets.split_at_checked(octets.len().checked_sub(MESSAGE)?)?;
        let (source, destination): (IpAddr, IpAddr) = match ip.len() {
            20 if checksum(ip) == 0 => (v4(&ip[12..])?.into(), v4(&ip[16..])?.into()),
            40 => (v6(&ip[8..])?.into(), v6(&ip[24..])?.into()),
            _ => return None,
        };
        let short = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        let packet = Self {
            source: (source, short(0)).into(),
            destination: (destination, short(2)).into(),
            flow: FlowId(u32::from_be_bytes(*message[8..].first_chunk()?)),
            number: u64::from_be_bytes(*message[12..].first_chunk()?),
        };
        let fixed = |octets: &[u8]| match octets[0] >> 4 {
            // Routers on the way may have changed the rest.
            4 => [octets[0], octets[2], octets[3], octets[9]],
            _ => [octets[0] & 0xf0, octets[4], octets[5], octets[6]],
        };
        (fixed(&packet.encode()) == fixed(octets)).then_some(packet)
    }
}

fn header_v4(source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    let len = InnerPacket::LEN as u8;
    let mut octets = vec![0x45, 0, 0, len, 0, 0, 0x40, 0, 64, InnerPacket::PROTOCOL, 0, 0];
    octets.extend(source.octets());
    octets.extend(destination.octets());
    let checksum = checksum(&octets);
    octets[10..12].copy_from_slice(&checksum.to_be_bytes());
    octets
}

fn header_v6(source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    let mut octets = vec![0x60, 0, 0, 0, 0, MESSAGE as u8, InnerPacket::PROTOCOL, 64];
    octets.extend(source.octets());
    octets.extend(destination.octets());
    octets
}

fn v4(octets: &[u8]) -> Option<Ipv4Addr> {
    octets.first_chunk::<4>().copied().map(Ipv4Addr::from)
}

fn v6(octets: &[u8]) -> Option<Ipv6Addr> {
    octets.first_chunk::<16>().copied().map(Ipv6Addr::from)
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
        let six = |n| SocketAddr::from(([0xfd01, 0, 0, 0, 0, 0, 0, n], 4000));
        let over_six = InnerPacket { source: six(1), destination: six(2), ..packet };
        assert_eq!(InnerPacket::decode(&over_six.encode()), Some(over_six));
        let octets = packet.encode();
        assert_eq!(InnerPacket::decode(&octets), Some(packet));
        assert_eq!(InnerPacket::decode(&octets[..39]), None);
        let mut damaged = octets;
        damaged[16] ^= 1;
        assert_eq!(InnerPacket::decode(&damaged), None);
    }
}
