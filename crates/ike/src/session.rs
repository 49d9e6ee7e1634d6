//! One authenticated peer: the IKE SA that serves now, those it replaces or is replaced by, and the Child SAs of all of
//! them.
//!
//! Child SAs belong to the session, not to an IKE SA: an IKE SA's rekeying hands them over (RFC 7296 §2.8) without
//! anything to move, and a request about a Child SA finds it whichever of the IKE SAs carried it. They end with the
//! last IKE SA.

mod aging;
mod carrier;
mod children;
mod ending;
mod reauthentication;
mod roaming;
mod tasks;

use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::datagram::Datagram;
use crate::deadlines::after;
use crate::effect::{Effect, Effects};
use crate::effect::{Lingering, Lost};
use crate::event::{EventKind, Negotiated};
use crate::failure::Failure;
use crate::negotiation::selectors;
use crate::negotiation::suite::IkeSuite;
use crate::sa::active::Active;
use crate::sa::attempt::Attempt;
use crate::sa::child::{ChildSa, ChildState};
use crate::sa::follow_up::Awaited;
use crate::sa::keys::Nonces;
use crate::sa::lowest_nonce::LowestNonce;
use crate::sa::mobility::Mobility;
use crate::sa::path::Path;
use crate::sa::{IkeSa, State};
use crate::task::Task;
use crate::unreachable::{Unreachable, Unsent};
use crate::wire::header::IkeSpi;
use crate::wire::payload::Payload;
use crate::wire::registry::ProtocolId;
use esp::plane::{PacketSummary, Spi};
use policy::{ChildTunnel, IkeTunnel};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use carrier::Carrier;
pub(crate) use children::{Changing, Children, most_children};
pub(crate) use reauthentication::Reauthentication;
pub(crate) use tasks::Tasks;

/// After this many TEMPORARY_FAILUREs in a row the two sides' views have parted (RFC 7296 §2.25).
const TEMPORARY_FAILURES: u32 = 20;

/// The cause of a session's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The peer does not answer any more, or knows nothing of it.
    Unanswered,
    /// The peer's Delete.
    ByPeer,
    /// This side.
    #[default]
    Otherwise,
}

/// One authenticated peer, or the attempt to reach it.
pub(crate) struct Session {
    pub tunnel: Arc<IkeTunnel>,
    pub path: Path,
    pub mobility: Mobility,
    pub reauthentication: Reauthentication,
    /// The addresses last told of to the operator.
    reported: (SocketAddr, SocketAddr),
    /// The IKE SA that this side sets up, until it is the first of `sas`. Then this is empty for good.
    pub attempt: Option<Attempt>,
    /// The IKE SAs in use, oldest first.
    pub sas: Vec<IkeSa>,
    /// The IKE SA, by local SPI, that carries new exchanges of ours.
    pub current: IkeSpi,
    pub children: Children,
    pub tasks: Tasks,
    pub liveness: Liveness,
    /// The packets that asked for phase 2 tunnels, by name, until the peer is asked.
    packets: BTreeMap<String, PacketSummary>,
    lingering: Vec<Lingering>,
    pub established_at: Option<Instant>,
    /// When this side first heard of the handshake, or began it.
    pub begun_at: Instant,
    /// This side began it.
    pub begun_here: bool,
    /// That of its first IKE SA: decides between sessions that both sides began.
    pub lowest_nonce: LowestNonce,
    pub rekeys: u64,
    /// A Child SA of the session has been up.
    pub has_served: bool,
    pub temporary_failures: u32,
    /// The IKE SA that the peer has just deleted; it goes once the answer is sent.
    pub deleted: Option<(IkeSpi, CloseReason)>,
    life: Life,
    pub outcome: Outcome,
}

/// Where a session stands in its life.
enum Life {
    Running,
    /// This side takes it down.
    Closing(CloseReason),
    /// It has neither IKE SAs nor Child SAs left.
    Over,
}

/// Signs that the peer lives, and hints why there are none.
pub(crate) struct Liveness {
    last_heard: Instant,
    /// When a NAT is shown that the mapping is still used.
    keepalive_at: Instant,
    /// Why this host could not send the last message, if it could not.
    pub unsent: Option<Unsent>,
    /// The last ICMP message about a message of this side since the peer was last heard. It proves nothing.
    pub icmp: Option<Unreachable>,
}

