//! ICMP about packets that are too long: read from the networks between the peers, and made for the hosts behind the
//! tunnel (RFC 792, RFC 1191, RFC 4443 §3.2).

#![forbid(unsafe_code)]

use crate::header::{Fragment, Header, ICMP};
use crate::ip::{
    ICMPV6, IPV4_LEN, IPV6_LEN, Sum, UDP, header_len, put_word, word_at, write_header,
};
use crate::path_mtu::TooBig;
use crate::plane::Spi;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ESP: u8 = 50;
const AH: u8 = 51;

const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const PACKET_TOO_BIG: u8 = 2;

/// Octets of an ICMP header with what all these messages have behind it.
const ICMP_LEN: usize = 8;

/// Octets of the longest message of each family (RFC 1812 §4.3.2.3, RFC 4443 §2.4 (c)).
const LONGEST_V4: usize = 576;
const LONGEST_V6: usize = 1280;

/// Internetwork control, as routers mark such messages (RFC 1812 §4.3.2.5).
const TOS: u8 = 0xc0;

/// Reads a message in IPv4, from the IP header on. `natt_port` is the port of ESP in UDP. `None` if it is not about
/// a packet in ESP or AH that was too long.
pub(crate) fn read_v4(packet: &[u8], natt_port: u16) -> Option<TooBig> {
    let header = Header::parse(packet).filter(|h| h.protocol == ICMP && !h.ipv6)?;
    let message = &packet[header.transport..header.len];
    let [UNREACHABLE, FRAGMENTATION_NEEDED, _, _, _, _, m0, m1, quoted @ ..] = message else {
        return None;
    };
    if Sum::default().octets(message).finish() != 0 {
        return None;
    }
    let fixed: &[u8; IPV4_LEN] = quoted.first_chunk()?;
    let at = usize::from(fixed[0] & 0x0f) * 4;
    // Of later fragments nothing can be told.
    if fixed[0] >> 4 != 4 || at < IPV4_LEN || word_at(fixed, 6) & 0x1fff != 0 {
        return None;
    }
    Some(TooBig {
        mtu: u16::from_be_bytes([*m0, *m1]).into(),
        peer: Ipv4Addr::from([fixed[16], fixed[17], fixed[18], fixed[19]]).into(),
        len: word_at(fixed, 2).into(),
        spi: spi(fixed[9], quoted.get(at..)?, natt_port)?,
    })
}

/// The same in IPv6, from the ICMP header on; the kernel has looked at the checksum.
pub(crate) fn read_v6(message: &[u8], natt_port: u16) -> Option<TooBig> {
    let [PACKET_TOO_BIG, _, _, _, m0, m1, m2, m3, quoted @ ..] = message else { return None };
    let (fixed, payload) = quoted.split_first_chunk::<IPV6_LEN>()?;
    if fixed[0] >> 4 != 6 {
        return None;
    }
    let peer: [u8; 16] = *fixed.last_chunk()?;
    Some(TooBig {
        mtu: u32::from_be_bytes([*m0, *m1, *m2, *m3]) as usize,
        peer: Ipv6Addr::from(peer).into(),
        len: IPV6_LEN + usize::from(word_at(fixed, 4)),
        spi: spi(fixed[6], payload, natt_port)?,
    })
}

/// The SPI of what a router quotes; some quote too little to show one.
fn spi(protocol: u8, payload: &[u8], natt_port: u16) -> Option<Spi> {
    let at = match protocol {
        ESP => 0,
        AH => 4,
        UDP if payload.get(..2)? == natt_port.to_be_bytes() => 8,
        _ => return None,
    };
    let spi: &[u8; 4] = payload.get(at..)?.first_chunk()?;
    Some(Spi(u32::from_be_bytes(*spi)))
}

