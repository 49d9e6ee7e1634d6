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
    /// The last number that somebody has; [`CLOSED`] once there are no more, [`FROZEN`] while there are none.
    used: AtomicU64,
    /// The value of `used` before the first number was given, and when it was closed or frozen.
    begun: AtomicU64,
    ended: AtomicU64,
}

/// No number, because the highest that can be the last is below.
const CLOSED: u64 = u64::MAX;

/// No number for now: another process may go on with the SA. It is above [`Sequence::HIGHEST`], as [`CLOSED`] is, so
/// that a claim meets it without a look of its own.
const FROZEN: u64 = CLOSED - 1;

/// The reason why there is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoNumber {
    /// It would be above the last.
    Exhausted,
    /// There never will be one again.
    Closed,
    /// There is none until it is thawed.
    Frozen,
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
            Err(FROZEN) => Err(NoNumber::Frozen),
            Err(_) => Err(NoNumber::Exhausted),
        }
    }

    /// Gives no more numbers. A thread that finds it closed sees what was done before. To be called once, and not while
    /// others ask what was given.
    pub(crate) fn close(&self) {
        match self.used.swap(CLOSED, AcqRel) {
            // `ended` has the number since then.
            FROZEN => {}
            used => self.ended.store(used, Release),
        }
    }

    /// Gives no more numbers until it is [thawed](Self::thaw). Afterwards, [`used`](Self::used) is the last number that
    /// anybody has or will have. Not to be called while others ask what was given.
    pub(crate) fn freeze(&self) {
        let frozen = self.used.fetch_update(AcqRel, Acquire, |used| {
            let is_open = used < FROZEN;
            is_open.then_some(FROZEN)
        });
        if let Ok(used) = frozen {
            self.ended.store(used, Release);
        }
    }

    /// Gives numbers again, from the one behind the last.
    pub(crate) fn thaw(&self) {
        let used = self.ended.load(Acquire);
        // One that is closed, or gives numbers, stays as it is.
        let _ = self.used.compare_exchange(FROZEN, used, Release, Relaxed);
    }

    /// The last number that somebody has.
    pub(crate) fn used(&self) -> u64 {
        match self.used.load(Acquire) {
            CLOSED | FROZEN => self.ended.load(Acquire),
            used => used,
        }
    }

    /// The number of sequence numbers given.
    pub(crate) fn given(&self) -> u64 {
        self.used() - self.begun.load(Relaxed)
    }

    /// Leaves out the next `count` numbers, as far as `last`. Returns how many those are; `None`: it gives no numbers.
    pub(crate) fn skip(&self, count: u64, last: u64) -> Option<u64> {
        let skipped = self.used.fetch_update(Relaxed, Acquire, |used| {
            let is_open = used <= Self::HIGHEST;
            is_open.then(|| used + count.min(last.saturating_sub(used)))
        });
        skipped.ok().map(|used| count.min(last.saturating_sub(used)))
    }

    /// Goes on after `used`; nobody may have asked for a number yet.
    pub(crate) fn reset(&self, used: u64) {
        self.go_on(used, used);
    }

    /// Goes on after `used`, as if the numbers behind `begun` had been given here; nobody may have asked for a number
    /// yet. A frozen one stays frozen.
    pub(crate) fn go_on(&self, begun: u64, used: u64) {
        self.begun.store(begun, Relaxed);
        self.ended.store(used, Relaxed);
        if self.used.load(Relaxed) != FROZEN {
            self.used.store(used, Relaxed);
        }
    }
}
