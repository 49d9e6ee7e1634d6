//! Puts consecutive segments of one flow together again, so that the TUN device takes them with one write.

#![forbid(unsafe_code)]

use crate::gso::{Gso, PartialChecksum, Segmentation};
use crate::header::{Fragment, Header};
use crate::ip::{IPV4_LEN, IPV6_LEN, Sum, TCP, UDP, adjust, long_at, put_word, word_at};
use crate::queue::Coalesce;

/// Room for IPv6 without extension headers and TCP with all its options, in steps that a CPU compares at once.
pub(crate) const MAX_HEADERS: usize = 112;

/// As many octets as most headers have at most.
pub(crate) const FEW_HEADERS: usize = 64;

/// Most datagrams of one UDP super-packet, as the kernel holds it.
const MAX_DATAGRAMS: usize = 64;

const MAX_PACKET: usize = u16::MAX as usize;
const DONT_FRAGMENT: u8 = 0x40;
const FIN_PSH_SYN_RST_URG_CWR: u8 = 0xaf;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const TCP_FLAGS: usize = 13;
const TCP_LEN: usize = 20;
const UDP_LEN: usize = 8;

/// A packet that may be the first of a super-packet, and what was added to it.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Of the first packet, and some octets behind them.
    headers: [u8; MAX_HEADERS],
    /// The bits that the headers of all packets share.
    shared: &'static [u8; MAX_HEADERS],
    headers_len: usize,
    transport: usize,
    ipv6: bool,
    tcp: bool,
    sums: Sums,
    /// Octets of payload of the first packet.
    segment_len: usize,
    /// Packets so far.
    count: usize,
    /// Octets of payload so far.
    payload: usize,
    /// No packet may follow: the last one was shorter, or had PSH set.
    closed: bool,
    pushed: bool,
}

/// A packet that continues a super-packet.
pub(crate) struct Next {
    /// Octets of payload.
    payload: usize,
    pushed: bool,
}

impl Flow {
    /// Begins a super-packet with the packet that `octets` begin with, and `header` is of. `None` if it has to stay
    /// alone: no payload, headers that splitting would not restore, or a checksum that is wrong and must not be made
    /// right.
    pub(crate) fn begin(octets: &[u8], header: &Header, allowed: Coalesce) -> Option<Self> {
        if header.fragment != Fragment::Whole || !header.is_plain() {
            return None;
        }
        let packet = &octets[..header.len];
        let upper = &packet[header.transport..];
        let (tcp, upper_header) = match header.protocol {
            TCP if allowed.tcp && upper.len() >= TCP_LEN => (true, usize::from(upper[12] >> 4) * 4),
            UDP if allowed.udp && upper.len() >= UDP_LEN => (false, UDP_LEN),
            _ => return None,
        };
        if upper_header >= upper.len() {
            return None;
        }
        if tcp {
            // The kernel puts some flags on the first or the last segment, others on all: splitting would not restore
            // them. ACK is on all, PSH on the last.
            let flags = upper[TCP_FLAGS];
            if upper_header < TCP_LEN
                || flags & ACK == 0
                || flags & (FIN_PSH_SYN_RST_URG_CWR & !PSH) != 0
            {
                return None;
            }
        }
        let ipv6 = header.ipv6;
        let sums = Sums::of(packet, ipv6, header.protocol);
        if !is_whole(packet, header.transport, ipv6, tcp, &sums) {
            return None;
        }
        let options = if tcp { (upper_header - TCP_LEN) / 4 } else { UDP_KIND };
        let pushed = tcp && upper[TCP_FLAGS] & PSH != 0;
        let headers_len = header.transport + upper_header;
        let payload = packet.len() - headers_len;
        Some(Self {
            headers: *octets.first_chunk()?,
            shared: &SHARED[usize::from(ipv6)][options],
            headers_len,
            transport: header.transport,
            ipv6,
            tcp,
            sums,
            segment_len: payload,
            count: 1,
            payload,
            closed: pushed,
            pushed,
        })
    }

    /// Octets of headers that a packet of the same flow begins with.
    pub(crate) fn headers_len(&self) -> usize {
        self.headers_len
    }

    /// The packet of `len` octets that `octets` begins with, if it continues this one: its headers need no further
    /// check, because they passed with the first packet's. The octets behind the packet do not matter.
    #[inline(always)]
    pub(crate) fn next(&self, octets: &[u8], len: usize) -> Option<Next> {
        let payload = len.checked_sub(self.headers_len)?;
        if self.closed
            || payload == 0
            || payload > self.segment_len
            || self.headers_len + self.payload + payload > MAX_PACKET
        {
            return None;
        }
        let headers: &[u8; MAX_HEADERS] = octets.first_chunk()?;
        let (few, more) = (..FEW_HEADERS, FEW_HEADERS..);
        let differ = differ(&self.headers[few], &headers[few], &self.shared[few])
            || self.headers_len > FEW_HEADERS
                && differ(&self.headers[more.clone()], &headers[more.clone()], &self.shared[more]);
        if differ || !self.counts_up(headers) {
            return None;
        }
        let pushed = self.tcp && headers[self.transport + TCP_FLAGS] & PSH != 0;
        is_whole(&octets[..len], self.transport, self.ipv6, self.tcp, &self.sums)
            .then_some(Next { payload, pushed })
    }

