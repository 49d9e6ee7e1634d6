//! Reconnection: tunnels that went without this side's will come back, as the policy and the configuration have
//! it, and what fails is tried again after growing pauses, without end.

use super::Engine;
use crate::config::RestartAction;
use crate::deadlines::Deadline;
use crate::deadlines::Waiter;
use crate::effect::Lost;
use crate::reconnection::{LASTING, Losses, Pauses};
use crate::session::{Ending, Session};
use esp::plane::{DataPlane, PacketSummary};
use policy::{ChildTunnel, IkeTunnel};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A packet that waits for a tunnel waits no longer than this for the next attempt: planes keep it about as long.
const LONGEST_HOLD_OFF: Duration = Duration::from_secs(10);

impl<P: DataPlane> Engine<P> {
    /// A session is over: tunnels that should be up are tried again.
    pub(super) fn after_session(&mut self, now: Instant, session: Session, losses: Losses) {
        let tunnel = session.tunnel();
        if self.stopping || !self.policy.has(tunnel) {
            return;
        }
        for name in &losses.reconnect {
            self.schedule_retry(now, name, LASTING);
        }
        let action = match session.outcome().ending {
            Ending::Unanswered => self.config.liveness_action,
            Ending::ByPeer => self.config.close_action,
            Ending::Otherwise => RestartAction::Policy,
        };
        self.come_back(now, tunnel, action, &session.outcome().lost);
        let starting = auto_start(tunnel);
        let names = names(&starting);
        for name in session.outcome().failed.iter().filter(|f| !names.contains(f.as_str())) {
            self.after_failure(now, name);
        }
        let lost: HashSet<&str> = session.outcome().lost.iter().map(|l| &*l.name).collect();
        let lasted = session.served_for(now);
        // The peer may have begun a session meanwhile that does not have all of them.
        let heir = self.session_of(&tunnel.name).and_then(|id| self.sessions.get(id));
        let missing: Vec<_> = starting
            .iter()
            .filter(|c| {
                !lost.contains(&*c.name) && !heir.is_some_and(|s| s.has_or_wants_child(&c.name))
            })
            .collect();
        for child in missing {
            self.schedule_retry(now, &child.name, lasted);
        }
    }

    /// Handles lost Child SAs of a session that goes on: those the peer has deleted, and those that could
    /// not be set up.
    pub(super) fn after_losses(&mut self, now: Instant, tunnel: &Arc<IkeTunnel>, losses: Losses) {
        let Losses { lost, unserved, .. } = losses;
        if self.stopping || (unserved.is_empty() && lost.is_empty()) {
            return;
        }
        self.come_back(now, tunnel, self.config.close_action, &lost);
        let starting = auto_start(tunnel);
        let starting = names(&starting);
        for name in &unserved {
            match starting.contains(name.as_str()) {
                true => self.schedule_retry(now, name, Duration::ZERO),
                false => self.after_failure(now, name),
            }
        }
    }

    fn come_back(
        &mut self,
        now: Instant,
        tunnel: &IkeTunnel,
        action: RestartAction,
        lost: &[Lost],
    ) {
        if lost.is_empty() {
            return;
        }
        let starting = auto_start(tunnel);
        let starting = names(&starting);
        let children: HashMap<&str, _> = tunnel.children.iter().map(|c| (&*c.name, c)).collect();
        let session = self.session_of(&tunnel.name).and_then(|id| self.sessions.get(id));
        let served: Vec<bool> =
            (lost.iter()).map(|l| session.is_some_and(|s| s.has_or_wants_child(&l.name))).collect();
        for (Lost { name, after }, _) in lost.iter().zip(served).filter(|(_, served)| !served) {
            let Some(child) = children.get(name.as_str()) else { continue };
            let startable = tunnel.role.may_initiate() && child.role.may_initiate();
            match action {
                RestartAction::Policy if starting.contains(name.as_str()) => {
                    self.schedule_retry(now, name, *after)
                }
                RestartAction::Restart if startable => self.schedule_retry(now, name, *after),
                RestartAction::Trap if startable && !self.reconnection.is_deactivated(name) => {
                    self.forget_retry(name);
                    if let Some(rule) = self.rules.of(name) {
                        self.plane.set_trap(rule);
                    }
                }
                _ => self.forget_retry(name),
            }
        }
    }

