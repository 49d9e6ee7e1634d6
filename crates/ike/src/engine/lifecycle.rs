//! Commands, and what they start and end: tunnels, the policy's rules, one session per tunnel.

use super::reconnect::auto_start;
use super::{CommandError, Engine};
use crate::deadlines::Deadline;
use crate::deadlines::Waiter;
use crate::deadlines::after;
use crate::effect::Lingering;
use crate::effect::{Effect, Effects};
use crate::event::EventKind;
use crate::exchange::sa_init;
use crate::failure::{Failure, FailureKind};
use crate::policy_index::PolicyIndex;
use crate::proof::trust::Trust;
use crate::sa::State;
use crate::sa::active::Active;
use crate::sa::child::ChildState;
use crate::sa::path::{IKE_PORT, Path};
use crate::session::{Ending, Session};
use crate::session_id::SessionId;
use crate::task::Task;
use esp::plane::{DataPlane, PacketSummary, Rule, RuleId, SaId, TrafficSelectors};
use policy::{ChildTunnel, IkeTunnel, InvalidPolicy, Policy};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Sessions of a tunnel that are left to the peer to delete, and as many that wait for the answer to their Delete: honest
/// peers have one of a kind. A peer that begins sessions as fast as it can has no more than these.
const SPARE_SESSIONS: usize = 8;

impl<P: DataPlane> Engine<P> {
    /// Starts an IKE or child tunnel by name. A child tunnel brings up its IKE tunnel; an IKE tunnel brings up
    /// all of its child tunnels that this side may start. `Ok(true)`: all of it is up already.
    ///
    /// # Errors
    /// Where there is no such tunnel, or this side cannot start it.
    pub fn connect(&mut self, now: Instant, name: &str) -> Result<bool, CommandError> {
        self.begin(now, name, None)
    }

