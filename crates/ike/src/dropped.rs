//! The last packet of a child tunnel that was about to leave in the clear.

use esp::plane::PacketSummary;
use std::time::{Duration, Instant};

/// The last packet of a child tunnel that the guard has dropped, as far as it has told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dropped {
    pub packet: PacketSummary,
    pub at: Instant,
    /// The time of the last event about such packets.
    pub told: Instant,
}

impl Dropped {
    /// The packet, and how long ago it was dropped.
    pub(crate) fn seen_from(&self, now: Instant) -> (PacketSummary, Duration) {
        (self.packet, now.saturating_duration_since(self.at))
    }
}
