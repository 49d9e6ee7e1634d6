//! Replacing the policy: which SAs stay, and the rules in the order of the policy.

use super::Engine;
use super::reconnect::auto_start;
use crate::close_reason::CloseReason;
use crate::effect::Effects;
use crate::failure::{Failure, FailureKind};
use crate::policy_index::PolicyIndex;
use crate::session_id::SessionId;
use crate::task::Task;
use esp::plane::{
    DataPlane, PeerExceptions, Rule, RuleId, TrafficSelectors, add_rules, remove_rules,
};
use policy::{ChildTunnel, IkeTunnel, InvalidPolicy, Policy};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

impl<P: DataPlane> Engine<P> {
    /// Replaces the policy. [`Policy::changes`] says what happens to tunnels that are up. Tunnels that are being set up
    /// start over if they have changed; new ones that say so are started.
    ///
    /// # Errors
    /// Where [`Policy::validate`] refuses the policy; the old one stays in force.
    pub fn replace_policy(
        &mut self,
        now: Instant,
        policy: Arc<Policy>,
    ) -> Result<(), InvalidPolicy> {
        policy.validate()?;
        let old = std::mem::replace(&mut self.policy, PolicyIndex::new(policy));
        self.out.outdate(now);
        let (ends, policy) = (&mut self.out.ends, &self.policy);
        ends.retain(|name, _| policy.tunnel(name).is_some() || policy.child(name).is_some());
        self.out.unprotected.retain(|name, _| policy.child(name).is_some());
        self.resumption.retain(|name| policy.tunnel(name).is_some());
        let up: BTreeSet<String> = (self.sessions.iter().filter(|(_, s)| !s.is_closing()))
            .flat_map(|(_, s)| s.children().iter().map(|c| c.tunnel.name.clone()))
            .collect();
        // Their SAs go now. Their rules stay in the plane until the new ones are there, so that no moment lacks a rule.
        let mut withdrawn = BTreeSet::new();
        for before in &old.tunnels {
            let gone = match self.policy.tunnel(&before.name).cloned() {
                Some(after) if self.survives(before, &after) => {
                    self.replace_children(now, before, &after)
                }
                _ => self.remove_tunnel(now, before),
            };
            withdrawn.extend(gone);
        }
        for half in self.strangers.iter_mut() {
            half.reconsider(&self.policy);
        }
        self.forget_preparations();
        let fresh = self.bring_rules_in_order(now, withdrawn);
        // Of all tunnels: a new rule may cover the address of an old peer.
        for peer in self.policy.tunnels.iter().filter_map(|t| t.remote.address) {
            self.plane.peer_exceptions().expect_peer(peer);
        }
        // A phase 2 tunnel that was up before it changed is wanted, too.
        let before: BTreeSet<String> =
            old.tunnels.iter().flat_map(|t| auto_start(t)).map(|c| c.name.clone()).collect();
        let starting: BTreeSet<String> = (self.policy.tunnels.iter().flat_map(|t| auto_start(t)))
            .map(|c| c.name.clone())
            .chain(up)
            .collect();
        let fresh: BTreeSet<&String> = fresh.iter().chain(starting.difference(&before)).collect();
        for child in fresh.into_iter().filter(|c| starting.contains(*c)) {
            // A tunnel that cannot be started says so when its policy is checked.
            let _ = self.connect(now, child);
        }
        Ok(())
    }

    /// Takes over the phase 2 tunnels of a tunnel whose IKE SAs stay. Returns the names of those whose SAs do not.
    fn replace_children(
        &mut self,
        now: Instant,
        before: &Arc<IkeTunnel>,
        after: &Arc<IkeTunnel>,
    ) -> Vec<String> {
        let mut withdrawn = Vec::new();
        let ids: Vec<SessionId> = self
            .sessions
            .of_tunnel(&before.name)
            .filter(|(_, s)| Arc::ptr_eq(s.tunnel(), before))
            .map(|(id, _)| id)
            .collect();
        let of_name: HashMap<&str, _> = after.children.iter().map(|c| (&*c.name, c)).collect();
        for child in &before.children {
            let changed = of_name.get(&*child.name).copied();
            if changed == Some(child) {
                continue;
            }
            if let Some(changed) = changed.filter(|a| self.child_survives(&ids, child, a)) {
                let rekeyed = child.difference(changed).0 == policy::Effect::Rekeyed;
                for id in &ids {
                    self.with_session(now, *id, |session, _| {
                        session.replace_child(changed);
                        if rekeyed {
                            session.rekey_serving(&changed.name);
                        }
                        Effects::none()
                    });
                }
                continue;
            }
            for id in &ids {
                self.with_session(now, *id, |session, cx| session.abandon_child(cx, &child.name));
            }
            self.forget_child_tunnel(child);
            withdrawn.push(child.name.clone());
        }
        let rekeyed = before.difference(after).0 == policy::Effect::Rekeyed;
        for id in ids {
            self.with_session(now, id, |session, _| {
                session.replace_tunnel(after);
                if rekeyed {
                    session.queue(Task::RekeyIke(session.current_spi()));
                }
                Effects::none()
            });
        }
        withdrawn
    }

