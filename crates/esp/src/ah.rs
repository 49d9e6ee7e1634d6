//! The Authentication Header (RFC 4302): its layout, and the headers before it as the ICV covers them.
//!
//! AH has files of its own for both directions and a table of inbound SAs of its own, behind the same SPD, queues and
//! notices as ESP. Its packets are whole IP packets, because the ICV covers the IP header, and never travel in UDP.

#![forbid(unsafe_code)]

#[doc(hidden)]
pub use crate::ip::{IPV6_LEN, write_header};

use crate::header::{DESTINATION_OPTIONS, HOP_BY_HOP, ROUTING};
use crate::ip::{IPV4_LEN, Sum, put_word, word_at};
use crypto::Suite;

/// IP protocol number.
pub const AH: u8 = 51;

/// Octets before the ICV: next header, length, two reserved, SPI, sequence number.
pub(crate) const FIXED: usize = 12;

/// Octets of the high half of a sequence number, which is covered but does not travel (RFC 4302 §3.3.3.2.2).
pub(crate) const IMPLICIT: usize = 4;

/// Octets of headers before AH: more than any honest packet has.
pub const MAX_HEADERS: usize = 256;

/// Octets of what the ICV field holds, without padding.
pub(crate) fn field_len(suite: Suite) -> usize {
    suite.iv_len() + suite.icv_len()
}

/// Octets of the whole header, which is aligned to 32 bits in IPv4 and to 64 bits in IPv6 (RFC 4302 §2.6).
pub(crate) fn header_len(suite: Suite, ipv6: bool) -> usize {
    (FIXED + field_len(suite)).next_multiple_of(if ipv6 { 8 } else { 4 })
}

/// Cuts a packet before its Authentication Header; `None` if it has none.
pub fn split(packet: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = match packet.first()? >> 4 {
        4 => return packet.split_at_checked(usize::from(packet[0] & 0x0f) * 4),
        6 => IPV6_LEN,
        _ => return None,
    };
    let mut next = *packet.get(6)?;
    while next != AH {
        if !is_walked(next) {
            return None;
        }
        let extension = packet.get(at..at + 2)?;
        next = extension[0];
        at += extension_len(extension);
    }
    packet.split_at_checked(at)
}

/// The offset of the octet that names the header after these headers; `None` if they are incomplete, or AH cannot
/// follow one of them. AH cannot follow a fragment header: it covers whole packets (RFC 4302 §3.3.4).
pub(crate) fn names_next(headers: &[u8]) -> Option<usize> {
    match headers.first()? >> 4 {
        4 => {
            let whole = headers.len() >= IPV4_LEN
                && headers.len() == usize::from(headers[0] & 0x0f) * 4
                && word_at(headers, 6) & 0x3fff == 0;
            whole.then_some(9)
        }
        6 => {
            let (mut names, mut at) = (6, IPV6_LEN);
            while at < headers.len() {
                let extension = headers.get(at..at + 2).filter(|_| is_walked(headers[names]))?;
                names = at;
                at += extension_len(extension);
            }
            (at == headers.len()).then_some(names)
        }
        _ => None,
    }
}

/// Writes the length of the whole packet into headers that something follows.
pub fn set_len(headers: &mut [u8], len: usize) {
    match headers[0] >> 4 {
        4 => put_word(headers, 2, len as u16),
        _ => put_word(headers, 4, (len - IPV6_LEN) as u16),
    }
}

/// Makes the checksum of an IPv4 header again; IPv6 has none.
pub(crate) fn set_checksum(headers: &mut [u8]) {
    if headers[0] >> 4 == 4 {
        put_word(headers, 10, 0);
        let sum = Sum::default().octets(headers).finish();
        put_word(headers, 10, sum);
    }
}

/// Zeroes what may change on the way (RFC 4302 §3.3.3.1, appendix A) in headers that [`names_next`] has walked. `None`
/// if an option is not whole, or a routing header has not yet reached the state in which it arrives.
pub(crate) fn zero_mutable(headers: &mut [u8]) -> Option<()> {
    match headers.first()? >> 4 {
        4 => zero_mutable_v4(headers),
        _ => zero_mutable_v6(headers),
    }
}