    /// As [`Engine::connect`]; `packet` is what asks for the tunnel.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        name: &str,
        packet: Option<PacketSummary>,
    ) -> Result<bool, CommandError> {
        let (tunnel, children) = self.startable(name)?;
        for child in &children {
            self.deactivated.remove(&child.name);
        }
        let names: Vec<String> = children.iter().map(|c| c.name.clone()).collect();
        if let Some(id) = self.session_of(&tunnel.name) {
            return Ok(self.ask_session(now, id, |session, _| {
                for name in names {
                    packet.into_iter().for_each(|p| session.note_packet(&name, p));
                    session.want_child(name);
                }
                let up = session.is_established()
                    && children.iter().all(|c| session.serving_child(&c.name).is_some());
                (up, Effects::none())
            }));
        }
        let local =
            tunnel.local.address.ok_or_else(|| CommandError::NoLocalAddress(name.into()))?;
        let remote =
            tunnel.remote.address.ok_or_else(|| CommandError::NoPeerAddress(name.into()))?;
        let path = Path::new(SocketAddr::new(local, IKE_PORT), SocketAddr::new(remote, IKE_PORT));
        let first = Arc::clone(&children[0]);
        let mut session = sa_init::begin(&mut self.cx(now), &tunnel, &first, path);
        packet.into_iter().for_each(|p| session.note_packet(&first.name, p));
        session.tasks.extend(names.into_iter().skip(1).map(Task::CreateChild));
        self.take_in(now, session, Effects::none());
        Ok(false)
    }

    fn startable(
        &self,
        name: &str,
    ) -> Result<(Arc<IkeTunnel>, Vec<Arc<ChildTunnel>>), CommandError> {
        if self.stopping {
            return Err(CommandError::Stopping);
        }
        let (tunnel, children) = if let Some(tunnel) = self.policy.tunnel(name) {
            let children =
                tunnel.children.iter().filter(|c| c.role.may_initiate()).cloned().collect();
            (tunnel, children)
        } else if let Some((tunnel, child)) = self.policy.child(name) {
            (tunnel, vec![Arc::clone(child)])
        } else {
            return Err(self.no_such_tunnel(name));
        };
        if !tunnel.role.may_initiate() || children.iter().any(|c| !c.role.may_initiate()) {
            return Err(CommandError::ResponderOnly(name.into()));
        }
        if children.is_empty() {
            return Err(CommandError::NothingToStart(name.into()));
        }
        Ok((Arc::clone(tunnel), children))
    }

    /// Replaces the certificates and authorities. What is up stays up; the next proof on either side uses the new ones.
    pub fn replace_trust(&mut self, trust: Arc<Trust>) {
        self.trust = trust;
    }

    /// The certificates and authorities in use.
    pub fn trust(&self) -> &Arc<Trust> {
        &self.trust
    }

    /// Every IKE tunnel that this side may start.
    pub fn startable_tunnels(&self) -> Vec<String> {
        let may = |t: &&Arc<IkeTunnel>| {
            t.remote.address.is_some() && self.check_startable(&t.name).is_ok()
        };
        self.policy.tunnels.iter().filter(may).map(|t| t.name.clone()).collect()
    }

    /// Whether [`Engine::connect`] would start the tunnel; returns its IKE tunnel.
    ///
    /// # Errors
    /// Those of [`Engine::connect`].
    pub fn check_startable(&self, name: &str) -> Result<String, CommandError> {
        let (tunnel, _) = self.startable(name)?;
        match (tunnel.local.address, tunnel.remote.address) {
            (None, _) => Err(CommandError::NoLocalAddress(name.into())),
            (_, None) => Err(CommandError::NoPeerAddress(name.into())),
            _ => Ok(tunnel.name.clone()),
        }
    }

    /// The child tunnels that [`Engine::connect`] would start; none where it would refuse.
    pub fn children_of(&self, name: &str) -> Vec<String> {
        self.startable(name)
            .map(|(_, c)| c.iter().map(|c| c.name.clone()).collect())
            .unwrap_or_default()
    }

    /// The IKE tunnel of a name, and the child tunnel if it names one.
    ///
    /// # Errors
    /// Where the policy has no such tunnel.
    pub fn tunnel_of(&self, name: &str) -> Result<(String, Option<String>), CommandError> {
        match (self.policy.tunnel(name), self.policy.child(name)) {
            (Some(tunnel), _) => Ok((tunnel.name.clone(), None)),
            (None, Some((tunnel, child))) => Ok((tunnel.name.clone(), Some(child.name.clone()))),
            (None, None) => Err(self.no_such_tunnel(name)),
        }
    }

    fn no_such_tunnel(&self, name: &str) -> CommandError {
        let tunnels = self.policy.tunnels.iter();
        let names = tunnels
            .flat_map(|t| std::iter::once(&t.name).chain(t.children.iter().map(|c| &c.name)));
        let near = names
            .map(|n| (strsim::jaro_winkler(&n.to_lowercase(), &name.to_lowercase()), n))
            .filter(|(likeness, _)| *likeness > 0.8)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        CommandError::NoSuchTunnel(name.into(), near.map(|(_, n)| n.clone()))
    }

    /// Deletes an IKE tunnel with all it carries, or one child tunnel.
    ///
    /// # Errors
    /// Where there is no such tunnel, or it is not up.
    pub fn disconnect(&mut self, now: Instant, name: &str) -> Result<(), CommandError> {
        let not_up = || CommandError::NotUp(name.into());
        if let Some(tunnel) = self.policy.tunnel(name).cloned() {
            let ids: Vec<SessionId> = self.sessions_of(&tunnel.name).map(|(id, _)| id).collect();
            for child in &tunnel.children {
                if !ids.is_empty() || self.is_retrying(&child.name) {
                    self.deactivate(&child.name);
                }
            }
            if ids.is_empty() {
                return Err(not_up());
            }
            for id in ids {
                self.with_session(now, id, |session, cx| session.close(cx, "deactivated"));
            }
            return Ok(());
        }
        let Some((tunnel, _)) = self.policy.child(name) else {
            return Err(self.no_such_tunnel(name));
        };
        let tunnel = tunnel.name.clone();
        let retrying = self.is_retrying(name);
        // Crossing starts make two for a moment.
        let ids: Vec<SessionId> = self.sessions_of(&tunnel).map(|(id, _)| id).collect();
        let mut done = false;
        for id in ids {
            done |= self.ask_session(now, id, |session, cx| session.drop_child(cx, name));
        }
        if done || retrying {
            self.deactivate(name);
        }
        if done { Ok(()) } else { Err(not_up()) }
    }

    /// Replaces the SA of an IKE or child tunnel by a new one without interruption.
    ///
    /// # Errors
    /// Where there is no such tunnel, or it is not up.
    pub fn rekey(&mut self, now: Instant, name: &str) -> Result<(), CommandError> {
        let (tunnel, child) = self.tunnel_of(name)?;
        let not_up = || CommandError::NotUp(name.into());
        let id = self.session_of(&tunnel).ok_or_else(not_up)?;
        let started = self.ask_session(now, id, |session, _| {
            let task = match &child {
                None => session.is_established().then_some(Task::RekeyIke(session.current)),
                Some(child) => session.serving_child(child).map(|c| Task::RekeyChild(c.spi_in)),
            };
            let started = task.is_some();
            task.into_iter().for_each(|task| session.queue(task));
            (started, Effects::none())
        });
        if started { Ok(()) } else { Err(not_up()) }
    }

    /// Replaces the policy. What becomes of tunnels that are up is what [`Policy::changes`] says; what is being set up and
    /// has changed begins anew; new ones that say so are started.
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
        let up: BTreeSet<String> = (self.sessions.iter().filter(|(_, s)| !s.is_closing()))
            .flat_map(|(_, s)| s.children.iter().map(|c| c.tunnel.name.clone()))
            .collect();
        for before in &old.tunnels {
            match self.policy.tunnel(&before.name).cloned() {
                Some(after) if self.survives(before, &after) => {
                    self.replace_children(now, before, &after)
                }
                _ => self.remove_tunnel(now, before),
            }
        }
        for half in self.half_open.values_mut() {
            half.reconsider(&self.policy);
        }
        let fresh = self.bring_rules_in_order(now);
        // Of all tunnels: a new rule may cover the address of an old peer.
        for peer in self.policy.tunnels.iter().filter_map(|t| t.remote.address) {
            self.plane.expect_peer(peer);
        }
        // What was up before it changed is wanted, too.
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

    fn replace_children(&mut self, now: Instant, before: &Arc<IkeTunnel>, after: &Arc<IkeTunnel>) {
        let ids: Vec<SessionId> = self
            .sessions
            .of_tunnel(&before.name)
            .filter(|(_, s)| Arc::ptr_eq(&s.tunnel, before))
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
                        session.renew(changed, rekeyed);
                        Effects::none()
                    });
                }
                continue;
            }
            for id in &ids {
                self.with_session(now, *id, |session, cx| session.abandon_child(cx, &child.name));
            }
            self.remove_child_tunnel(child);
        }
        let rekeyed = before.difference(after).0 == policy::Effect::Rekeyed;
        for id in ids {
            self.with_session(now, id, |session, _| {
                session.tunnel = Arc::clone(after);
                if rekeyed {
                    session.queue(Task::RekeyIke(session.current));
                }
                Effects::none()
            });
        }
    }

    /// Whether the IKE SAs of a tunnel stay when it becomes `after`. Those that negotiate just now about what has
    /// changed do not.
    fn survives(&self, before: &IkeTunnel, after: &IkeTunnel) -> bool {
        match before.difference(after).0 {
            policy::Effect::Rekeyed => self.sessions_of(&before.name).all(|(_, s)| s.is_settled()),
            effect => effect <= policy::Effect::Kept,
        }
    }

    /// The same of the Child SAs of a child tunnel, in these sessions.
    fn child_survives(&self, ids: &[SessionId], before: &ChildTunnel, after: &ChildTunnel) -> bool {
        let sessions = || ids.iter().filter_map(|id| self.sessions.get(*id));
        before.difference(after).0 <= policy::Effect::Rekeyed
            && sessions()
                .all(|s| s.has_settled_child(&before.name) || !s.has_or_wants_child(&before.name))
    }

    fn remove_tunnel(&mut self, now: Instant, gone: &Arc<IkeTunnel>) {
        let ids: Vec<SessionId> = self.sessions_of(&gone.name).map(|(id, _)| id).collect();
        for id in ids {
            self.with_session(now, id, |session, cx| session.close(cx, "the policy changed"));
        }
        for child in &gone.children {
            self.remove_child_tunnel(child);
        }
        self.out.failures.forget(&gone.name);
    }

    fn remove_child_tunnel(&mut self, child: &ChildTunnel) {
        self.forget_retry(&child.name);
        self.deactivated.remove(&child.name);
        self.out.failures.forget(&child.name);
        if let Some(rule) = self.rules.remove(&child.name) {
            self.plane.remove_rule(rule);
        }
    }

    /// Brings the plane up to date with the rules that peers have made for a tunnel with a generic policy.
    pub(super) fn settle_asked_for(&mut self, tunnel: &str) {
        for rule in self.rules.take_unused(tunnel) {
            self.plane.remove_rule(rule);
        }
        if self.rules.take_fresh() {
            // It may cover the address of any of them.
            for peer in self.policy.tunnels.iter().filter_map(|t| t.remote.address) {
                self.plane.expect_peer(peer);
            }
        }
    }

    /// Gives the child tunnels that are new their rules, and all of them the order of the policy, which decides whose
    /// traffic a packet is. Returns which are new.
    fn bring_rules_in_order(&mut self, now: Instant) -> Vec<String> {
        let of = |t: &Arc<IkeTunnel>| -> Vec<_> {
            t.children.iter().map(|c| (Arc::clone(t), Arc::clone(c))).collect()
        };
        let all: Vec<(Arc<IkeTunnel>, Arc<ChildTunnel>)> =
            self.policy.tunnels.iter().flat_map(of).collect();
        let settled = self.rules.in_order(all.iter().map(|(_, c)| c.name.as_str()));
        let others = &all[settled..];
        let ids = self.rules.reserve(others.len()).map(RuleId);
        let mut fresh = Vec::new();
        // From the last on: whatever two of them are looked at, their order changes once, from the old one to the new.
        for ((tunnel, child), id) in others.iter().zip(ids).rev() {
            match self.rules.rename(&child.name, id) {
                Some(before) => self.plane.rename_rule(before, id),
                None => fresh.push((tunnel, child, id)),
            }
        }
        fresh.reverse();
        let mut rules = Vec::new();
        for (tunnel, child, id) in &fresh {
            self.rules.add(*id, tunnel, child);
            rules.push(rule(*id, tunnel, child));
        }
        let failed: BTreeMap<RuleId, _> = self.plane.add_rules(rules).into_iter().collect();
        for (tunnel, child, id) in &fresh {
            if let Some(error) = failed.get(id) {
                let failure = Failure::new(FailureKind::DataPlane, error.to_string());
                self.out.fail(now, &tunnel.name, Some(&child.name), failure);
            }
        }
        let fresh = fresh.into_iter().map(|(_, child, _)| child.name.clone()).collect();
        if !others.is_empty() {
            for (from, to) in self.rules.move_asked_for_behind() {
                self.plane.rename_rule(from, to);
            }
        }
        fresh
    }

    /// Deletes everything and refuses all that is new; [`Engine::is_idle`] tells when the peers have answered.
    pub fn stop(&mut self, now: Instant) {
        self.stopping = true;
        for name in self.retries.keys().cloned().collect::<Vec<_>>() {
            self.forget_retry(&name);
        }
        for (spi, half) in std::mem::take(&mut self.half_open) {
            self.forget_half_open(spi, half.begun.init());
        }
        for id in self.sessions.ids() {
            self.with_session(now, id, |session, cx| session.close(cx, "the gateway stops"));
        }
    }

    // ---- sessions

    pub(super) fn sessions_of(
        &self,
        tunnel: &str,
    ) -> impl DoubleEndedIterator<Item = (SessionId, &Session)> {
        self.sessions.of_tunnel(tunnel).filter(|(_, s)| !s.is_closing())
    }

    /// The session that serves an IKE tunnel, or will.
    pub(super) fn session_of(&self, tunnel: &str) -> Option<SessionId> {
        let sessions = || self.sessions_of(tunnel);
        sessions()
            .rfind(|(_, s)| s.is_established())
            .or_else(|| sessions().next_back())
            .map(|(id, _)| id)
    }

    /// Gives a new session its place. `effects` are those of its making.
    pub(super) fn take_in(
        &mut self,
        now: Instant,
        session: Session,
        effects: Effects,
    ) -> SessionId {
        self.next_session += 1;
        let id = SessionId(self.next_session);
        self.out.name_peer(&session.tunnel.name, session.path.remote);
        let taken: Effects = session.sas.iter().map(|s| Effect::SpiTaken(s.local_spi)).collect();
        self.sessions.enter(id, &session);
        self.put_back(now, id, Box::new(session), taken.and(effects));
        id
    }

    /// Takes in a session that a peer has begun.
    pub(super) fn adopt(
        &mut self,
        now: Instant,
        session: Session,
        initial_contact: bool,
        effects: Effects,
    ) {
        let tunnel = Arc::clone(&session.tunnel);
        let begun_at = session.begun_at;
        let id = self.take_in(now, session, effects);
        if initial_contact {
            // RFC 7296 §2.4: the peer knows of no other between these two identities, so whatever was up before it
            // began is dead.
            let dead: Vec<SessionId> = (self.sessions.of_peer(&tunnel))
                .filter(|(other, _)| *other != id)
                .filter(|(_, s)| s.established_at.is_some_and(|at| at < begun_at))
                .map(|(other, _)| other)
                .collect();
            for other in dead {
                self.with_session(now, other, |session, cx| {
                    session.ending = Ending::Unanswered;
                    session.end(cx, "the peer has restarted", None)
                });
            }
        }
        self.settle_sessions(now, id);
    }

    /// Leaves one session per tunnel. Of two begun by different sides, the one made with the lowest nonce goes, closed
    /// by the side that began it, as with crossing rekeys; of two begun by the same side the older goes. No RFC says this of
    /// whole IKE SAs: where the peer leaves its own in place, this side closes that after a while.
    pub(super) fn settle_sessions(&mut self, now: Instant, new: SessionId) {
        let Some(session) = self.sessions.get(new).filter(|s| !s.is_closing()) else { return };
        let (tunnel, here, nonce) =
            (session.tunnel.name.clone(), session.begun_here, session.lowest_nonce);
        let mut redundant = Vec::new();
        let mut left_to_the_peer = Vec::new();
        let mut predecessors = Vec::new();
        for (id, other) in
            self.sessions_of(&tunnel).filter(|(id, s)| *id != new && s.is_established())
        {
            if session.renewal.succeeds == Some(id) {
                continue;
            }
            // The peer knows of that one, or would have said so: it deletes it when this one has taken over.
            if !here && other.established_at.is_some_and(|at| at < session.begun_at) {
                predecessors.push(id);
                continue;
            }
            if other.begun_here == here {
                redundant.push((id, new));
            } else {
                let (loser, heir, begun_here) = match other.lowest_nonce < nonce {
                    true => (id, new, other.begun_here),
                    false => (new, id, here),
                };
                match begun_here {
                    true => redundant.push((loser, heir)),
                    false => left_to_the_peer.push(loser),
                }
            }
        }
        let surplus = predecessors.len().saturating_sub(SPARE_SESSIONS);
        redundant.extend(predecessors.drain(..surplus).map(|id| (id, new)));
        left_to_the_peer.extend(predecessors);
        let at = after(now, self.config.patience());
        for id in left_to_the_peer {
            let deadline = Deadline { at, reason: "redundant IKE SA" };
            self.deadlines.set(Waiter::Redundant(id), Some(deadline));
        }
        for (id, heir) in redundant {
            self.close_in_favour_of(now, id, heir);
        }
        let closing = self.sessions.of_tunnel(&tunnel).filter(|(_, s)| s.is_closing());
        let closing: Vec<SessionId> = closing.map(|(id, _)| id).collect();
        for id in closing.iter().take(closing.len().saturating_sub(SPARE_SESSIONS)) {
            self.with_session(now, *id, |session, cx| {
                session.end(cx, "the peer has too many", None)
            });
        }
    }

    /// Closes a session that the peer should have closed, if another still serves the tunnel in its place.
    pub(super) fn close_redundant(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.sessions.get(id).filter(|s| !s.is_closing()) else { return };
        let serves = |(other, s): &(SessionId, &Session)| {
            let later = session.established_at.is_some_and(|at| at < s.begun_at);
            *other != id && s.is_established() && (later || s.lowest_nonce > session.lowest_nonce)
        };
        let heir = self.sessions_of(&session.tunnel.name).find(serves).map(|(other, _)| other);
        if let Some(heir) = heir {
            self.close_in_favour_of(now, id, heir);
        }
    }

    /// Closes a session; another one of the tunnel takes over what it serves.
    pub(super) fn close_in_favour_of(&mut self, now: Instant, id: SessionId, heir: SessionId) {
        let served = self.ask_session(now, id, |session, cx| {
            session.close_as_redundant(cx, "another IKE SA serves the tunnel")
        });
        self.with_session(now, heir, |session, _| {
            served.into_iter().for_each(|name| session.want_child(name));
            Effects::none()
        });
    }

    /// Inbound SAs of a session that ends receive for a while if another one serves the same tunnel: packets of the
    /// peer are on their way. Otherwise they go at once.
    pub(super) fn hand_over(
        &mut self,
        now: Instant,
        of: SessionId,
        tunnel: &str,
        orphans: Vec<Lingering>,
        retired: Vec<SaId>,
    ) {
        if orphans.is_empty() && retired.is_empty() {
            return;
        }
        let serves = |(id, s): &(SessionId, &Session)| *id != of && s.is_established();
        let heir = self.sessions_of(tunnel).find(serves).map(|(id, _)| id);
        match heir {
            Some(heir) => self.with_session(now, heir, |session, cx| {
                session.relieve(cx);
                retired.into_iter().for_each(|sa| _ = cx.plane.remove(sa));
                orphans.into_iter().for_each(|orphan| session.linger(cx, orphan));
                Effects::none()
            }),
            None => {
                retired.into_iter().for_each(|sa| _ = self.plane.remove(sa));
                for orphan in orphans {
                    self.plane.remove(orphan.sa);
                    self.spis.release(orphan.spi);
                }
            }
        }
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

impl Session {
    /// Whether its IKE SA is up and not being replaced.
    fn is_settled(&self) -> bool {
        let rekeys = |e: &crate::sa::Established| matches!(e.active, Some(Active::Rekey(_)));
        self.sas.iter().all(|s| s.established().is_some_and(|e| !rekeys(e)))
    }

    /// Whether a child tunnel is up, and nothing about it is under way.
    fn has_settled_child(&self, name: &str) -> bool {
        let about = |s: &crate::sa::IkeSa| match s.established().map(|e| &e.active) {
            Some(Some(Active::Child(pending))) => pending.tunnel.name == name,
            Some(_) => false,
            None => true,
        };
        self.serving_child(name).is_some() && !self.sas.iter().any(about)
    }

    /// Gives the Child SAs of a child tunnel its new version; with `rekey` the one that serves is replaced.
    fn renew(&mut self, tunnel: &Arc<ChildTunnel>, rekey: bool) {
        let spis: Vec<_> = self.children.of_tunnel(&tunnel.name).map(|c| c.spi_in).collect();
        for spi in spis {
            self.child_mut(spi).into_iter().for_each(|mut c| c.tunnel = Arc::clone(tunnel));
        }
        let serving = self.serving_child(&tunnel.name).map(|c| c.spi_in);
        if let Some(spi) = serving.filter(|_| rekey) {
            self.queue(Task::RekeyChild(spi));
        }
    }

    /// Has a child tunnel set up, unless it is there or on its way.
    fn want_child(&mut self, name: String) {
        if !self.has_or_wants_child(&name) {
            self.tasks.push_back(Task::CreateChild(name));
        }
    }

    /// Stops serving a child tunnel at once, whatever the peer says to its Delete.
    fn abandon_child(&mut self, cx: &mut super::Cx<'_>, name: &str) -> Effects {
        let (_, mut effects) = self.drop_child(cx, name);
        let spis: Vec<_> = self.children.of_tunnel(name).map(|c| c.spi_in).collect();
        for spi in &spis {
            effects += self.remove_child(cx, *spi, false).1;
        }
        if !spis.is_empty() {
            let reason = "the policy changed".into();
            cx.out.event(&self.tunnel.name, Some(name), EventKind::Closed { reason });
        }
        effects
    }

    /// Takes a child tunnel out of a handshake under way; `false` if nothing else is waited for.
    fn goes_on_without(&mut self, name: &str) -> bool {
        let next = self.tasks.iter().position(|t| matches!(t, Task::CreateChild(_)));
        let waiting = next.and_then(|index| match &self.tasks[index] {
            Task::CreateChild(next) => self.tunnel.children.iter().find(|c| c.name == *next),
            _ => None,
        });
        let waiting = waiting.cloned();
        for sa in &mut self.sas {
            match (&mut sa.state, &waiting) {
                (State::InitSent(i), Some(next_child)) if i.child.name == name => {
                    i.child = Arc::clone(next_child);
                    self.tasks
                        .retain(|t| !matches!(t, Task::CreateChild(n) if *n == next_child.name));
                    return true;
                }
                (State::InitSent(i), None) if i.child.name != name => return true,
                (State::AuthSent(a), _) if a.child.name == name => a.unwanted = true,
                (State::AuthSent(a), None) if !a.unwanted => return true,
                _ => {}
            }
        }
        waiting.is_some()
    }

    /// Deletes one child tunnel, or stops setting it up; `false` if there is nothing of it.
    fn drop_child(&mut self, cx: &mut super::Cx<'_>, name: &str) -> (bool, Effects) {
        if !self.has_or_wants_child(name) {
            return (false, Effects::none());
        }
        let creates = |t: &Task| matches!(t, Task::CreateChild(n) if n == name);
        self.tasks.retain(|t| !creates(t));
        self.delayed.retain(|(_, t)| !creates(t));
        let pending = self.sas.iter_mut().filter_map(|s| match &mut s.established_mut()?.active {
            Some(Active::Child(pending)) if pending.tunnel.name == name => Some(pending),
            _ => None,
        });
        pending.for_each(|p| p.unwanted = true);
        let spis: Vec<_> = self.children.of_tunnel(name).map(|c| c.spi_in).collect();
        for spi in &spis {
            let Some(mut child) = self.child_mut(*spi) else { continue };
            // Its deletion may have to wait; who asks for the tunnel meanwhile wants a new one.
            if child.state == ChildState::Established {
                child.state = ChildState::Unwanted;
            }
        }
        if spis.is_empty() && !self.is_established() && !self.goes_on_without(name) {
            return (true, self.close(cx, "deactivated"));
        }
        if spis.is_empty() {
            let failure = Failure::new(FailureKind::Cancelled, "deactivated".into());
            cx.out.event(&self.tunnel.name, Some(name), EventKind::Failed(failure));
        }
        self.tasks.extend(spis.into_iter().map(Task::DeleteChild));
        (true, Effects::none())
    }
}
