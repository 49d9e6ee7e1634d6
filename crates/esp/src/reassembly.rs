//! Puts together the fragments of this host's own packets that are to go in transport mode, which carries none
//! (RFC 4301 §4.1, §7): the device's MTU has the kernel fragment what an application sends in one piece. A stack
//! behind the datapath puts together the fragments that come out of tunnels ([`Reassembler`]).

#![forbid(unsafe_code)]

use crate::discard::Discard;
use crate::header::{FRAGMENT, Fragment, Header};
use crate::ip::{IPV4_LEN, IPV6_LEN, Sum, put_word, word_at};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// The time that the first fragment waits for the last. RFC 791 §3.2 names 15 seconds, RFC 8200 §4.5 sixty; here
/// fragments come within a system call of each other.
const PATIENCE: Duration = Duration::from_secs(15);

/// Most packets that wait, and most octets of them.
const PACKETS: usize = 64;
const OCTETS: usize = 1 << 20;

/// Octets of the longest payload of a packet.
const LONGEST: usize = 65_535 - IPV4_LEN;

/// Octets of the shortest payload of a fragment that others follow: that of the smallest MTU (RFC 791 §3.2: 68 octets,
/// with the header). Shorter ones make many pieces of few octets.
const SHORTEST: usize = 68 - IPV4_LEN;

const FRAGMENT_HEADER: usize = 8;

/// The fields that the fragments of one packet share (RFC 791 §3.2, RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    identification: u32,
}

/// Puts together the fragments that come out of tunnels: at most 64 packets and 1 MiB wait, 15 seconds.
#[derive(Debug, Default)]
pub struct Reassembler(Reassembly);

impl Reassembler {
    /// Takes in a packet, `now` after some fixed time. Returns the whole packet if it was the missing fragment. `None`:
    /// it is no fragment, others are missing, or it was refused.
    pub fn take(&mut self, now: Duration, packet: &[u8]) -> Option<Vec<u8>> {
        let header = Header::parse(packet).filter(|header| header.fragment != Fragment::Whole)?;
        self.0.take(now, packet, &header, &|| {}).ok().flatten()
    }
}

/// Packets of which some fragments are there.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    waiting: BTreeMap<Name, Waiting>,
    octets: usize,
}

#[derive(Debug)]
struct Waiting {
    since: Duration,
    /// The header of the first fragment, once it is there.
    header: Option<Vec<u8>>,
    /// Payloads by their offsets; they do not overlap.
    parts: BTreeMap<usize, Vec<u8>>,
    /// Octets in them.
    octets: usize,
    /// Octets of the whole payload, once the last fragment is there.
    len: Option<usize>,
}

/// One fragment.
struct Part<'p> {
    name: Name,
    offset: usize,
    more: bool,
    header: &'p [u8],
    payload: &'p [u8],
}

impl Reassembly {
    /// Takes in a fragment; gives the packet if it was the missing one. Refuses what overlaps, with all that is there
    /// of its packet (RFC 5722), and what finds no room. Packets that waited too long go with one call of `expired` for
    /// each of their fragments.
    pub(crate) fn take(
        &mut self,
        now: Duration,
        packet: &[u8],
        header: &Header,
        expired: &dyn Fn(),
    ) -> Result<Option<Vec<u8>>, Discard> {
        self.expire(now, expired);
        let part = Part::of(packet, header).ok_or(Discard::TransportFragment)?;
        let end = part.offset + part.payload.len();
        // Only the last may end anywhere.
        let len = part.payload.len();
        let odd = part.more && (!len.is_multiple_of(8) || len < SHORTEST);
        if end > LONGEST || odd || part.payload.is_empty() {
            return Err(Discard::TransportFragment);
        }
        while !self.has_place(&part) {
            if !self.displace(part.name, expired) {
                return Err(Discard::TransportFragment);
            }
        }
        let waiting = self.waiting.entry(part.name).or_insert_with(|| Waiting {
            since: now,
            header: None,
            parts: BTreeMap::new(),
            octets: 0,
            len: None,
        });
        if !waiting.has_room(part.offset, end, part.more) {
            self.forget(part.name);
            return Err(Discard::TransportFragment);
        }
        if part.offset == 0 {
            waiting.header = Some(part.header.to_vec());
        }
        if !part.more {
            waiting.len = Some(end);
        }
        waiting.parts.insert(part.offset, part.payload.to_vec());
        waiting.octets += len;
        self.octets += len;
        let whole = waiting.whole(part.name.protocol);
        if whole.is_some() {
            self.forget(part.name);
        }
        Ok(whole)
    }

