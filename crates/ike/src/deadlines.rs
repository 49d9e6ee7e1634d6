//! The next wake-up over everything that waits, with its reason.

use crate::session_id::SessionId;
use crate::wire::header::IkeSpi;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A wait that is as good as none: a hundred years.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The moment after a wait. A wait of more than a hundred years, such as `Duration::MAX` for "never", ends in a hundred
/// years: the sum cannot overflow.
pub(crate) fn after(now: Instant, wait: Duration) -> Instant {
    now + wait.min(NEVER)
}

/// A wait that has grown by a factor; one that overflows is `Duration::MAX`.
pub(crate) fn times(wait: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(wait.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

/// When the engine next wants [`Engine::handle_timeout`](crate::Engine::handle_timeout), and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// When.
    pub at: Instant,
    /// Why, for logs.
    pub reason: &'static str,
}

/// The owner of a deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waiter {
    Session(SessionId),
    HalfOpen(IkeSpi),
    /// A phase 1 tunnel that is to be tried again.
    Retry(String),
    /// A redundant session that the peer began, and may not close.
    Redundant(SessionId),
    FinalAnswers,
    /// A part of the data plane could not be put back.
    Restoration,
}

/// At most one deadline per waiter, in order of time.
#[derive(Default)]
pub(crate) struct Deadlines {
    by_time: BTreeSet<(Instant, Waiter)>,
    by_waiter: BTreeMap<Waiter, Deadline>,
}

impl Deadlines {
    /// Sets, moves or clears a waiter's deadline.
    pub fn set(&mut self, waiter: Waiter, deadline: Option<Deadline>) {
        if let Some(old) = self.by_waiter.remove(&waiter) {
            self.by_time.remove(&(old.at, waiter.clone()));
        }
        if let Some(deadline) = deadline {
            self.by_time.insert((deadline.at, waiter.clone()));
            self.by_waiter.insert(waiter, deadline);
        }
    }

    /// When a waiter's time comes.
    pub fn of(&self, waiter: &Waiter) -> Option<Instant> {
        self.by_waiter.get(waiter).map(|d| d.at)
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Deadline> {
        self.by_time.first().and_then(|(_, waiter)| self.by_waiter.get(waiter)).copied()
    }

    /// The number of waiters.
    pub fn len(&self) -> usize {
        self.by_waiter.len()
    }

    /// The owners of the deadlines.
    pub fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.by_waiter.keys()
    }

    /// Takes the earliest waiter whose time has come.
    pub fn take_due(&mut self, now: Instant) -> Option<Waiter> {
        let (_, waiter) = self.by_time.first().filter(|(at, _)| *at <= now)?.clone();
        self.set(waiter.clone(), None);
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_moves() {
        let now = Instant::now();
        let at = |s, reason| Some(Deadline { at: now + Duration::from_secs(s), reason });
        let mut deadlines = Deadlines::default();
        deadlines.set(Waiter::Session(SessionId(1)), at(5, "a"));
        deadlines.set(Waiter::Session(SessionId(2)), at(3, "b"));
        assert_eq!(deadlines.next(), at(3, "b"));
        deadlines.set(Waiter::Session(SessionId(2)), at(9, "c"));
        assert_eq!(deadlines.next(), at(5, "a"));
        assert_eq!(deadlines.take_due(now), None);
        assert_eq!(
            deadlines.take_due(now + Duration::from_secs(6)),
            Some(Waiter::Session(SessionId(1)))
        );
        deadlines.set(Waiter::Session(SessionId(2)), None);
        assert_eq!(deadlines.next(), None);
    }
}