/// The message to the sender of a packet that nothing longer than `mtu` octets goes; `None` if its sender must not be
/// told (RFC 1122 §3.2.2, RFC 4443 §2.4 (e)). It seems to come from where the packet was to go: that is an address
/// which is reached through the tunnel, so that nothing inside takes the message for forged.
pub(crate) fn too_big(packet: &[u8], header: &Header, mtu: usize) -> Option<Vec<u8>> {
    if header.fragment == Fragment::Later || !may_be_told(packet, header) {
        return None;
    }
    let (from, to) = (header.destination(), header.source());
    let (protocol, longest, tos) =
        if header.ipv6 { (ICMPV6, LONGEST_V6, 0) } else { (ICMP, LONGEST_V4, TOS) };
    let at = header_len(from);
    let quoted = &packet[..header.len.min(packet.len()).min(longest - at - ICMP_LEN)];
    let len = ICMP_LEN + quoted.len();
    let mut told = vec![0; at + len];
    write_header(&mut told, from, to, protocol, len, tos, None);
    let message = &mut told[at..];
    message[ICMP_LEN..].copy_from_slice(quoted);
    if header.ipv6 {
        message[0] = PACKET_TOO_BIG;
        message[4..8].copy_from_slice(&(mtu as u32).to_be_bytes());
        let sum = Sum::default().pseudo(from, to, ICMPV6, len).octets(message);
        put_word(message, 2, sum.finish());
    } else {
        (message[0], message[1]) = (UNREACHABLE, FRAGMENTATION_NEEDED);
        put_word(message, 6, mtu as u16);
        let sum = Sum::default().octets(message);
        put_word(message, 2, sum.finish());
    }
    Some(told)
}

