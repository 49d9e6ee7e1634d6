//! A picture of what is defined and what is up.

use super::Engine;
use crate::config::Config;
use crate::deadlines::Waiter;
use crate::durations::ExchangeDurations;
use crate::failure::Failure;
use crate::families::{between_off, off, present};
use crate::outputs::Outputs;
use crate::quantum::QuantumSafety;
use crate::sa::active::Active;
use crate::sa::child::{ChildSa, ChildState, History, RekeyForm};
use crate::sa::{IkeSa, State as SaState};
use crate::session::Session;
use crate::status::{
    ChildSaStatus, ChildStatus, Ended, IkeSaStatus, IkeStatus, Next, PageStart, PastFailure,
    Renewal, State, StatusPage, Unanswered,
};
use esp::plane::{DataPlane, Maintenance, PathMtu, Usage};
use policy::{ChildTunnel, IkeTunnel};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl<P: DataPlane> Engine<P> {
    /// Returns `true` if no IKE SA is left.
    pub fn is_idle(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Returns `true` if a phase 1 tunnel is up or being set up.
    pub fn is_under_way(&self, tunnel: &str) -> bool {
        self.session_of(tunnel).is_some()
    }

    /// IKE SAs of all kinds (half-open, redundant, closing) and inbound SPIs in use: what a leak would show in.
    pub fn inventory(&self) -> Inventory {
        Inventory {
            ike_sas: self.sessions.iter().map(|(_, s)| s.each_sa().count()).sum(),
            half_open: self.strangers.len(),
            strangers: self.strangers.known_inits(),
            contacts: self.contacts.sessions(),
            established: self.sessions.iter().filter(|(_, s)| s.is_established()).count(),
            child_sas: self.sessions.iter().map(|(_, s)| s.children().len()).sum(),
            spis: self.spis.len(),
            delivered_spis: self.sessions.spis(),
            delivered_sas: self.sessions.sas(),
            sessions: self.sessions.iter().count(),
            lingering: self.sessions.iter().map(|(_, s)| s.lingering()).sum(),
            pending_spis: self.sessions.iter().map(|(_, s)| s.pending_spis()).sum(),
            retries: (self.reconnection.tried())
                .filter(|name| self.deadlines.of(&Waiter::Retry((*name).clone())).is_some())
                .count(),
            final_answers: self.out.final_answers(),
            deadlines: self.deadlines.len(),
            stale_deadlines: self.deadlines.waiters().filter(|w| !self.is_there(w)).count(),
        }
    }

    fn is_there(&self, waiter: &Waiter) -> bool {
        match waiter {
            Waiter::Session(id) | Waiter::Redundant(id) => self.sessions.get(*id).is_some(),
            Waiter::HalfOpen(spi) => self.strangers.contains(*spi),
            Waiter::Retry(name) => self.reconnection.is_tried(name),
            Waiter::FinalAnswers => self.out.next_final_answer().is_some(),
            Waiter::Restoration => self.upkeep.has_looked(),
        }
    }

    /// Every tunnel of the policy with its SAs.
    pub fn status(&mut self, now: Instant) -> Vec<IkeStatus> {
        let policy = Arc::clone(self.policy.whole());
        policy.tunnels.iter().map(|t| self.picture(now, t, &Shown::of_all(t))).collect()
    }

    /// A page of them, as [`StatusPage::of`] makes it.
    pub fn status_page(
        &mut self,
        now: Instant,
        start: Option<PageStart>,
        count: usize,
    ) -> Option<StatusPage> {
        let policy = Arc::clone(self.policy.whole());
        StatusPage::of(&policy, start, count, |tunnel, children| {
            self.picture(now, tunnel, &Shown::Places(children))
        })
    }

    /// The phase 1 tunnel of this name, or the one with the phase 2 tunnel of this name, which then lists that phase 2
    /// tunnel alone. `None`: there is no such tunnel.
    pub fn status_of(&mut self, now: Instant, name: &str) -> Option<IkeStatus> {
        if let Some(tunnel) = self.policy.tunnel(name).cloned() {
            return Some(self.picture(now, &tunnel, &Shown::of_all(&tunnel)));
        }
        let carrying = self
            .policy
            .child(name)
            .map(|(tunnel, _)| tunnel)
            .or_else(|| {
                let session = self
                    .sessions
                    .iter()
                    .map(|(_, s)| s)
                    .find(|s| s.children().of_tunnel(name).next().is_some())?;
                self.policy.tunnel(&session.tunnel().name)
            })?
            .clone();
        let picture = self.picture(now, &carrying, &Shown::Named(name));
        (!picture.children.is_empty()).then_some(picture)
    }

    /// A tunnel with some of its phase 2 tunnels.
    fn picture(&mut self, now: Instant, tunnel: &IkeTunnel, shown: &Shown<'_>) -> IkeStatus {
        let id = self
            .session_of(&tunnel.name)
            .or_else(|| self.sessions.of_tunnel(&tunnel.name).next_back().map(|(id, _)| id));
        let session = id.and_then(|id| self.sessions.get(id));
        let has_successor =
            self.sessions_of(&tunnel.name).any(|(_, s)| id.is_some() && s.predecessor() == id);
        let defined: Vec<&ChildTunnel> = match shown {
            Shown::Places(places) => tunnel.children[places.clone()].iter().map(|c| &**c).collect(),
            Shown::Named(name) => {
                let found = self.policy.child(name).filter(|(t, _)| t.name == tunnel.name);
                found.into_iter().map(|(_, c)| &**c).collect()
            }
        };
        let asked_for = asked_for(tunnel, shown, session);
        let next: Vec<Option<Next>> =
            defined.iter().map(|c| self.next_of(now, tunnel, c, session)).collect();
        let closing_next =
            session.filter(|s| s.is_closing()).and_then(|s| answer_to(now, s, &self.config));
        let off_now = between_off(self.config.families, tunnel).map(present);
        let children_off: Vec<_> = (defined.iter())
            .map(|child| off(self.config.families, tunnel, child).map(present))
            .collect();
        let plane = &mut self.plane;
        let out = &self.out;
        let failures = &out.failures;
        let sa = session.and_then(|s| Some((s, s.current_sa()?)));
        let up = session.is_some_and(Session::is_established);
        IkeStatus {
            name: tunnel.name.clone(),
            state: sa.map_or(State::Down, |(session, sa)| ike_state(session, sa)),
            local_id: tunnel.local.identity.to_string(),
            remote_id: tunnel.remote.identity.to_string(),
            local_address: tunnel.local.address,
            remote_address: tunnel.remote.address,
            product: self.out.products.of(&tunnel.name).cloned(),
            sa: sa.map(|(session, sa)| ike_sa(now, session, sa)),
            ended: ended(out, now, &tunnel.name)
                .filter(|_| !up || session.is_some_and(Session::is_closing)),
            next: closing_next,
            unanswered: session
                .filter(|s| !s.is_closing())
                .and_then(|s| unanswered(now, s, &self.config)),
            children: (defined.into_iter().zip(next.into_iter().zip(children_off)))
                .map(|(c, rest)| (c, rest, false))
                .chain(asked_for.into_iter().map(|c| (c, (None, None), true)))
                .map(|(c, (next, off), is_asked_for)| ChildStatus {
                    is_asked_for,
                    last_failure: present_failure(&off)
                        .or_else(|| failures.last(&c.name).map(|failure| aged(now, failure))),
                    failures: off.into_iter().chain(failures.of(now, &c.name)).collect(),
                    unprotected: out.unprotected.get(&c.name).map(|dropped| dropped.seen_from(now)),
                    next,
                    ..child(now, plane, (session, has_successor), c)
                })
                .map(|c| ChildStatus {
                    ended: ended(out, now, &c.name).filter(|_| c.sa.is_none()),
                    ..c
                })
                .collect(),
            last_failure: present_failure(&off_now).or_else(|| {
                failures
                    .last(&tunnel.name)
                    .or_else(|| failures.last_stranger(tunnel).filter(|_| !up))
                    .map(|failure| aged(now, failure))
            }),
            failures: off_now.into_iter().chain(failures.of(now, &tunnel.name)).collect(),
            turned_away: failures.of_strangers(now, tunnel),
        }
    }

    /// The event that a phase 2 tunnel which is not up waits for.
    fn next_of(
        &self,
        now: Instant,
        tunnel: &IkeTunnel,
        child: &ChildTunnel,
        session: Option<&Session>,
    ) -> Option<Next> {
        let session = session.filter(|s| !s.is_closing());
        if session.is_some_and(|s| s.serving_child(&child.name).is_some()) {
            return None;
        }
        if let Some(off) = off(self.config.families, tunnel, child) {
            return Some(Next::Family(off.family));
        }
        let wanting = session.filter(|s| s.has_or_wants_child(&child.name));
        if let Some(answer) = wanting.and_then(|s| answer_to(now, s, &self.config)) {
            return Some(answer);
        }
        if let Some(at) = self.deadlines.of(&Waiter::Retry(child.name.clone())) {
            let failed = self.reconnection.failed_attempts(&child.name);
            return Some(Next::Attempt { after: left(now, at), failed });
        }
        let startable = tunnel.role.may_initiate() && child.role.may_initiate();
        let known = tunnel.local.address.is_some() && tunnel.remote.address.is_some();
        Some(match self.reconnection.is_deactivated(&child.name) {
            true => Next::Command { deactivated: true },
            false if !startable || !known => Next::Peer,
            false if child.on_demand => Next::Packet,
            false => Next::Command { deactivated: false },
        })
    }

    /// Discarded datagrams by reason.
    pub fn discards(&self) -> &BTreeMap<&'static str, u64> {
        &self.out.discards
    }

    /// The times from requests of this side to the peers' answers.
    pub fn exchange_durations(&self) -> &ExchangeDurations {
        &self.out.durations
    }

    /// The last failure of a phase 1 or phase 2 tunnel since it was last up; of a phase 1 tunnel without one, the last
    /// refusal of a peer without proof that may have meant it.
    pub fn last_failure(&self, name: &str) -> Option<&Failure> {
        let failures = &self.out.failures;
        failures
            .last(name)
            .or_else(|| {
                let up = self.session_of(name).and_then(|id| self.sessions.get(id));
                let down = !up.is_some_and(Session::is_established);
                self.policy.tunnel(name).filter(|_| down).and_then(|t| failures.last_stranger(t))
            })
            .map(|(failure, _)| failure)
    }

    /// The data plane.
    pub fn plane(&mut self) -> &mut P {
        &mut self.plane
    }
}

