//! Requests that wait until the data plane is prepared for what they ask for.

use super::Engine;
use crate::exchange::auth::preparing;
use crate::exchange::half_open::HalfOpen;
use esp::plane::{DataPlane, remove_rules};
use std::time::Instant;

impl<P: DataPlane> Engine<P> {
    /// Keeps a half-open IKE SA whose IKE_AUTH request may wait for the plane.
    pub(super) fn keep_preparing(&mut self, half: Box<HalfOpen>) {
        if half.is_preparing() {
            self.postponed.insert(half.begun.local_spi);
        }
        self.keep_half_open(half);
    }

    /// Goes on with the requests that wait for the plane. Those for which it is not prepared yet wait again.
    pub(super) fn plane_prepared(&mut self, now: Instant) {
        for spi in std::mem::take(&mut self.postponed) {
            if let Some(id) = self.sessions.of_spi(spi) {
                self.with_session(now, id, |session, cx| session.respond_to_postponed(cx, spi));
                continue;
            }
            let Some(half) = self.strangers.take(spi) else { continue };
            match preparing::resume(&mut self.cx(now), *half) {
                Ok((ends, answer)) => self.take_answer(now, spi, ends, answer),
                Err(half) => self.strangers.keep(half),
            }
        }
    }

    /// Forgets the rules for which the plane prepares. A request that waits for that asks again.
    pub(super) fn forget_preparations(&mut self) {
        remove_rules(&mut self.plane, &self.rules.take_unplaced());
    }

    /// Forgets the rules that half-open IKE SAs have asked for and nothing uses any more.
    pub(super) fn forget_unused_rules(&mut self) {
        for tunnel in self.rules.tunnels_of_unplaced() {
            self.sync_asked_for_rules(&tunnel);
        }
    }
}
