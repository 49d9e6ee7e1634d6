//! A rate limit: a bucket that fills slowly and holds little.

#![forbid(unsafe_code)]

use std::time::Duration;

/// Takes one drop for each event; while it is empty, none may happen. Times are since some epoch and never go back.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// Most drops it holds.
    capacity: u32,
    /// The time in which one drop flows in.
    every: Duration,
    /// The time of the next drop, if each had been taken as late as possible.
    next: Duration,
}

impl Bucket {
    /// A full one.
    pub(crate) fn new(capacity: u32, every: Duration) -> Self {
        Self { capacity, every, next: Duration::ZERO }
    }

    /// Takes a drop, if there is one.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        let next = self.next.max(now);
        if next > now + self.every * (self.capacity - 1) {
            return false;
        }
        self.next = next + self.every;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_one_by_one() {
        let mut bucket = Bucket::new(3, Duration::from_secs(2));
        let mut taken = |ms| (0..10).filter(|_| bucket.take(Duration::from_millis(ms))).count();
        assert_eq!(taken(0), 3);
        assert_eq!(taken(1_999), 0);
        assert_eq!(taken(2_000), 1);
        assert_eq!(taken(5_999), 1);
        assert_eq!(taken(6_000), 1);
        assert_eq!(taken(3_600_000), 3);
    }
}