    /// Takes in the next packet.
    pub(crate) fn append(&mut self, next: &Next) {
        self.count += 1;
        self.payload += next.payload;
        self.pushed = next.pushed;
        self.closed = next.pushed
            || next.payload < self.segment_len
            || !self.tcp && self.count == MAX_DATAGRAMS;
    }

    /// Returns `true` if the numbers in the headers are those after the last packet's.
    #[inline(always)]
    fn counts_up(&self, next: &[u8; MAX_HEADERS]) -> bool {
        // An atomic packet's identification means nothing (RFC 6864 §4.1); others must count up, as splitting will.
        if !self.ipv6
            && self.headers[6] & DONT_FRAGMENT == 0
            && word_at(next, 4) != word_at(&self.headers, 4).wrapping_add(self.count as u16)
        {
            return false;
        }
        let at = self.transport + 4;
        !self.tcp
            || long_at(next, at) == long_at(&self.headers, at).wrapping_add(self.payload as u32)
    }

    /// Writes the headers of what was put together, and says what the device is to do with it.
    pub(crate) fn finish(&self, packet: &mut [u8]) -> Gso {
        if self.count == 1 {
            return Gso { checksum_verified: true, ..Gso::NONE };
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
        Gso {
            segmentation: if self.tcp { Segmentation::Tcp } else { Segmentation::Udp },
            segment_len: self.segment_len as u16,
            header_len: self.headers_len as u16,
            checksum: Some(PartialChecksum { start: self.transport as u16, offset: offset as u16 }),
            checksum_verified: false,
        }
    }
}

/// Over what all packets of a super-packet have alike.
#[derive(Clone, Copy, Debug)]
struct Sums {
    /// The IPv4 header without length, identification and checksum; that of IPv6 has none.
    header: Sum,
    /// The pseudo-header without length.
    pseudo: Sum,
}

impl Sums {
    #[inline(always)]
    fn of(packet: &[u8], ipv6: bool, protocol: u8) -> Self {
        let header = Sum::default().octets(&packet[..2]).octets(&packet[6..10]);
        let pseudo = Sum::default().pseudo_of(packet, ipv6, protocol, 0);
        Self { header: header.octets(&packet[12..IPV4_LEN]), pseudo }
    }
}

/// Returns `true` if octets differ in bits that a mask has.
#[inline(always)]
fn differ(a: &[u8], b: &[u8], mask: &[u8]) -> bool {
    a.iter().zip(b).zip(mask).fold(0, |differ, ((a, b), mask)| differ | (a ^ b) & mask) != 0
}

/// Returns `true` if lengths and checksums of a packet are right, in which TCP or UDP begins at `transport`.
#[inline(always)]
fn is_whole(packet: &[u8], transport: usize, ipv6: bool, tcp: bool, sums: &Sums) -> bool {
    let upper = &packet[transport..];
    if ipv6 {
        if usize::from(word_at(packet, 4)) != upper.len() {
            return false;
        }
    } else {
        let (len, identification) = (word_at(packet, 2), word_at(packet, 4));
        let header = sums.header.word(len).word(identification).word(word_at(packet, 10));
        if usize::from(len) != packet.len() || !header.is_right() {
            return false;
        }
    }
    // A datagram without a checksum would have one when it is split again.
    if !tcp && (usize::from(word_at(upper, 4)) != upper.len() || word_at(upper, 6) == 0) {
        return false;
    }
    sums.pseudo.word(upper.len() as u16).octets(upper).is_right()
}

/// The index in [`SHARED`] for UDP; the indices before are for TCP, by words of options.
const UDP_KIND: usize = 11;

/// The bits of headers that all packets of a super-packet share, for IPv4 and IPv6.
static SHARED: [[[u8; MAX_HEADERS]; UDP_KIND + 1]; 2] = {
    let mut shared = [[[0; MAX_HEADERS]; UDP_KIND + 1]; 2];
    let mut kind = 0;
    while kind <= UDP_KIND {
        shared[0][kind] = mask(IPV4_LEN, kind);
        shared[1][kind] = mask(IPV6_LEN, kind);
        kind += 1;
    }
    shared
};

/// All but lengths and checksums, which follow from the rest, and numbers, which are looked at for themselves.
const fn mask(transport: usize, kind: usize) -> [u8; MAX_HEADERS] {
    let own: &[usize] = if transport == IPV4_LEN { &[2, 3, 4, 5, 10, 11] } else { &[4, 5] };
    let own_upper: &[usize] = if kind == UDP_KIND { &[4, 5, 6, 7] } else { &[4, 5, 6, 7, 16, 17] };
    let upper_len = if kind == UDP_KIND { UDP_LEN } else { TCP_LEN + 4 * kind };
    let mut mask = [0; MAX_HEADERS];
    let mut at = 0;
    while at < transport + upper_len {
        mask[at] = 0xff;
        at += 1;
    }
    at = 0;
    while at < own.len() {
        mask[own[at]] = 0;
        at += 1;
    }
    at = 0;
    while at < own_upper.len() {
        mask[transport + own_upper[at]] = 0;
        at += 1;
    }
    if kind != UDP_KIND {
        mask[transport + TCP_FLAGS] = !PSH;
    }
    mask
}