/// The phase 2 tunnels of a tunnel that its picture has.
enum Shown<'n> {
    /// Those at these places in the policy's list; behind its last one, those that the peer has asked for, too.
    Places(Range<usize>),
    /// The one of this name, also if the peer has asked for it.
    Named(&'n str),
}

impl Shown<'_> {
    fn of_all(tunnel: &IkeTunnel) -> Self {
        Self::Places(0..tunnel.children.len())
    }
}

/// Numbers of what an engine holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// IKE SAs of sessions: serving, superseded, being set up or deleted.
    pub ike_sas: usize,
    /// Half-open IKE SAs of strangers.
    pub half_open: usize,
    /// Requests of strangers whose repetitions are recognised: one for each half-open IKE SA.
    pub strangers: usize,
    /// Sessions that count as contact between two identities: those that are established.
    pub contacts: usize,
    /// Sessions whose both sides have proved who they are.
    pub established: usize,
    /// Child SAs: serving, replaced or redundant.
    pub child_sas: usize,
    /// Inbound ESP SPIs, those of lingering SAs and pending requests included.
    pub spis: usize,
    /// IKE SPIs to which messages are delivered.
    pub delivered_spis: usize,
    /// Peers, known or being asked.
    pub sessions: usize,
    /// Inbound SAs of Child SAs that are gone, which receive what is still on its way.
    pub lingering: usize,
    /// Inbound ESP SPIs named in requests that are not answered yet.
    pub pending_spis: usize,
    /// Phase 2 tunnels that are to be tried again.
    pub retries: usize,
    /// IKE SAs that the peer has deleted, and whose last answer is kept for a while: it may be lost. They have one
    /// deadline.
    pub final_answers: usize,
    /// The number of deadlines.
    pub deadlines: usize,
    /// SAs in the plane whose notices reach a session.
    pub delivered_sas: usize,
    /// Deadlines whose owners are gone.
    pub stale_deadlines: usize,
}

