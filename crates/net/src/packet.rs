//! Inner packets: read as far as it takes to find their socket, and written for UDP and ICMP. TCP is the stack's.

use crate::routes::{TCP, UDP};
use smoltcp::wire::{IpAddress, checksum};
use std::net::{IpAddr, SocketAddr};

pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMPV6: u8 = 58;
const FRAGMENT: u8 = 44;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const TCP_LEN: usize = 20;
const UDP_LEN: usize = 8;
const HOPS: u8 = 64;
/// Every IPv6 link carries so many octets in one piece (RFC 8200 §5).
const IPV6_MTU: usize = 1280;
/// Octets of a packet that an ICMP message about it quotes, so that it fits everywhere (RFC 1812 §4.3.2.3).
const QUOTED: usize = 500;

/// Octets of the longest payload of a UDP datagram.
pub(crate) const LONGEST_DATAGRAM: usize = 65_535 - IPV4_LEN - UDP_LEN;

/// The headers of a packet, as far as they matter here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parsed {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    /// The octets at which the transport header begins and the packet ends.
    pub transport: usize,
    pub end: usize,
    pub fragment: bool,
}

/// `None` for what is no IP packet, or has a length that is wrong.
pub(crate) fn parse(packet: &[u8]) -> Option<Parsed> {
    match packet.first()? >> 4 {
        4 => parse_v4(packet),
        6 => parse_v6(packet),
        _ => None,
    }
}

fn parse_v4(packet: &[u8]) -> Option<Parsed> {
    let fixed: &[u8; IPV4_LEN] = packet.first_chunk()?;
    let transport = usize::from(fixed[0] & 0x0f) * 4;
    let end = usize::from(word(fixed, 2));
    if transport < IPV4_LEN || end < transport || end > packet.len() {
        return None;
    }
    Some(Parsed {
        source: IpAddr::from(*fixed[12..].first_chunk::<4>()?),
        destination: IpAddr::from(*fixed[16..].first_chunk::<4>()?),
        protocol: fixed[9],
        transport,
        end,
        fragment: word(fixed, 6) & 0x3fff != 0,
    })
}

fn parse_v6(packet: &[u8]) -> Option<Parsed> {
    let fixed: &[u8; IPV6_LEN] = packet.first_chunk()?;
    let end = IPV6_LEN + usize::from(word(fixed, 4));
    (end <= packet.len()).then_some(())?;
    Some(Parsed {
        source: IpAddr::from(*fixed[8..].first_chunk::<16>()?),
        destination: IpAddr::from(*fixed[24..].first_chunk::<16>()?),
        protocol: fixed[6],
        transport: IPV6_LEN,
        end,
        fragment: fixed[6] == FRAGMENT,
    })
}

impl Parsed {
    /// The transport header and what follows.
    pub fn upper<'p>(&self, packet: &'p [u8]) -> &'p [u8] {
        &packet[self.transport..self.end]
    }

    /// Source and destination port of TCP or UDP.
    pub fn ports(&self, packet: &[u8]) -> Option<(u16, u16)> {
        let upper = self.upper(packet);
        let shortest = if self.protocol == TCP { TCP_LEN } else { UDP_LEN };
        (upper.len() >= shortest).then(|| (word(upper, 0), word(upper, 2)))
    }

    /// Returns `true` if the checksum of TCP, UDP or ICMPv6 is right. A UDP datagram over IPv4 may have none.
    pub fn is_intact(&self, packet: &[u8]) -> bool {
        let upper = self.upper(packet);
        match self.protocol {
            UDP if upper.len() < UDP_LEN => false,
            UDP if word(upper, 6) == 0 => self.source.is_ipv4(),
            ICMP => checksum::data(upper) == !0,
            _ => self.sum(upper) == !0,
        }
    }

    fn sum(&self, upper: &[u8]) -> u16 {
        let pseudo = pseudo(self.source, self.destination, self.protocol, upper.len());
        checksum::combine(&[pseudo, checksum::data(upper)])
    }
}

fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> u16 {
    let [source, destination] = [source, destination].map(IpAddress::from);
    checksum::pseudo_header(&source, &destination, protocol.into(), len as u32)
}