    /// Returns `true` if the next attempt to start this phase 2 tunnel is scheduled.
    pub(super) fn is_retrying(&self, child: &str) -> bool {
        self.deadlines.of(&Waiter::Retry(child.into())).is_some()
    }

    /// A tunnel that the operator takes down stays down until a command or the peer starts it.
    pub(super) fn deactivate(&mut self, child: &str) {
        self.forget_retry(child);
        self.reconnection.deactivate(child);
    }

    /// Tries a tunnel again after a pause; it went after having been up for `lasted`.
    fn schedule_retry(&mut self, now: Instant, child: &str, lasted: Duration) {
        if self.reconnection.is_deactivated(child) {
            return;
        }
        if self.why_off(child).is_some() {
            self.reconnection.interrupt(child);
            return;
        }
        let at = self.pause(now, child, lasted, LONGEST_PAUSE);
        self.reconnection.persist(child);
        self.deadlines
            .set(Waiter::Retry(child.into()), Some(Deadline { at, reason: "next attempt" }));
    }

    /// A tunnel that does not start by itself could not be set up. No packet starts it for a while; and a tunnel that
    /// was to come back is tried again.
    fn after_failure(&mut self, now: Instant, child: &str) {
        match self.reconnection.is_persistent(child) {
            true => self.schedule_retry(now, child, Duration::ZERO),
            false => _ = self.pause(now, child, Duration::ZERO, LONGEST_HOLD_OFF),
        }
    }

    /// Counts one more attempt of a tunnel that has been up for `lasted`; returns when the next may be made.
    fn pause(&mut self, now: Instant, child: &str, lasted: Duration, longest: Duration) -> Instant {
        let pauses = Pauses { shortest: self.config.retransmit_after, longest };
        self.reconnection.pause(now, child, lasted, pauses, &mut self.rng)
    }

    /// Starts a tunnel for a packet that waits for it, or does so once the pause after a failure is over.
    pub(super) fn acquire(&mut self, now: Instant, child: &str, packet: PacketSummary) {
        // A packet does not bring back a tunnel that the operator has taken down.
        if self.reconnection.is_deactivated(child) {
            return;
        }
        match self.reconnection.pauses_until(child, now) {
            Some(at) => {
                let deadline = Deadline { at, reason: "next attempt" };
                self.deadlines.set(Waiter::Retry(child.into()), Some(deadline));
            }
            // A refusal is an event of its own; nobody waits for this call.
            None => {
                let startable = self.startable(child);
                _ = startable.and_then(|startable| self.begin(now, &startable, Some(packet)));
            }
        }
    }

    pub(super) fn retry(&mut self, now: Instant, child: &str) {
        // A refusal is an event of its own; nobody waits for this call.
        let _ = self.connect(now, child);
    }

    pub(super) fn forget_retry(&mut self, child: &str) {
        self.reconnection.forget_attempts(child);
        self.deadlines.set(Waiter::Retry(child.into()), None);
    }
}

fn names(children: &[Arc<ChildTunnel>]) -> HashSet<&str> {
    children.iter().map(|c| &*c.name).collect()
}

/// The phase 2 tunnels that start by themselves: those that say so, or the first where only the phase 1 tunnel does.
pub(super) fn auto_start(tunnel: &IkeTunnel) -> Vec<Arc<ChildTunnel>> {
    if !tunnel.role.may_initiate() {
        return Vec::new();
    }
    let mut startable = tunnel.children.iter().filter(|c| c.role.may_initiate());
    let mut chosen: Vec<Arc<ChildTunnel>> =
        startable.clone().filter(|c| c.auto_start).cloned().collect();
    if chosen.is_empty() && tunnel.auto_start {
        chosen.extend(startable.next().cloned());
    }
    chosen
}