fn ike_state(session: &Session, sa: &IkeSa<dyn SaState>) -> State {
    match sa.state.active() {
        _ if session.is_closing() => State::Closing,
        _ if session.attempt().is_some() => State::Negotiating,
        Some(Active::Rekey(_)) => State::Rekeying,
        _ => State::Established,
    }
}

/// The answer that a session waits for.
fn answer_to(now: Instant, session: &Session, config: &Config) -> Option<Next> {
    let sa = session.current_sa()?;
    let again_in = sa.window.due().map(|at| left(now, at));
    let sent = sa.window.retransmissions() + 1;
    Some(Next::Answer {
        request: sa.state.exchange().to_string(),
        sent,
        most: sa.window.attempts(config).map_or(config.retransmissions + 1, |a| a.most),
        obstacle: session.obstacle(),
        again_in,
    })
}

/// The request that a session has sent in vain so far.
fn unanswered(now: Instant, session: &Session, config: &Config) -> Option<Unanswered> {
    let sa = session.current_sa()?;
    let (since, attempts) = (sa.window.waits_since()?, sa.window.attempts(config)?);
    let silence = session.silence(sa);
    let in_vain = silence.sent > 1
        || silence.unsent.is_some()
        || silence.icmp.is_some()
        || silence.heard.is_some();
    in_vain.then(|| Unanswered {
        silence,
        most: attempts.most,
        silent_for: now.saturating_duration_since(since),
        given_up_in: left(now, attempts.given_up_at),
    })
}

