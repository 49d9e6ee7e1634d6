//! The SA that served a flow last time, so that the rules are searched once per flow and not per packet.

#![forbid(unsafe_code)]

use super::{Spd, Verdict};
use crate::header::Header;
use crate::outbound::Outbound;
use crate::prefetch;
use std::sync::{Arc, Weak};

/// The number of sets among which the hash of a flow selects one; a power of two.
const SETS: usize = 16_384;

/// The flows that a set has room for; a new one replaces the oldest. With flows as many as half of all entries, all but
/// a few in a hundred find room.
const WAYS: usize = 4;

/// More flows than this may have so many SAs that a core's cache does not hold them beside packets.
const MANY: usize = 256;

/// Most packets for which what they need is asked for together.
pub(crate) const AHEAD: usize = 16;

/// The number of outbound packets whose SA was known from their flow, and of those for which the rules were searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// The flow was known.
    pub known: u64,
    /// The rules were searched.
    pub searched: u64,
}

impl std::ops::AddAssign for Lookups {
    fn add_assign(&mut self, other: Self) {
        self.known += other.known;
        self.searched += other.searched;
    }
}

/// The flows that one thread has seen since rules, SAs or the filter last changed.
///
/// It does not keep SAs alive: keys are wiped when the SA goes, not when the next packet comes.
pub(crate) struct Flows {
    /// Of the [`Spd`] when the first of `entries` was found.
    generation: u64,
    /// The entries that a flow may be, the newest first.
    sets: Box<[[TaggedIndex; WAYS]]>,
    entries: Vec<Entry>,
    lookups: Lookups,
}

/// The number of an entry, counted from 1, below some of its flow's hash, so that others are not looked at; 0: none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TaggedIndex(u32);

/// One line of a cache.
#[repr(align(64))]
struct Entry {
    flow: Flow,
    sa: Weak<Outbound>,
}

impl Entry {
    /// The SA, if it is that flow's and still there.
    fn sa_of(&self, flow: &Flow) -> Option<Arc<Outbound>> {
        if self.flow == *flow { self.sa.upgrade() } else { None }
    }
}

impl Flows {
    pub(crate) fn new() -> Self {
        Self {
            generation: 0,
            sets: vec![[TaggedIndex::NONE; WAYS]; SETS].into(),
            entries: Vec::new(),
            lookups: Lookups::default(),
        }
    }

    /// The verdict of [`Spd::lookup`], from memory if possible.
    pub(crate) fn look_up(&mut self, spd: &Spd, header: &Header) -> Verdict {
        // Before the search: a change during it belongs to the next generation.
        let generation = spd.generation();
        if self.generation != generation {
            if !self.entries.is_empty() {
                self.sets.fill([TaggedIndex::NONE; WAYS]);
                self.entries.clear();
            }
            self.generation = generation;
        }
        let flow = spd.flow(header);
        let (set, tag) = flow.bucket();
        let known = self.candidates(set, tag).find_map(|entry| entry.sa_of(&flow));
        if let Some(sa) = known {
            self.lookups.known += 1;
            return Verdict::Protect(sa);
        }
        self.lookups.searched += 1;
        let verdict = spd.lookup(header);
        if let Verdict::Protect(sa) = &verdict {
            self.remember(set, tag, Entry { flow, sa: Arc::downgrade(sa) });
        }
        verdict
    }

    /// The entries that a flow with that place may be.
    fn candidates(&self, set: usize, tag: u32) -> impl Iterator<Item = &Entry> {
        let places = self.sets[set].iter().take_while(|place| **place != TaggedIndex::NONE);
        let places = places.filter(move |place| place.tag() == tag);
        places.filter_map(|place| self.entries.get(place.entry()))
    }

    /// Returns `true` if there are so many that [`prefetch`](Self::prefetch) pays.
    pub(crate) fn are_many(&self) -> bool {
        self.entries.len() > MANY
    }

    /// Has what protecting packets of these flows will read be in the cache, for the first [`AHEAD`] of them.
    pub(crate) fn prefetch(&self, spd: &Spd, headers: impl Iterator<Item = Header>) {
        let mut places = [(0, 0); AHEAD];
        let mut count = 0;
        for (place, header) in places.iter_mut().zip(headers) {
            *place = spd.flow(&header).bucket();
            prefetch::soon(&self.sets[place.0]);
            count += 1;
        }
        let first = places[..count].iter().filter_map(|at| self.candidates(at.0, at.1).next());
        first.clone().for_each(prefetch::soon);
        first.clone().for_each(|entry| prefetch::soon_at(entry.sa.as_ptr()));
        first.filter_map(|entry| entry.sa.upgrade()).for_each(|sa| sa.prefetch());
    }

    /// The counters since the last call.
    pub(crate) fn take_lookups(&mut self) -> Lookups {
        std::mem::take(&mut self.lookups)
    }

    fn remember(&mut self, set: usize, tag: u32, entry: Entry) {
        let set = &mut self.sets[set];
        let oldest = set[WAYS - 1];
        let number = match oldest {
            TaggedIndex::NONE if self.entries.len() < TaggedIndex::MOST => {
                self.entries.push(entry);
                self.entries.len()
            }
            TaggedIndex::NONE => return,
            oldest => {
                self.entries[oldest.entry()] = entry;
                oldest.entry() + 1
            }
        };
        set.rotate_right(1);
        set[0] = TaggedIndex::new(tag, number);
    }
}

impl TaggedIndex {
    const NONE: Self = Self(0);
    /// Entries that there are numbers for.
    const MOST: usize = (1 << Self::BITS) - 1;
    const BITS: u32 = 16;

    /// Of the entry of that number, counted from 1.
    fn new(tag: u32, number: usize) -> Self {
        Self(tag | number as u32)
    }

    fn tag(self) -> u32 {
        self.0 >> Self::BITS << Self::BITS
    }

    fn entry(self) -> usize {
        ((self.0 & Self::MOST as u32) as usize).wrapping_sub(1)
    }
}

/// All that rules, SAs and the filter ask of a packet: addresses and protocol, and the ports where any of them names
/// some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    addresses: [u128; 2],
    /// Family, protocol, and the ports if there are any.
    rest: u64,
}

impl Flow {
    #[inline]
    pub(crate) fn of(header: &Header, by_port: bool) -> Self {
        let ports = header.ports.filter(|_| by_port).map_or(0, |(source, destination)| {
            1 << 32 | u64::from(source) << 16 | u64::from(destination)
        });
        let kind = u64::from(header.protocol) << 40 | u64::from(header.ipv6) << 48;
        Self { addresses: [header.source, header.destination], rest: ports | kind }
    }

    /// One of [`SETS`], and a tag to tell the flow by from most others there. An attacker who chooses flows that fall
    /// on one set only causes a search for each of them.
    fn bucket(&self) -> (usize, u32) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let words = self.addresses.iter().flat_map(|bits| [(bits >> 64) as u64, *bits as u64]);
        let mixed =
            words.fold(self.rest, |mixed, word| (mixed ^ mixed >> 32).wrapping_mul(ODD) ^ word);
        let mixed = mixed.wrapping_mul(ODD);
        (
            (mixed >> 40) as usize % SETS,
            (mixed >> 8) as u32 >> TaggedIndex::BITS << TaggedIndex::BITS,
        )
    }
}
