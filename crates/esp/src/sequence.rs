//! Sequence numbers of an SA that sends (RFC 4303 §3.3.3).

#![forbid(unsafe_code)]

use crate::sync::{AtomicU64, Ordering::Relaxed};

/// Gives every number once, however many threads ask.
pub(crate) struct Sequence(AtomicU64);

impl Sequence {
    /// So that the next number is the one after `used`.
    pub(crate) fn after(used: u64) -> Self {
        Self(AtomicU64::new(used))
    }

    /// The first of `count` consecutive numbers that nobody else has, none of them above `last`.
    pub(crate) fn claim(&self, count: u64, last: u64) -> Option<u64> {
        // Never past the end, so that no failed attempt, however often repeated, makes the counter begin anew.
        let claim = |used: u64| (used + count <= last).then_some(used + count);
        self.0.fetch_update(Relaxed, Relaxed, claim).ok().map(|used| used + 1)
    }

    /// The last number that somebody has.
    pub(crate) fn used(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Goes on after `used`; nobody may have asked for a number yet.
    pub(crate) fn reset(&self, used: u64) {
        self.0.store(used, Relaxed);
    }
}
