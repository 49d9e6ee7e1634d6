//! The end of IKE SAs, Child SAs and whole sessions.

use super::outcome::{Ending, Outcome};
use super::{Life, Session, most_children};
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::deadlines::after;
use crate::effect::{Effect, Effects, Lingering};
use crate::event::EventKind;
use crate::failure::{Failure, FailureKind};
use crate::sa::active::Active;
use crate::sa::attempt::Attempt;
use crate::sa::child::{ChildSa, ChildState, History, LatePackets};
use crate::sa::follow_up::Awaited;
use crate::sa::{IkeSa, Phase};
use crate::task::Task;
use crate::wire::header::IkeSpi;
use esp::plane::Spi;
use policy::ChildTunnel;
use std::time::{Duration, Instant};

/// The time for which a superseded IKE SA waits for the peer to delete it.
const SUPERSEDED_FOR: Duration = Duration::from_secs(60);

impl Session {
    /// The facts that a session leaves behind, once it is over.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The time for which it has been up; nothing if no Child SA of it ever was.
    pub fn served_for(&self, now: Instant) -> Duration {
        let since = self.established_at.filter(|_| self.has_served);
        since.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }

    /// The first Child SA cannot be set up: the IKE SA that was to carry it is refused.
    pub fn note_failed(&mut self, child: &str) {
        self.outcome.failed.push(child.to_owned());
    }

    /// Ends it because the peer has ended it.
    pub fn end_by_peer(
        &mut self,
        cx: &mut Context<'_>,
        reason: CloseReason,
        failure: Option<Failure>,
    ) -> Effects {
        self.outcome.ending = Ending::ByPeer;
        self.end(cx, reason, failure)
    }

    /// Ends it because the peer knows nothing of it any more.
    pub fn end_unknown(&mut self, cx: &mut Context<'_>, reason: CloseReason) -> Effects {
        self.outcome.ending = Ending::Unanswered;
        self.end(cx, reason, None)
    }

    /// Puts an IKE SA in the place of another: it carries what comes next.
    pub fn supersede(&mut self, cx: &mut Context<'_>, old: IkeSpi, new: IkeSpi) {
        self.current = new;
        if let Some(sa) = self.sas.iter_mut().find(|sa| sa.local_spi == old) {
            sa.state.phase = Phase::Superseded;
            sa.state.expire_at = sa.state.expire_at.min(cx.now + SUPERSEDED_FOR);
        }
        self.tasks.retain(|t| *t != Task::RekeyIke(old));
    }

    /// Takes everything down with a Delete at once, even if that was to wait.
    pub fn close(&mut self, cx: &mut Context<'_>, reason: CloseReason) -> Effects {
        if self.is_closing() {
            self.tasks.hurry(|_, _| true);
            return Effects::none();
        }
        self.take_down(cx, reason, Duration::ZERO)
    }

    /// Stops to use its Child SAs, and has the IKE SAs deleted after `pause`.
    fn take_down(&mut self, cx: &mut Context<'_>, reason: CloseReason, pause: Duration) -> Effects {
        // A responder that has our proof believes the IKE SA is up: its answer is awaited, to take it down again.
        let attempt = self.attempt.iter().filter(|attempt| attempt.has_asked_auth());
        let attempt = attempt.map(|attempt| attempt.sa().local_spi);
        let known: Vec<IkeSpi> = attempt.chain(self.sas.iter().map(|sa| sa.local_spi)).collect();
        if known.is_empty() {
            let failure = Failure::new(FailureKind::Cancelled, reason.to_string());
            return self.end(cx, reason, Some(failure));
        }
        self.life = Life::Closing(reason);
        if self.is_established() {
            cx.out.remember_end(cx.now, &self.tunnel, None, reason);
        }
        let effects = self.remove_children(cx, reason, pause);
        self.tasks.clear();
        let deletes = known.into_iter().map(Task::DeleteIke);
        match pause.is_zero() {
            true => self.tasks.extend(deletes),
            false => deletes.for_each(|task| self.tasks.delay(after(cx.now, pause), task)),
        }
        effects
    }

    /// Drops what is left to be asked about a Child SA that both sides have deleted.
    pub fn forget_delete(&mut self, spi_in: Spi) {
        let delete = Task::DeleteChild(spi_in);
        if self.tasks.contains(&delete) || self.tasks.delayed().any(|(_, task)| *task == delete) {
            self.tasks.retain(|task| *task != delete);
        }
    }

    /// Takes everything down with a Delete. The phase 2 tunnels that are up are set up again afterwards.
    pub fn close_and_reconnect(&mut self, cx: &mut Context<'_>, reason: CloseReason) -> Effects {
        let mut names: Vec<String> = self.children.iter().map(|c| c.tunnel.name.clone()).collect();
        names.sort();
        names.dedup();
        self.outcome.reconnect = names;
        self.close(cx, reason)
    }

