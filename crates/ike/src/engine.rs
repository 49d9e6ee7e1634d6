//! All IKE SAs of a gateway, without sockets, clocks or threads.

mod families;
mod frozen;
mod lifecycle;
mod overview;
mod preparation;
mod reachability;
mod reauthentication;
mod reconnect;
mod replacement;
mod restoration;
mod sessions;
#[cfg(feature = "simulation")]
mod simulation;
mod strangers;
mod succession;
mod target;
mod unprotected;

pub use frozen::{NotDrained, ThawError};
pub use overview::Inventory;
pub use target::{Startable, Target};

use crate::config::{Config, InvalidSettings};
use crate::contacts::Contacts;
use crate::context::{Context, Spis};
use crate::crypto::rng::Rng;
use crate::datagram::{Datagram, Transmit};
use crate::deadlines::Deadline;
use crate::deadlines::{Deadlines, Waiter};
use crate::discard::Discard;
use crate::effect::{Effect, Effects};
use crate::event::Event;
use crate::exchange::auth::responder;
use crate::failure::facts::FamilyOff;
use crate::key_log::Sink;
use crate::outputs::Outputs;
use crate::policy_index::PolicyIndex;
use crate::proof::trust::Trust;
use crate::proof::{Done, Job};
use crate::reconnection::{Losses, Reconnection};
use crate::resumption::Resumption;
use crate::rules::Rules;
use crate::session::Session;
use crate::session_id::SessionId;
use crate::strangers::Strangers;
use crate::task::Task;
use crate::ticket::fingerprint;
use crate::upkeep::Upkeep;
use crate::wire::header::{Header, IkeSpi};
use crate::wire::reader::WireError;
use crate::wire::registry::ExchangeType;
use esp::plane::{DataPlane, Maintenance, Notice, Resynced};
use policy::Policy;
use sessions::Sessions;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A command cannot be carried out.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No tunnel of that name.
    #[error("no tunnel {0:?} in the policy{hint}", hint = .1.as_ref().map(|n| format!("; did you mean {n:?}?")).unwrap_or_default())]
    NoSuchTunnel(String, Option<String>),
    /// The tunnel's role is responder.
    #[error("{0:?} has the role responder: only the peer may start it")]
    ResponderOnly(String),
    /// The tunnel's peer has no address in the policy.
    #[error("{0:?} names no address of the peer: only the peer may start it")]
    NoPeerAddress(String),
    /// The tunnel has no address for this side.
    #[error("{0:?} names no address of this side: only the peer may start it")]
    NoLocalAddress(String),
    /// The tunnel carries nothing that this side may start.
    #[error("{0:?} has no phase 2 tunnel that this side may start")]
    NothingToStart(String),
    /// The engine is stopping.
    #[error("the gateway is stopping")]
    Stopping,
    /// The tunnel is of an address family that is switched off.
    #[error("{0:?} cannot be started: {1}")]
    FamilyOff(String, FamilyOff),
    /// Nothing is up under that name.
    #[error("{0:?} is not up")]
    NotUp(String),
}

policy::readable_debug!(CommandError);

/// The engine's answer to [`Engine::poll`].
#[derive(Debug)]
#[must_use = "an output that is dropped is a message that is never sent, or a job that is never done"]
pub enum Output {
    /// A datagram to send. [`Engine::handle_sent`] takes what came of it.
    Transmit(Transmit),
    /// Work with certificates, to be run outside, where it delays nothing else. [`Engine::handle_done`] takes what came
    /// of it.
    Job(Job),
    /// News for the operator.
    Event(Event),
    /// There is nothing more to do now. [`Engine::handle_timeout`] is wanted at this time; `None`: nothing waits.
    Wait(Option<Deadline>),
}

/// All IKE SAs of one gateway.
pub struct Engine<P: DataPlane> {
    policy: PolicyIndex,
    trust: Arc<Trust>,
    config: Config,
    plane: P,
    rng: Rng,
    spis: Spis,
    contacts: Contacts,
    out: Outputs,
    /// Rules by the name of the phase 2 tunnel they stand for.
    rules: Rules,
    sessions: Sessions,
    next_session: u64,
    strangers: Strangers,
    /// The IKE SAs, by local SPI, on which a request waits until the plane is prepared for it.
    postponed: BTreeSet<IkeSpi>,
    deadlines: Deadlines,
    reconnection: Reconnection,
    stopping: bool,
    /// The host's addresses at which a peer may reach it.
    addresses: Vec<IpAddr>,
    upkeep: Upkeep,
    resumption: Resumption,
}

