//! Parts of the data plane that others have removed from the host are put back.

use super::Engine;
use crate::deadlines::{Deadline, Waiter, after};
use crate::event::EventKind;
use esp::plane::{DataPlane, Maintenance, Restored};
use std::time::{Duration, Instant};

/// Stands in events in place of a tunnel's name.
const HOST: &str = "host";

/// The pause before a second attempt to put back the same part. It doubles with each further one, up to the longest.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(8);

/// The shortest time between two looks at the host, which may change many times at once.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl<P: DataPlane> Engine<P> {
    /// Others have changed the host: has the data plane look at its parts, at once or, after another look, in a moment.
    pub(super) fn host_changed(&mut self, now: Instant) {
        match self.restored_at.map(|at| after(at, LOOK_EVERY)).filter(|at| now < *at) {
            Some(at) => {
                let look = Deadline { at, reason: "a look at the data plane's parts" };
                self.deadlines.set(Waiter::Restoration, Some(look));
            }
            None => self.restore(now),
        }
    }

    /// Has the data plane put back its parts that others have removed from the host ([`Maintenance::restore`]), and
    /// tells of it. If a part cannot be put back, the next attempt follows after a second, and further ones after
    /// growing pauses.
    pub fn restore(&mut self, now: Instant) {
        self.restored_at = Some(now);
        let outcome = self.plane.maintenance().restore();
        let pause = RETRY.saturating_mul(1 << self.restore_failures.min(16)).min(LONGEST_RETRY);
        self.restore_failures = if outcome.is_ok() { 0 } else { self.restore_failures + 1 };
        let retry = Deadline { at: after(now, pause), reason: "a part of the data plane" };
        self.deadlines.set(Waiter::Restoration, outcome.is_err().then_some(retry));
        let fault = outcome.as_ref().err().map(ToString::to_string);
        let kind = match outcome {
            Ok(restored) if restored != Restored::default() => EventKind::Restored(restored),
            // The same reason as a second ago is told once.
            Err(_) if self.plane_fault == fault => return,
            Err(error) => EventKind::Warning(format!(
                "a part of the data plane is missing and cannot be put back: packets of the tunnels may not pass, or nothing else may keep them from leaving in the clear: {error}"
            )),
            Ok(_) => {
                self.plane_fault = None;
                return;
            }
        };
        self.plane_fault = fault;
        self.out.event(HOST, None, kind);
    }
}