fn zero_mutable_v4(headers: &mut [u8]) -> Option<()> {
    let (fixed, mut options) = headers.split_at_mut_checked(IPV4_LEN)?;
    fixed[1] = 0;
    fixed[6..9].fill(0);
    fixed[10..12].fill(0);
    while let [kind, ..] = *options {
        let len = match kind {
            END_OF_OPTIONS => return Some(()),
            NO_OPERATION => 1,
            _ => usize::from(*options.get(1)?),
        };
        let (option, rest) = options.split_at_mut_checked(len).filter(|_| len > 0)?;
        if !IMMUTABLE_OPTIONS.contains(&kind) {
            option.fill(0);
        }
        options = rest;
    }
    Some(())
}

const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;

/// Options of IPv4 that the ICV covers in addition to End and No Operation: Security, Extended Security, Commercial Security,
/// Router Alert, Sender Directed Multi-Destination Delivery. All others are zeroed, those that nobody knows too.
const IMMUTABLE_OPTIONS: [u8; 6] = [NO_OPERATION, 130, 133, 134, 148, 149];

fn zero_mutable_v6(headers: &mut [u8]) -> Option<()> {
    let (fixed, mut rest) = headers.split_at_mut_checked(IPV6_LEN)?;
    fixed[0] = 0x60;
    fixed[1..4].fill(0);
    fixed[7] = 0;
    let mut kind = fixed[6];
    while let [next, _, ..] = *rest {
        let (extension, behind) = rest.split_at_mut_checked(extension_len(rest))?;
        match kind {
            // The addresses and the destination stand as they arrive once no segment is left.
            ROUTING if extension[3] != 0 => return None,
            ROUTING => {}
            _ => zero_changing_options(&mut extension[2..])?,
        }
        (kind, rest) = (next, behind);
    }
    Some(())
}

fn zero_changing_options(mut options: &mut [u8]) -> Option<()> {
    const PAD1: u8 = 0;
    /// RFC 8200 §4.2: the data may change on the way.
    const CHANGES: u8 = 0x20;
    while let [kind, ..] = *options {
        let len = if kind == PAD1 { 1 } else { 2 + usize::from(*options.get(1)?) };
        let (option, rest) = options.split_at_mut_checked(len)?;
        if kind & CHANGES != 0 {
            option[2..].fill(0);
        }
        options = rest;
    }
    Some(())
}

fn is_walked(kind: u8) -> bool {
    matches!(kind, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS)
}