/// Numbers only: an engine holds keys.
impl<P: DataPlane> fmt::Debug for Engine<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("tunnels", &self.policy.tunnels.len())
            .field("inventory", &self.inventory())
            .field("stopping", &self.stopping)
            .finish_non_exhaustive()
    }
}

impl<P: DataPlane> Engine<P> {
    /// Installs the policy's rules in the plane and starts the AutoStart tunnels. `seed` feeds every random choice;
    /// the port numbers of IKE (500 and [`Config::natt_port`]) are those of the addresses in [`Datagram`] and
    /// [`Transmit`].
    ///
    /// # Errors
    /// If [`Policy::validate`] refuses the policy, or [`Config::validate`] the configuration.
    pub fn new(
        policy: Arc<Policy>,
        config: Config,
        plane: P,
        seed: [u8; 32],
        now: Instant,
    ) -> Result<Self, InvalidSettings> {
        config.validate()?;
        let mut rng = Rng::from_seed(seed);
        let strangers = Strangers::new(&mut rng);
        // Of its own, so that tickets change no choice of the engine.
        let of_tickets = fingerprint(&[b"tickets", &seed]);
        let mut engine = Self {
            policy: PolicyIndex::default(),
            trust: Arc::default(),
            config,
            plane,
            rng,
            spis: Spis::default(),
            contacts: Contacts::default(),
            out: Outputs::default(),
            rules: Rules::default(),
            sessions: Sessions::default(),
            next_session: 0,
            strangers,
            postponed: BTreeSet::new(),
            deadlines: Deadlines::default(),
            reconnection: Reconnection::default(),
            stopping: false,
            addresses: Vec::new(),
            upkeep: Upkeep::default(),
            resumption: Resumption::new(Rng::from_seed(of_tickets)),
        };
        engine.begin_with_families();
        engine.replace_policy(now, policy)?;
        Ok(engine)
    }

    /// Has the keys of every SA from now on copied to `sink`: anybody who has them can read the traffic. An engine that
    /// was not told so keeps its keys to itself and its plane.
    pub fn log_keys(&mut self, sink: Sink) {
        self.out.key_sink = Some(sink);
    }

    /// Has the engine tell of each step of its own exchanges ([`EventKind::Exchange`](crate::EventKind::Exchange)), for
    /// those who measure them.
    pub fn tell_exchanges(&mut self) {
        self.out.tells_exchanges = true;
    }

    /// Sets the clock by which tickets of session resumption (RFC 5723) expire: `unix_time` is the present, since 1970.
    /// From then on only `now` counts, so that a wall clock that is set back lengthens the life of no ticket. Before
    /// the first call, this side neither gives nor takes tickets.
    pub fn set_clock(&mut self, now: Instant, unix_time: Duration) {
        self.resumption.set_clock(now, unix_time);
    }

    // ---- inputs

