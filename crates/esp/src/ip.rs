//! IP arithmetic: Internet checksums (RFC 1071, 1624), ECN through tunnels (RFC 6040), fresh headers.

#![deny(unsafe_code)]

mod words;

use std::net::IpAddr;

pub(crate) const IPIP: u8 = 4;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const IPV6: u8 = 41;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const NO_NEXT_HEADER: u8 = 59;

pub(crate) const IPV4_LEN: usize = 20;
/// Octets of an IPv6 header without extensions.
pub const IPV6_LEN: usize = 40;

/// TTL of a rebuilt header where the socket did not tell the outer one.
const DEFAULT_TTL: u8 = 64;

/// A one's complement sum, kept in this machine's byte order: swapping octets commutes with it (RFC 1071 §2).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds octets that begin at an even offset of what is summed.
    #[inline]
    pub(crate) fn octets(self, octets: &[u8]) -> Self {
        let sum = self.0 + words::sum(octets);
        // Folded once, so that no number of additions can overflow.
        Self((sum & 0xffff_ffff) + (sum >> 32))
    }

    pub(crate) fn word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word.to_be()))
    }

    /// The pseudo-header of TCP, UDP and ICMPv6 (RFC 9293 §3.1, RFC 8200 §8.1); `len` is that of the upper layer.
    pub(crate) fn pseudo(
        self,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        len: usize,
    ) -> Self {
        let addresses = match (source, destination) {
            (IpAddr::V4(s), IpAddr::V4(d)) => self.octets(&s.octets()).octets(&d.octets()),
            (IpAddr::V6(s), IpAddr::V6(d)) => self.octets(&s.octets()).octets(&d.octets()),
            _ => self,
        };
        addresses.ends_with(protocol, len)
    }

    /// The same with the addresses of a packet.
    #[inline]
    pub(crate) fn pseudo_of(self, packet: &[u8], ipv6: bool, protocol: u8, len: usize) -> Self {
        let addresses = if ipv6 { &packet[8..IPV6_LEN] } else { &packet[12..IPV4_LEN] };
        self.octets(addresses).ends_with(protocol, len)
    }

    fn ends_with(self, protocol: u8, len: usize) -> Self {
        // An IPv6 upper layer may be counted in 32 bits; the high half is then part of the sum.
        self.word(u16::from(protocol)).word((len >> 16) as u16).word(len as u16)
    }

    /// The folded sum, not complemented: what a partial checksum holds.
    pub(crate) fn fold(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::from_be(sum as u16)
    }

    /// Returns `true` if it is the sum over octets with a right checksum among them.
    #[inline]
    pub(crate) fn is_right(self) -> bool {
        // That is all ones, of which any number is zero.
        self.0 != 0 && self.0.is_multiple_of(0xffff)
    }

    /// The checksum.
    pub(crate) fn finish(self) -> u16 {
        !self.fold()
    }
}

/// The checksum after one 16-bit word under it changed (RFC 1624 §3, eqn. 3).
pub(crate) fn adjust(checksum: u16, old: u16, new: u16) -> u16 {
    Sum::default().word(!checksum).word(!old).word(new).finish()
}

pub(crate) fn word_at(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

#[inline(always)]
pub(crate) fn long_at(octets: &[u8], at: usize) -> u32 {
    let octets = &octets[at..at + 4];
    u32::from_be_bytes([octets[0], octets[1], octets[2], octets[3]])
}

pub(crate) fn put_word(octets: &mut [u8], at: usize, word: u16) {
    octets[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;
const CE: u8 = 3;

/// The ECN field of the packet that leaves the tunnel; `None` if it is to be dropped (RFC 6040 §4.2, figure 4). Its
/// DSCP stays.
pub(crate) fn leave_tunnel(inner: u8, outer: u8) -> Option<u8> {
    match (inner & 3, outer & 3) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (_, CE) => Some(CE),
        (ECT_0, ECT_1) => Some(ECT_1),
        (inner, _) => Some(inner),
    }
}

/// Returns `true` if a packet leaves the tunnel with its inner ECN field unchanged, whatever that is.
pub(crate) fn keeps_ecn(outer: u8) -> bool {
    matches!(outer & 3, NOT_ECT | ECT_0)
}

/// Writes the ECN field of a whole IPv4 or IPv6 header, and keeps the IPv4 checksum right.
pub(crate) fn set_ecn(packet: &mut [u8], ecn: u8) {
    let old = word_at(packet, 0);
    if packet[0] >> 4 == 4 {
        let new = old & !3 | u16::from(ecn);
        put_word(packet, 0, new);
        put_word(packet, 10, adjust(word_at(packet, 10), old, new));
    } else {
        put_word(packet, 0, old & !(3 << 4) | u16::from(ecn) << 4);
    }
}

/// Octets of the header that [`write_header`] writes.
pub(crate) fn header_len(source: IpAddr) -> usize {
    if source.is_ipv4() { IPV4_LEN } else { IPV6_LEN }
}

/// Writes a header without options before `payload_len` octets of `protocol`. Both addresses are of one family, and
/// the packet fits 65,535 octets.
pub fn write_header(
    out: &mut [u8],
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    payload_len: usize,
    tos: u8,
    ttl: Option<u8>,
) {
    let ttl = ttl.unwrap_or(DEFAULT_TTL);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let out = &mut out[..IPV4_LEN];
            out.fill(0);
            out[0] = 0x45;
            out[1] = tos;
            put_word(out, 2, (IPV4_LEN + payload_len) as u16);
            // Don't Fragment, so that the identification need not be unique (RFC 6864 §4.1).
            out[6] = 0x40;
            out[8] = ttl;
            out[9] = protocol;
            out[12..16].copy_from_slice(&source.octets());
            out[16..20].copy_from_slice(&destination.octets());
            let checksum = Sum::default().octets(out).finish();
            put_word(out, 10, checksum);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let out = &mut out[..IPV6_LEN];
            put_word(out, 0, 0x6000 | u16::from(tos) << 4);
            put_word(out, 2, 0);
            put_word(out, 4, payload_len as u16);
            out[6] = protocol;
            out[7] = ttl;
            out[8..24].copy_from_slice(&source.octets());
            out[24..40].copy_from_slice(&destination.octets());
        }
        _ => unreachable!("a socket's two addresses are of one family"),
    }
}

