//! Puts consecutive segments of one flow together again, so that the TUN device takes them with one write.

#![forbid(unsafe_code)]

use crate::header::{Fragment, Header};
use crate::ip::{IPV4_LEN, Sum, TCP, UDP, adjust, put_word, word_at};
use crate::offload::{Offload, PartialChecksum, Segmentation};
use crate::queue::Coalesce;

/// IPv6 without extension headers, and TCP with all its options.
pub(crate) const MAX_HEADERS: usize = 100;

/// Most datagrams of one UDP super-packet, as the kernel holds it.
const MAX_DATAGRAMS: usize = 64;

const MAX_PACKET: usize = u16::MAX as usize;
const DONT_FRAGMENT: u8 = 0x40;
const FIN_PSH_SYN_RST_URG_CWR: u8 = 0xaf;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const TCP_FLAGS: usize = 13;

/// A packet that may be the first of a super-packet, and what was added to it.
#[derive(Debug)]
pub(crate) struct Flow {
    headers: [u8; MAX_HEADERS],
    headers_len: usize,
    transport: usize,
    ipv6: bool,
    tcp: bool,
    /// Octets of payload of the first packet.
    segment_len: usize,
    /// Packets so far.
    count: usize,
    /// Octets of payload so far.
    payload: usize,
    /// Whether nothing may follow: the last packet was shorter, or pushed.
    closed: bool,
    pushed: bool,
}

/// A packet that may be the first of a super-packet, or continue one.
pub(crate) struct Candidate<'p> {
    /// Of IP and of the transport.
    headers: &'p [u8],
    transport: usize,
    ipv6: bool,
    tcp: bool,
    pushed: bool,
    /// Octets of payload.
    payload: usize,
}

impl<'p> Candidate<'p> {
    /// `None` if the packet has to stay alone: no payload, headers that splitting would not restore, or a checksum that
    /// is wrong and must not be made right.
    pub(crate) fn of(packet: &'p [u8], header: &Header, allowed: Coalesce) -> Option<Self> {
        if header.fragment != Fragment::Whole || !header.is_plain() {
            return None;
        }
        let upper = &packet[header.transport..];
        let (tcp, upper_header) = match header.protocol {
            TCP if allowed.tcp && upper.len() >= 20 => (true, usize::from(upper[12] >> 4) * 4),
            UDP if allowed.udp && upper.len() >= 8 => (false, 8),
            _ => return None,
        };
        if upper_header < 8 || upper_header >= upper.len() {
            return None;
        }
        if tcp {
            let flags = upper[TCP_FLAGS];
            if upper_header < 20
                || flags & ACK == 0
                || flags & (FIN_PSH_SYN_RST_URG_CWR & !PSH) != 0
            {
                return None;
            }
        } else if usize::from(word_at(upper, 4)) != upper.len() || word_at(upper, 6) == 0 {
            return None;
        }
        let sum = Sum::default().pseudo_of(packet, header.ipv6, header.protocol, upper.len());
        if sum.octets(upper).finish() != 0
            || !header.ipv6 && Sum::default().octets(&packet[..IPV4_LEN]).finish() != 0
        {
            return None;
        }
        let headers_len = header.transport + upper_header;
        Some(Self {
            headers: &packet[..headers_len],
            transport: header.transport,
            ipv6: header.ipv6,
            tcp,
            pushed: tcp && upper[TCP_FLAGS] & PSH != 0,
            payload: packet.len() - headers_len,
        })
    }

    /// Octets of headers.
    pub(crate) fn headers_len(&self) -> usize {
        self.headers.len()
    }
}

impl Flow {
    /// Begins a super-packet.
    pub(crate) fn begin(first: &Candidate<'_>) -> Self {
        let headers_len = first.headers.len();
        let mut headers = [0; MAX_HEADERS];
        headers[..headers_len].copy_from_slice(first.headers);
        Self {
            headers,
            headers_len,
            transport: first.transport,
            ipv6: first.ipv6,
            tcp: first.tcp,
            segment_len: first.payload,
            count: 1,
            payload: first.payload,
            closed: first.pushed,
            pushed: first.pushed,
        }
    }

