//! Moments, as times from the moment of freezing.

use std::time::{Duration, Instant};

/// The moment of freezing, as the process that writes or reads knows it.
///
/// An [`Instant`] has no meaning in another process. The successor is told how long ago the state was frozen, so that
/// its lifetimes go on to age while nobody runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    frozen_at: Instant,
}

impl Clock {
    /// Counts from this moment.
    pub fn new(frozen_at: Instant) -> Self {
        Self { frozen_at }
    }

    /// Nanoseconds from the moment of freezing; negative before it. A moment that is centuries away is as far away as
    /// can be written.
    pub fn of(&self, at: Instant) -> i64 {
        let nanoseconds = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        match at.checked_duration_since(self.frozen_at) {
            Some(later) => nanoseconds(later),
            None => -nanoseconds(self.frozen_at.saturating_duration_since(at)),
        }
    }

    /// The moment that many nanoseconds from the moment of freezing. One that this system's clock cannot tell is the
    /// moment of freezing.
    pub fn at(&self, nanoseconds: i64) -> Instant {
        let time = Duration::from_nanos(nanoseconds.unsigned_abs());
        let at = match nanoseconds < 0 {
            true => self.frozen_at.checked_sub(time),
            false => self.frozen_at.checked_add(time),
        };
        at.unwrap_or(self.frozen_at)
    }
}
