//! Parts of the data plane that others have removed from the host are put back.

use super::Engine;
use crate::deadlines::{Deadline, Waiter};
use esp::plane::{DataPlane, Maintenance};
use std::time::Instant;

/// Stands in events in place of a tunnel's name.
const HOST: &str = "host";

impl<P: DataPlane> Engine<P> {
    /// Others have changed the host: has the data plane look at its parts, at once or, after another look, in a moment.
    pub(super) fn host_changed(&mut self, now: Instant) {
        match self.upkeep.next_look(now) {
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
        let outcome = self.plane.maintenance().restore();
        let retry = self.upkeep.note(now, &outcome);
        let retry = retry.map(|at| Deadline { at, reason: "a part of the data plane" });
        self.deadlines.set(Waiter::Restoration, retry);
        if let Some(news) = self.upkeep.news(outcome) {
            self.out.event(HOST, None, news);
        }
    }
}
