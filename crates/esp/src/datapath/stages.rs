//! The two directions in steps, so that different threads can take them: the steps that need the order of the packets are
//! apart from the cryptography, which needs no order and costs the time.
//!
//! Out: [`Sender::admit`](super::Sender::admit) in order, [`Datapath::seal`] anywhere; sealed packets are sent in
//! order. In: [`Datapath::open_ahead`] anywhere, [`Datapath::settle`] in order, which hands out what may go on.

use super::{Arrival, Datapath, Outgoing, Shared};
use crate::gso::Gso;
use crate::header::Header;
use crate::inbound::{Ahead, Inbound};
use crate::outbound::{NumberedPacket, Outbound};
use crate::queue::{ReceiveQueue, SendQueue};
use crate::spd::Verdict;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// A packet or super-packet that has its SA and its sequence numbers.
pub struct Admitted {
    sa: Arc<Outbound>,
    numbered: NumberedPacket,
    /// The packet that was joined from fragments; it replaces the fragment that came last.
    joined: Option<Vec<u8>>,
}

/// Packets that were opened before their turn, in the order they came.
#[derive(Default)]
pub struct Opened {
    groups: Vec<Group>,
    packets: Vec<(Ahead, Arrival)>,
    /// The position of each of `packets`.
    places: Vec<(usize, Range<usize>)>,
    numbers: Vec<u64>,
}

/// Consecutive packets of one SA.
struct Group {
    sa: Arc<Inbound>,
    packets: Range<usize>,
    /// The number of packets that the queue held before.
    first: usize,
}

impl Opened {
    /// Forgets all packets and keeps the memory.
    pub fn clear(&mut self) {
        self.groups.clear();
        self.packets.clear();
        self.places.clear();
    }
}

impl Datapath {
    /// The second half of [`Datapath::encapsulate`]: protects the very packet that was admitted, and appends what comes
    /// of it to `queue`.
    pub fn seal(&self, now: Instant, admitted: Admitted, packet: &mut [u8], queue: &mut SendQueue) {
        let Admitted { sa, numbered, mut joined } = admitted;
        let packet = joined.as_deref_mut().unwrap_or(packet);
        let shared = &*self.0;
        if let Err(discard) = sa.seal(shared.since_epoch(now), &numbered, packet, queue) {
            shared.counters.count(discard);
        }
    }

    /// Opens ESP packets that arrived together, as [`Datapath::decapsulate_run`] does, but before their turn. `place`
    /// is the caller's name for the message they came in, and where in it they begin.
    pub fn open_ahead(
        &self,
        place: (usize, usize),
        datagrams: &[u8],
        segment_len: usize,
        arrival: Arrival,
        opened: &mut Opened,
        queue: &mut ReceiveQueue,
    ) {
        let segment_len = segment_len.max(1);
        let (message, at) = place;
        let lookups = self.0.for_each_run(datagrams, segment_len, &arrival, |sa, offset, run| {
            opened.open((message, at + offset), run, segment_len, sa, arrival, queue);
        });
        queue.looked_up(lookups);
    }

    /// Commits what was opened ahead, now that everything before it has been, and hands what passes to `write`.
    /// `octets` gives those of a message; `again` is scratch space.
    pub fn settle<'o>(
        &self,
        now: Instant,
        opened: &mut Opened,
        queue: &mut ReceiveQueue,
        octets: &dyn Fn(usize) -> &'o [u8],
        again: &mut ReceiveQueue,
        write: &mut dyn FnMut(&[u8], Gso),
    ) {
        let shared = &*self.0;
        let now = shared.since_epoch(now);
        let count = |discard| _ = shared.counters.count(discard);
        let Opened { groups, packets, places, numbers } = opened;
        let ends = groups.iter().skip(1).map(|group| group.first).chain([queue.cut()]);
        for (group, end) in groups.iter().zip(ends) {
            let ahead = &packets[group.packets.clone()];
            let settled =
                group.sa.settle(now, ahead, numbers, &count, &|notice| shared.notify(notice));
            if settled {
                queue.part(group.first..end).for_each(|(packet, gso)| write(packet, gso));
                continue;
            }
            again.clear();
            let mut receiving = group.sa.receive();
            let places = &places[group.packets.clone()];
            for ((message, place), (_, arrival)) in places.iter().zip(ahead) {
                let datagram = octets(*message).get(place.clone()).unwrap_or_default();
                if let Err(discard) = receiving.open(now, datagram, arrival, again) {
                    count(discard);
                }
            }
            receiving.finish(&|notice| shared.notify(notice));
            again.packets().for_each(|(packet, gso)| write(packet, gso));
        }
        // An SA that was deleted meanwhile goes with the last of its packets.
        opened.clear();
    }
}

impl Shared {
    /// The first half of [`Datapath::encapsulate`]: finds the SA by `look_up` and claims sequence numbers. `None` if
    /// nothing is to be sent, for which the reason has been counted.
    pub(super) fn claim(
        &self,
        now: Instant,
        packet: &mut [u8],
        gso: Gso,
        look_up: &mut impl FnMut(&Header) -> Verdict,
    ) -> Option<Admitted> {
        let now = self.since_epoch(now);
        let mut packet = Outgoing::new(packet, gso);
        loop {
            let (sa, header) = self.choose_sa(now, &mut packet, look_up).ok()??;
            let gso = packet.gso;
            let admitted = sa.admit(packet.octets(), header, gso, &|notice| self.notify(notice));
            match admitted {
                Ok(numbered) => return Some(Admitted { sa, numbered, joined: packet.joined }),
                Err(unsent) if self.try_again(now, &mut packet, unsent).ok()? => {}
                Err(_) => return None,
            }
        }
    }
}

impl Opened {
    fn open(
        &mut self,
        (message, mut at): (usize, usize),
        datagrams: &[u8],
        segment_len: usize,
        sa: &Arc<Inbound>,
        arrival: Arrival,
        queue: &mut ReceiveQueue,
    ) {
        let first = self.packets.len();
        if self.groups.last().is_none_or(|group| !Arc::ptr_eq(&group.sa, sa)) {
            // Packets of two SAs are settled apart, and must not be put together.
            let written = queue.cut();
            self.groups.push(Group { sa: Arc::clone(sa), packets: first..first, first: written });
        }
        sa.open_ahead(datagrams.chunks(segment_len), &arrival, queue, &mut self.packets);
        self.places.extend(datagrams.chunks(segment_len).map(|datagram| {
            let place = at..at + datagram.len();
            at = place.end;
            (message, place)
        }));
        if let Some(group) = self.groups.last_mut() {
            group.packets.end = self.packets.len();
        }
    }
}