    fn has_place(&self, part: &Part<'_>) -> bool {
        let known = self.waiting.contains_key(&part.name);
        self.octets + part.payload.len() <= OCTETS && (known || self.waiting.len() < PACKETS)
    }

    /// Forgets the oldest packet of the source that has most packets here, unless the source of this one has as many:
    /// no source keeps the others out. Returns `false` if there is none to forget.
    fn displace(&mut self, name: Name, expired: &dyn Fn()) -> bool {
        let mut packets: BTreeMap<IpAddr, usize> = BTreeMap::new();
        self.waiting.keys().for_each(|name| *packets.entry(name.source).or_default() += 1);
        let own = packets.get(&name.source).copied().unwrap_or(0);
        let most = packets.into_iter().max_by_key(|(_, packets)| *packets);
        let Some((source, _)) = most.filter(|(_, packets)| *packets > own + 1) else {
            return false;
        };
        let of_source = self.waiting.iter().filter(|(name, _)| name.source == source);
        let oldest = of_source.min_by_key(|(_, waiting)| waiting.since).map(|(name, _)| *name);
        oldest.map(|name| (0..self.forget(name)).for_each(|_| expired())).is_some()
    }

    fn expire(&mut self, now: Duration, expired: &dyn Fn()) {
        let stale = self.waiting.iter().filter(|(_, w)| now.saturating_sub(w.since) > PATIENCE);
        let names: Vec<Name> = stale.map(|(name, _)| *name).collect();
        for name in names {
            (0..self.forget(name)).for_each(|_| expired());
        }
    }

    /// Returns how many fragments there were.
    fn forget(&mut self, name: Name) -> usize {
        let Some(waiting) = self.waiting.remove(&name) else { return 0 };
        self.octets -= waiting.octets;
        waiting.parts.len()
    }
}

impl Waiting {
    /// Returns `true` if no other fragment covers these octets.
    fn has_room(&self, start: usize, end: usize, more: bool) -> bool {
        let before = self.parts.range(..=start).next_back();
        let free = before.is_none_or(|(at, part)| at + part.len() <= start && *at != start)
            && self.parts.range(start..).next().is_none_or(|(at, _)| end <= *at);
        let last = self.parts.last_key_value().map_or(0, |(at, part)| at + part.len());
        let ends = match self.len {
            Some(len) => more && end < len,
            None => more || end >= last,
        };
        free && ends
    }

    fn whole(&self, protocol: u8) -> Option<Vec<u8>> {
        let (header, len) = (self.header.as_ref()?, self.len?);
        if self.octets != len {
            return None;
        }
        let mut packet: Vec<u8> = Vec::with_capacity(header.len() + len);
        packet.extend(header);
        self.parts.values().for_each(|part| packet.extend(part));
        if packet[0] >> 4 == 4 {
            let total = packet.len() as u16;
            put_word(&mut packet, 2, total);
            put_word(&mut packet, 6, 0);
            put_word(&mut packet, 10, 0);
            let checksum = Sum::default().octets(&packet[..header.len()]).finish();
            put_word(&mut packet, 10, checksum);
        } else {
            let payload = (packet.len() - IPV6_LEN) as u16;
            put_word(&mut packet, 4, payload);
            // RFC 8200 §4.5: the header that the fragment header named follows the one before it.
            packet[6] = protocol;
        }
        Some(packet)
    }
}

impl<'p> Part<'p> {
    /// `None` for what is no fragment, or has anything between the IP header and what is fragmented.
    fn of(packet: &'p [u8], header: &Header) -> Option<Self> {
        let packet = packet.get(..header.len)?;
        if !header.ipv6 {
            let (fixed, payload) = packet.split_at_checked(IPV4_LEN)?;
            let field = word_at(fixed, 6);
            return (fixed[0] == 0x45 && field & 0x3fff != 0).then(|| Self {
                name: Name::of(header, fixed[9], word_at(fixed, 4).into()),
                offset: usize::from(field & 0x1fff) * 8,
                more: field & 0x2000 != 0,
                header: fixed,
                payload,
            });
        }
        let (fixed, rest) = packet.split_first_chunk::<IPV6_LEN>()?;
        let (extension, payload) = rest.split_first_chunk::<FRAGMENT_HEADER>()?;
        let field = word_at(extension, 2);
        (fixed[6] == FRAGMENT).then(|| Self {
            name: Name::of(
                header,
                extension[0],
                u32::from_be_bytes([extension[4], extension[5], extension[6], extension[7]]),
            ),
            offset: usize::from(field & !7),
            more: field & 1 != 0,
            header: fixed,
            payload,
        })
    }
}