/// Neither many are to hear of one packet, nor errors of errors.
fn may_be_told(packet: &[u8], header: &Header) -> bool {
    // RFC 1122 §3.2.2, RFC 4443 §2.4 (e): no error is sent about a packet if an address of the packet does not belong
    // to a single host.
    let of_hosts =
        [header.source(), header.destination()].into_iter().all(|address| match address {
            IpAddr::V4(a) => {
                !a.is_multicast() && !a.is_broadcast() && !a.is_unspecified() && !a.is_loopback()
            }
            IpAddr::V6(a) => !a.is_multicast() && !a.is_unspecified() && !a.is_loopback(),
        });
    let kind = packet.get(header.transport);
    let error = match header.protocol {
        ICMP => kind.is_none_or(|kind| matches!(kind, 3..=5 | 11 | 12)),
        ICMPV6 => kind.is_none_or(|kind| *kind < 128 || *kind == 137),
        _ => false,
    };
    of_hosts && !error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use proptest::prelude::*;

    const PORT: u16 = 4500;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        digits.chunks(2).map(|p| pair(p).expect("two digits")).collect()
    }

    /// As a Linux router sent it: link MTU 1400, the packet 1500 octets of ESP in UDP from 192.0.2.1 to 198.51.100.2.
    fn from_a_router() -> Vec<u8> {
        let mut packet = hex("45c0 0240 1234 0000 4001 0000 c0000201 c0000201
             0304 0000 0000 0578
             4500 05dc 0000 4000 4011 0000 c0000201 c6336402
             1194 1194 05c8 0000 c0de0001 00000007");
        packet.resize(576, 0x5a);
        let sum = sample::checksum(&packet[20..]);
        packet[22..24].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    #[test]
    fn the_report_of_a_router_is_read() {
        let packet = from_a_router();
        let told = read_v4(&packet, PORT).expect("about a packet of ours");
        let expected =
            TooBig { mtu: 1400, peer: [198, 51, 100, 2].into(), len: 1500, spi: Spi(0xc0de_0001) };
        assert_eq!(told, expected);

        let native = hex("0200 0000 00000500
             6000 0000 05b4 32 40 20010db8000000000000000000000001 20010db8000000000000000000000002
             c0de0002 00000001");
        let told = read_v6(&native, PORT).expect("about a packet of ours");
        assert_eq!((told.mtu, told.len, told.spi), (1280, 1500, Spi(0xc0de_0002)));
        assert_eq!(told.peer, IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 2]));
    }

    #[test]
    fn a_report_that_shows_no_spi_or_is_damaged_is_ignored() {
        let mut packet = from_a_router();
        packet[100] ^= 1;
        assert_eq!(read_v4(&packet, PORT), None, "the checksum");
        let packet = from_a_router();
        assert_eq!(read_v4(&packet, 500), None, "another port");
        for (at, value) in [(21, 3), (20, 11), (28, 0x46), (34, 0x1f), (37, 6)] {
            let mut packet = from_a_router();
            packet[at] = value;
            packet[22..24].fill(0);
            let sum = sample::checksum(&packet[20..]);
            packet[22..24].copy_from_slice(&sum.to_be_bytes());
            assert!(read_v4(&packet, PORT).is_none_or(|told| told.spi.0 != 0xc0de_0001), "{at}");
        }
    }

    #[test]
    fn a_sender_is_told_the_mtu_octet_for_octet() {
        let packet = hex("4500 0578 0001 4000 3f11 0000 0a010001 0a020002 1111 2222 0564 0000");
        let mut packet = [packet, vec![0; 1372]].concat();
        packet[10..12].copy_from_slice(&[0, 0]);
        let header = Header::parse(&packet).expect("whole");
        let told = too_big(&packet, &header, 1330).expect("it may be told");
        assert_eq!(told.len(), 576);
        assert_eq!(told[..10], hex("45c0 0240 0000 4000 4001")[..]);
        assert_eq!(told[12..20], hex("0a020002 0a010001")[..]);
        assert_eq!(told[20..22], [3, 4]);
        assert_eq!(told[24..28], [0, 0, 0x05, 0x32]);
        assert_eq!(told[28..], packet[..548]);
        assert_eq!(sample::checksum(&told[..20]), 0);
        assert_eq!(sample::checksum(&told[20..]), 0);

        let packet = sample::udp(true, (1, 2), &sample::payload(1400));
        let header = Header::parse(&packet).expect("whole");
        let told = too_big(&packet, &header, 1281).expect("it may be told");
        assert_eq!(told.len(), 1280);
        let parsed = Header::parse(&told).expect("whole");
        assert_eq!((parsed.protocol, parsed.source), (ICMPV6, header.destination));
        assert_eq!(parsed.destination, header.source);
        assert_eq!(told[40..42], [2, 0]);
        assert_eq!(told[44..48], [0, 0, 0x05, 0x01]);
        assert_eq!(told[48..], packet[..1232]);
        let pseudo =
            sample::with_pseudo(parsed.source(), parsed.destination(), ICMPV6, &told[40..]);
        assert_eq!(sample::checksum(&pseudo), 0);
    }

    #[test]
    fn some_must_not_be_told() {
        let (a, b) = sample::hosts(false);
        let told = |packet: &[u8]| too_big(packet, &Header::parse(packet).expect("whole"), 1000);
        let good = sample::ip(a, b, ICMP, &[8, 0, 0, 0]);
        assert!(told(&good).is_some());
        assert!(told(&sample::ip(a, b, ICMP, &[3, 4, 0, 0])).is_none(), "an error");
        assert!(told(&sample::ip(a, [224, 0, 0, 1].into(), UDP, &[0; 8])).is_none());
        assert!(told(&sample::ip([0; 4].into(), b, UDP, &[0; 8])).is_none());
        let mut later = good;
        later[7] = 9;
        assert!(told(&later).is_none(), "a later fragment");
        let (a, b) = sample::hosts(true);
        assert!(told(&sample::ip(a, b, ICMPV6, &[2, 0, 0, 0])).is_none(), "an error");
        assert!(told(&sample::ip(a, b, ICMPV6, &[128, 0, 0, 0])).is_some());
    }

    proptest! {
        #[test]
        fn no_octets_panic(mut octets: Vec<u8>, cut in 0..600usize) {
            let _ = read_v4(&octets, PORT);
            let _ = read_v6(&octets, PORT);
            if let Some(first) = octets.first_mut() {
                *first = 2;
            }
            let _ = read_v6(&octets, PORT);
            let packet = from_a_router();
            let _ = read_v4(&packet[..cut.min(packet.len())], PORT);
        }
    }
}