pub(crate) fn word(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

pub(crate) fn long(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}

/// Returns `true` for a sequence number behind the other (RFC 9293 §3.4: modulo 2³²).
pub(crate) fn is_later(number: u32, than: u32) -> bool {
    number != than && number.wrapping_sub(than) < 1 << 31
}

fn put_word(octets: &mut [u8], at: usize, value: u16) {
    octets[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// An IP header and room for `upper` octets behind it.
fn with_header(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    identification: u16,
    upper: usize,
) -> Vec<u8> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut packet = vec![0; IPV4_LEN + upper];
            packet[0] = 0x45;
            put_word(&mut packet, 2, (IPV4_LEN + upper) as u16);
            // Without Don't Fragment: the datapath fragments what does not fit.
            put_word(&mut packet, 4, identification);
            packet[8] = HOPS;
            packet[9] = protocol;
            packet[12..16].copy_from_slice(&source.octets());
            packet[16..20].copy_from_slice(&destination.octets());
            let sum = !checksum::data(&packet[..IPV4_LEN]);
            put_word(&mut packet, 10, sum);
            packet
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut packet = vec![0; IPV6_LEN + upper];
            packet[0] = 0x60;
            put_word(&mut packet, 4, upper as u16);
            packet[6] = protocol;
            packet[7] = HOPS;
            packet[8..24].copy_from_slice(&source.octets());
            packet[24..40].copy_from_slice(&destination.octets());
            packet
        }
        _ => unreachable!("both ends are of one family"),
    }
}

/// The packets of a UDP datagram: several where IPv6 needs fragments, which only the sender makes.
pub(crate) fn udp(
    local: SocketAddr,
    remote: SocketAddr,
    identification: u16,
    payload: &[u8],
) -> Vec<Vec<u8>> {
    let len = UDP_LEN + payload.len();
    let mut packet = with_header(local.ip(), remote.ip(), UDP, identification, len);
    let at = packet.len() - len;
    let upper = &mut packet[at..];
    put_word(upper, 0, local.port());
    put_word(upper, 2, remote.port());
    put_word(upper, 4, len as u16);
    upper[UDP_LEN..].copy_from_slice(payload);
    let pseudo = pseudo(local.ip(), remote.ip(), UDP, len);
    let sum = !checksum::combine(&[pseudo, checksum::data(upper)]);
    put_word(upper, 6, if sum == 0 { !0 } else { sum });
    match local.is_ipv6() && packet.len() > IPV6_MTU {
        true => fragments(&packet, identification),
        false => vec![packet],
    }
}

/// The fragments of an IPv6 packet (RFC 8200 §4.5).
fn fragments(packet: &[u8], identification: u16) -> Vec<Vec<u8>> {
    const HEADER: usize = 8;
    const STEP: usize = (IPV6_MTU - IPV6_LEN - HEADER) & !7;
    let (fixed, upper) = packet.split_at(IPV6_LEN);
    let last = (upper.len() - 1) / STEP;
    upper
        .chunks(STEP)
        .enumerate()
        .map(|(index, part)| {
            let mut fragment = [fixed, &[0; HEADER], part].concat();
            put_word(&mut fragment, 4, (HEADER + part.len()) as u16);
            fragment[IPV6_LEN] = std::mem::replace(&mut fragment[6], FRAGMENT);
            put_word(&mut fragment, IPV6_LEN + 2, (index * STEP) as u16 | u16::from(index < last));
            put_word(&mut fragment, IPV6_LEN + 6, identification);
            fragment
        })
        .collect()
}

/// An echo request (RFC 792, RFC 4443 §4.1).
pub(crate) fn echo_request(
    local: IpAddr,
    remote: IpAddr,
    (identifier, sequence): (u16, u16),
    payload: &[u8],
) -> Vec<u8> {
    let mut upper = vec![if local.is_ipv4() { 8 } else { 128 }, 0, 0, 0];
    upper.extend(identifier.to_be_bytes());
    upper.extend(sequence.to_be_bytes());
    upper.extend(payload);
    icmp(local, remote, sequence, upper)
}

/// The identifier and sequence number of an echo reply, with its payload.
pub(crate) fn echo_reply(upper: &[u8], ipv6: bool) -> Option<((u16, u16), &[u8])> {
    let header: &[u8; 8] = upper.first_chunk()?;
    let kind = if ipv6 { 129 } else { 0 };
    (header[0] == kind && header[1] == 0)
        .then(|| ((word(header, 4), word(header, 6)), &upper[header.len()..]))
}