/// The traces that a session leaves when it is over.
#[derive(Default)]
pub(crate) struct Outcome {
    pub ending: Ending,
    /// The phase 2 tunnels that were up when it ended.
    pub lost: Vec<Lost>,
    /// The phase 2 tunnels that could not be set up before it ended.
    pub failed: Vec<String>,
    /// Phase 2 tunnels that are to be set up again.
    reconnect: Vec<String>,
}

impl Session {
    /// A session that this side begins. Its attempt, with the local SPI `current`, is still to come.
    pub fn of_initiator(tunnel: Arc<IkeTunnel>, path: Path, current: IkeSpi, now: Instant) -> Self {
        Self::new(tunnel, path, current, true, now, now)
    }

    /// A session that the peer has begun. Its IKE SA, with the local SPI `current`, is still to come.
    pub fn of_responder(
        tunnel: Arc<IkeTunnel>,
        path: Path,
        current: IkeSpi,
        begun_at: Instant,
        now: Instant,
    ) -> Self {
        Self::new(tunnel, path, current, false, begun_at, now)
    }

    fn new(
        tunnel: Arc<IkeTunnel>,
        path: Path,
        current: IkeSpi,
        begun_here: bool,
        begun_at: Instant,
        now: Instant,
    ) -> Self {
        Self {
            tunnel,
            path,
            mobility: Mobility::default(),
            reauthentication: Reauthentication::default(),
            reported: (path.local, path.remote),
            attempt: None,
            sas: Vec::new(),
            current,
            children: Children::default(),
            tasks: Tasks::default(),
            liveness: Liveness { last_heard: now, keepalive_at: now, unsent: None, icmp: None },
            packets: BTreeMap::new(),
            lingering: Vec::new(),
            established_at: None,
            begun_at,
            begun_here,
            lowest_nonce: LowestNonce::default(),
            rekeys: 0,
            has_served: false,
            temporary_failures: 0,
            deleted: None,
            life: Life::Running,
            outcome: Outcome::default(),
        }
    }

    /// Gives back room that is not needed while nothing happens.
    pub fn rest(&mut self) {
        self.sas.shrink_to_fit();
        self.children.rest();
        self.tasks.rest();
        self.lingering.shrink_to_fit();
    }

    // ---- looking

    /// Returns `true` if the session has neither IKE SAs nor Child SAs left.
    pub fn is_over(&self) -> bool {
        matches!(self.life, Life::Over)
    }

    /// Returns `true` if this side is taking the session down.
    pub fn is_closing(&self) -> bool {
        !matches!(self.life, Life::Running)
    }

    pub fn is_established(&self) -> bool {
        self.established_at.is_some()
    }

    /// Every IKE SA: the one that is being set up, or those in use.
    pub fn each_sa(&self) -> impl Iterator<Item = &IkeSa<dyn State>> {
        let in_use = self.sas.iter().map(|sa| sa as &IkeSa<dyn State>);
        self.attempt.iter().map(Attempt::sa).chain(in_use)
    }

    /// The IKE SA that is being set up, or that carries new exchanges; `None`: the session is over.
    pub fn current_sa(&self) -> Option<&IkeSa<dyn State>> {
        match &self.attempt {
            Some(attempt) => Some(attempt.sa()),
            None => self.serving_sa().map(|sa| sa as &IkeSa<dyn State>),
        }
    }

    /// The IKE SA in use that carries new exchanges.
    pub fn serving_sa(&self) -> Option<&IkeSa> {
        self.sa(self.current)
    }

    /// The IKE SA in use with this local SPI.
    pub fn sa(&self, spi: IkeSpi) -> Option<&IkeSa> {
        self.sas.iter().find(|sa| sa.local_spi == spi)
    }

    pub fn child_by_inbound(&self, spi: Spi) -> Option<&ChildSa> {
        self.children.by_inbound(spi)
    }

    /// The protocols of the Child SAs that the tunnel's proposals may make.
    pub fn protocols(&self) -> Vec<ProtocolId> {
        let proposals = || self.tunnel.children.iter().flat_map(|c| &c.proposals);
        let ah = proposals().any(|p| p.protection.is_ah());
        let esp = !ah || proposals().any(|p| !p.protection.is_ah());
        let offered = [(esp, ProtocolId::ESP), (ah, ProtocolId::AH)];
        offered.into_iter().filter_map(|(offered, protocol)| offered.then_some(protocol)).collect()
    }

