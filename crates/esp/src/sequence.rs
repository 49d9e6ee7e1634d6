//! Sequence numbers of an SA that sends (RFC 4303 §3.3.3).

#![forbid(unsafe_code)]

use crate::sync::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// The half of a sequence number that travels.
#[inline]
pub(crate) fn low(sequence: u64) -> u32 {
    (sequence & u64::from(u32::MAX)) as u32
}

/// The half of an extended sequence number that both ends count and no packet carries.
#[inline]
pub(crate) fn high(sequence: u64) -> u32 {
    (sequence >> 32) as u32
}

/// Gives every number once, however many threads ask, and how many it has given is known exactly once it is closed.
pub(crate) struct Sequence {
    /// The last number that somebody has; [`CLOSED`] once there are no more.
    used: AtomicU64,
    /// The value of `used` before the first number was given, and when it was closed.
    begun: AtomicU64,
    ended: AtomicU64,
}

/// No number, because the highest that can be the last is below.
const CLOSED: u64 = u64::MAX;

/// The reason why there is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoNumber {
    /// It would be above the last.
    Exhausted,
    /// There never will be one again.
    Closed,
}

impl Sequence {
    /// The highest that can be the last number. Nobody lives to see it; it is there so that arithmetic on sequence
    /// numbers cannot overflow.
    pub(crate) const HIGHEST: u64 = CLOSED - (1 << 32);

    /// So that the next number is the one after `used`.
    pub(crate) fn after(used: u64) -> Self {
        Self {
            used: AtomicU64::new(used),
            begun: AtomicU64::new(used),
            ended: AtomicU64::new(used),
        }
    }

    /// The first of `count` consecutive numbers that nobody else has, none of them above `last`, which is
    /// [`HIGHEST`](Self::HIGHEST) at most.
    pub(crate) fn claim(&self, count: u64, last: u64) -> Result<u64, NoNumber> {
        let claimed = self.used.fetch_update(Relaxed, Acquire, |used| {
            // Never past the end, so that no failed attempt, however often repeated, makes the counter begin again.
            used.checked_add(count).filter(|used| *used <= last)
        });
        match claimed {
            Ok(used) => Ok(used + 1),
            Err(CLOSED) => Err(NoNumber::Closed),
            Err(_) => Err(NoNumber::Exhausted),
        }
    }

    /// Gives no more numbers. A thread that finds it closed sees what was done before. To be called once, and not while
    /// others ask what was given.
    pub(crate) fn close(&self) {
        self.ended.store(self.used.swap(CLOSED, AcqRel), Release);
    }

    /// The last number that somebody has.
    pub(crate) fn used(&self) -> u64 {
        match self.used.load(Acquire) {
            CLOSED => self.ended.load(Acquire),
            used => used,
        }
    }

    /// The number of sequence numbers given.
    pub(crate) fn given(&self) -> u64 {
        self.used() - self.begun.load(Relaxed)
    }

    /// Goes on after `used`; nobody may have asked for a number yet.
    pub(crate) fn reset(&self, used: u64) {
        self.begun.store(used, Relaxed);
        self.used.store(used, Relaxed);
    }
}