/// The acknowledgment of a FIN that has come again (RFC 9293 §3.10.7.4, TIME-WAIT). `None`: it is no FIN.
pub(crate) fn last_ack(packet: &[u8], parsed: &Parsed) -> Option<Vec<u8>> {
    const FIN_AND_ACK: u8 = 0x11;
    const ACK: u8 = 0x10;
    let segment = parsed.upper(packet);
    let header = segment.get(..TCP_LEN)?;
    let payload = segment.len().checked_sub(usize::from(header[12] >> 4) * 4)? as u32;
    if header[13] & 0x17 != FIN_AND_ACK {
        return None;
    }
    let mut upper = [0; TCP_LEN];
    upper[..2].copy_from_slice(&header[2..4]);
    upper[2..4].copy_from_slice(&header[..2]);
    upper[4..8].copy_from_slice(&header[8..12]);
    let next = long(header, 4).wrapping_add(payload).wrapping_add(1);
    upper[8..12].copy_from_slice(&next.to_be_bytes());
    (upper[12], upper[13]) = ((TCP_LEN as u8 / 4) << 4, ACK);
    let (local, remote) = (parsed.destination, parsed.source);
    let sum = !checksum::combine(&[pseudo(local, remote, TCP, TCP_LEN), checksum::data(&upper)]);
    put_word(&mut upper, 16, sum);
    let mut answer = with_header(local, remote, TCP, 0, TCP_LEN);
    let at = answer.len() - TCP_LEN;
    answer[at..].copy_from_slice(&upper);
    Some(answer)
}

/// The message that no socket has the port of a datagram (RFC 792, RFC 4443 §3.1).
pub(crate) fn port_unreachable(packet: &[u8], parsed: &Parsed) -> Vec<u8> {
    let quoted = &packet[..parsed.end.min(QUOTED)];
    let kind = if parsed.source.is_ipv4() { [3, 3] } else { [1, 4] };
    let upper = [&kind[..], &[0; 6], quoted].concat();
    icmp(parsed.destination, parsed.source, 0, upper)
}

fn icmp(local: IpAddr, remote: IpAddr, identification: u16, mut upper: Vec<u8>) -> Vec<u8> {
    let (protocol, pseudo) = match local.is_ipv4() {
        true => (ICMP, 0),
        false => (ICMPV6, pseudo(local, remote, ICMPV6, upper.len())),
    };
    let sum = !checksum::combine(&[pseudo, checksum::data(&upper)]);
    put_word(&mut upper, 2, sum);
    let mut packet = with_header(local, remote, protocol, identification, upper.len());
    let at = packet.len() - upper.len();
    packet[at..].copy_from_slice(&upper);
    packet
}

/// The news of an ICMP message about a packet of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nobody there takes it, or no route leads there.
    Unreachable,
    /// It is longer than this many octets, and some router does not fragment it.
    TooLong(u16),
}

/// An ICMP error, with the headers of the packet that it is about: its ports, and the sequence number if it is TCP's.
pub(crate) fn trouble(upper: &[u8], ipv6: bool) -> Option<(Trouble, Parsed, (u16, u16), u32)> {
    let (header, quoted) = upper.split_first_chunk::<8>()?;
    let trouble = match (ipv6, header[0], header[1]) {
        (false, 3, 4) => Trouble::TooLong(word(header, 6)),
        (true, 2, _) => Trouble::TooLong(u16::try_from(long(header, 4)).ok()?),
        (false, 3, _) | (true, 1, _) => Trouble::Unreachable,
        _ => return None,
    };
    let about = parse_quoted(quoted)?;
    let start = quoted.get(about.transport..about.transport + 8)?;
    Some((trouble, about, (word(start, 0), word(start, 2)), long(start, 4)))
}

/// A packet of which the end may be missing.
fn parse_quoted(packet: &[u8]) -> Option<Parsed> {
    let ipv6 = packet.first()? >> 4 == 6;
    let mut whole = packet.to_vec();
    let len = match ipv6 {
        false => usize::from(word(packet.first_chunk::<IPV4_LEN>()?, 2)),
        true => IPV6_LEN + usize::from(word(packet.first_chunk::<IPV6_LEN>()?, 4)),
    };
    whole.resize(len.max(packet.len()), 0);
    parse(&whole).filter(|parsed| [TCP, UDP].contains(&parsed.protocol))
}

