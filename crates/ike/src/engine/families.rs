//! IPsec of one address family, switched off and on: tunnels of a family that is off are taken down and not set up.
//!
//! A tunnel is of a family that is off if it runs between addresses of that family, or if all of its traffic is of that
//! family. A phase 2 tunnel with traffic of both families stays up; the data plane drops the part that is off.

use super::Engine;
use super::reconnect::auto_start;
use crate::close_reason::CloseReason;
use crate::failure::facts::FamilyOff;
use crate::families::{off, traffic_off};
use crate::session_id::SessionId;
use esp::families::Families;
use esp::plane::{DataPlane, FamilySwitching, PlaneError};
use std::collections::BTreeSet;
use std::time::Instant;

impl<P: DataPlane> Engine<P> {
    /// The address families that tunnels may use.
    pub fn families(&self) -> Families {
        self.config.families
    }

    /// Switches IPsec of address families off or on. With a family off, the data plane drops its traffic, its tunnels
    /// are taken down with a Delete, and no new ones are set up by either side. With a family on, the tunnels come back
    /// that were up or that start by themselves, unless the operator has taken them down.
    ///
    /// # Errors
    /// If the data plane refuses; then nothing changes.
    pub fn set_families(&mut self, now: Instant, families: Families) -> Result<(), PlaneError> {
        let before = self.config.families;
        if before == families {
            return Ok(());
        }
        if let Err(error) = self.plane.family_switching().set_families(families) {
            if let Err(error) = self.plane.family_switching().set_families(before) {
                tracing::error!(%error, "the data plane does not go back to the former families");
            }
            return Err(error);
        }
        let off_before = self.children_off();
        self.config.families = families;
        self.forget_half_open_of(|half| !families.has_address(half.begun.path.remote.ip()));
        self.take_down_off(now);
        self.bring_back(now, &off_before);
        Ok(())
    }

    /// Has the data plane begin with the families of the configuration.
    pub(super) fn begin_with_families(&mut self) {
        let families = self.config.families;
        if families != Families::default()
            && let Err(error) = self.plane.family_switching().set_families(families)
        {
            tracing::error!(%error, "the data plane does not block the family that is off");
        }
    }

    /// The reason why a phase 2 tunnel may not be up.
    pub(super) fn why_off(&self, child: &str) -> Option<FamilyOff> {
        let (tunnel, child) = self.policy.child(child)?;
        off(self.config.families, tunnel, child)
    }

    /// The names of the phase 2 tunnels that may not be up.
    fn children_off(&self) -> BTreeSet<String> {
        let families = self.config.families;
        let all = self.policy.tunnels.iter().flat_map(|t| t.children.iter().map(move |c| (t, c)));
        all.filter(|(tunnel, child)| off(families, tunnel, child).is_some())
            .map(|(_, child)| child.name.clone())
            .collect()
    }

    fn take_down_off(&mut self, now: Instant) {
        for name in self.reconnection.tried().cloned().collect::<Vec<_>>() {
            if self.why_off(&name).is_some() {
                if self.is_retrying(&name) {
                    self.reconnection.interrupt(&name);
                }
                self.forget_retry(&name);
            }
        }
        for id in self.sessions.ids() {
            self.take_down_session_off(now, id);
        }
    }

    /// Takes down a session, or the phase 2 tunnels of it, if its family is off.
    fn take_down_session_off(&mut self, now: Instant, id: SessionId) {
        let families = self.config.families;
        let Some(session) = self.sessions.get(id).filter(|s| !s.is_closing()) else { return };
        let asked_for = session.children().iter().map(|c| &c.tunnel);
        let wanted: Vec<_> = (session.tunnel().children.iter().chain(asked_for))
            .filter(|child| session.has_or_wants_child(&child.name))
            .cloned()
            .collect();
        let between_off = !families.has_address(session.path().remote.ip());
        let off: BTreeSet<String> = wanted
            .iter()
            .filter(|c| between_off || traffic_off(families, c).is_some())
            .map(|c| c.name.clone())
            .collect();
        let nothing_left = !off.is_empty() && wanted.iter().all(|child| off.contains(&child.name));
        off.iter().for_each(|name| self.reconnection.interrupt(name));
        if between_off || nothing_left {
            return self
                .with_session(now, id, |session, cx| session.close(cx, CloseReason::FamilyOff));
        }
        for name in off {
            self.with_session(now, id, |session, cx| session.drop_child(cx, &name).1);
        }
    }

    /// Starts the tunnels that may be up again.
    fn bring_back(&mut self, now: Instant, off_before: &BTreeSet<String>) {
        let off_now = self.children_off();
        let starting: BTreeSet<String> = (self.policy.tunnels.iter().flat_map(|t| auto_start(t)))
            .map(|child| child.name.clone())
            .collect();
        for name in off_before.difference(&off_now) {
            let wanted = self.reconnection.end_interruption(name) || starting.contains(name);
            if wanted && !self.reconnection.is_deactivated(name) {
                // A tunnel that only the peer may start waits for the peer.
                let _ = self.connect(now, name);
            }
        }
        // The others are gone from the policy, or were set up between addresses that it does not name.
        for name in self.reconnection.take_interrupted() {
            if off_now.contains(&name) {
                self.reconnection.interrupt(&name);
            } else if !self.reconnection.is_deactivated(&name) {
                let _ = self.connect(now, &name);
            }
        }
    }
}
