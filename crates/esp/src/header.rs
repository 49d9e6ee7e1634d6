//! Reads what selectors ask of a packet: addresses, upper protocol, ports. No octets make it panic.

#![forbid(unsafe_code)]

use crate::ip::{ICMPV6, IPV4_LEN, IPV6_LEN, TCP, UDP, word_at};
use crate::plane::{PacketSummary, TrafficSelectors};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ICMP: u8 = 1;
const DCCP: u8 = 33;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const DESTINATION_OPTIONS: u8 = 60;
const SCTP: u8 = 132;
const MOBILITY: u8 = 135;
const UDP_LITE: u8 = 136;

/// More extension headers than any honest packet has.
const MAX_EXTENSIONS: usize = 16;

/// A whole packet, or the kind of fragment (RFC 4301 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragment {
    Whole,
    First,
    Later,
}

/// The headers of one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) ipv6: bool,
    /// DSCP and ECN.
    pub(crate) tos: u8,
    /// Octets of the whole packet, as its header says; never more than were given.
    pub(crate) len: usize,
    /// The offset of the upper layer.
    pub(crate) transport: usize,
    /// The upper protocol.
    pub(crate) protocol: u8,
    pub(crate) fragment: Fragment,
    /// The addresses as numbers: an [`IpAddr`] lies askew in memory, and moving it stalls the CPU.
    pub(crate) source: u128,
    pub(crate) destination: u128,
    /// Source and destination; for ICMP and Mobility both are the type and code (RFC 4301 §4.4.1.1).
    pub(crate) ports: Option<(u16, u16)>,
}

