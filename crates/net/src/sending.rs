//! The octets that all connections together have under way.
//!
//! Octets that are not acknowledged stand in the queues between the ends, where each connection gets on in proportion to
//! its own. So each may have as many as are left for all: connections that send as much as they can come to have equally
//! many, though the first ones have longer buffers, and those that send little leave the rest to others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The part of the memory of all buffers that may be under way. Of 1 GiB it fills a path of 5 Gbit/s and 25 ms, and
/// the buffer of a UDP socket that a gateway may have: what is more would be lost there.
const PART: usize = 64;
/// Octets that every connection may have in its send buffer.
const LEAST: usize = 16 << 10;
/// Less than this part of its limit is not worth a turn of a connection: it would leave in short packets.
const WORTH: usize = 4;

/// The octets that all connections have under way.
#[derive(Debug)]
pub(crate) struct Sending {
    together: usize,
    queued: AtomicUsize,
}

impl Sending {
    /// `memory`: octets of the buffers of all connections.
    pub fn new(memory: usize) -> Self {
        Self { together: memory / PART, queued: AtomicUsize::new(0) }
    }

    /// A connection had `before` octets under way, and has `now`.
    pub fn changes(&self, [before, now]: [usize; 2]) {
        match now.checked_sub(before) {
            // Most packets change nothing, and threads share the number.
            Some(0) => {}
            Some(more) => _ = self.queued.fetch_add(more, Ordering::Relaxed),
            None => _ = self.queued.fetch_sub(before - now, Ordering::Relaxed),
        }
    }

    /// The octets of all connections.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Octets that a connection may put into its send buffer beside those that are there. If it is none, more of them
    /// are acknowledged first.
    pub fn room(&self, queued: usize) -> usize {
        let limit = self.together.saturating_sub(self.queued()).max(LEAST);
        match limit.saturating_sub(queued) {
            little if little < limit / WORTH => 0,
            // What it takes is no longer left for all, so the limit comes to meet it.
            room => (room / 2).max(LEAST.saturating_sub(queued)),
        }
    }
}

/// The octets that one connection has under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    all: Arc<Sending>,
    octets: usize,
}

impl UnderWay {
    pub fn new(all: Arc<Sending>) -> Self {
        Self { all, octets: 0 }
    }

    /// The connection has so many octets under way now.
    pub fn becomes(&mut self, octets: usize) {
        self.all.changes([std::mem::replace(&mut self.octets, octets), octets]);
    }

    /// See [`Sending::room`].
    pub fn room(&self, queued: usize) -> usize {
        self.all.room(queued)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.becomes(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: usize = 1 << 30;
    const BUFFER: usize = 1 << 20;

    /// Has connections, which have so many octets in their buffers, put as many as they may, one after the other by
    /// chance, after an eighth is acknowledged. Returns how many each has at last.
    fn settle(sending: &Sending, mut queues: Vec<usize>) -> Vec<usize> {
        queues.iter().for_each(|queue| sending.changes([0, *queue]));
        let mut chance = 1_usize;
        for _ in 0..400 * queues.len() {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (chance >> 33) % queues.len();
            let left = queues[at] - queues[at] / 8;
            sending.changes([queues[at], left]);
            queues[at] = left + sending.room(left).min(BUFFER - left);
            sending.changes([left, queues[at]]);
        }
        queues
    }

    #[test]
    fn connections_that_send_as_much_as_they_can_have_equally_many_octets_under_way() {
        for number in [10, 100, 500] {
            let mut queues = vec![0; number];
            // The first ones were there before the others.
            queues[..number / 4].fill(BUFFER);
            let queues = settle(&Sending::new(MEMORY), queues);
            let [least, most] =
                [queues.iter().min(), queues.iter().max()].map(|q| *q.expect("some"));
            assert!(least * 2 > most, "{least} and {most} of {number}");
            let all: usize = queues.iter().sum();
            assert!(all > MEMORY / PART / 2 && all <= MEMORY / PART, "{all} of {number}");
        }
    }

    #[test]
    fn very_many_connections_have_a_little_each() {
        let queues = settle(&Sending::new(MEMORY), vec![0; 10_000]);
        assert!(queues.iter().all(|queue| *queue > LEAST / 2 && *queue <= LEAST), "{queues:?}");
    }

    #[test]
    fn connections_that_send_little_leave_the_rest_to_others() {
        let sending = Sending::new(MEMORY);
        (0..1000).for_each(|_| sending.changes([0, 1000]));
        assert!(sending.room(0) > 7_500_000);
        (0..1000).for_each(|_| sending.changes([1000, 0]));
        assert_eq!(sending.room(0), MEMORY / PART / 2);
    }
}
