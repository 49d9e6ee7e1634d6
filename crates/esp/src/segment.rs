//! Splits a super-packet into segments in place: the headers of each are rebuilt over the end of the one before, which
//! is sealed by then, so that no payload is copied.

#![forbid(unsafe_code)]

use crate::header::{Fragment, Header};
use crate::ip::{IPV6_LEN, Sum, TCP, UDP, nonzero_for_udp, put_word, word_at};
use crate::offload::{Offload, Segmentation};

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
    pub(crate) fn new(packet: &'p mut [u8], header: &Header, offload: Offload) -> Option<Self> {
        let (protocol, shortest) = match offload.segmentation {
            Segmentation::Tcp => (TCP, 20),
            Segmentation::Udp => (UDP, 8),
            Segmentation::None => return None,
        };
        let transport = header.transport;
        let segment_len = usize::from(offload.segment_len);
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
        let pseudo = Sum::default().pseudo(header.source, header.destination, protocol, 0);
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

    /// How many segments there are.
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

    /// The next segment, a whole packet; the one before is overwritten.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
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
        Some(&self.packet[offset..end])
    }
}

/// Fills in a partial checksum. `false` if it does not lie in the packet.
pub(crate) fn complete_checksum(packet: &mut [u8], header: &Header, offload: Offload) -> bool {
    let Some(partial) = offload.checksum else { return true };
    let start = usize::from(partial.start);
    let at = start + usize::from(partial.offset);
    if start < header.transport || at + 2 > packet.len() {
        return false;
    }
    // The field holds the sum of the pseudo-header and thus takes part as it is.
    let checksum = Sum::default().octets(&packet[start..]).finish();
    put_word(packet, at, nonzero_for_udp(header.protocol, checksum));
    true
}