fn left(now: Instant, at: Instant) -> Duration {
    at.saturating_duration_since(now)
}

fn ike_sa(now: Instant, session: &Session, sa: &IkeSa<dyn SaState>) -> IkeSaStatus {
    let (initiator_spi, responder_spi) = sa.spis();
    let established = session.serving_sa().map(|sa| &sa.state);
    IkeSaStatus {
        initiator: sa.originator.is_here(),
        initiator_spi,
        responder_spi,
        local: session.path().local,
        remote: session.path().remote,
        nat_local: session.path().nat_local,
        nat_remote: session.path().nat_remote,
        suite: established.map(|e| e.keys.suite),
        ppk: established.is_some_and(|e| e.keys.ppk.is_some()),
        resumptions: session.resumptions(),
        quantum_safety: established.map(|e| QuantumSafety::of_ike(session.tunnel(), e.keys.shield)),
        established_for: session.established_at().map(|at| now.saturating_duration_since(at)),
        rekey_in: established.map(|e| left(now, e.rekey_at)),
        expires_in: established.map(|e| left(now, e.expire_at)),
        rekeys: session.rekeys(),
    }
}

/// The phase 2 tunnels that the peer has and the policy has not, each once. Those of all are told behind the last one
/// of the policy.
fn asked_for<'s>(
    tunnel: &IkeTunnel,
    shown: &Shown<'_>,
    session: Option<&'s Session>,
) -> Vec<&'s ChildTunnel> {
    let only = match shown {
        Shown::Places(places) if places.end < tunnel.children.len() => return Vec::new(),
        Shown::Places(_) => None,
        Shown::Named(name) => Some(*name),
    };
    let Some(session) = session.filter(|_| tunnel.generic.is_some()) else { return Vec::new() };
    let mut known: BTreeSet<&str> = tunnel.children.iter().map(|c| &*c.name).collect();
    let present = session.children().iter().map(|c| &*c.tunnel);
    let shown = present.filter(|child| only.is_none_or(|name| child.name == name));
    shown.filter(|child| known.insert(&child.name)).collect()
}

fn child(
    now: Instant,
    plane: &mut dyn DataPlane,
    (session, has_successor): (Option<&Session>, bool),
    tunnel: &ChildTunnel,
) -> ChildStatus {
    let sa = session.and_then(|s| s.serving_child(&tunnel.name));
    let attempt = sa.zip(session).and_then(|(c, session)| {
        session.sas().iter().find_map(|s| match &s.state.active {
            Some(Active::Child(p)) if p.rekeys == Some(c.spi_in) => Some(p.form),
            _ => None,
        })
    });
    let fault = sa.and_then(|c| plane.maintenance().fault(c.outbound));
    let state = match sa {
        None if session.is_some_and(|s| !s.is_closing() && s.has_or_wants_child(&tunnel.name)) => {
            State::Negotiating
        }
        None => State::Down,
        Some(_) if fault.is_some() => State::Blocked,
        Some(c) if c.state == ChildState::Unwanted => State::Closing,
        Some(_) if attempt.is_some() => State::Rekeying,
        Some(_) => State::Established,
    };
    ChildStatus {
        name: tunnel.name.clone(),
        is_asked_for: false,
        state,
        mode: tunnel.mode,
        local: sa.map_or_else(|| tunnel.local.clone(), |c| c.selectors.local.clone()),
        remote: sa.map_or_else(|| tunnel.remote.clone(), |c| c.selectors.remote.clone()),
        narrowed: sa.and_then(ChildSa::narrowed),
        sa: sa.zip(session).map(|(c, session)| child_sa(now, plane, session, c)),
        ended: None,
        fault,
        last_failure: None,
        failures: Vec::new(),
        unprotected: None,
        next: None,
        renewal: sa.and_then(|c| match attempt {
            Some(RekeyForm::Widened) => Some(Renewal::Widened),
            Some(RekeyForm::NewChildSa) => Some(Renewal::NewChildSa),
            _ if has_successor => Some(Renewal::NewIkeSa),
            None if c.rekey_failed => Some(Renewal::Again {
                after: left(now, c.rekey_at),
                ends_in: left(now, c.expire_at),
            }),
            Some(RekeyForm::Rekey) | None => None,
        }),
    }
}

