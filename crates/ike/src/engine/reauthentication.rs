//! Reauthentication as seen from all sessions: one begins a successor, which takes over and then has it deleted.

use super::{CommandError, Engine};
use crate::effect::Effects;
use crate::exchange::sa_init;
use crate::session_id::SessionId;
use crate::task::Task;
use esp::plane::DataPlane;
use std::sync::Arc;
use std::time::Instant;

impl<P: DataPlane> Engine<P> {
    /// Has both sides of a phase 1 tunnel prove again who they are: a new IKE SA takes over all Child SAs without
    /// interruption.
    ///
    /// # Errors
    /// If there is no such tunnel, this side may not start it, or it is not up.
    pub fn reauthenticate(&mut self, now: Instant, name: &str) -> Result<(), CommandError> {
        let target = self.find(name)?;
        if !target.tunnel.role.may_initiate() {
            return Err(CommandError::ResponderOnly(name.into()));
        }
        let id =
            self.session_of(target.tunnel()).ok_or_else(|| CommandError::NotUp(name.into()))?;
        if !self.sessions.get(id).is_some_and(|s| s.is_established()) {
            return Err(CommandError::NotUp(name.into()));
        }
        self.begin_successor(now, id);
        Ok(())
    }

    /// Begins the session that is to replace one, unless one is on its way or there is nothing to take over.
    pub(super) fn begin_successor(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.sessions.get(id).filter(|s| s.is_established() && !s.is_closing())
        else {
            return;
        };
        // It is a successor itself that has not taken over yet.
        if session.is_taking_over() {
            return;
        }
        let tunnel = Arc::clone(session.tunnel());
        let begun = self.sessions_of(&tunnel.name).any(|(_, s)| s.predecessor() == Some(id));
        let names = session.to_be_taken_over();
        let Some(first) =
            tunnel.children.iter().find(|c| names.binary_search(&c.name).is_ok()).cloned()
        else {
            return;
        };
        if begun || self.stopping {
            return;
        }
        let path = session.path().for_another(self.config.first_port());
        let mut successor = sa_init::begin(&mut self.cx(now), &tunnel, &first, path);
        successor.succeed(id);
        let others = names.into_iter().filter(|n| *n != first.name);
        successor.queue_all(others.map(Task::CreateChild));
        self.take_in(now, successor, Effects::none());
    }

    /// A successor has come to nothing: its predecessor goes on, and tries again.
    pub(super) fn put_off_reauthentication(&mut self, now: Instant, id: SessionId) {
        self.with_session(now, id, |session, _| {
            session.put_off_reauthentication(now);
            Effects::none()
        });
    }

    /// Has the predecessor deleted once its successor has taken over what it served.
    pub(super) fn finish_succession(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.sessions.get(id).filter(|s| s.is_established() && !s.is_closing())
        else {
            return;
        };
        let Some(before) = session.predecessor() else { return };
        if self.sessions.get(before).is_some_and(|old| session.lacks_any_of(old)) {
            return;
        }
        if let Some(session) = self.sessions.get_mut(id) {
            session.end_succession();
        }
        if self.sessions.get(before).is_some_and(|old| !old.is_closing()) {
            self.close_in_favour_of(now, before, id);
        }
    }
}
