//! Splits a super-packet into segments in place: the headers of each are rebuilt over the end of the one before, which
//! is sealed by then, so that no payload is copied.

#![forbid(unsafe_code)]

use crate::gso::{Gso, Segmentation};
use crate::header::{Fragment, Header};
use crate::ip::{IPV6_LEN, Sum, TCP, UDP, nonzero_for_udp, put_word, word_at};

/// IPv6 with some extension headers, and TCP with all its options.
const MAX_HEADERS: usize = 192;

const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;
const TCP_FLAGS: usize = 13;

/// The segments still to be cut off a super-packet.
pub(crate) struct Segments<'p> {
    packet: &'p mut [u8],
    headers: [u8; MAX_HEADERS],
    headers_len: usize,
    transport: usize,
    ipv6: bool,
    tcp: bool,
    segment_len: usize,
    /// Segments cut so far.
    cut: usize,
    /// Over the IPv4 header with length, identification and checksum zero.
    ip_sum: Sum,
    /// Over the pseudo-header without length, and the transport header with everything variable zero.
    transport_sum: Sum,
}

impl<'p> Segments<'p> {
    /// `None` if the packet is not what the offload says, or more than can be split. The length in its IP header is not
    /// relied on.
    pub(crate) fn new(packet: &'p mut [u8], header: &Header, gso: Gso) -> Option<Self> {
        let (protocol, shortest) = match gso.segmentation {
            Segmentation::Tcp => (TCP, 20),
            Segmentation::Udp => (UDP, 8),
            Segmentation::None => return None,
        };
        let transport = header.transport;
        let segment_len = usize::from(gso.segment_len);
        if header.protocol != protocol
            || header.fragment != Fragment::Whole
            || segment_len == 0
            || packet.len() < transport + shortest
        {
            return None;
        }
        let tcp = protocol == TCP;
        let transport_len =
            if tcp { usize::from(packet[transport + 12] >> 4) * 4 } else { shortest };
        let headers_len = transport + transport_len;
        if transport_len < shortest || headers_len > packet.len().min(MAX_HEADERS) {
            return None;
        }
        let mut headers = [0; MAX_HEADERS];
        headers[..headers_len].copy_from_slice(&packet[..headers_len]);

        let ip_sum = if header.ipv6 {
            Sum::default()
        } else {
            let ip = &headers[..transport];
            // Version to type of service, then what follows identification, then what follows the checksum.
            Sum::default().octets(&ip[..2]).octets(&ip[6..10]).octets(&ip[12..])
        };
        let upper = &headers[transport..headers_len];
        let pseudo = Sum::default().pseudo(header.source(), header.destination(), protocol, 0);
        let transport_sum = if tcp {
            // Without sequence number, flags and checksum.
            pseudo
                .octets(&upper[..4])
                .octets(&upper[8..12])
                .word(u16::from(upper[12]) << 8)
                .octets(&upper[14..16])
                .octets(&upper[18..])
        } else {
            pseudo.octets(&upper[..4])
        };
        Some(Self {
            packet,
            headers,
            headers_len,
            transport,
            ipv6: header.ipv6,
            tcp,
            segment_len,
            cut: 0,
            ip_sum,
            transport_sum,
        })
    }

    /// The headers of the super-packet.
    pub(crate) fn headers(&self) -> &[u8] {
        &self.headers[..self.headers_len]
    }

    /// The number of segments.
    pub(crate) fn count(&self) -> usize {
        (self.packet.len() - self.headers_len).div_ceil(self.segment_len).max(1)
    }

    /// Octets of all segments together.
    pub(crate) fn octets(&self) -> usize {
        self.packet.len() + (self.count() - 1) * self.headers_len
    }

    /// Octets of the longest segment.
    pub(crate) fn longest(&self) -> usize {
        self.packet.len().min(self.headers_len + self.segment_len)
    }

    /// Octets of the last segment.
    pub(crate) fn shortest(&self) -> usize {
        self.packet.len() - (self.count() - 1) * self.segment_len
    }