fn child_sa(
    now: Instant,
    plane: &mut dyn DataPlane,
    session: &Session,
    child: &ChildSa,
) -> ChildSaStatus {
    let (inbound, outbound) = usage(plane, child);
    let total = total(plane, session, child, session.children().len());
    let shield = session.serving_sa().map(|sa| sa.state.keys.shield);
    let lifetime = child.choice.lifetime;
    let used = inbound.bytes.max(outbound.bytes);
    ChildSaStatus {
        suite: child.choice.algorithms,
        esn: child.choice.algorithms.esn,
        quantum_safety: QuantumSafety::of_child(
            session.tunnel(),
            shield,
            &child.tunnel.pfs,
            child.is_quantum_safe,
        ),
        encapsulation: session.path().of_plane(child.suite()).encapsulation,
        inbound_spi: child.spi_in,
        outbound_spi: child.spi_out,
        packets_in: total.inbound.packets,
        packets_out: total.outbound.packets,
        bytes_in: total.inbound.bytes,
        bytes_out: total.outbound.bytes,
        idle_in: idle(now, total.inbound),
        idle_out: idle(now, total.outbound),
        refused: total.inbound.refused + total.outbound.refused,
        fit: plane.path_mtu().fit(child.outbound),
        established_for: now.saturating_duration_since(total.established_at),
        lifetime,
        bytes_left: lifetime.bytes.map(|limit| limit.saturating_sub(used)),
        rekey_in: Some(left(now, child.rekey_at)),
        expires_in: Some(left(now, child.expire_at)),
        rekeys: total.rekeys,
    }
}

/// The time since the last packet; the clocks of planes differ by a little.
fn idle(now: Instant, usage: Usage) -> Option<Duration> {
    usage.last_used.map(|at| now.saturating_duration_since(at))
}

fn ended(out: &Outputs, now: Instant, name: &str) -> Option<Ended> {
    let (reason, at) = out.ends.get(name)?;
    Some(Ended::new(*reason, now.saturating_duration_since(*at)))
}

/// The failure of a tunnel whose address family is off: it lasts as long as the family is off.
fn present_failure(off: &Option<PastFailure>) -> Option<(Failure, Duration)> {
    Some((off.as_ref()?.failure.clone(), Duration::ZERO))
}

fn aged(now: Instant, (failure, at): (&Failure, Instant)) -> (Failure, Duration) {
    (failure.clone(), now.saturating_duration_since(at))
}

fn usage(plane: &mut dyn DataPlane, child: &ChildSa) -> (Usage, Usage) {
    let [inbound, outbound] =
        [child.inbound, child.outbound].map(|sa| plane.usage(sa).unwrap_or_default());
    (inbound, outbound)
}

/// The traffic of a tunnel since it came up. The Child SAs that this one has replaced, `depth` of them at most, count
/// until they are removed, when their traffic becomes part of its history.
fn total(plane: &mut dyn DataPlane, session: &Session, child: &ChildSa, depth: usize) -> History {
    let (inbound, outbound) = usage(plane, child);
    let mut total = child.history_with(Some(inbound), Some(outbound));
    for before in session
        .children()
        .of_tunnel(&child.tunnel.name)
        .filter(|c| c.state == ChildState::Replaced(child.spi_in))
    {
        if let Some(depth) = depth.checked_sub(1) {
            let before = self::total(plane, session, before, depth);
            total.add_what_passed(&child.history, &before);
        }
    }
    total
}
