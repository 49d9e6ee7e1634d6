//! The effects of time on a session: rekeys, ends of lifetimes, signs of life.

use super::Session;
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::deadlines::Deadline;
use crate::deadlines::after;
use crate::effect::Effects;
use crate::sa::Phase;
use crate::sa::attempt::Attempt;
use crate::sa::child::{ChildState, LatePackets};
use crate::task::Task;
use esp::plane::Spi;
use std::time::Instant;

impl Session {
    pub fn release_lingering(&mut self, cx: &mut Context<'_>) {
        let due: Vec<_> = self.lingering.extract_if(.., |l| l.until <= cx.now).collect();
        due.into_iter().for_each(|lingering| self.let_go(cx, lingering));
    }

    pub fn age_children(&mut self, cx: &mut Context<'_>) -> Effects {
        let mut effects = Effects::none();
        for spi in self.children.due(cx.now) {
            let Some(mut child) = self.children.get_mut(spi) else { continue };
            if child.expire_at <= cx.now {
                drop(child);
                effects += self.expire_child(cx, spi);
            } else if child.rekey_at <= cx.now && child.state == ChildState::Established {
                child.rekey_at = child.expire_at;
                drop(child);
                self.tasks.push_back(Task::RekeyChild(spi));
            }
        }
        effects
    }

    /// Takes a Child SA whose lifetime is over out of the plane, and has the peer told afterwards. Nothing may pass on
    /// it, however long the peer takes to answer the Delete (RFC 4301 §4.4.2.1).
    fn expire_child(&mut self, cx: &mut Context<'_>, spi_in: Spi) -> Effects {
        let Some(child) = self.child_by_inbound(spi_in) else { return Effects::none() };
        let (name, state) = (child.tunnel.name.clone(), child.state);
        // The peer has not deleted the old one, which would have shown that it has the new one.
        if let ChildState::Replaced(successor) = state {
            self.promote_child(cx, successor);
        }
        let (_, effects) = self.remove_child(cx, spi_in, LatePackets::Dropped);
        if self.serving_child(&name).is_none() {
            let reason = CloseReason::LifetimeEnded;
            cx.out.close(cx.now, &self.tunnel, Some(&name), reason);
        }
        if state == ChildState::Established {
            self.queue(Task::CreateChild(name));
        }
        self.forget_delete(spi_in);
        self.tasks.push_back(Task::DeleteChild(spi_in));
        effects
    }

    pub fn age_ike(&mut self, cx: &mut Context<'_>) -> Effects {
        let mut expired = None;
        let mut tasks = Vec::new();
        for sa in &mut self.sas {
            let spi = sa.local_spi;
            let established = &mut sa.state;
            if established.expire_at <= cx.now {
                established.expire_at = after(cx.now, cx.config.patience());
                if spi == self.current {
                    expired = Some(spi);
                } else {
                    tasks.push(Task::DeleteIke(spi));
                }
            } else if established.rekey_at <= cx.now && established.phase == Phase::Serving {
                established.rekey_at = established.expire_at;
                tasks.push(Task::RekeyIke(spi));
            }
        }
        self.tasks.extend(tasks);
        if expired.is_some() && !self.is_closing() {
            return self.close_and_reconnect(cx, CloseReason::LifetimeEnded);
        }
        Effects::none()
    }

    /// The earliest moment at which [`Session::handle_timeout`] has something to do.
    pub fn deadline(&self, config: &crate::config::Config) -> Option<Deadline> {
        let windows =
            self.each_sa().filter_map(|s| s.window.due()).map(|t| due(t, "retransmission"));
        let answers = self
            .sas
            .iter()
            .filter_map(|s| s.window.answer_due())
            .map(|t| due(t, "answer to a Delete"));
        let attempt = self.attempt.iter().filter_map(|attempt| match attempt {
            Attempt::Init(sa) => sa.state.refused_at(config).map(|t| due(t, "refused IKE_SA_INIT")),
            Attempt::Resume(_) | Attempt::Intermediate(_) => None,
            Attempt::Auth(sa) => sa.state.working_until().map(|t| due(t, "work with certificates")),
        });
        let ike = self.sas.iter().map(|sa| &sa.state).flat_map(|e| {
            let rekey = (e.phase == Phase::Serving).then_some(due(e.rekey_at, "IKE SA rekey"));
            let awaited = e.awaited.iter().map(|a| due(a.until, "IKE_FOLLOWUP_KE"));
            rekey.into_iter().chain([due(e.expire_at, "IKE SA lifetime")]).chain(awaited)
        });
        let delayed = self.tasks.delayed().map(|(t, task)| match task {
            Task::DeleteChild(_) | Task::DeleteIke(_) => due(*t, "Delete of replaced SAs"),
            _ => due(*t, "retry"),
        });
        let lingering = self.lingering.iter().map(|l| due(l.until, "replaced SA"));
        let liveness = self.liveness_at(config).map(|t| due(t, "liveness"));
        let nat = (self.is_established() && self.path.nat_local)
            .then_some(due(self.liveness.keepalive_at, "NAT keepalive"));
        (windows
            .chain(answers)
            .chain(attempt)
            .chain(ike)
            .chain(self.children.deadline())
            .chain(delayed)
            .chain(lingering)
            .chain(liveness)
            .chain(nat)
            .chain(self.reauthentication_due().map(|t| due(t, "reauthentication"))))
        .min_by_key(|d| d.at)
    }
}

fn due(at: Instant, reason: &'static str) -> Deadline {
    Deadline { at, reason }
}