impl Header {
    /// Reads an IPv4 or IPv6 packet. `None` if it is not one, or shorter than it says.
    #[inline(always)]
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::parse_v4(packet),
            6 => Self::parse_v6(packet),
            _ => None,
        }
    }

    #[inline(always)]
    fn parse_v4(packet: &[u8]) -> Option<Self> {
        let fixed: &[u8; IPV4_LEN] = packet.first_chunk()?;
        let transport = usize::from(fixed[0] & 0x0f) * 4;
        let len = usize::from(word_at(fixed, 2));
        if transport < IPV4_LEN || len < transport || len > packet.len() {
            return None;
        }
        let (more, offset) = (fixed[6] & 0x20 != 0, word_at(fixed, 6) & 0x1fff);
        let fragment = fragment(more, offset);
        let protocol = fixed[9];
        Some(Self {
            ipv6: false,
            tos: fixed[1],
            len,
            transport,
            protocol,
            fragment,
            source: u32::from_be_bytes([fixed[12], fixed[13], fixed[14], fixed[15]]).into(),
            destination: u32::from_be_bytes([fixed[16], fixed[17], fixed[18], fixed[19]]).into(),
            ports: ports(protocol, fragment, &packet[transport..len]),
        })
    }

    fn parse_v6(packet: &[u8]) -> Option<Self> {
        let fixed: &[u8; IPV6_LEN] = packet.first_chunk()?;
        let len = IPV6_LEN + usize::from(word_at(fixed, 4));
        if len > packet.len() {
            return None;
        }
        let packet = &packet[..len];
        let mut protocol = fixed[6];
        let mut transport = IPV6_LEN;
        let mut whole = Fragment::Whole;
        for _ in 0..MAX_EXTENSIONS {
            let extension = &packet[transport..];
            let octets = match protocol {
                // A later fragment has data behind its fragment header: the protocol named there is all it shows.
                _ if whole == Fragment::Later => break,
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                    (usize::from(*extension.get(1)?) + 1) * 8
                }
                FRAGMENT => {
                    let field = word_at(extension.get(..8)?, 2);
                    whole = fragment(field & 1 != 0, field >> 3);
                    8
                }
                _ => break,
            };
            if octets > extension.len() {
                return None;
            }
            protocol = extension[0];
            transport += octets;
        }
        Some(Self {
            ipv6: true,
            tos: (word_at(fixed, 0) >> 4) as u8,
            len,
            transport,
            protocol,
            fragment: whole,
            source: address_at(fixed, 8),
            destination: address_at(fixed, 24),
            ports: ports(protocol, whole, &packet[transport..]),
        })
    }

    /// As if a packet of this description had been read: what selectors ask of it.
    pub(crate) fn described(packet: &PacketSummary) -> Self {
        let PacketSummary { protocol, source, destination } = *packet;
        let ipv6 = source.0.is_ipv6();
        let transport = if ipv6 { IPV6_LEN } else { IPV4_LEN };
        Self {
            ipv6,
            tos: 0,
            len: transport,
            transport,
            protocol,
            fragment: Fragment::Whole,
            source: bits(source.0),
            destination: bits(destination.0),
            ports: source.1.zip(destination.1),
        }
    }

    #[inline]
    pub(crate) fn source(&self) -> IpAddr {
        self.address(self.source)
    }

    #[inline]
    pub(crate) fn destination(&self) -> IpAddr {
        self.address(self.destination)
    }

    #[inline]
    fn address(&self, bits: u128) -> IpAddr {
        if self.ipv6 {
            Ipv6Addr::from_bits(bits).into()
        } else {
            Ipv4Addr::from_bits(bits as u32).into()
        }
    }

    /// Returns `true` if nothing stands between the fixed IP header and the upper layer.
    pub(crate) fn is_plain(&self) -> bool {
        self.transport == if self.ipv6 { IPV6_LEN } else { IPV4_LEN }
    }

    /// Returns `true` if the selectors cover this packet when it leaves.
    pub(crate) fn leaves_by(&self, selectors: &TrafficSelectors) -> bool {
        let (source, destination) = self.ends();
        selectors.covers(self.protocol, source, destination)
    }

    /// Returns `true` if the selectors cover this packet when it arrives.
    pub(crate) fn arrives_by(&self, selectors: &TrafficSelectors) -> bool {
        let (source, destination) = self.ends();
        selectors.covers(self.protocol, destination, source)
    }

    pub(crate) fn summary(&self) -> PacketSummary {
        let (source, destination) = self.ends();
        PacketSummary { protocol: self.protocol, source, destination }
    }

    fn ends(&self) -> ((IpAddr, Option<u16>), (IpAddr, Option<u16>)) {
        ((self.source(), self.ports.map(|p| p.0)), (self.destination(), self.ports.map(|p| p.1)))
    }
}