/// Octets of an extension header of which there are at least two.
fn extension_len(extension: &[u8]) -> usize {
    (usize::from(extension[1]) + 1) * 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{AhIntegrity, Integrity, KeyBits};
    use proptest::prelude::*;

    const V4: [u8; 20] =
        [0x45, 0xb9, 0, 100, 0x12, 0x34, 0x40, 0, 63, AH, 0xab, 0xcd, 10, 0, 0, 1, 10, 0, 0, 2];

    fn v4(options: &[u8]) -> Vec<u8> {
        let mut headers = V4.to_vec();
        headers.extend(options);
        headers[0] = 0x40 | (headers.len() / 4) as u8;
        headers
    }

    fn v6(next: u8, extensions: &[u8]) -> Vec<u8> {
        let mut headers = vec![0x6b, 0x91, 0x23, 0x45, 0, 100, next, 63];
        headers.extend(1..=32);
        headers.extend(extensions);
        headers
    }

    #[test]
    fn header_lengths() {
        let gmac = Suite::Ah(AhIntegrity::AesGmac(KeyBits::B128));
        let sha1 = Suite::Ah(AhIntegrity::Mac(Integrity::HmacSha1_96));
        let sha256 = Suite::Ah(AhIntegrity::Mac(Integrity::HmacSha2_256_128));
        let sha384 = Suite::Ah(AhIntegrity::Mac(Integrity::HmacSha2_384_192));
        let sha512 = Suite::Ah(AhIntegrity::Mac(Integrity::HmacSha2_512_256));
        for (suite, v4, v6) in
            [(gmac, 36, 40), (sha1, 24, 24), (sha256, 28, 32), (sha384, 36, 40), (sha512, 44, 48)]
        {
            assert_eq!((header_len(suite, false), header_len(suite, true)), (v4, v6), "{suite}");
        }
    }

    #[test]
    fn mutable_fields_of_ipv4() {
        let mut headers = v4(&[]);
        headers[6] = 0x40;
        zero_mutable(&mut headers).expect("whole");
        let covered = [0x45, 0, 0, 100, 0x12, 0x34, 0, 0, 0, AH, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        assert_eq!(headers, covered);
    }

    /// RFC 4302 appendix A1: Router Alert stays, Record Route and unknown options go whole, and what stands after the
    /// end is no option.
    #[test]
    fn options_of_ipv4_go_by_kind() {
        let alert = [148, 4, 1, 2];
        let options = [&alert[..], &[7, 7, 4, 9, 9, 9, 9, 1, 222, 4, 5, 5, 0, 3, 3, 3]].concat();
        let mut headers = v4(&options);
        zero_mutable(&mut headers).expect("whole");
        let covered = [&alert[..], &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 3, 3, 3]].concat();
        assert_eq!(headers[20..], covered);
        for broken in [[7, 5, 0, 0], [7, 0, 0, 0], [1, 1, 1, 7]] {
            assert_eq!(zero_mutable(&mut v4(&broken)), None, "{broken:?}");
        }
    }

    #[test]
    fn mutable_fields_of_ipv6() {
        let mut headers = v6(AH, &[]);
        zero_mutable(&mut headers).expect("whole");
        assert_eq!(headers[..8], [0x60, 0, 0, 0, 0, 100, AH, 0]);
        assert!(headers[8..].iter().copied().eq(1..=32));
    }

    /// RFC 4302 appendix A2: type and length of an option that may change stay, its data goes.
    #[test]
    fn options_of_ipv6_go_by_their_bit() {
        let changing = [DESTINATION_OPTIONS, 0, 0, 0x3e, 3, 7, 8, 9];
        let lasting = [AH, 0, 0x1e, 4, 1, 2, 3, 4];
        let mut headers = v6(HOP_BY_HOP, &[changing, lasting].concat());
        assert_eq!(names_next(&headers), Some(48));
        zero_mutable(&mut headers).expect("whole");
        assert_eq!(headers[40..48], [DESTINATION_OPTIONS, 0, 0, 0x3e, 3, 0, 0, 0]);
        assert_eq!(headers[48..], lasting);
        let mut broken = v6(HOP_BY_HOP, &[AH, 0, 1, 9, 0, 0, 0, 0]);
        assert_eq!(zero_mutable(&mut broken), None);
    }

    #[test]
    fn a_routing_header_is_covered_as_it_arrives() {
        let mut arrived = [0; 24];
        arrived[..8].copy_from_slice(&[AH, 2, 2, 0, 0, 0, 0, 0]);
        arrived[8..].fill(0x77);
        let mut headers = v6(ROUTING, &arrived);
        zero_mutable(&mut headers).expect("whole");
        assert_eq!(headers[40..], arrived);
        headers[43] = 1;
        assert_eq!(zero_mutable(&mut headers), None);
    }

    #[test]
    fn packets_are_cut_before_ah() {
        for (headers, names) in [
            (v4(&[]), 9),
            (v4(&[1, 1, 1, 0]), 9),
            (v6(AH, &[]), 6),
            (v6(DESTINATION_OPTIONS, &[AH, 0, 1, 4, 0, 0, 0, 0]), 40),
        ] {
            let packet = [&headers[..], &[1, 2, 3]].concat();
            assert_eq!(split(&packet), Some((&headers[..], &[1, 2, 3][..])));
            // Flags are none of a fragment's.
            assert_eq!(names_next(&headers), Some(names));
            assert_eq!(names_next(&packet), None);
        }
        let mut fragment = v4(&[]);
        fragment[6] = 0x20;
        assert_eq!(names_next(&fragment), None);
        assert_eq!(split(&v6(44, &[AH, 0, 0, 0, 0, 0, 0, 0])), None);
        assert_eq!(names_next(&v6(44, &[AH, 0, 0, 0, 0, 0, 0, 0])), None);
    }

    proptest! {
        #[test]
        fn no_octets_panic(mut octets in proptest::collection::vec(prop_oneof![Just(0u8), Just(AH), Just(60), any::<u8>()], 0..120),
                           v6: bool) {
            if let Some(first) = octets.first_mut() {
                *first = if v6 { 0x60 } else { 0x40 | *first & 0x0f };
            }
            let _ = split(&octets);
            if names_next(&octets).is_some() {
                let before = octets.len();
                let _ = zero_mutable(&mut octets);
                prop_assert_eq!(octets.len(), before);
            }
        }
    }
}