impl Name {
    fn of(header: &Header, protocol: u8, identification: u32) -> Self {
        let (source, destination) = (header.source(), header.destination());
        Self { source, destination, protocol, identification }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fragment::Fragments;
    use crate::sample;
    use proptest::prelude::*;
    use std::cell::Cell;

    fn take(into: &mut Reassembly, now: u64, part: &[u8]) -> Result<Option<Vec<u8>>, Discard> {
        let header = Header::parse(part).expect("whole");
        into.take(Duration::from_secs(now), part, &header, &|| panic!("nothing expires"))
    }

    fn fragments(
        ipv6: bool,
        payload: usize,
        mtu: usize,
        identification: u8,
    ) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut packet = sample::udp(ipv6, (1, 2), &sample::payload(payload));
        let mut parts = Vec::new();
        if ipv6 {
            let chunk = (mtu - 48) & !7;
            let total = packet.len() - 40;
            for at in (0..total).step_by(chunk) {
                let end = (at + chunk).min(total);
                let more = u8::from(end < total);
                let mut part = packet[..40].to_vec();
                put_word(&mut part, 4, (8 + end - at) as u16);
                let next = std::mem::replace(&mut part[6], FRAGMENT);
                part.extend([next, 0]);
                part.extend((at as u16 | u16::from(more)).to_be_bytes());
                part.extend([0, 0, 0, identification]);
                part.extend(&packet[40 + at..40 + end]);
                parts.push(part);
            }
        } else {
            put_word(&mut packet, 6, 0);
            packet[5] = identification;
            put_word(&mut packet, 10, 0);
            let sum = sample::checksum(&packet[..20]);
            put_word(&mut packet, 10, sum);
            let mut cut = packet.clone();
            let mut fragments = Fragments::new(&mut cut, 20, mtu);
            while let Some(fragment) = fragments.next() {
                parts.push(fragment.to_vec());
            }
        }
        (packet, parts)
    }

    proptest! {
        #[test]
        fn any_order_makes_the_packet(ipv6: bool, payload in 1500..30_000usize, mtu in 200..1500usize, seed: u64) {
            let (packet, mut parts) = fragments(ipv6, payload, mtu, 7);
            let mut state = seed;
            for i in (1..parts.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                parts.swap(i, (state >> 33) as usize % (i + 1));
            }
            let mut reassembly = Reassembly::default();
            let (last, others) = parts.split_last().expect("some");
            for part in others {
                prop_assert_eq!(take(&mut reassembly, 0, part), Ok(None));
            }
            prop_assert!(take(&mut reassembly, 0, last) == Ok(Some(packet)));
            prop_assert_eq!((reassembly.waiting.len(), reassembly.octets), (0, 0));
        }
    }

    #[test]
    fn an_overlapping_fragment_discards_its_whole_packet() {
        for ipv6 in [false, true] {
            let (packet, parts) = fragments(ipv6, 3000, 1000, 1);
            let (_, others) = fragments(ipv6, 3000, 600, 1);
            let mut reassembly = Reassembly::default();
            assert_eq!(take(&mut reassembly, 0, &parts[0]), Ok(None));
            assert_eq!(take(&mut reassembly, 0, &others[1]), Err(Discard::TransportFragment));
            assert_eq!((reassembly.waiting.len(), reassembly.octets), (0, 0));
            // A duplicate overlaps, too.
            assert_eq!(take(&mut reassembly, 0, &parts[0]), Ok(None));
            assert_eq!(take(&mut reassembly, 0, &parts[0]), Err(Discard::TransportFragment));
            for part in &parts[..parts.len() - 1] {
                assert_eq!(take(&mut reassembly, 0, part), Ok(None));
            }
            assert_eq!(take(&mut reassembly, 0, &parts[parts.len() - 1]), Ok(Some(packet)));
        }
    }

