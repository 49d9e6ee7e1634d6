//! Cuts an IPv4 packet into fragments in place (RFC 791 §3.2): the header of each is written over the end of the one
//! before, which is sealed by then, so that no payload is copied.

#![forbid(unsafe_code)]

use crate::ip::{IPV4_LEN, Sum, put_word, word_at};

const MORE: u16 = 0x2000;
const DONT: u16 = 0x4000;
const OFFSET: u16 = 0x1fff;

/// An option that later fragments carry, too.
const COPIED: u8 = 0x80;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;

/// The longest header.
const MAX_HEADER: usize = 60;

/// Returns `true` if the sender of an IPv4 packet has set Don't Fragment.
pub(crate) fn dont_fragment(packet: &[u8]) -> bool {
    packet.len() >= IPV4_LEN && word_at(packet, 6) & DONT != 0
}

/// The number of fragments, of at most `mtu` octets each, that a packet of `len` octets with a header of `header_len`
/// octets becomes; `None` if there is no room behind the header.
pub(crate) fn count(len: usize, header_len: usize, mtu: usize) -> Option<usize> {
    let chunk = chunk(header_len, mtu)?;
    Some(if len <= mtu { 1 } else { len.saturating_sub(header_len).div_ceil(chunk) })
}

/// Octets of payload in every fragment but the last.
fn chunk(header_len: usize, mtu: usize) -> Option<usize> {
    let chunk = mtu.checked_sub(header_len)? & !7;
    (chunk > 0).then_some(chunk)
}

/// The fragments still to be cut off a packet.
pub(crate) struct Fragments<'p> {
    packet: &'p mut [u8],
    header: [u8; MAX_HEADER],
    header_len: usize,
    /// Octets of payload in every fragment but the last; 0: it goes whole.
    chunk: usize,
    /// The offset of the next fragment's payload.
    at: usize,
}

impl<'p> Fragments<'p> {
    /// Cuts a whole IPv4 packet, or a fragment of one; one that fits stays as it is.
    pub(crate) fn new(packet: &'p mut [u8], header_len: usize, mtu: usize) -> Self {
        let chunk = match chunk(header_len, mtu) {
            Some(chunk) if packet.len() > mtu => chunk,
            _ => 0,
        };
        let mut header = [0; MAX_HEADER];
        if chunk > 0 {
            header[..header_len].copy_from_slice(&packet[..header_len]);
        }
        Self { packet, header, header_len, chunk, at: header_len }
    }

    /// The next fragment; the one before is overwritten.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        let len = self.packet.len();
        if self.chunk == 0 {
            let whole = (self.at <= len).then_some(&*self.packet);
            self.at = usize::MAX;
            return whole;
        }
        if self.at >= len {
            return None;
        }
        let (start, end) = (self.at - self.header_len, (self.at + self.chunk).min(len));
        let field = word_at(&self.header, 6);
        let offset = (field & OFFSET) + ((self.at - self.header_len) / 8) as u16;
        let more = if end < len { MORE } else { field & MORE };
        let fragment = &mut self.packet[start..end];
        fragment[..self.header_len].copy_from_slice(&self.header[..self.header_len]);
        put_word(fragment, 2, (end - start) as u16);
        put_word(fragment, 6, offset & OFFSET | more);
        put_word(fragment, 10, 0);
        let checksum = Sum::default().octets(&fragment[..self.header_len]).finish();
        put_word(fragment, 10, checksum);
        if self.at == self.header_len {
            keep_copied(&mut self.header[IPV4_LEN..self.header_len]);
        }
        self.at = end;
        Some(&self.packet[start..end])
    }
}

/// Leaves of the options those that every fragment carries.
fn keep_copied(options: &mut [u8]) {
    let mut at = 0;
    while at < options.len() {
        let kind = options[at];
        let len = match kind {
            END_OF_OPTIONS => return,
            NO_OPERATION => 1,
            _ => options.get(at + 1).map_or(0, |len| usize::from(*len)),
        };
        let Some(option) = options.get_mut(at..at + len).filter(|o| !o.is_empty()) else { return };
        if kind & COPIED == 0 {
            option.fill(NO_OPERATION);
        }
        at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{Fragment, Header};
    use crate::sample;
    use proptest::prelude::*;

    fn cut(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
        let mut packet = packet.to_vec();
        let header = Header::parse(&packet).expect("whole");
        let expected = count(packet.len(), header.transport, mtu);
        let mut fragments = Fragments::new(&mut packet, header.transport, mtu);
        let mut all = Vec::new();
        while let Some(fragment) = fragments.next() {
            all.push(fragment.to_vec());
        }
        assert_eq!(Some(all.len()), expected);
        all
    }

    /// The payload that a receiver puts together from the fragments.
    fn put_together(fragments: &[Vec<u8>]) -> Vec<u8> {
        let mut payload = Vec::new();
        for (i, fragment) in fragments.iter().enumerate() {
            let header = Header::parse(fragment).expect("whole");
            assert_eq!(sample::checksum(&fragment[..header.transport]), 0);
            assert_eq!(usize::from(word_at(fragment, 6) & OFFSET) * 8, payload.len());
            assert_eq!(word_at(fragment, 6) & MORE != 0, i + 1 < fragments.len());
            payload.extend(&fragment[header.transport..header.len]);
        }
        payload
    }

    fn packet(options: &[u8], payload: usize) -> Vec<u8> {
        let plain = sample::udp(false, (1, 2), &sample::payload(payload));
        let mut packet = [&plain[..20], options, &plain[20..]].concat();
        packet[0] = 0x45 + (options.len() / 4) as u8;
        let len = packet.len() as u16;
        put_word(&mut packet, 2, len);
        put_word(&mut packet, 6, 0);
        put_word(&mut packet, 10, 0);
        let sum = sample::checksum(&packet[..20 + options.len()]);
        put_word(&mut packet, 10, sum);
        packet
    }

    proptest! {
        #[test]
        fn fragments_are_the_packet(payload in 0..9000usize, mtu in 68..2000usize, options in 0..11usize) {
            let packet = packet(&[1; 40][..options * 4], payload);
            let fragments = cut(&packet, mtu);
            prop_assert!(fragments.iter().all(|f| f.len() <= mtu));
            prop_assert!(put_together(&fragments) == packet[20 + options * 4..]);
            // A fragment is cut like a packet.
            let again: Vec<Vec<u8>> = fragments.iter().flat_map(|f| cut(f, 100)).collect();
            prop_assert!(put_together(&again) == packet[20 + options * 4..]);
        }
    }

    #[test]
    fn a_packet_that_fits_is_left_alone() {
        let packet = packet(&[], 100);
        assert_eq!(cut(&packet, packet.len()), std::slice::from_ref(&packet));
        assert_eq!(count(1000, 60, 64), None, "no room");
    }

    #[test]
    fn options_are_copied_where_they_say_so() {
        // Record route is not copied, loose source route is (RFC 791 §3.1).
        let options = [7, 7, 4, 0, 0, 0, 0, 0x83, 3, 4, 1, 0];
        let fragments = cut(&packet(&options, 100), 76);
        assert_eq!(fragments[0][20..32], options);
        assert_eq!(fragments[1][20..32], [1, 1, 1, 1, 1, 1, 1, 0x83, 3, 4, 1, 0]);
        assert_eq!(Header::parse(&fragments[1]).expect("whole").fragment, Fragment::Later);
    }
}
