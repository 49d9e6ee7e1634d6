//! The fields of a TCP header that corrections read and replace.

use crate::packet::{long, word};
use smoltcp::wire::TcpPacket;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
#[cfg(test)]
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
/// smoltcp's limit, too. Shorter segments would cost more than they carry.
const SMALLEST_SEGMENT: u16 = 48;

/// A segment's header, which is as long as one without options at least.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'p> {
    octets: &'p [u8],
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    /// Octets behind the header; `None` if the header claims more octets than there are.
    pub payload: Option<u32>,
}

/// A segment that smoltcp is given in place of one that has arrived: the same octets but for these fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
}

impl<'p> Segment<'p> {
    pub fn read(octets: &'p [u8]) -> Self {
        let header_len = usize::from(octets[12] >> 4) * 4;
        Self {
            octets,
            seq: long(octets, 4),
            ack: long(octets, 8),
            flags: octets[13],
            window: word(octets, 14),
            payload: octets.len().checked_sub(header_len).map(|len| len as u32),
        }
    }

    /// Returns `true` if the segment only acknowledges: it has no payload, SYN, FIN or RST.
    pub fn is_pure_ack(&self) -> bool {
        self.flags & (FIN | SYN | RST | ACK) == ACK && self.payload == Some(0)
    }

    /// The sequence number behind the segment (RFC 9293 §3.4).
    pub fn end(&self) -> u32 {
        let flags = [SYN, FIN].into_iter().filter(|flag| self.flags & flag != 0).count();
        self.seq.wrapping_add(self.payload.unwrap_or(0)).wrapping_add(flags as u32)
    }

    /// The maximum segment size of a SYN: 536 where it names none (RFC 9293 §3.7.1), or none that smoltcp believes.
    pub fn maximum_segment_size(&self) -> u16 {
        const DEFAULT: u16 = 536;
        let named = TcpPacket::new_checked(self.octets).and_then(|packet| packet.options_summary());
        match named.ok().and_then(|options| options.max_segment_size) {
            None | Some(0) => DEFAULT,
            Some(named) => named.max(SMALLEST_SEGMENT),
        }
    }

    /// The segment as it has arrived.
    pub fn delivery(&self) -> Delivery {
        Delivery { seq: self.seq, ack: self.ack, flags: self.flags }
    }
}

impl Delivery {
    /// Replaces the fields in a copy of the segment. Its checksum is verified already.
    pub fn write(self, octets: &mut [u8]) {
        put_seq(octets, self.seq);
        octets[8..12].copy_from_slice(&self.ack.to_be_bytes());
        octets[13] = self.flags;
    }
}

pub(crate) fn put_seq(octets: &mut [u8], seq: u32) {
    octets[4..8].copy_from_slice(&seq.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A header with options of whole words, and octets behind it.
    fn segment(flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut octets = vec![0; 20];
        octets[12] = ((20 + options.len()) as u8 / 4) << 4;
        octets[13] = flags;
        [&octets, options, payload].concat()
    }

    #[test]
    fn an_acknowledgment_is_pure_with_any_options_and_without_payload() {
        // A block of SACK, and timestamps.
        let sack = [&[1, 1, 5, 10][..], &[7; 8]].concat();
        let stamps = [&[1, 1, 8, 10][..], &[7; 8]].concat();
        for options in [vec![], sack, stamps] {
            assert!(Segment::read(&segment(ACK, &options, b"")).is_pure_ack(), "{options:?}");
            assert!(!Segment::read(&segment(ACK, &options, b"x")).is_pure_ack(), "{options:?}");
        }
        // PSH says nothing; the others do.
        assert!(Segment::read(&segment(ACK | PSH, &[], b"")).is_pure_ack());
        for flags in [0, SYN | ACK, FIN | ACK, RST | ACK, RST] {
            assert!(!Segment::read(&segment(flags, &[], b"")).is_pure_ack(), "{flags:#x}");
        }
        let mut longer_header = segment(ACK, &[], b"");
        longer_header[12] = 6 << 4;
        let read = Segment::read(&longer_header);
        assert!(!read.is_pure_ack() && read.payload.is_none());
    }

    #[test]
    fn a_segment_ends_behind_its_octets_and_flags_modulo_two_to_the_32nd() {
        for (flags, payload, end) in
            [(ACK, 0, u32::MAX), (SYN, 0, 0), (FIN | ACK, 9, 9), (SYN | FIN, 9, 10), (ACK, 3, 2)]
        {
            let mut octets = segment(flags, &[], &vec![7; payload]);
            put_seq(&mut octets, u32::MAX);
            assert_eq!(Segment::read(&octets).end(), end, "{flags:#x} and {payload} octets");
        }
    }

    #[test]
    fn segments_carry_more_than_a_peer_may_ask_for() {
        for (options, taken) in [
            (&[][..], 536),
            (&[2, 4, 0, 0], 536),
            (&[2, 4, 0, 1], 48),
            (&[2, 4, 5, 180], 1460),
            (&[1, 3, 3, 7, 2, 4, 5, 180], 1460),
            // The list ends before it, or an option has no length.
            (&[0, 0, 0, 0, 2, 4, 5, 180], 536),
            (&[9, 0, 0, 0, 2, 4, 5, 180], 536),
        ] {
            let octets = segment(SYN, options, b"");
            assert_eq!(Segment::read(&octets).maximum_segment_size(), taken, "{options:?}");
        }
    }

    proptest! {
        #[test]
        fn no_header_harms_and_a_delivery_replaces_three_fields(
            octets in proptest::collection::vec(any::<u8>(), 20..100),
            seq: u32,
            ack: u32,
            flags: u8,
        ) {
            let segment = Segment::read(&octets);
            let _ = (segment.end(), segment.is_pure_ack(), segment.maximum_segment_size());
            let mut same = octets.clone();
            segment.delivery().write(&mut same);
            prop_assert_eq!(&same, &octets);
            let given = Delivery { seq, ack, flags };
            given.write(&mut same);
            prop_assert_eq!(Segment::read(&same).delivery(), given);
            for at in (0..4).chain([12]).chain(14..octets.len()) {
                prop_assert_eq!(same[at], octets[at]);
            }
        }
    }
}
