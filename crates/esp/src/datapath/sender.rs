//! The way out as one thread takes it.

#![forbid(unsafe_code)]

use super::stages::Admitted;
use super::{Datapath, Discard};
use crate::gso::Gso;
use crate::header::Header;
use crate::queue::SendQueue;
use crate::spd::{AHEAD, Flows, Lookups, Verdict};
use std::time::Instant;

/// One thread's way out through a [`Datapath`]: it remembers which SA serves a flow.
pub struct Sender {
    datapath: Datapath,
    flows: Flows,
}

impl Datapath {
    /// Makes a way out for one thread.
    pub fn sender(&self) -> Sender {
        Sender { datapath: self.clone(), flows: Flows::new() }
    }
}

impl Sender {
    /// Does what [`Datapath::encapsulate`] does.
    pub fn encapsulate(
        &mut self,
        now: Instant,
        packet: &mut [u8],
        gso: Gso,
        queue: &mut SendQueue,
    ) -> Result<(), Discard> {
        let (shared, flows) = (&*self.datapath.0, &mut self.flows);
        shared
            .encapsulate(now, packet, gso, queue, &mut |header| flows.look_up(&shared.spd, header))
    }

    /// The number of packets to collect before the first is given to [`encapsulate`](Self::encapsulate). It is above
    /// one if SAs are probably in no cache, so that [`prefetch`](Self::prefetch) can load several of them together.
    pub fn ahead(&self) -> usize {
        if self.flows.are_many() { AHEAD } else { 1 }
    }

    /// Has what it takes to protect these packets be in the cache. It has no other effect.
    pub fn prefetch<'p>(&self, packets: impl Iterator<Item = &'p [u8]>) {
        self.flows.prefetch(&self.datapath.0.spd, packets.filter_map(Header::parse));
    }

    /// The first half of it: finds the SA and claims sequence numbers. `None` if nothing is to be sent, for which the
    /// reason has been counted. [`Datapath::seal`] is the second.
    pub fn admit(&mut self, now: Instant, packet: &mut [u8], gso: Gso) -> Option<Admitted> {
        let (shared, flows) = (&*self.datapath.0, &mut self.flows);
        shared.claim(now, packet, gso, &mut |header| flows.look_up(&shared.spd, header))
    }

    /// Returns `true` if an SA serves such a packet.
    pub(crate) fn is_protected(&mut self, header: &Header) -> bool {
        let verdict = self.flows.look_up(&self.datapath.0.spd, header);
        matches!(verdict, Verdict::Protect(_))
    }

    /// The look-ups of flows since the last call.
    pub fn take_lookups(&mut self) -> Lookups {
        self.flows.take_lookups()
    }
}
