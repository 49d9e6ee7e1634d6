//! Reauthentication: a new IKE SA with all Child SAs is up before the old one is deleted (RFC 7296 §2.8.3, RFC 4478).
//!
//! SAs stay up when a certificate expires: only the next authentication fails.

use super::Session;
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::deadlines::after;
use crate::effect::{Effect, Effects};
use crate::sa::active::Active;
use crate::sa::attempt::Attempt;
use crate::sa::child::ChildState;
use crate::session_id::SessionId;
use crate::task::Task;
use crate::wire::parts::{Parts, status};
use crate::wire::payload::Payload;
use crate::wire::registry::NotifyType;
use esp::plane::Spi;
use policy::IkeTunnel;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// A peer that wants to be authenticated more often than this is not obeyed (RFC 4478 §5).
const SHORTEST: Duration = Duration::from_secs(10);

/// The pause after an attempt that came to nothing.
const PAUSE: Duration = Duration::from_secs(10);

/// Where a session stands between its predecessor and its successor.
#[derive(Debug, Default)]
pub(super) struct Reauthentication {
    /// When this side begins a successor.
    pub(super) at: Option<Instant>,
    /// When this side gives up the session: nobody has proved again by then who the sides are.
    pub(super) by: Option<Instant>,
    /// The session whose Child SAs it takes over; that is deleted once all of them are there.
    pub(super) succeeds: Option<SessionId>,
    /// The peer began it beside another session. Until the peer is known to have them, its Child SAs leave sending to
    /// those of the other one: when to ask the peer next.
    pub(super) relieves_at: Option<Instant>,
}

impl Session {
    /// The session whose Child SAs this one takes over, until it has done so.
    pub fn predecessor(&self) -> Option<SessionId> {
        self.reauthentication.succeeds
    }

    /// It takes over the Child SAs of another session.
    pub fn succeed(&mut self, predecessor: SessionId) {
        self.reauthentication.succeeds = Some(predecessor);
    }

    /// It has taken over what its predecessor served.
    pub fn end_succession(&mut self) {
        self.reauthentication.succeeds = None;
    }

    /// Returns `true` if it is a successor that has not taken over yet.
    pub fn is_taking_over(&self) -> bool {
        self.reauthentication.succeeds.is_some() || self.waits_for_predecessor()
    }

    /// Returns `true` if its Child SAs leave sending to those of the session before.
    pub fn waits_for_predecessor(&self) -> bool {
        self.reauthentication.relieves_at.is_some()
    }

    /// Sets the time of the next authentication for the side that begins it; the peer's answer may ask for an earlier
    /// one. The end of the session, if there is none, follows from this side's configuration alone.
    pub fn plan_reauthentication(&mut self, cx: &mut Context<'_>, parts: &Parts<'_>) {
        let theirs = parts.notify(NotifyType::AUTH_LIFETIME);
        let theirs =
            theirs.and_then(|n| Some(u32::from_be_bytes(n.data.as_slice().try_into().ok()?)));
        let theirs = theirs.map(|seconds| Duration::from_secs(seconds.into()).max(SHORTEST));
        let ours = cx.config.reauthenticate.map(|age| age.saturating_sub(self.resumed_after(cx)));
        let within = [ours, theirs].into_iter().flatten().min();
        if let Some(within) = within.filter(|_| self.begun_here()) {
            let at = cx.jittered(within - within / 10, within);
            self.reauthentication.at =
                Some(self.reauthentication.at.map_or(at, |before| before.min(at)));
            self.limit(cx);
        }
    }

    /// Returns `true` if this side can begin a successor, whose IKE_SA_INIT takes the path in use.
    pub fn may_begin_successor(&self) -> bool {
        let IkeTunnel { role, remote, .. } = &*self.tunnel;
        self.begun_here() || role.may_initiate() && remote.address.is_some()
    }

    /// An attempt to begin a successor has come to nothing. A peer that began the session itself may take none, so it
    /// is not asked again before it refuses another rekey.
    pub fn put_off_reauthentication(&mut self, now: Instant) {
        if self.begun_here() {
            self.reauthentication.at = Some(after(now, PAUSE));
        }
    }

    /// Sets the end of a session without another authentication, once: no rekey and no message of the peer puts it off.
    fn limit(&mut self, cx: &Context<'_>) {
        let Some(lifetime) = cx.config.reauthenticate else { return };
        // A resumption puts the next authentication off no further (RFC 5723 §5).
        let lifetime = lifetime.saturating_sub(self.resumed_after(cx));
        let end = after(cx.now, lifetime.saturating_add(cx.config.patience()));
        self.reauthentication.by.get_or_insert(end);
    }