    /// The next segment, a whole packet; the one before is overwritten.
    pub(crate) fn next(&mut self) -> Option<&mut [u8]> {
        let count = self.count();
        if self.cut == count {
            return None;
        }
        let offset = self.cut * self.segment_len;
        let end = (self.headers_len + offset + self.segment_len).min(self.packet.len());
        let segment = &mut self.packet[offset..end];
        segment[..self.headers_len].copy_from_slice(&self.headers[..self.headers_len]);

        let (len, upper_len) = (segment.len(), segment.len() - self.transport);
        if self.ipv6 {
            put_word(segment, 4, (len - IPV6_LEN) as u16);
        } else {
            let identification = word_at(segment, 4).wrapping_add(self.cut as u16);
            put_word(segment, 2, len as u16);
            put_word(segment, 4, identification);
            put_word(segment, 10, self.ip_sum.word(len as u16).word(identification).finish());
        }

        let upper = &mut segment[self.transport..];
        let sum = self.transport_sum.word(upper_len as u16);
        if self.tcp {
            let (first, last) = (self.cut == 0, self.cut + 1 == count);
            let sequence = u32::from_be_bytes([upper[4], upper[5], upper[6], upper[7]])
                .wrapping_add(offset as u32);
            upper[4..8].copy_from_slice(&sequence.to_be_bytes());
            // RFC 3168 §6.1.2: CWR speaks once. FIN and PSH speak of the end.
            if !first {
                upper[TCP_FLAGS] &= !CWR;
            }
            if !last {
                upper[TCP_FLAGS] &= !FIN_PSH;
            }
            let sum = sum
                .octets(&upper[4..8])
                .word(u16::from(upper[TCP_FLAGS]))
                .octets(&upper[self.headers_len - self.transport..]);
            put_word(upper, 16, sum.finish());
        } else {
            put_word(upper, 4, upper_len as u16);
            let sum = sum.word(upper_len as u16).octets(&upper[8..]);
            put_word(upper, 6, nonzero_for_udp(UDP, sum.finish()));
        }
        self.cut += 1;
        Some(&mut self.packet[offset..end])
    }
}

/// Returns `true` if a partial checksum, if there is one, lies in the packet.
pub(crate) fn has_checksum(packet: &[u8], header: &Header, gso: Gso) -> bool {
    gso.checksum.is_none_or(|partial| {
        let start = usize::from(partial.start);
        start >= header.transport && start + usize::from(partial.offset) + 2 <= packet.len()
    })
}