/// Computes the checksum of a TCP, UDP or ICMPv6 message; others are left alone. Repairs what a NAT broke by
/// changing the addresses of a transport mode packet (RFC 3948 §3.1.2).
pub(crate) fn rebuild_checksum(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    message: &mut [u8],
) {
    let (at, shortest) = match protocol {
        TCP => (16, 20),
        UDP => (6, 8),
        ICMPV6 => (2, 4),
        _ => return,
    };
    // A UDP datagram over IPv4 may go without.
    if message.len() < shortest || protocol == UDP && source.is_ipv4() && word_at(message, at) == 0
    {
        return;
    }
    put_word(message, at, 0);
    let sum = Sum::default().pseudo(source, destination, protocol, message.len()).octets(message);
    put_word(message, at, nonzero_for_udp(protocol, sum.finish()));
}

/// A computed UDP checksum of zero is sent as ones: zero means there is none (RFC 768).
pub(crate) fn nonzero_for_udp(protocol: u8, checksum: u16) -> u16 {
    if protocol == UDP && checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::checksum as plain;
    use proptest::prelude::*;

    #[test]
    fn checksum_of_a_real_header() {
        // From draft-mcgrew-gcm-test, case 1: 45000048 699a0000 80114db7 c0a80102 c0a80101.
        let header = [
            0x45, 0, 0, 0x48, 0x69, 0x9a, 0, 0, 0x80, 0x11, 0x4d, 0xb7, 0xc0, 0xa8, 1, 2, 0xc0,
            0xa8, 1, 1,
        ];
        assert_eq!(Sum::default().octets(&header).finish(), 0);
    }

    #[test]
    fn ecn_table_of_rfc_6040_figure_4() {
        // Rows: inner Not-ECT, ECT(0), ECT(1), CE; columns: outer the same.
        let order = [NOT_ECT, ECT_0, ECT_1, CE];
        let table = [
            [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None],
            [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)],
            [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)],
            [Some(CE), Some(CE), Some(CE), Some(CE)],
        ];
        for (row, inner) in order.iter().enumerate() {
            for (column, outer) in order.iter().enumerate() {
                assert_eq!(leave_tunnel(*inner, *outer), table[row][column], "{inner} {outer}");
                assert!(!keeps_ecn(*outer) || leave_tunnel(*inner, *outer) == Some(*inner));
            }
        }
    }

    #[test]
    fn ecn_is_set_in_both_families() {
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut v4 = [0; IPV4_LEN];
        write_header(&mut v4, a, b, UDP, 100, 0xb8 | ECT_0, None);
        set_ecn(&mut v4, CE);
        assert_eq!(v4[1], 0xb8 | CE);
        assert_eq!(plain(&v4), 0);
        let a = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]);
        let mut v6 = [0; IPV6_LEN];
        write_header(&mut v6, a, a, UDP, 100, 0xb8 | ECT_0, None);
        set_ecn(&mut v6, ECT_1);
        assert_eq!(word_at(&v6, 0), 0x6000 | u16::from(0xb8 | ECT_1) << 4);
    }

    proptest! {
        #[test]
        fn sums_agree_with_the_plain_one(octets: Vec<u8>, cut in 0..64usize) {
            let cut = (cut * 2).min(octets.len() & !1);
            let sum = Sum::default().octets(&octets[..cut]).octets(&octets[cut..]);
            prop_assert_eq!(sum.finish(), plain(&octets));
        }

        #[test]
        fn adjusting_is_summing_anew(mut octets in proptest::collection::vec(any::<u8>(), 20), new: u16) {
            octets[0] = 0x45;
            let before = plain(&octets);
            let old = word_at(&octets, 4);
            put_word(&mut octets, 4, new);
            prop_assert_eq!(adjust(before, old, new), plain(&octets));
        }
    }
}