    /// Takes everything down with a Delete, once the packets that were admitted on its SAs have left. Returns which of
    /// the phase 2 tunnels that this side may start are up; those still on their way are tried again when it is over,
    /// by when the peer may have set them up elsewhere.
    pub fn close_as_redundant(
        &mut self,
        cx: &mut Context<'_>,
        reason: CloseReason,
    ) -> (Vec<String>, Effects) {
        let names = self
            .tunnel
            .children
            .iter()
            .filter(|c| {
                self.tunnel.role.may_initiate()
                    && c.role.may_initiate()
                    && self.has_or_wants_child(&c.name)
            })
            .map(|c| c.name.clone());
        let (up, on_their_way) = names.partition(|name| self.serving_child(name).is_some());
        self.outcome.reconnect = on_their_way;
        let effects = match self.is_closing() {
            true => Effects::none(),
            false => self.take_down(cx, reason, cx.config.drain),
        };
        (up, effects)
    }

    /// Ends it at once, without telling the peer; tunnels that have not been set up have failed with `failure`.
    pub fn end(
        &mut self,
        cx: &mut Context<'_>,
        reason: CloseReason,
        failure: Option<Failure>,
    ) -> Effects {
        self.end_with(cx, reason, failure, Vec::new())
    }

    /// Ends it as [`Self::end`] does; the phase 2 tunnels in `pending` have not been set up, beside those that it
    /// knows.
    fn end_with(
        &mut self,
        cx: &mut Context<'_>,
        reason: CloseReason,
        failure: Option<Failure>,
        mut pending: Vec<String>,
    ) -> Effects {
        let begun = match std::mem::replace(&mut self.life, Life::Over) {
            Life::Running => None,
            Life::Closing(reason) => Some(reason),
            Life::Over => return Effects::none(),
        };
        let reconnect = self.outcome.reconnect.drain(..);
        let mut effects: Effects = reconnect.map(Effect::Reconnect).collect();
        let reason = begun.unwrap_or(reason);
        let was_up = self.is_established();
        let kind = failure.as_ref().map_or(FailureKind::Cancelled, |failure| failure.kind);
        self.leave_tickets(cx, begun.is_none().then_some(kind));
        if let Some(attempt) = self.attempt.take() {
            effects.push(Effect::SpiGivenUp(attempt.sa().local_spi));
            attempt.spi_in().into_iter().for_each(|spi| cx.release_spi(spi));
            pending.push(attempt.first_child().name.clone());
        }
        for sa in &self.sas {
            effects.push(Effect::SpiGivenUp(sa.local_spi));
            let taken = sa.state.awaited.iter().filter_map(Awaited::spi_in);
            taken.for_each(|spi| cx.release_spi(spi));
            if let Some(Active::Child(p)) = &sa.state.active {
                cx.release_spi(p.spi_in);
                if p.rekeys.is_none() {
                    pending.push(p.tunnel.name.clone());
                }
            }
        }
        let tasks = self.tasks.take();
        pending.extend(tasks.filter_map(|t| match t {
            Task::CreateChild(name) => Some(name),
            _ => None,
        }));
        self.outcome.lost = (self.children.iter())
            .filter(|c| c.state != ChildState::Unwanted)
            .map(|c| c.lost(cx.now))
            .collect();
        effects += self.remove_children(cx, reason, Duration::ZERO);
        effects.extend(self.lingering.drain(..).map(Effect::InboundOrphaned));
        self.sas.clear();
        let failure = failure.unwrap_or(Failure::new(FailureKind::Cancelled, reason.to_string()));
        if failure.kind == FailureKind::NoAnswer {
            self.outcome.ending = Ending::Unanswered;
        }
        for name in &pending {
            cx.out.fail(cx.now, &self.tunnel.name, Some(name), failure.clone());
        }
        if failure.kind != FailureKind::Cancelled {
            self.outcome.failed.extend(pending);
        }
        if was_up {
            if failure.kind != FailureKind::Cancelled {
                cx.out.failures.note(cx.now, &self.tunnel.name, failure);
            }
            effects.push(Effect::SessionDown);
            match begun {
                // The end is remembered with the time when it began, which its phase 2 tunnels have, too.
                Some(reason) => cx.out.event(&self.tunnel.name, None, EventKind::Closed { reason }),
                None => cx.out.close(cx.now, &self.tunnel, None, reason),
            }
        } else {
            cx.out.fail(cx.now, &self.tunnel.name, None, failure);
        }
        effects
    }

    /// Ends it at once with an attempt that has failed.
    pub fn fail(
        &mut self,
        cx: &mut Context<'_>,
        attempt: Attempt,
        reason: CloseReason,
        failure: Failure,
    ) -> Effects {
        self.attempt = Some(attempt);
        self.end(cx, reason, Some(failure))
    }