    /// Octets of headers that a packet of the same flow begins with.
    pub(crate) fn headers_len(&self) -> usize {
        self.headers_len
    }

    /// Takes in the next packet. `false` if it does not continue this one.
    pub(crate) fn append(&mut self, next: &Candidate<'_>) -> bool {
        if self.closed || !self.is_continued_by(next) {
            return false;
        }
        self.count += 1;
        self.payload += next.payload;
        self.pushed = next.pushed;
        self.closed = next.pushed
            || next.payload < self.segment_len
            || !self.tcp && self.count == MAX_DATAGRAMS;
        true
    }

    fn is_continued_by(&self, next: &Candidate<'_>) -> bool {
        self.tcp == next.tcp
            && self.ipv6 == next.ipv6
            && self.headers_len == next.headers.len()
            && next.payload <= self.segment_len
            && self.headers_len + self.payload + next.payload <= MAX_PACKET
            && self.same_ip(next.headers)
            && {
                let upper = &next.headers[self.transport..];
                if self.tcp { self.next_in_stream(upper) } else { self.upper()[..4] == upper[..4] }
            }
    }

    fn same_ip(&self, b: &[u8]) -> bool {
        let a = &self.headers;
        if self.ipv6 {
            return a[..4] == b[..4] && a[6..40] == b[6..40];
        }
        // An atomic packet's identification means nothing (RFC 6864 §4.1); others must count up, as splitting will.
        let counts_up = word_at(b, 4) == word_at(a, 4).wrapping_add(self.count as u16);
        a[..2] == b[..2]
            && a[6..10] == b[6..10]
            && a[12..20] == b[12..20]
            && (a[6] & DONT_FRAGMENT != 0 || counts_up)
    }

    fn next_in_stream(&self, b: &[u8]) -> bool {
        let a = self.upper();
        let sequence = |tcp: &[u8]| u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        a[..4] == b[..4]
            && sequence(b) == sequence(a).wrapping_add(self.payload as u32)
            && a[8..13] == b[8..13]
            && (a[TCP_FLAGS] ^ b[TCP_FLAGS]) & !PSH == 0
            && a[14..16] == b[14..16]
            && a[18..] == b[18..]
    }

    fn upper(&self) -> &[u8] {
        &self.headers[self.transport..self.headers_len]
    }

    /// Writes the headers of what was put together, and says what the device is to do with it.
    pub(crate) fn finish(&self, packet: &mut [u8]) -> Offload {
        if self.count == 1 {
            return Offload { checksum_verified: true, ..Offload::NONE };
        }
        let len = packet.len();
        if self.ipv6 {
            put_word(packet, 4, (len - self.transport) as u16);
        } else {
            let old = word_at(packet, 2);
            put_word(packet, 2, len as u16);
            put_word(packet, 10, adjust(word_at(packet, 10), old, len as u16));
        }
        let upper = &mut packet[self.transport..];
        let upper_len = upper.len();
        let protocol = if self.tcp { TCP } else { UDP };
        let pseudo = Sum::default().pseudo_of(&self.headers, self.ipv6, protocol, upper_len).fold();
        let offset = if self.tcp {
            if self.pushed {
                upper[TCP_FLAGS] |= PSH;
            }
            16
        } else {
            put_word(upper, 4, upper_len as u16);
            6
        };
        put_word(upper, offset, pseudo);
        Offload {
            segmentation: if self.tcp { Segmentation::Tcp } else { Segmentation::Udp },
            segment_len: self.segment_len as u16,
            header_len: self.headers_len as u16,
            checksum: Some(PartialChecksum { start: self.transport as u16, offset: offset as u16 }),
            checksum_verified: false,
        }
    }
}