    /// The AUTH_LIFETIME that a responder sends in IKE_AUTH (RFC 4478 §2).
    pub fn limit_authentication(&mut self, cx: &Context<'_>) -> Option<Payload> {
        let lifetime = cx.config.reauthenticate?;
        self.limit(cx);
        let lifetime = lifetime.saturating_sub(self.resumed_after(cx)).max(Duration::from_secs(1));
        let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
        Some(status(NotifyType::AUTH_LIFETIME, seconds.to_be_bytes().to_vec()))
    }

    /// Has its Child SAs wait with sending until the peer is known to have them. The peer shows it when it answers a
    /// liveness check, or when it deletes the session before. The first check is sent at once, because a peer that has
    /// restarted may have forgotten that session.
    pub fn wait_for_predecessor(&mut self, now: Instant) {
        self.reauthentication.relieves_at = Some(now);
    }

    /// The Child SAs that leave sending to those of the session before, by inbound SPI.
    pub fn standing_by(&self) -> Vec<Spi> {
        if self.reauthentication.relieves_at.is_none() {
            return Vec::new();
        }
        let replacing: HashSet<Spi> = (self.children.iter())
            .filter_map(|c| match c.state {
                ChildState::Replaced(successor) => Some(successor),
                ChildState::Established | ChildState::Unwanted => None,
            })
            .collect();
        let waiting = self.children.iter().filter(|c| c.standby).map(|c| c.spi_in);
        waiting.filter(|spi| !replacing.contains(spi)).collect()
    }

    /// Does what is due.
    pub fn age_authentication(&mut self, cx: &mut Context<'_>) -> Effects {
        if self.reauthentication.relieves_at.is_some_and(|at| at <= cx.now) {
            let patience = cx.config.patience();
            if self.established_at.is_some_and(|at| after(at, patience) <= cx.now) {
                self.relieve(cx);
            } else {
                self.reauthentication.relieves_at = Some(after(cx.now, cx.config.retransmit_after));
                if !self.standing_by().is_empty() && !self.tasks.contains(&Task::Liveness) {
                    self.tasks.push_back(Task::Liveness);
                }
            }
        }
        if self.reauthentication.by.is_some_and(|by| by <= cx.now) {
            self.reauthentication.by = None;
            return match self.begun_here() {
                true => self.close_and_reconnect(cx, CloseReason::NotReauthenticated),
                false => self.close(cx, CloseReason::NotReauthenticated),
            };
        }
        if self.reauthentication.at.is_some_and(|at| at <= cx.now) {
            // Until then one is on its way, or there is nothing to take over at the moment.
            self.put_off_reauthentication(cx.now);
            return Effect::SuccessorDue.into();
        }
        Effects::none()
    }

    /// Lets its Child SAs send that have waited for the session before it.
    pub fn relieve(&mut self, cx: &mut Context<'_>) {
        let waiting = self.standing_by();
        self.reauthentication.relieves_at = None;
        waiting.into_iter().for_each(|spi| self.promote_child(cx, spi));
    }

    /// The earliest moment at which [`Session::age_authentication`] has something to do.
    pub fn reauthentication_due(&self) -> Option<Instant> {
        let Reauthentication { at, by, relieves_at, .. } = self.reauthentication;
        [at, by, relieves_at].into_iter().flatten().min()
    }

    /// The phase 2 tunnels that a successor has to take over.
    pub fn to_be_taken_over(&self) -> Vec<String> {
        let serving = self.children.iter().filter(|c| c.state == ChildState::Established);
        let mut names: Vec<String> = serving.map(|c| c.tunnel.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns `true` if a phase 2 tunnel that the session `before` serves is still being set up here.
    pub fn lacks_any_of(&self, before: &Self) -> bool {
        let first = self.attempt.as_ref().and_then(Attempt::wanted_child).map(|c| &c.name);
        let under_way = self.sas.iter().filter_map(|sa| match &sa.state.active {
            Some(Active::Child(p)) if !p.unwanted => Some(&p.tunnel.name),
            _ => None,
        });
        let delayed = self.tasks.delayed().filter_map(|(_, task)| match task {
            Task::CreateChild(name) => Some(name),
            _ => None,
        });
        (first.into_iter().chain(under_way).chain(delayed).chain(self.tasks.creating())).any(
            |name| {
                self.serving_child(name).is_none()
                    && before.children.of_tunnel(name).any(|c| c.state == ChildState::Established)
            },
        )
    }
}