    /// Ends it at once with an attempt that cannot go on to its next state, and so not to its first Child SA either.
    pub fn give_up(
        &mut self,
        cx: &mut Context<'_>,
        sa: IkeSa<()>,
        first: &ChildTunnel,
        reason: CloseReason,
        failure: Failure,
    ) -> Effects {
        let pending = vec![first.name.clone()];
        let effects = self.end_with(cx, reason, Some(failure), pending);
        Effects::from(Effect::SpiGivenUp(sa.local_spi)).and(effects)
    }

    /// Has other SAs send in place of its Child SAs, which receive until the peer has been told, and a while after
    /// that.
    fn remove_children(
        &mut self,
        cx: &mut Context<'_>,
        reason: CloseReason,
        told_in: Duration,
    ) -> Effects {
        let names: Vec<String> = self.children.iter().map(|c| c.tunnel.name.clone()).collect();
        let mut effects = Effects::none();
        for child in self.children.take() {
            effects.push(Effect::OutboundRetired(child.outbound));
            effects += child.forgotten();
            effects.push(Effect::InboundOrphaned(Lingering {
                until: child.lingers(after(cx.now, told_in.saturating_add(cx.config.linger))),
                sa: child.inbound,
                spi: child.spi_in,
                heir: None,
            }));
        }
        let mut told = std::collections::BTreeSet::new();
        for name in names.into_iter().filter(|n| told.insert(n.clone())) {
            cx.out.close(cx.now, &self.tunnel, Some(&name), reason);
        }
        effects
    }

    /// Forgets a Child SA.
    pub fn remove_child(
        &mut self,
        cx: &mut Context<'_>,
        spi_in: Spi,
        late: LatePackets,
    ) -> (Option<ChildSa>, Effects) {
        let Some(child) = self.children.remove(spi_in) else { return (None, Effects::none()) };
        let effects = child.forgotten();
        let sent = cx.plane.remove(child.outbound);
        let received = match late {
            LatePackets::Received => cx.plane.usage(child.inbound),
            LatePackets::Dropped => cx.plane.remove(child.inbound),
        };
        let mut heir = None;
        if let ChildState::Replaced(successor) = child.state {
            let last = child.history_with(received, sent);
            self.hand_over(successor, &last);
            heir = Some(successor);
            let later = self.lingering.iter_mut().filter_map(|lingering| lingering.heir.as_mut());
            later.filter(|(of, _)| *of == spi_in).for_each(|(of, _)| *of = successor);
        }
        if late == LatePackets::Received {
            let counted = received.unwrap_or_default();
            let lingering = Lingering {
                until: child.lingers(after(cx.now, cx.config.linger)),
                sa: child.inbound,
                spi: child.spi_in,
                heir: heir.map(|heir| (heir, counted)),
            };
            self.linger(cx, lingering);
        } else {
            cx.release_spi(child.spi_in);
        }
        (Some(child), effects)
    }

    /// Counts for the tunnel what an SA has done since its successor was made.
    fn hand_over(&mut self, successor: Spi, last: &History) {
        // The successor has gone already.
        let Some(counted) = self.child_by_inbound(successor).map(|c| c.history) else { return };
        self.count_for(successor, &counted, last);
    }

    /// Adds what passed between two states to a Child SA, and to those that have replaced it.
    fn count_for(&mut self, heir: Spi, from: &History, to: &History) {
        let mut next = Some(heir);
        for _ in 0..self.children.len() {
            // The chain of successors ends here.
            let Some(mut child) = next.and_then(|spi| self.child_mut(spi)) else { return };
            child.history.add_what_passed(from, to);
            next = match child.state {
                ChildState::Replaced(successor) => Some(successor),
                ChildState::Established | ChildState::Unwanted => None,
            };
        }
    }

    /// Lets an inbound SA receive what is still on its way.
    pub fn linger(&mut self, cx: &mut Context<'_>, lingering: Lingering) {
        // A peer that makes and deletes them as fast as it can takes no more than this.
        let most = most_children(&self.tunnel);
        self.lingering.push(lingering);
        if self.lingering.len() > most {
            let oldest = self.lingering.remove(0);
            self.let_go(cx, oldest);
        }
        self.release_lingering(cx);
    }

    /// Ends what lingered, and counts for the tunnel what it has received meanwhile.
    pub fn let_go(&mut self, cx: &mut Context<'_>, lingering: Lingering) {
        let usage = cx.plane.remove(lingering.sa);
        if let Some(((heir, counted), usage)) = lingering.heir.zip(usage) {
            let [counted, used] =
                [counted, usage].map(|inbound| History { inbound, ..History::new(cx.now) });
            self.count_for(heir, &counted, &used);
        }
        cx.release_spi(lingering.spi);
    }
}