/// Fills in a partial checksum. `false` if it does not lie in the packet.
pub(crate) fn complete_checksum(packet: &mut [u8], header: &Header, gso: Gso) -> bool {
    let Some(partial) = gso.checksum else { return true };
    if !has_checksum(packet, header, gso) {
        return false;
    }
    let start = usize::from(partial.start);
    // The field holds the sum of the pseudo-header and thus takes part as it is.
    let checksum = Sum::default().octets(&packet[start..]).finish();
    let at = start + usize::from(partial.offset);
    put_word(packet, at, nonzero_for_udp(header.protocol, checksum));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gso::PartialChecksum;
    use crate::ip::rebuild_checksum;
    use crate::queue::{Coalesce, ReceiveQueue};
    use crate::sample::{self, ACK, PSH, checksums_hold};
    use proptest::prelude::*;

    const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];

    fn split(packet: &mut [u8], gso: Gso) -> Option<Vec<Vec<u8>>> {
        let mut header = Header::parse(packet).expect("a whole packet");
        header.len = packet.len();
        let mut segments = Segments::new(packet, &header, gso)?;
        let (count, octets, longest) = (segments.count(), segments.octets(), segments.longest());
        let shortest = segments.shortest();
        let mut all = Vec::new();
        while let Some(segment) = segments.next() {
            all.push(segment.to_vec());
        }
        assert_eq!(all.len(), count);
        assert_eq!(all.iter().map(Vec::len).sum::<usize>(), octets);
        assert_eq!(all.iter().map(Vec::len).max(), Some(longest));
        assert_eq!(all.last().map(Vec::len), Some(shortest));
        Some(all)
    }

    fn coalesce(segments: &[Vec<u8>]) -> Vec<(Vec<u8>, Gso)> {
        let mut queue = ReceiveQueue::new(1 << 10, Coalesce { tcp: true, udp: true });
        for (i, segment) in segments.iter().enumerate() {
            // Both ways to open a packet must come to the same.
            queue.begin(segment.len() + 40, i % 3 != 2)[..segment.len()].copy_from_slice(segment);
            queue.accept(&Header::parse(segment).expect("a whole packet"));
        }
        queue.packets().map(|(packet, gso)| (packet.to_vec(), gso)).collect()
    }

    /// A super-packet as a device hands it over: the checksum field holds the sum of the pseudo-header.
    fn super_packet(
        ipv6: bool,
        tcp: bool,
        flags: u8,
        options: &[u8],
        mss: usize,
        len: usize,
    ) -> (Vec<u8>, Gso) {
        let payload = sample::payload(len);
        let mut packet = if tcp {
            sample::tcp(ipv6, 0xffff_ff00, flags, options, &payload)
        } else {
            sample::udp(ipv6, (4000, 4001), &payload)
        };
        let header = Header::parse(&packet).expect("a whole packet");
        let protocol = if tcp { TCP } else { UDP };
        let upper_len = packet.len() - header.transport;
        let pseudo =
            Sum::default().pseudo(header.source(), header.destination(), protocol, upper_len);
        let offset = if tcp { 16 } else { 6 };
        put_word(&mut packet, header.transport + offset, pseudo.fold());
        let gso = Gso {
            segmentation: if tcp { Segmentation::Tcp } else { Segmentation::Udp },
            segment_len: mss as u16,
            header_len: (packet.len() - len) as u16,
            checksum: Some(PartialChecksum {
                start: header.transport as u16,
                offset: offset as u16,
            }),
            checksum_verified: false,
        };
        (packet, gso)
    }

    proptest! {
        #[test]
        fn every_segment_is_a_right_packet(
            ipv6: bool, tcp: bool, flags: u8, options in 0..11usize, mss in 1..2000usize, len in 0..20_000usize,
        ) {
            let flags = flags & !0x02;
            let (mut packet, gso) = super_packet(ipv6, tcp, flags, &[1; 40][..options * 4], mss, len);
            let headers = packet.len() - len;
            let before = packet.clone();
            let segments = split(&mut packet, gso).expect("as described");
            let mut payload: Vec<u8> = Vec::new();
            let transport = if ipv6 { 40 } else { 20 };
            for (i, segment) in segments.iter().enumerate() {
                prop_assert!(checksums_hold(segment), "segment {}", i);
                prop_assert_eq!(Header::parse(segment).expect("whole").len, segment.len());
                if tcp {
                    let sequence = 0xffff_ff00u32.wrapping_add(payload.len() as u32);
                    prop_assert_eq!(&segment[transport + 4..transport + 8], sequence.to_be_bytes());
                    let mut expected = flags;
                    if i > 0 { expected &= !CWR; }
                    if i + 1 < segments.len() { expected &= !FIN_PSH; }
                    prop_assert_eq!(segment[transport + TCP_FLAGS], expected);
                } else {
                    prop_assert_eq!(usize::from(word_at(segment, transport + 4)), segment.len() - transport);
                }
                if !ipv6 {
                    prop_assert_eq!(word_at(segment, 4), 0x12ffu16.wrapping_add(i as u16));
                }
                payload.extend(&segment[headers..]);
            }
            prop_assert_eq!(&payload[..], &before[headers..]);
        }

        #[test]
        fn coalescing_undoes_splitting(ipv6: bool, tcp: bool, push: bool, mss in 1..1500usize, count in 2..40usize, less in 0..1500usize) {
            let len = (mss * count).saturating_sub(less % mss).min(60_000);
            prop_assume!(len > mss);
            let flags = if push { ACK | PSH } else { ACK };
            let (mut packet, gso) = super_packet(ipv6, tcp, flags, &TIMESTAMPS, mss, len);
            let before = packet.clone();
            let segments = split(&mut packet, gso).expect("as described");
            let whole = coalesce(&segments);
            prop_assert_eq!(whole.len(), 1);
            prop_assert!(whole[0].0 == before);
            prop_assert_eq!(whole[0].1, gso);
        }

        /// Packets that are coalesced and then split are the same again: none is lost, reordered or changed.
        #[test]
        fn coalescing_keeps_every_packet(
            steps in proptest::collection::vec((0..9u8, 1..80usize, any::<bool>()), 1..60),
        ) {
            let mut sequence = 0u32;
            let mut sent = Vec::new();
            for (kind, len, ipv6) in steps {
                let data = sample::payload(len);
                let len = len as u32;
                let mut packet = match kind {
                    0 => sample::tcp(ipv6, sequence.wrapping_add(1), ACK, &TIMESTAMPS, &data),
                    1 => sample::tcp(ipv6, sequence, ACK | PSH, &TIMESTAMPS, &data),
                    2 => sample::udp(ipv6, (1, 2), &data),
                    3 => sample::tcp(ipv6, sequence, ACK, &[], &[]),
                    4 => sample::tcp(ipv6, sequence, ACK | 1, &TIMESTAMPS, &data),
                    _ => sample::tcp(ipv6, sequence, ACK, &TIMESTAMPS, &sample::payload(60)),
                };
                if kind == 6 {
                    *packet.last_mut().expect("not empty") ^= 1;
                }
                sequence = sequence.wrapping_add(if kind > 4 { 60 } else { len });
                sent.push(packet);
            }
            let mut again = Vec::new();
            for (mut packet, gso) in coalesce(&sent) {
                if gso.segmentation == Segmentation::None {
                    prop_assert!(!gso.checksum_verified || checksums_hold(&packet));
                    again.push(packet);
                } else {
                    again.extend(split(&mut packet, gso).expect("as described"));
                }
            }
            // The identification of atomic packets is not kept (RFC 6864 §4.1).
            for packet in sent.iter_mut().chain(&mut again).filter(|p| p[0] == 0x45) {
                packet[4..6].fill(0);
                packet[10..12].fill(0);
            }
            prop_assert!(sent == again);
        }

        #[test]
        fn no_description_panics(mut packet in proptest::collection::vec(any::<u8>(), 0..200), first in prop_oneof![Just(0x45u8), Just(0x60)],
                                 kind in 0..6u8, a: [u8; 8]) {
            if packet.len() >= 20 {
                packet[0] = first;
                packet[6] = if first == 0x60 { 6 } else { 0 };
                packet[9] = 6;
                let len = packet.len() as u16;
                put_word(&mut packet, if first == 0x60 { 4 } else { 2 }, if first == 0x60 { len.saturating_sub(40) } else { len });
            }
            let virtio = [1, kind, a[0], a[1], a[2], a[3], a[4], 0, a[6], 0];
            if let (Some(header), Some(gso)) = (Header::parse(&packet), Gso::from_virtio(&virtio)) {
                complete_checksum(&mut packet.clone(), &header, gso);
                if let Some(mut segments) = Segments::new(&mut packet, &header, gso) {
                    while segments.next().is_some() {}
                }
            }
        }
    }

    #[test]
    fn a_wrong_checksum_is_not_made_right() {
        let (mut packet, gso) = super_packet(false, true, ACK, &[], 100, 300);
        let mut segments = split(&mut packet, gso).expect("as described");
        *segments[1].last_mut().expect("not empty") ^= 1;
        let packets = coalesce(&segments);
        assert_eq!(packets.len(), 3);
        assert_eq!(packets[1].0, segments[1]);
        assert!(!packets[1].1.checksum_verified);
    }

    /// Every octet of the headers either must be equal, or is computed by splitting.
    #[test]
    fn only_segments_with_equal_headers_are_joined() {
        for ipv6 in [false, true] {
            for tcp in [false, true] {
                let (mut packet, gso) = super_packet(ipv6, tcp, ACK, &TIMESTAMPS, 100, 200);
                let segments = split(&mut packet, gso).expect("as described");
                assert_eq!(coalesce(&segments).len(), 1);
                let (transport, headers) = (if ipv6 { 40 } else { 20 }, segments[0].len() - 100);
                // Lengths and checksums follow from the rest, and the identification of atomic packets means nothing.
                let made_anew: &[usize] = if ipv6 { &[4, 5] } else { &[2, 3, 4, 5, 10, 11] };
                let checksum = transport + if tcp { 16 } else { 6 };
                for at in
                    (0..headers).filter(|at| !made_anew.contains(at) && at / 2 != checksum / 2)
                {
                    let mut other = segments.clone();
                    let next = &mut other[1];
                    next[at] ^= 1;
                    let Some(header) = Header::parse(next) else { continue };
                    if !ipv6 {
                        put_word(next, 10, 0);
                        let sum = Sum::default().octets(&next[..header.transport]).finish();
                        put_word(next, 10, sum);
                    }
                    let upper = &mut next[header.transport..];
                    rebuild_checksum(header.source(), header.destination(), header.protocol, upper);
                    assert_eq!(coalesce(&other).len(), 2, "{ipv6} {tcp} octet {at}");
                }
            }
        }
    }

    #[test]
    fn partial_checksums_are_completed() {
        for ipv6 in [false, true] {
            for tcp in [false, true] {
                let (mut packet, gso) = super_packet(ipv6, tcp, ACK, &[], 0, 333);
                let header = Header::parse(&packet).expect("whole");
                assert!(!checksums_hold(&packet));
                assert!(complete_checksum(&mut packet, &header, gso));
                assert!(checksums_hold(&packet));
            }
        }
    }

    #[test]
    fn a_checksum_outside_the_packet_is_refused() {
        let mut packet = sample::udp(false, (1, 2), &[0; 8]);
        let header = Header::parse(&packet).expect("whole");
        for (start, offset) in [(0, 10), (20, 15), (20, u16::MAX), (u16::MAX, u16::MAX)] {
            let checksum = Some(PartialChecksum { start, offset });
            assert!(!complete_checksum(&mut packet, &header, Gso { checksum, ..Gso::NONE }));
        }
    }
}