    #[test]
    fn waiting_fragments_are_bounded_in_number_octets_and_time() {
        let mut reassembly = Reassembly::default();
        let (_, parts) = fragments(true, 3000, 1000, 0);
        for identification in 0..=255 {
            let mut part = parts[0].clone();
            part[47] = identification;
            let outcome = take(&mut reassembly, 0, &part);
            assert_eq!(outcome.is_ok(), usize::from(identification) < PACKETS);
        }
        let (header, expired) = (Header::parse(&parts[1]).expect("whole"), Cell::new(0));
        let count = || expired.set(expired.get() + 1);
        let after = PATIENCE + Duration::from_millis(1);
        assert_eq!(reassembly.take(after, &parts[1], &header, &count), Ok(None));
        assert_eq!((expired.get(), reassembly.waiting.len()), (PACKETS, 1));

        let mut reassembly = Reassembly::default();
        let mut refused = 0;
        for identification in 0..20 {
            let (_, parts) = fragments(false, 65_000, 1400, identification);
            for part in &parts[1..] {
                refused += usize::from(take(&mut reassembly, 0, part).is_err());
            }
        }
        assert!(refused > 0 && reassembly.octets <= OCTETS, "{refused} {}", reassembly.octets);
    }

    #[test]
    fn one_source_does_not_keep_the_others_out() {
        // As many packets as there is room for, and as many octets.
        for (payload, identifications) in [(3000, 0..=255), (65_000, 0..=16)] {
            let mut reassembly = Reassembly::default();
            for identification in identifications {
                let (_, parts) = fragments(false, payload, 1400, identification);
                let header = Header::parse(&parts[1]).expect("whole");
                parts[1..].iter().for_each(|part| {
                    // Those that find no room are refused.
                    let _ = reassembly.take(Duration::ZERO, part, &header, &|| {});
                });
            }
            let before = reassembly.waiting.len();
            let (_, mut parts) = fragments(false, 3000, 1400, 1);
            parts.iter_mut().for_each(|part| part[15] ^= 1);
            let displaced = Cell::new(0);
            let mut whole = Vec::new();
            for part in &parts {
                let header = Header::parse(part).expect("whole");
                let count = || displaced.set(displaced.get() + 1);
                whole.push(reassembly.take(Duration::ZERO, part, &header, &count).expect("room"));
            }
            assert!(whole.last().is_some_and(Option::is_some), "{whole:?}");
            assert!(displaced.get() > 0 && reassembly.waiting.len() == before - 1);
            assert!(reassembly.octets <= OCTETS);
        }
    }

    #[test]
    fn a_fragment_shorter_than_any_link_makes_is_refused() {
        for (ipv6, around) in [(false, IPV4_LEN), (true, IPV6_LEN + FRAGMENT_HEADER)] {
            let mut reassembly = Reassembly::default();
            let (_, parts) = fragments(ipv6, 3000, around + SHORTEST - 8, 1);
            assert_eq!(take(&mut reassembly, 0, &parts[1]), Err(Discard::TransportFragment));
            assert_eq!((reassembly.waiting.len(), reassembly.octets), (0, 0));
            let (packet, parts) = fragments(ipv6, 3000, around + SHORTEST, 2);
            let (last, others) = parts.split_last().expect("some");
            for (at, part) in others.iter().enumerate() {
                assert_eq!(take(&mut reassembly, 0, part), Ok(None));
                assert_eq!(reassembly.octets, (at + 1) * SHORTEST);
            }
            // The last one may be short.
            assert!(take(&mut reassembly, 0, last) == Ok(Some(packet)));
            assert_eq!((reassembly.waiting.len(), reassembly.octets), (0, 0));
        }
    }

    #[test]
    fn a_stack_gets_packets_whole() {
        for ipv6 in [false, true] {
            let (packet, parts) = fragments(ipv6, 3000, 1000, 1);
            let mut reassembler = Reassembler::default();
            let taken = parts.iter().map(|part| reassembler.take(Duration::ZERO, part));
            let whole: Vec<Vec<u8>> = taken.flatten().collect();
            assert!(whole == [packet.clone()]);
            assert_eq!(reassembler.take(Duration::ZERO, &packet), None);
        }
    }

    #[test]
    fn ends_that_contradict_are_refused() {
        let (_, parts) = fragments(false, 3000, 1000, 1);
        let mut reassembly = Reassembly::default();
        let mut ends_early = parts[1].clone();
        ends_early[6] &= !0x20;
        assert_eq!(take(&mut reassembly, 0, &parts[2]), Ok(None));
        assert_eq!(take(&mut reassembly, 0, &ends_early), Err(Discard::TransportFragment));
        let mut odd = parts[0].clone();
        odd.pop();
        let len = odd.len() as u16;
        put_word(&mut odd, 2, len);
        assert_eq!(take(&mut reassembly, 0, &odd), Err(Discard::TransportFragment));
    }
}