    pub fn child_by_outbound(&self, protocol: ProtocolId, spi: Spi) -> Option<&ChildSa> {
        self.children.by_outbound(protocol, spi)
    }

    pub fn child_mut(&mut self, spi_in: Spi) -> Option<Changing<'_>> {
        self.children.get_mut(spi_in)
    }

    /// The Child SA that serves a phase 2 tunnel, if it is up. One that was replaced does not: its successor serves, or
    /// the tunnel was taken down.
    pub fn serving_child(&self, name: &str) -> Option<&ChildSa> {
        let of_name = || self.children.of_tunnel(name);
        (of_name().find(|c| c.state == ChildState::Established && !c.standby))
            .or_else(|| of_name().find(|c| c.state == ChildState::Established))
    }

    /// Returns `true` if an exchange is under way that may replace the Child SA of a phase 2 tunnel.
    pub fn is_rekeying(&self, name: &str) -> bool {
        self.sas.iter().any(|sa| match &sa.state.active {
            Some(Active::Child(p)) => p.tunnel.name == name && p.rekeys.is_some() && !p.unwanted,
            _ => false,
        })
    }

    /// Returns `true` if a phase 2 tunnel is up or being set up.
    pub fn has_or_wants_child(&self, name: &str) -> bool {
        let wants = |t: &Task| matches!(t, Task::CreateChild(n) if n == name);
        self.serving_child(name).is_some()
            || self.tasks.create(name)
            || self.tasks.delayed().any(|(_, t)| wants(t))
            || self.attempt.as_ref().and_then(Attempt::wanted_child).is_some_and(|c| c.name == name)
            || self.sas.iter().any(|sa| {
                matches!(&sa.state.active, Some(Active::Child(p)) if p.tunnel.name == name && !p.unwanted)
            })
    }

    /// Inbound SAs that still receive although their Child SA is gone.
    pub fn lingering(&self) -> usize {
        self.lingering.len()
    }

    /// Inbound SPIs of Child SAs that are being asked for.
    pub fn pending_spis(&self) -> usize {
        let pending = |sa: &IkeSa| {
            let asked = usize::from(matches!(sa.state.active, Some(Active::Child(_))));
            asked + sa.state.awaited.iter().filter_map(Awaited::spi_in).count()
        };
        let first = usize::from(self.attempt.as_ref().and_then(Attempt::spi_in).is_some());
        first + self.sas.iter().map(pending).sum::<usize>()
    }

    // ---- inputs

    /// Takes note of the packet that asks for a phase 2 tunnel.
    pub fn note_packet(&mut self, name: &str, packet: PacketSummary) {
        if self.serving_child(name).is_none() {
            self.packets.insert(name.into(), packet);
        }
    }

    /// TSi and TSr of a request for a phase 2 tunnel.
    pub fn asked_selectors(&mut self, tunnel: &ChildTunnel) -> [Payload; 2] {
        let packet = self.packets.remove(&tunnel.name);
        let (from, to) =
            (packet.map(|p| (p.protocol, p.source)), packet.map(|p| (p.protocol, p.destination)));
        [
            Payload::TsInitiator(selectors::asking(&tunnel.local, from)),
            Payload::TsResponder(selectors::asking(&tunnel.remote, to)),
        ]
    }

    /// Ends the session with a Delete because of a message of the peer, and starts a new one.
    pub fn break_off(
        &mut self,
        cx: &mut Context<'_>,
        reason: CloseReason,
        failure: Failure,
    ) -> Effects {
        cx.out.fail(cx.now, &self.tunnel.name, None, failure);
        self.close_and_reconnect(cx, reason)
    }

    /// Notes that the peer lives, and where it is now.
    pub fn heard(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>) {
        self.liveness.last_heard = cx.now;
        self.liveness.icmp = None;
        // RFC 4555 §3.8: with MOBIKE only an update moves it.
        if !self.mobility.supported && self.follows(datagram.remote) {
            self.move_to(cx, datagram.remote);
        }
    }

    // ---- what exchanges bring about

    /// Both sides have proved who they are.
    pub fn establish(
        &mut self,
        cx: &mut Context<'_>,
        suite: IkeSuite,
        nonces: Nonces<'_>,
    ) -> Effects {
        self.lowest_nonce = LowestNonce::of(nonces);
        self.established_at = Some(cx.now);
        self.reported = (self.path.local, self.path.remote);
        self.liveness.keepalive_at = after(cx.now, cx.config.nat_keepalive);
        cx.out.failures.overcome(cx.now, &self.tunnel.name, false);
        cx.out.event(
            &self.tunnel.name,
            None,
            EventKind::Established { suite: Negotiated::Ike(suite) },
        );
        Effect::SessionUp.into()
    }

    /// Takes in a Child SA that is installed.
    pub fn add_child(&mut self, cx: &mut Context<'_>, child: ChildSa, rekeyed: bool) -> Effects {
        let suite = child.negotiated();
        let kind =
            if rekeyed { EventKind::Rekeyed { suite } } else { EventKind::Established { suite } };
        cx.out.failures.overcome(cx.now, &child.tunnel.name, rekeyed);
        cx.out.event(&self.tunnel.name, Some(&child.tunnel.name), kind);
        self.warn_narrowed(cx, &child);
        self.temporary_failures = 0;
        self.has_served = true;
        let effects = child.installed();
        self.children.push(child);
        effects
    }

    /// Warns of a Child SA for less traffic than its tunnel has, once while its successors have the same.
    fn warn_narrowed(&self, cx: &mut Context<'_>, child: &ChildSa) {
        let name = &child.tunnel.name;
        let known = self.children.of_tunnel(name).any(|other| other.selectors == child.selectors);
        if let Some(text) = child.narrowing().filter(|_| !known) {
            cx.out.event(&self.tunnel.name, Some(name), EventKind::Warning(text));
        }
    }

    /// Says where a Child SA stands from now on; `false` where it is gone.
    pub fn set_state(&mut self, spi_in: Spi, state: ChildState) -> bool {
        self.child_mut(spi_in).map(|mut child| child.state = state).is_some()
    }

    /// Has a Child SA send, if that has been waiting.
    pub fn promote_child(&mut self, cx: &mut Context<'_>, spi_in: Spi) {
        // It has gone meanwhile.
        let Some(mut child) = self.children.get_mut(spi_in) else { return };
        if let Err(error) = child.promote(cx) {
            let warning = EventKind::Warning(error.to_string());
            cx.out.event(&self.tunnel.name, Some(&child.tunnel.name), warning);
        }
    }

    /// Has a Child SA replaced that carries nothing any more; the plane may say so of both halves.
    pub fn replace_exhausted(&mut self, cx: &mut Context<'_>, spi_in: Spi) {
        // It has gone meanwhile.
        let Some(child) = self.child_by_inbound(spi_in) else { return };
        match child.state {
            ChildState::Established => {
                let create = Task::CreateChild(child.tunnel.name.clone());
                self.set_state(spi_in, ChildState::Unwanted);
                self.tasks.extend([create, Task::DeleteChild(spi_in)]);
            }
            // Its successor is there, but the side that has to delete it has not done so yet.
            ChildState::Replaced(successor) if !self.is_deleting(spi_in) => {
                self.promote_child(cx, successor);
                self.delete_when_drained(cx, spi_in);
            }
            ChildState::Replaced(_) | ChildState::Unwanted => {}
        }
    }

    /// The nonce that decides whether the successor of a Child SA stays beside a duplicate: that of the exchange which
    /// set the phase 2 tunnel up. One end may meet the duplicate before a rekey, and the other one after it.
    pub fn inherited_nonce(&self, rekeys: Option<Spi>, own: LowestNonce) -> LowestNonce {
        rekeys.and_then(|old| self.child_by_inbound(old)).map_or(own, |old| old.lowest_nonce)
    }

    /// Settles what crossing requests for the same phase 2 tunnel leave: of two Child SAs the one made with the lowest
    /// nonce goes, deleted by the side that asked for it, as after crossing rekeys.
    pub fn delete_duplicate_children(&mut self, cx: &mut Context<'_>, name: &str) {
        let rivals = self.children.of_tunnel(name).filter(|c| c.state == ChildState::Established);
        let mut rivals: Vec<_> = rivals.map(|c| (c.lowest_nonce, c.spi_in)).collect();
        rivals.sort_by_key(|(lowest_nonce, _)| *lowest_nonce);
        let Some((_, survivor)) = rivals.pop().filter(|_| !rivals.is_empty()) else { return };
        if let Some(child) = self.child_by_inbound(survivor)
            && let Err(error) = child.go_first(cx)
        {
            cx.out.event(&self.tunnel.name, Some(name), EventKind::Warning(error.to_string()));
        }
        for (_, spi) in rivals {
            self.set_state(spi, ChildState::Unwanted);
            if self.child_by_inbound(spi).is_some_and(|c| c.created_here) {
                self.delete_when_drained(cx, spi);
            }
        }
    }

    /// Takes the session down unless a Child SA is there or on its way.
    pub fn close_when_idle(&mut self, cx: &mut Context<'_>) -> Effects {
        let creates = |task: &Task| matches!(task, Task::CreateChild(_));
        let wanted =
            self.tasks.iter().any(creates) || self.tasks.delayed().any(|(_, t)| creates(t));
        if self.children.is_empty() && !wanted {
            return self.close(cx, CloseReason::NoChildSa);
        }
        Effects::none()
    }

    // ---- tasks

    /// Queues a task behind the others, unless it is among them.
    pub fn queue(&mut self, task: Task) {
        if !self.tasks.contains(&task) {
            self.tasks.push_back(task);
        }
    }

    /// Queues a task before the others, unless it is among them.
    pub fn queue_first(&mut self, task: Task) {
        if !self.tasks.contains(&task) {
            self.tasks.push_front(task);
        }
    }

    /// Has the peer delete a Child SA on which this side has just stopped to send, once packets on their way have
    /// arrived.
    pub fn delete_when_drained(&mut self, cx: &Context<'_>, spi_in: Spi) {
        self.forget_delete(spi_in);
        let delete = Task::DeleteChild(spi_in);
        match cx.config.drain.is_zero() {
            true => self.tasks.push_front(delete),
            false => self.tasks.delay(after(cx.now, cx.config.drain), delete),
        }
    }

    /// Returns `true` if this side deletes a Child SA, or is about to.
    pub fn is_deleting(&self, spi_in: Spi) -> bool {
        let delete = Task::DeleteChild(spi_in);
        self.tasks.contains(&delete)
            || self.tasks.delayed().any(|(_, task)| *task == delete)
            || self.sas.iter().any(|sa| {
                matches!(&sa.state.active, Some(Active::DeleteChildren(spis)) if spis.contains(&spi_in))
            })
    }

    /// Returns `true` if this side is about to delete the Child SA that this one has replaced.
    pub fn awaits_delete_of_predecessor(&self, spi_in: Spi) -> bool {
        let Some(child) = self.child_by_inbound(spi_in) else { return false };
        let replaced = |c: &&ChildSa| c.state == ChildState::Replaced(spi_in);
        let mut predecessors = self.children.of_tunnel(&child.tunnel.name).filter(replaced);
        predecessors.any(|old| self.is_deleting(old.spi_in))
    }

    /// Deletes the predecessor of a Child SA at once whose own volume runs out already, so that it can be replaced in
    /// time.
    pub fn hurry_delete_of_predecessor(&mut self, spi_in: Spi) {
        let Some(child) = self.child_by_inbound(spi_in) else { return };
        let replaced = |c: &&ChildSa| c.state == ChildState::Replaced(spi_in);
        let predecessors = self.children.of_tunnel(&child.tunnel.name).filter(replaced);
        let deletes: Vec<Task> = predecessors.map(|old| Task::DeleteChild(old.spi_in)).collect();
        self.tasks.hurry(|_, task| deletes.contains(task));
    }

    /// Tries a task again later (RFC 7296 §2.25: not at once), or ends the session when it has been tried too often.
    pub fn delay(&mut self, cx: &mut Context<'_>, task: Task) -> Effects {
        self.temporary_failures += 1;
        if self.temporary_failures > TEMPORARY_FAILURES {
            return self.close_and_reconnect(cx, CloseReason::TemporaryFailures);
        }
        let growth = 1 << self.temporary_failures.min(4);
        let pause = cx.config.retransmit_after.saturating_mul(growth);
        let jitter = cx.rng.below(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX));
        let pause = (pause / 2).saturating_add(Duration::from_micros(jitter));
        self.tasks.delay(after(cx.now, pause), task);
        Effects::none()
    }
}
