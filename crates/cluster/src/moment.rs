//! Times of one node.

use std::time::Duration;

/// A time on one node's CLOCK_BOOTTIME, which runs while the machine sleeps and is never set. Moments of two nodes cannot be
/// compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The start of the machine. As a fence: closed.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// The moment at which the clock shows `since_boot`.
    pub const fn new(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// The clock's reading.
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment plus a duration, at most the last one that there is.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}