    /// Whether the IKE SAs of a tunnel stay when it becomes `after`. Those that negotiate just now about what has
    /// changed do not.
    fn survives(&self, before: &IkeTunnel, after: &IkeTunnel) -> bool {
        match before.difference(after).0 {
            policy::Effect::Rekeyed => self.sessions_of(&before.name).all(|(_, s)| s.is_settled()),
            effect => effect <= policy::Effect::Kept,
        }
    }

    /// The same of the Child SAs of a phase 2 tunnel, in these sessions.
    fn child_survives(&self, ids: &[SessionId], before: &ChildTunnel, after: &ChildTunnel) -> bool {
        before.difference(after).0 <= policy::Effect::Rekeyed
            && ids
                .iter()
                .filter_map(|id| self.sessions.get(*id))
                .all(|s| s.has_settled_child(&before.name) || !s.has_or_wants_child(&before.name))
    }

    /// Closes the IKE SAs of a tunnel that is gone or has changed. Returns the names of its phase 2 tunnels.
    fn remove_tunnel(&mut self, now: Instant, gone: &Arc<IkeTunnel>) -> Vec<String> {
        let ids: Vec<SessionId> = self.sessions_of(&gone.name).map(|(id, _)| id).collect();
        for id in ids {
            self.with_session(now, id, |session, cx| session.close(cx, CloseReason::PolicyChanged));
        }
        gone.children.iter().for_each(|child| self.forget_child_tunnel(child));
        self.out.failures.forget(&gone.name);
        self.out.products.forget(&gone.name);
        gone.children.iter().map(|child| child.name.clone()).collect()
    }

    /// Forgets everything about a phase 2 tunnel but its rule.
    fn forget_child_tunnel(&mut self, child: &ChildTunnel) {
        self.forget_retry(&child.name);
        self.reconnection.allow(&child.name);
        self.reconnection.end_interruption(&child.name);
        self.out.failures.forget(&child.name);
    }

    /// Brings the plane up to date with the rules that peers have made for a tunnel with a generic policy.
    pub(super) fn sync_asked_for_rules(&mut self, tunnel: &str) {
        remove_rules(&mut self.plane, &self.rules.take_unused(tunnel));
        if self.rules.take_fresh() {
            // It may cover the address of any of them.
            for peer in self.policy.tunnels.iter().filter_map(|t| t.remote.address) {
                self.plane.peer_exceptions().expect_peer(peer);
            }
        }
    }

    /// Gives the phase 2 tunnels that are new their rules, and all of them the order of the policy, which decides which
    /// tunnel gets a packet. The rules of `withdrawn` phase 2 tunnels are replaced in their place if the policy still
    /// has the phase 2 tunnel, and otherwise removed at the end, all at once. Returns the phase 2 tunnels that are new
    /// or were withdrawn.
    fn bring_rules_in_order(
        &mut self,
        now: Instant,
        mut withdrawn: BTreeSet<String>,
    ) -> Vec<String> {
        let all: Vec<(Arc<IkeTunnel>, Arc<ChildTunnel>)> = self
            .policy
            .tunnels
            .iter()
            .flat_map(|t| t.children.iter().map(move |c| (Arc::clone(t), Arc::clone(c))))
            .collect();
        let changed: Vec<_> =
            all.iter().filter(|(_, child)| withdrawn.remove(&child.name)).collect();
        let gone: Vec<RuleId> =
            withdrawn.iter().filter_map(|name| self.rules.remove(name)).collect();
        let settled = self.rules.in_order(all.iter().map(|(_, c)| c.name.as_str()));
        let others = &all[settled..];
        let ids = self.rules.reserve(others.len()).map(RuleId);
        let mut fresh = Vec::new();
        // From the last on: whatever two of them are looked at, their order changes once, from the old one to the new.
        for ((tunnel, child), id) in others.iter().zip(ids).rev() {
            match self.rules.renumber(&child.name, id) {
                Some(before) => self.plane.renumber_rule(before, id),
                None => fresh.push((tunnel, child, id)),
            }
        }
        fresh.extend(changed.into_iter().filter_map(|(tunnel, child)| {
            let id = self.rules.remove(&child.name)?;
            Some((tunnel, child, id))
        }));
        fresh.sort_unstable_by_key(|(_, _, id)| *id);
        let mut rules = Vec::new();
        for (tunnel, child, id) in &fresh {
            self.rules.add(*id, tunnel, child);
            rules.push(rule(*id, tunnel, child));
        }
        let failed: BTreeMap<RuleId, _> = add_rules(&mut self.plane, rules).into_iter().collect();
        for (tunnel, child, id) in &fresh {
            if let Some(error) = failed.get(id) {
                let failure = Failure::new(FailureKind::DataPlane, error.to_string());
                self.out.fail(now, &tunnel.name, Some(&child.name), failure);
            }
        }
        let fresh = fresh.into_iter().map(|(_, child, _)| child.name.clone()).collect();
        if !others.is_empty() {
            for (from, to) in self.rules.move_asked_for_behind() {
                self.plane.renumber_rule(from, to);
            }
        }
        remove_rules(&mut self.plane, &gone);
        fresh
    }
}

fn rule(id: RuleId, tunnel: &IkeTunnel, child: &ChildTunnel) -> Rule {
    Rule {
        id,
        tunnel: child.name.clone(),
        selectors: TrafficSelectors { local: child.local.clone(), remote: child.remote.clone() },
        trap: child.on_demand && child.role.may_initiate() && tunnel.role.may_initiate(),
    }
}
