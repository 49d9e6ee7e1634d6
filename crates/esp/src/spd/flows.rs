//! Which SA served the flow of a packet last time, so that the rules are searched once per flow and not per packet.

#![forbid(unsafe_code)]

use super::{Spd, Verdict};
use crate::header::Header;
use crate::outbound::Outbound;
use std::sync::{Arc, Weak};

/// Most flows that are remembered; of two that fall on one place the later counts. A power of two.
const PLACES: usize = 8192;

/// How often the SA of an outbound packet was known from its flow, and how often the rules were searched.
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
    /// Which of `entries`, counted from 1, a flow falls on; 0: none.
    places: Box<[u16]>,
    entries: Vec<(Flow, Weak<Outbound>)>,
    lookups: Lookups,
}

impl Flows {
    pub(crate) fn new() -> Self {
        Self {
            generation: 0,
            places: vec![0; PLACES].into(),
            entries: Vec::new(),
            lookups: Lookups::default(),
        }
    }

    /// What [`Spd::lookup`] says.
    pub(crate) fn look_up(&mut self, spd: &Spd, header: &Header) -> Verdict {
        // Before the search: what changes during it belongs to the next generation.
        let generation = spd.generation();
        if self.generation != generation {
            self.places.fill(0);
            self.entries.clear();
            self.generation = generation;
        }
        let flow = Flow::of(header);
        let place = flow.place();
        let at = usize::from(self.places[place]).wrapping_sub(1);
        if let Some((known, sa)) = self.entries.get(at)
            && *known == flow
            && let Some(sa) = sa.upgrade()
        {
            self.lookups.known += 1;
            return Verdict::Protect(sa);
        }
        self.lookups.searched += 1;
        let verdict = spd.lookup(header);
        if let Verdict::Protect(sa) = &verdict {
            self.remember(place, (flow, Arc::downgrade(sa)));
        }
        verdict
    }

    /// What was counted since the last call.
    pub(crate) fn take_lookups(&mut self) -> Lookups {
        std::mem::take(&mut self.lookups)
    }

    fn remember(&mut self, place: usize, entry: (Flow, Weak<Outbound>)) {
        match usize::from(self.places[place]).checked_sub(1) {
            Some(at) => self.entries[at] = entry,
            None => {
                self.entries.push(entry);
                self.places[place] = self.entries.len() as u16;
            }
        }
    }
}

/// All that rules, SAs and the filter ask of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    addresses: [u128; 2],
    /// Family, protocol, and the ports if there are any.
    rest: u64,
}

impl Flow {
    #[inline]
    pub(crate) fn of(header: &Header) -> Self {
        let ports = header.ports.map_or(0, |(source, destination)| {
            1 << 32 | u64::from(source) << 16 | u64::from(destination)
        });
        let kind = u64::from(header.protocol) << 40 | u64::from(header.ipv6) << 48;
        Self { addresses: [header.source, header.destination], rest: ports | kind }
    }

    /// One of [`PLACES`]. Who chooses flows so that they fall on one place has them searched for, no more.
    fn place(&self) -> usize {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let words = self.addresses.iter().flat_map(|bits| [(bits >> 64) as u64, *bits as u64]);
        let mixed =
            words.fold(self.rest, |mixed, word| (mixed ^ mixed >> 32).wrapping_mul(ODD) ^ word);
        (mixed.wrapping_mul(ODD) >> 40) as usize % PLACES
    }
}
