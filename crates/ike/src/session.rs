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
mod frozen;
mod ike_sas;
mod liveness;
mod outcome;
mod reauthentication;
mod resumption;
mod retransmission;
mod roaming;
mod scheduling;
mod signs_of_life;
mod tasks;
mod wanted;

use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::datagram::Datagram;
use crate::deadlines::after;
use crate::effect::{Effect, Effects, Lingering};
use crate::event::{EventKind, Negotiated};
use crate::failure::Failure;
use crate::negotiation::selectors;
use crate::negotiation::suite::IkeSuite;
use crate::originator::Originator;
use crate::past_failures::Success;
use crate::resumption::Authentication;
use crate::sa::IkeSa;
use crate::sa::active::Active;
use crate::sa::attempt::Attempt;
use crate::sa::child::{ChildSa, ChildState};
use crate::sa::follow_up::Awaited;
use crate::sa::keys::Nonces;
use crate::sa::lowest_nonce::LowestNonce;
use crate::sa::mobility::Mobility;
use crate::sa::path::Path;
use crate::task::Task;
use crate::wire::header::IkeSpi;
use crate::wire::payload::Payload;
use crate::wire::registry::ProtocolId;
use esp::plane::{PacketSummary, Spi};
use policy::{ChildTunnel, IkeTunnel};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use carrier::Carrier;
pub(crate) use children::{Changing, Children, most_children};
use liveness::Liveness;
pub(crate) use outcome::{Ending, Outcome};
use reauthentication::Reauthentication;
use tasks::Tasks;

/// One authenticated peer, or the attempt to reach it.
pub(crate) struct Session {
    tunnel: Arc<IkeTunnel>,
    path: Path,
    mobility: Mobility,
    reauthentication: Reauthentication,
    /// The proofs on which it rests, if its tunnel has tickets of session resumption.
    authentication: Option<Box<Authentication>>,
    /// The addresses last told of to the operator.
    reported: (SocketAddr, SocketAddr),
    /// The IKE SA that this side sets up, until it is the first of `sas`. Then this is empty for good.
    attempt: Option<Attempt>,
    /// The IKE SAs in use, oldest first.
    sas: Vec<IkeSa>,
    /// The IKE SA, by local SPI, that carries new exchanges of ours.
    current: IkeSpi,
    children: Children,
    tasks: Tasks,
    liveness: Liveness,
    /// The packets that asked for phase 2 tunnels, by name, until the peer is asked.
    packets: BTreeMap<String, PacketSummary>,
    lingering: Vec<Lingering>,
    established_at: Option<Instant>,
    /// When this side first heard of the handshake, or began it.
    begun_at: Instant,
    /// The side that began it.
    originator: Originator,
    /// The lowest nonce of its first IKE SA. It decides which of two sessions stays if both sides began one.
    lowest_nonce: LowestNonce,
    rekeys: u64,
    /// A Child SA of the session has been up.
    has_served: bool,
    temporary_failures: u32,
    /// The IKE SA that the peer has just deleted; it goes once the answer is sent.
    deleted: Option<(IkeSpi, CloseReason)>,
    life: Life,
    outcome: Outcome,
}

/// Where a session stands in its life.
enum Life {
    Running,
    /// This side takes it down.
    Closing(CloseReason),
    /// It has neither IKE SAs nor Child SAs left.
    Over,
}

impl Session {
    /// A session that this side begins. Its attempt, with the local SPI `current`, is still to come.
    pub fn of_initiator(tunnel: Arc<IkeTunnel>, path: Path, current: IkeSpi, now: Instant) -> Self {
        Self::new(tunnel, path, current, Originator::ThisSide, now, now)
    }

    /// A session that the peer has begun. Its IKE SA, with the local SPI `current`, is still to come.
    pub fn of_responder(
        tunnel: Arc<IkeTunnel>,
        path: Path,
        current: IkeSpi,
        begun_at: Instant,
        now: Instant,
    ) -> Self {
        Self::new(tunnel, path, current, Originator::Peer, begun_at, now)
    }