#[cfg(test)]
mod tests {
    use super::*;
    use esp::reassembly::Reassembler;
    use proptest::prelude::*;
    use std::time::Duration;

    fn ends(ipv6: bool) -> [SocketAddr; 2] {
        match ipv6 {
            false => ["10.1.0.1:1000", "10.2.0.7:53"],
            true => ["[2001:db8::1]:1000", "[2001:db8:2::7]:53"],
        }
        .map(|text| text.parse().expect("an address"))
    }

    proptest! {
        #[test]
        fn datagrams_are_whole(ipv6: bool, payload in proptest::collection::vec(any::<u8>(), 0..9000)) {
            let [local, remote] = ends(ipv6);
            let packets = udp(local, remote, 7, &payload);
            let mut reassembler = Reassembler::default();
            let mut whole = packets[0].clone();
            if packets.len() > 1 {
                prop_assert!(packets.iter().all(|p| p.len() <= IPV6_MTU));
                let taken = packets.iter().map(|p| reassembler.take(Duration::ZERO, p));
                whole = taken.flatten().next().expect("every fragment is there");
            }
            let parsed = parse(&whole).expect("a packet");
            prop_assert!(parsed.is_intact(&whole) && !parsed.fragment);
            prop_assert_eq!(parsed.ports(&whole), Some((1000, 53)));
            prop_assert!(parsed.upper(&whole)[UDP_LEN..] == payload);
        }

        #[test]
        fn no_octets_harm(octets in proptest::collection::vec(any::<u8>(), 0..200), ipv6: bool) {
            if let Some(parsed) = parse(&octets) {
                let _ = (parsed.ports(&octets), parsed.is_intact(&octets));
            }
            let _ = (trouble(&octets, ipv6), echo_reply(&octets, ipv6));
        }
    }

    #[test]
    fn a_message_names_the_packet_that_it_is_about() {
        for ipv6 in [false, true] {
            let [local, remote] = ends(ipv6);
            let datagram = udp(local, remote, 1, b"to nobody").remove(0);
            let parsed = parse(&datagram).expect("a packet");
            let message = port_unreachable(&datagram, &parsed);
            let answer = parse(&message).expect("a packet");
            assert!(answer.is_intact(&message));
            assert_eq!((answer.source, answer.destination), (remote.ip(), local.ip()));
            let (trouble, about, ports, _) =
                trouble(answer.upper(&message), ipv6).expect("an error");
            assert_eq!((trouble, about.source), (Trouble::Unreachable, local.ip()));
            assert_eq!(ports, (1000, 53));
        }
    }

    #[test]
    fn a_fin_that_comes_again_is_acknowledged() {
        for ipv6 in [false, true] {
            let [local, remote] = ends(ipv6);
            let mut fin = with_header(remote.ip(), local.ip(), TCP, 0, TCP_LEN + 3);
            let parsed = parse(&fin).expect("a packet");
            let segment = &mut fin[parsed.transport..];
            segment[..4].copy_from_slice(&[0, 53, 3, 232]);
            segment[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
            segment[8..14].copy_from_slice(&[0, 0, 0, 9, 0x50, 0x11]);
            let ack = last_ack(&fin, &parsed).expect("a FIN");
            let answer = parse(&ack).expect("a packet");
            assert!(answer.is_intact(&ack));
            assert_eq!((answer.source, answer.ports(&ack)), (local.ip(), Some((1000, 53))));
            assert_eq!((long(answer.upper(&ack), 4), long(answer.upper(&ack), 8)), (9, 3));
            fin[parsed.transport + 13] = 0x10;
            assert_eq!(last_ack(&fin, &parsed), None, "it is no FIN");
        }
    }

    #[test]
    fn echo_requests_are_intact() {
        for ipv6 in [false, true] {
            let [local, remote] = ends(ipv6).map(|end| end.ip());
            let request = echo_request(local, remote, (3, 4), b"payload");
            let parsed = parse(&request).expect("a packet");
            assert!(parsed.is_intact(&request));
            let mut reply = parsed.upper(&request).to_vec();
            reply[0] = if ipv6 { 129 } else { 0 };
            assert_eq!(echo_reply(&reply, ipv6), Some(((3, 4), &b"payload"[..])));
        }
    }
}