    /// Takes a datagram from the network.
    pub fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        let header = match Header::parse(datagram.octets) {
            Ok(header) => header,
            Err(WireError::Version(major, _)) if major > 2 => {
                return self.refuse_version(now, datagram);
            }
            Err(WireError::Version(..)) => return self.note_ikev1(now, datagram),
            Err(_) => return self.out.discard(Discard::MalformedHeader),
        };
        let ours = if header.from_initiator { header.responder_spi } else { header.initiator_spi };
        if ours == IkeSpi(0) {
            let begins = [ExchangeType::IKE_SA_INIT, ExchangeType::IKE_SESSION_RESUME];
            if begins.contains(&header.exchange) && !header.response && header.message_id == 0 {
                return self.handle_init(now, &header, datagram);
            }
            return self.out.discard(Discard::UnknownSpi);
        }
        if let Some(id) = self.sessions.of_spi(ours) {
            return self
                .with_session(now, id, |session, cx| session.handle(cx, ours, &header, datagram));
        }
        if let Some(half) = self.strangers.take(ours) {
            return self.handle_half_open(now, half, &header, datagram);
        }
        if !self.out.repeat_final_answer(ours, datagram) {
            self.out.discard(Discard::UnknownSpi);
        }
    }

    /// Takes the outcome of an [`Output::Job`]. Nothing happens if the IKE SA that it was for is gone.
    pub fn handle_done(&mut self, now: Instant, done: Done) {
        let Done { spi, outcome } = done;
        if let Some(id) = self.sessions.of_spi(spi) {
            return self.with_session(now, id, |session, cx| session.resume(cx, outcome));
        }
        let Some(half) = self.strangers.take(spi) else { return };
        match responder::resume_answer(&mut self.cx(now), *half, outcome) {
            Ok((ends, answer)) => self.take_answer(now, spi, ends, answer),
            Err(half) => self.strangers.keep(half),
        }
    }

    /// Takes a notice from the data plane.
    pub fn handle_notice(&mut self, now: Instant, notice: Notice) {
        match notice {
            Notice::Acquire { rule, packet } => {
                let name = self.rules.tunnel(rule).cloned();
                if let Some(name) = name {
                    self.acquire(now, &name, packet);
                }
            }
            Notice::Disturbed => match self.plane.maintenance().resync() {
                Ok(done) if done == Resynced::default() => {}
                Ok(Resynced { sas, policies, moved }) => {
                    tracing::warn!(sas, policies, moved, "put back what others have removed");
                }
                Err(error) => {
                    tracing::error!(%error, "putting back what others have removed");
                    self.restore(now);
                }
            },
            Notice::Unprotected(packet) => self.note_unprotected(now, packet),
            Notice::HostChanged => self.host_changed(now),
            Notice::Prepared => self.plane_prepared(now),
            Notice::Room => self.plane.maintenance().use_room(),
            Notice::Expiring { sa, hard } => {
                // The SA has gone since the plane said so.
                let Some((id, spi_in)) = self.sessions.of_sa(sa) else { return };
                self.with_session(now, id, |session, cx| {
                    match hard {
                        true => session.replace_exhausted(cx, spi_in),
                        false => {
                            session.hurry_delete_of_predecessor(spi_in);
                            session.queue_all([Task::RekeyChild(spi_in)]);
                        }
                    }
                    Effects::none()
                });
            }
            Notice::PeerMoved { sa, remote } => {
                // The SA has gone since the plane said so.
                let Some((id, _)) = self.sessions.of_sa(sa) else { return };
                self.with_session(now, id, |session, cx| {
                    session.follow_packet(cx, remote);
                    Effects::none()
                });
            }
        }
    }

    /// Takes note of the host's present addresses and routes: `source_for` gives the address from which the routes lead
    /// to a peer. IKE SAs that know MOBIKE follow (RFC 4555 §3.5), and tunnels that
    /// failed for lack of an address or a route are tried at once.
    pub fn handle_addresses(
        &mut self,
        now: Instant,
        addresses: &[IpAddr],
        source_for: &mut dyn FnMut(IpAddr) -> Option<IpAddr>,
    ) {
        self.addresses = addresses.to_vec();
        for id in self.sessions.ids() {
            self.with_session(now, id, |session, cx| {
                session.handle_addresses(cx, source_for);
                Effects::none()
            });
        }
        self.retry_stranded(now, source_for);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(waiter) = self.deadlines.take_due(now) {
            match waiter {
                Waiter::Session(id) => {
                    self.with_session(now, id, |session, cx| session.handle_timeout(cx))
                }
                Waiter::HalfOpen(spi) => self.expire_half_open(now, spi),
                Waiter::Retry(name) => self.retry(now, &name),
                Waiter::Redundant(id) => self.close_redundant(now, id),
                Waiter::Restoration => self.restore(now),
                Waiter::FinalAnswers => {
                    let next = self.out.send_due_final_answers(now);
                    self.deadlines.set(Waiter::FinalAnswers, next);
                }
            }
        }
    }

    // ---- outputs

    /// The next thing to do for the engine. After every input and command this is called until it answers
    /// [`Output::Wait`], which also tells how long to wait for the next input.
    pub fn poll(&mut self) -> Output {
        if let Some(transmit) = self.out.transmits.pop_front() {
            return Output::Transmit(transmit);
        }
        if let Some(job) = self.out.jobs.pop_front() {
            return Output::Job(job);
        }
        match self.out.events.pop_front() {
            Some(event) => Output::Event(event),
            None => Output::Wait(self.deadline()),
        }
    }

    /// The moment at which the engine wants [`Engine::handle_timeout`]. [`Engine::poll`] tells it, too; this takes
    /// nothing out of the engine.
    pub fn deadline(&self) -> Option<Deadline> {
        self.deadlines.next()
    }

    // ---- inside

    fn cx(&mut self, now: Instant) -> Context<'_> {
        Context {
            now,
            config: &self.config,
            addresses: &self.addresses,
            policy: &self.policy,
            rules: &mut self.rules,
            trust: &self.trust,
            plane: &mut self.plane,
            rng: &mut self.rng,
            spis: &mut self.spis,
            contacts: &self.contacts,
            resumption: &mut self.resumption,
            out: &mut self.out,
        }
    }

    /// Lets a session do something, has it start the exchanges that wait and can be started, and applies what both
    /// cause.
    fn with_session(
        &mut self,
        now: Instant,
        id: SessionId,
        work: impl FnOnce(&mut Session, &mut Context<'_>) -> Effects,
    ) {
        self.ask_session(now, id, |session, cx| ((), work(session, cx)));
    }

    /// The same, with an answer. Where there is no such session, the answer is the default one.
    fn ask_session<T: Default>(
        &mut self,
        now: Instant,
        id: SessionId,
        work: impl FnOnce(&mut Session, &mut Context<'_>) -> (T, Effects),
    ) -> T {
        let Some(mut session) = self.sessions.take(id) else { return T::default() };
        let established_before = session.is_established();
        let mut cx = self.cx(now);
        let (answer, effects) = work(&mut session, &mut cx);
        let effects = effects.and(session.pump(&mut cx));
        self.out.name_peer(&session.tunnel().name, session.path().remote);
        let established_now = session.is_established() && !established_before;
        self.store(now, id, session, effects);
        if established_now {
            self.close_duplicate_sessions(now, id);
        }
        answer
    }

    /// Stores a session, or drops it if it is over, and applies the effects of its work. No other place does that.
    fn store(&mut self, now: Instant, id: SessionId, mut session: Box<Session>, effects: Effects) {
        session.rest();
        let mut losses = Losses::default();
        let (mut orphaned, mut retired) = (Vec::new(), Vec::new());
        let mut successor_due = false;
        for effect in effects {
            match effect {
                Effect::SpiTaken(spi) => self.sessions.enter_spi(id, spi),
                Effect::SpiGivenUp(spi) => self.sessions.leave_spi(spi),
                Effect::Postponed(spi) => _ = self.postponed.insert(spi),
                Effect::SaInstalled(sa, child) => self.sessions.enter_sa(id, sa, child),
                Effect::SaForgotten(sa) => self.sessions.leave_sa(sa),
                Effect::SessionUp => self.contacts.session_up(session.tunnel()),
                Effect::SessionDown => self.contacts.session_down(session.tunnel()),
                Effect::InboundOrphaned(lingering) => orphaned.push(lingering),
                Effect::OutboundRetired(sa) => retired.push(sa),
                Effect::SuccessorDue => successor_due = true,
                Effect::Reconnect(name) => losses.reconnect.push(name),
                Effect::Lost(lost) => losses.lost.push(lost),
                Effect::Unserved(name) => losses.unserved.push(name),
            }
        }
        // Both are read here because the session is consumed or stored below.
        let predecessor = session.predecessor().filter(|_| session.is_over());
        let asked_for =
            self.rules.has_asked_for(&session.tunnel().name).then(|| session.tunnel().name.clone());
        self.hand_over(now, id, &session.tunnel().name, orphaned, retired);
        let waiter = Waiter::Session(id);
        if session.is_over() {
            self.deadlines.set(waiter, None);
            self.deadlines.set(Waiter::Redundant(id), None);
            self.sessions.leave(id, &session);
            self.after_session(now, *session, losses);
        } else {
            self.deadlines.set(waiter, session.deadline(&self.config));
            let tunnel = Arc::clone(session.tunnel());
            self.sessions.store(id, session);
            self.after_losses(now, &tunnel, losses);
        }
        if let Some(tunnel) = asked_for {
            self.sync_asked_for_rules(&tunnel);
        }
        let final_answers = self.out.next_final_answer();
        self.deadlines.set(Waiter::FinalAnswers, final_answers);
        if successor_due {
            self.begin_successor(now, id);
        }
        if let Some(predecessor) = predecessor {
            self.put_off_reauthentication(now, predecessor);
        }
        self.finish_succession(now, id);
    }
}
