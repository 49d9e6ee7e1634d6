//! Packets that were about to leave in the clear.

use super::Engine;
use crate::event::EventKind;
use crate::outputs::Dropped;
use esp::plane::{DataPlane, Filtering, PacketSummary};
use esp::trace::DecidedBy;
use std::time::{Duration, Instant};

/// The pause between two events about the packets of one phase 2 tunnel.
const PAUSE: Duration = Duration::from_secs(60);

impl<P: DataPlane> Engine<P> {
    /// The guard has dropped a packet: its phase 2 tunnel is named.
    pub(super) fn note_unprotected(&mut self, now: Instant, packet: PacketSummary) {
        let Some(trace) = self.plane.filtering().trace(&packet) else { return };
        let child = match trace.leaving.decided_by {
            DecidedBy::Tunnel { tunnel, .. } | DecidedBy::RemoteNetwork { tunnel } => tunnel,
            DecidedBy::Always(_) | DecidedBy::Filter { .. } | DecidedBy::Default(_) => return,
        };
        let Some((tunnel, _)) = self.policy.child(&child) else { return };
        let told = self.out.unprotected.get(&child).map(|last| last.told);
        let told = told.filter(|told| now.saturating_duration_since(*told) < PAUSE);
        if told.is_none() {
            self.out.event(&tunnel.name, Some(&child), EventKind::Unprotected(packet));
        }
        let told = told.unwrap_or(now);
        self.out.unprotected.insert(child, Dropped { packet, at: now, told });
    }
}