    fn new(
        tunnel: Arc<IkeTunnel>,
        path: Path,
        current: IkeSpi,
        originator: Originator,
        begun_at: Instant,
        now: Instant,
    ) -> Self {
        Self {
            tunnel,
            path,
            mobility: Mobility::default(),
            reauthentication: Reauthentication::default(),
            authentication: None,
            reported: (path.local, path.remote),
            attempt: None,
            sas: Vec::new(),
            current,
            children: Children::default(),
            tasks: Tasks::default(),
            liveness: Liveness::new(now),
            packets: BTreeMap::new(),
            lingering: Vec::new(),
            established_at: None,
            begun_at,
            originator,
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

    /// The phase 1 tunnel that it serves.
    pub fn tunnel(&self) -> &Arc<IkeTunnel> {
        &self.tunnel
    }

    /// The addresses of both sides, and the way that messages take between them.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path, for an exchange that finds out about NATs on it, or about the other side's abilities.
    pub fn path_mut(&mut self) -> &mut Path {
        &mut self.path
    }

    pub fn mobility(&self) -> &Mobility {
        &self.mobility
    }

    /// The Child SAs of all its IKE SAs.
    pub fn children(&self) -> &Children {
        &self.children
    }

    /// When both sides had proved who they are.
    pub fn established_at(&self) -> Option<Instant> {
        self.established_at
    }

    /// When this side first heard of the handshake, or began it.
    pub fn begun_at(&self) -> Instant {
        self.begun_at
    }

    /// Returns `true` if it was up already when another one began.
    pub fn was_up_before(&self, other: &Self) -> bool {
        self.established_at.is_some_and(|at| at < other.begun_at)
    }

    /// The side that began it.
    pub fn originator(&self) -> Originator {
        self.originator
    }

    /// Returns `true` if this side began it.
    pub fn begun_here(&self) -> bool {
        self.originator.is_here()
    }

    pub fn lowest_nonce(&self) -> LowestNonce {
        self.lowest_nonce
    }

    /// The number of times that its IKE SA was rekeyed.
    pub fn rekeys(&self) -> u64 {
        self.rekeys
    }

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

    pub fn child_by_inbound(&self, spi: Spi) -> Option<&ChildSa> {
        self.children.by_inbound(spi)
    }

    /// Returns `true` if a peer may have no more Child SAs.
    pub fn is_full(&self) -> bool {
        self.children.len() >= most_children(&self.tunnel)
    }

    /// The protocols of the Child SAs that the tunnel's proposals may make.
    pub fn protocols(&self) -> Vec<ProtocolId> {
        let mut proposals = self.tunnel.children.iter().flat_map(|c| &c.proposals);
        let ah = proposals.clone().any(|p| p.protection.is_ah());
        let esp = !ah || proposals.any(|p| !p.protection.is_ah());
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
        let mut of_name = self.children.of_tunnel(name);
        of_name
            .find(|c| c.state == ChildState::Established && !c.standby)
            .or_else(|| self.children.of_tunnel(name).find(|c| c.state == ChildState::Established))
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
        self.serving_child(name).is_some()
            || self.tasks.create(name)
            || self.tasks.delayed().any(|(_, t)| matches!(t, Task::CreateChild(n) if n == name))
            || self.attempt.as_ref().and_then(Attempt::wanted_child).is_some_and(|c| c.name == name)
            || self.sas.iter().any(|sa| {
                matches!(&sa.state.active, Some(Active::Child(p)) if p.tunnel.name == name && !p.unwanted)
            })
    }

    /// Inbound SAs that still receive although their Child SA is gone.
    pub fn lingering(&self) -> usize {
        self.lingering.len()
    }

    /// Inbound SPIs that are on offer: in requests of ours, and in answers that others follow.
    pub fn spis_on_offer(&self) -> impl Iterator<Item = Spi> {
        let first = self.attempt.as_ref().and_then(Attempt::spi_in);
        let others = self.sas.iter().flat_map(|sa| {
            let asked = match &sa.state.active {
                Some(Active::Child(pending)) => Some(pending.spi_in),
                _ => None,
            };
            asked.into_iter().chain(sa.state.awaited.iter().filter_map(Awaited::spi_in))
        });
        first.into_iter().chain(others)
    }

    /// Inbound SPIs of Child SAs that are being asked for.
    pub fn pending_spis(&self) -> usize {
        let first = usize::from(self.attempt.as_ref().and_then(Attempt::spi_in).is_some());
        first
            + self
                .sas
                .iter()
                .map(|sa| {
                    let asked = usize::from(matches!(sa.state.active, Some(Active::Child(_))));
                    asked + sa.state.awaited.iter().filter_map(Awaited::spi_in).count()
                })
                .sum::<usize>()
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
        self.liveness.heard(cx.now);
        // RFC 4555 §3.8: with MOBIKE only an update moves it.
        if !self.mobility.supported && self.follows(datagram.remote) {
            self.move_to(cx, datagram.remote);
        }
    }

    // ---- what exchanges bring about

    /// The IKE SA has been rekeyed: `new` takes the place of `old`.
    pub fn note_rekeyed(&mut self, cx: &mut Context<'_>, old: IkeSpi, new: IkeSpi) {
        self.rekeys += 1;
        self.temporary_failures = 0;
        self.supersede(cx, old, new);
        self.renew_ticket(cx);
    }

    /// Both sides have proved who they are.
    pub fn establish(
        &mut self,
        cx: &mut Context<'_>,
        suite: IkeSuite,
        nonces: Nonces<'_>,
        proofs: Option<Authentication>,
    ) -> Effects {
        self.authentication = proofs.map(Box::new);
        cx.resumption.forget(&self.tunnel.name);
        self.lowest_nonce = LowestNonce::of(nonces);
        self.established_at = Some(cx.now);
        self.reported = (self.path.local, self.path.remote);
        self.liveness.keepalive_at = after(cx.now, cx.config.nat_keepalive);
        cx.out.failures.overcome(cx.now, &self.tunnel.name, Success::SetUp);
        cx.out.event(
            &self.tunnel.name,
            None,
            EventKind::Established { suite: Negotiated::Ike(suite) },
        );
        if let Some(times) = self.resumptions() {
            cx.out.event(&self.tunnel.name, None, EventKind::Resumed { times });
        }
        Effect::SessionUp.into()
    }

    /// Takes in a Child SA of ours that lost against the peer's, and has the peer delete it (RFC 7296 §2.8.1).
    pub fn add_redundant_child(&mut self, mut child: ChildSa) -> Effects {
        child.state = ChildState::Unwanted;
        let effects = child.installed();
        self.tasks.push_front(Task::DeleteChild(child.spi_in));
        self.children.push(child);
        effects
    }

    /// Takes in a Child SA that is installed.
    pub fn add_child(&mut self, cx: &mut Context<'_>, child: ChildSa, by: Success) -> Effects {
        let suite = child.negotiated();
        let kind = match by {
            Success::SetUp => EventKind::Established { suite },
            Success::Renewal => EventKind::Rekeyed { suite },
        };
        cx.out.failures.overcome(cx.now, &child.tunnel.name, by);
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
            if self.child_by_inbound(spi).is_some_and(|c| c.originator.is_here()) {
                self.delete_when_drained(cx, spi);
            }
        }
    }

    /// Takes the session down unless a Child SA is there or on its way.
    pub fn close_when_idle(&mut self, cx: &mut Context<'_>) -> Effects {
        let delayed = self.tasks.delayed().map(|(_, task)| task);
        let wanted =
            self.tasks.iter().chain(delayed).any(|task| matches!(task, Task::CreateChild(_)));
        if self.children.is_empty() && !wanted {
            return self.close(cx, CloseReason::NoChildSa);
        }
        Effects::none()
    }
}
