//! The times that exchanges take: from a request of this side until its answer.

mod frozen;

use std::time::Duration;

/// Upper bounds of the buckets of durations, in seconds: from a peer in the same rack to one that answers the last
/// repetition.
pub const BOUNDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

/// A histogram of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Durations {
    counts: [u64; BOUNDS.len() + 1],
    sum: Duration,
}

impl Durations {
    /// Counts one.
    pub fn note(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound);
        self.counts[bucket.unwrap_or(BOUNDS.len())] += 1;
        self.sum += duration;
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// The number of durations in each bucket, with its upper bound in seconds; the last bucket has none.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + use<> {
        BOUNDS.into_iter().chain([f64::INFINITY]).zip(self.counts)
    }
}

/// A kind of exchange that this side begins on an IKE SA that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Exchange {
    /// The question whether the peer is there (RFC 7296 §2.4).
    Liveness,
    /// The rekey of an IKE SA.
    RekeyIke,
    /// The rekey of a Child SA.
    RekeyChild,
    /// Another Child SA.
    NewChild,
    /// An additional key exchange of one of the three before (RFC 9370).
    FollowUp,
    /// News of addresses (RFC 4555).
    Addresses,
    /// The request for a ticket of session resumption (RFC 5723).
    Ticket,
    /// The end of SAs.
    Delete,
}

impl Exchange {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Liveness,
        Self::RekeyIke,
        Self::RekeyChild,
        Self::NewChild,
        Self::FollowUp,
        Self::Addresses,
        Self::Ticket,
        Self::Delete,
    ];

    /// Stable lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Liveness => "liveness",
            Self::RekeyIke => "rekey_ike",
            Self::RekeyChild => "rekey_child",
            Self::NewChild => "new_child",
            Self::FollowUp => "follow_up",
            Self::Addresses => "addresses",
            Self::Ticket => "ticket",
            Self::Delete => "delete",
        }
    }
}

/// The times from requests of this side to the peers' answers, by kind. Repetitions of a request are part of its time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExchangeDurations([Durations; Exchange::ALL.len()]);

impl ExchangeDurations {
    pub(crate) fn note(&mut self, exchange: Exchange, duration: Duration) {
        self.0[exchange as usize].note(duration);
    }

    /// Those of one kind.
    pub fn of(&self, exchange: Exchange) -> &Durations {
        &self.0[exchange as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_time_is_in_the_last_bucket() {
        let mut durations = Durations::default();
        for seconds in [0, 60, 61] {
            durations.note(Duration::from_secs(seconds));
        }
        let buckets: Vec<_> = durations.buckets().collect();
        assert_eq!([buckets[0], buckets[13]], [(0.001, 1), (60.0, 1)]);
        assert_eq!((buckets[14], durations.count()), ((f64::INFINITY, 1), 3));
    }

    #[test]
    fn each_kind_has_its_place() {
        let mut durations = ExchangeDurations::default();
        for (exchange, count) in Exchange::ALL.into_iter().zip(1..) {
            (0..count).for_each(|_| durations.note(exchange, Duration::ZERO));
        }
        let counts = Exchange::ALL.map(|exchange| durations.of(exchange).count());
        assert_eq!(counts, [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