#[inline]
fn address_at(fixed: &[u8; IPV6_LEN], at: usize) -> u128 {
    let octets: [u8; 16] = fixed[at..at + 16].try_into().expect("a slice of 16 octets");
    u128::from_be_bytes(octets)
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn fragment(more: bool, offset: u16) -> Fragment {
    match (more, offset) {
        (false, 0) => Fragment::Whole,
        (true, 0) => Fragment::First,
        _ => Fragment::Later,
    }
}

/// The ports that an upper layer shows; `None` where it has or shows none.
fn ports(protocol: u8, fragment: Fragment, upper: &[u8]) -> Option<(u16, u16)> {
    if fragment == Fragment::Later {
        return None;
    }
    match protocol {
        TCP | UDP | DCCP | SCTP | UDP_LITE => {
            let ports: &[u8; 4] = upper.first_chunk()?;
            Some((word_at(ports, 0), word_at(ports, 2)))
        }
        ICMP | ICMPV6 => upper.first_chunk().map(|type_code: &[u8; 2]| {
            let word = u16::from_be_bytes(*type_code);
            (word, word)
        }),
        // RFC 7296 §3.13.1: the message type in the most significant octet.
        MOBILITY => upper.get(2).map(|kind| (u16::from(*kind) << 8, u16::from(*kind) << 8)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::write_header;
    use proptest::prelude::*;

    fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; IPV4_LEN];
        let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        write_header(&mut packet, a, b, protocol, payload.len(), 0, None);
        packet.extend(payload);
        packet
    }

    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; IPV6_LEN];
        let a = [0xfd00, 0, 0, 0, 0, 0, 0, 1].into();
        write_header(&mut packet, a, a, next, payload.len(), 0x2a, None);
        packet.extend(payload);
        packet
    }

    #[test]
    fn ports_of_a_whole_packet() {
        let header = Header::parse(&v4(UDP, &[0, 53, 0x12, 0x34, 0, 8, 0, 0])).expect("whole");
        assert_eq!((header.protocol, header.ports), (UDP, Some((53, 0x1234))));
        assert!(header.is_plain());
        let header = Header::parse(&v4(ICMP, &[8, 0, 0, 0])).expect("whole");
        assert_eq!(header.ports, Some((0x0800, 0x0800)));
    }

    #[test]
    fn only_later_fragments_hide_their_ports() {
        let mut packet = v4(UDP, &[0, 53, 0x12, 0x34, 0, 8, 0, 0]);
        packet[6] = 0x20;
        let first = Header::parse(&packet).expect("whole header");
        assert_eq!((first.fragment, first.ports), (Fragment::First, Some((53, 0x1234))));
        packet[7] = 1;
        let later = Header::parse(&packet).expect("whole header");
        assert_eq!((later.fragment, later.ports), (Fragment::Later, None));
    }

    #[test]
    fn extension_headers_are_walked() {
        let mut payload = vec![DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0];
        payload.extend([FRAGMENT, 1, 1, 12]);
        payload.extend([0; 12]);
        payload.extend([TCP, 0, 0, 0, 1, 2, 3, 4]);
        payload.extend([0x12, 0x34, 0, 80]);
        let header = Header::parse(&v6(HOP_BY_HOP, &payload)).expect("whole");
        assert_eq!(header.protocol, TCP);
        assert_eq!(header.ports, Some((0x1234, 80)));
        assert_eq!(header.tos, 0x2a);
        assert_eq!(header.transport, IPV6_LEN + 32);
        assert!(!header.is_plain());
    }

    #[test]
    fn a_later_ipv6_fragment_is_not_walked_into() {
        // The data happens to look like a destination options header that is too long.
        let payload = [DESTINATION_OPTIONS, 0, 0, 8, 1, 2, 3, 4, 6, 255];
        let header = Header::parse(&v6(FRAGMENT, &payload)).expect("whole header");
        assert_eq!(header.fragment, Fragment::Later);
        assert_eq!((header.protocol, header.ports), (DESTINATION_OPTIONS, None));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let mut packet = v4(UDP, &[0; 8]);
        packet[3] += 1;
        assert!(Header::parse(&packet).is_none());
        packet[3] = 19;
        assert!(Header::parse(&packet).is_none());
        let mut packet = v6(UDP, &[0; 8]);
        packet[5] += 1;
        assert!(Header::parse(&packet).is_none());
        assert!(Header::parse(&v6(HOP_BY_HOP, &[6, 1, 0, 0, 0, 0, 0, 0])).is_none());
    }

    proptest! {
        #[test]
        fn no_octets_panic(mut packet: Vec<u8>, version in prop_oneof![Just(0x45u8), Just(0x60), any::<u8>()],
                           next in prop_oneof![Just(0u8), Just(43), Just(44), Just(60), any::<u8>()]) {
            if let Some(first) = packet.first_mut() {
                *first = version;
            }
            if packet.len() > 6 && version == 0x60 {
                let len = packet.len().saturating_sub(40) as u16;
                packet[4..6].copy_from_slice(&len.to_be_bytes());
                packet[6] = next;
            }
            if let Some(header) = Header::parse(&packet) {
                prop_assert!(header.transport <= header.len && header.len <= packet.len());
            }
        }
    }
}
