//! Whether the peer lives: this side asks for signs of life, and tells why there are none.

use super::Session;
use crate::close_reason::CloseReason;
use crate::config::Config;
use crate::context::Context;
use crate::deadlines::after;
use crate::effect::Effects;
use crate::failure::facts::{Silence, Unsendable};
use crate::sa::attempt::Attempt;
use crate::sa::{IkeSa, State};
use crate::task::Task;
use crate::unreachable::{Unreachable, Unsent};
use std::time::Instant;

impl Session {
    /// Asks for a sign of life after silence (RFC 7296 §2.4) and keeps NAT mappings (RFC 3948 §4).
    pub fn keep_alive(&mut self, cx: &mut Context<'_>) {
        if !self.is_established() {
            return;
        }
        if let Some(at) = self.liveness_at(cx.config)
            && at <= cx.now
        {
            let used =
                self.children.iter().filter_map(|c| cx.plane.usage(c.inbound)?.last_used).max();
            self.liveness.last_heard =
                used.map_or(self.liveness.last_heard, |u| u.max(self.liveness.last_heard));
            if self.liveness_at(cx.config).is_some_and(|at| at <= cx.now) {
                self.liveness.last_heard = cx.now;
                self.tasks.push_back(Task::Liveness);
            }
        }
        if self.path.nat_local && self.liveness.keepalive_at <= cx.now {
            // RFC 3948 §4: only if nothing else was sent.
            let used =
                self.children.iter().filter_map(|c| cx.plane.usage(c.outbound)?.last_used).max();
            let due = used.map_or(cx.now, |u| after(u, cx.config.nat_keepalive));
            if due > cx.now {
                self.liveness.keepalive_at = due;
            } else {
                self.liveness.keepalive_at = after(cx.now, cx.config.nat_keepalive);
                cx.out.keepalive(self.path.local, self.path.remote);
            }
        }
    }

    pub(super) fn liveness_at(&self, config: &Config) -> Option<Instant> {
        let idle =
            self.each_sa().all(|s| s.window.is_free()) && !self.tasks.contains(&Task::Liveness);
        config
            .liveness_interval
            .filter(|_| self.is_established() && idle)
            .map(|i| after(self.liveness.last_heard, i))
    }

    /// A message of this session has left this host.
    pub fn note_sent(&mut self) {
        self.liveness.note_sent();
    }

    /// Takes note of an ICMP message about a message of this session.
    pub fn note_unreachable(&mut self, unreachable: Unreachable) {
        self.liveness.note_unreachable(unreachable);
    }

    /// Forgets why messages did not arrive: the request that they belong to is given up.
    pub fn forget_obstacles(&mut self) {
        self.liveness.forget_obstacles();
    }

    /// The obstacle that keeps messages from the peer, as far as this host or ICMP says.
    pub fn obstacle(&self) -> Option<String> {
        self.liveness.obstacle(self.path.remote)
    }

    /// The request of an IKE SA of this session that is not answered.
    pub fn silence(&self, sa: &IkeSa<dyn State>) -> Silence {
        Silence {
            request: sa.state.exchange().to_string(),
            sent: sa.window.retransmissions() + 1,
            local: self.path.local.ip(),
            remote: self.path.remote,
            was_up: self.is_established(),
            unsent: self.liveness.unsent().map(ToString::to_string),
            icmp: self.liveness.icmp(),
            heard: sa.state.heard().cloned(),
        }
    }

    /// A message could not leave this host.
    pub fn note_unsent(&mut self, cx: &mut Context<'_>, unsent: Unsent) -> Effects {
        if let Unsent::Lack(lack) = unsent
            && self.has_only_begun()
        {
            let (local, remote) = (self.path.local.ip(), self.path.remote.ip());
            let failure = Unsendable { lack, local, remote }.into();
            return self.end(cx, CloseReason::NotSent, Some(failure));
        }
        self.liveness.note_unsent(unsent);
        Effects::none()
    }

    /// Returns `true` if all that this attempt has done is to send its first message once.
    fn has_only_begun(&self) -> bool {
        let (untouched, window) = match &self.attempt {
            Some(Attempt::Init(sa)) => {
                (sa.state.restarts == 0 && sa.state.refusal.is_none(), &sa.window)
            }
            Some(Attempt::Resume(sa)) => (sa.state.restarts == 0, &sa.window),
            _ => return false,
        };
        !self.is_closing() && untouched && window.retransmissions() == 0
    }
}
