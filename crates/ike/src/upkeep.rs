//! The parts of the data plane on the host: when it looked at them last, and what it could not put back.

use crate::deadlines::after;
use crate::event::EventKind;
use esp::plane::{PlaneError, Restored};
use std::time::{Duration, Instant};

/// The pause before a second attempt to put back the same part. It doubles with each further one, up to the longest.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(8);

/// The shortest time between two looks at the host, which may change many times at once.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The state of the data plane's parts on the host.
#[derive(Default)]
pub(crate) struct Upkeep {
    /// When the data plane looked at its parts last.
    looked_at: Option<Instant>,
    /// The reason why a part could not be put back, which has been told.
    fault: Option<String>,
    /// Attempts in a row that have not put back all parts.
    failures: u32,
}

impl Upkeep {
    /// Returns `true` once the data plane has looked at its parts.
    pub fn has_looked(&self) -> bool {
        self.looked_at.is_some()
    }

    /// When the data plane may look at its parts again, if it has done so just now.
    pub fn next_look(&self, now: Instant) -> Option<Instant> {
        self.looked_at.map(|at| after(at, LOOK_EVERY)).filter(|at| now < *at)
    }

    /// Takes note of an attempt to put back all parts. Returns when to try again if a part is missing.
    pub fn note(
        &mut self,
        now: Instant,
        outcome: &Result<Restored, PlaneError>,
    ) -> Option<Instant> {
        self.looked_at = Some(now);
        let pause = RETRY.saturating_mul(1 << self.failures.min(16)).min(LONGEST_RETRY);
        self.failures = if outcome.is_ok() { 0 } else { self.failures + 1 };
        outcome.is_err().then(|| after(now, pause))
    }

    /// The event that tells of an attempt, if there is news.
    pub fn news(&mut self, outcome: Result<Restored, PlaneError>) -> Option<EventKind> {
        let fault = outcome.as_ref().err().map(ToString::to_string);
        let before = std::mem::replace(&mut self.fault, fault);
        match outcome {
            Ok(restored) => {
                (restored != Restored::default()).then_some(EventKind::Restored(restored))
            }
            // The same reason as a second ago is told once.
            Err(_) if before == self.fault => None,
            Err(error) => Some(EventKind::Warning(format!(
                "a part of the data plane is missing and cannot be put back: packets of the tunnels may not pass, or nothing else may keep them from leaving in the clear: {error}"
            ))),
        }
    }
}
