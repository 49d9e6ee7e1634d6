//! The stack: packets of the tunnels find their sockets, and sockets send.
//!
//! smoltcp has the state machine of TCP. Each connection is a set of sockets of its own, which is handed to smoltcp
//! together with the packets of that connection only, so that the work depends on the connections that have something
//! to do.

mod other;
mod segments;

use crate::connection::{Connection, Flow, Inner, stack_duration};
use crate::end::End;
use crate::mailbox::Job;
use crate::outlet::{Outlet, Port};
use crate::packet::{self, ICMP, ICMPV6, Parsed};
use crate::routes::{TCP, UDP};
use crate::shared::Shared;
use esp::gso::Gso;
use esp::reassembly::Reassembler;
use smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use smoltcp::socket::tcp::State;
use smoltcp::time::Instant as StackInstant;
use smoltcp::wire::HardwareAddress;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Super-packets that a connection sends before the next connection's turn.
const TURN: usize = 2;
/// The time that a connection without a handle has to bring its last octets to the peer.
const LINGER: Duration = Duration::from_secs(60);
/// The time for which the ports of a connection that this end has closed are not used again (RFC 9293 §3.6.1), in
/// microseconds: twice what a segment lives on its way.
const TIME_WAIT: u64 = 10_000_000;
/// Connections whose ports are kept so at the same time, so that a peer cannot take any amount of memory with them.
const MOST_PAST: usize = 1 << 16;
/// A connection that smoltcp wants to look at again, though nothing could be sent, is looked at after this time.
const PAUSE: u64 = 1000;

pub(crate) struct Stack {
    pub shared: Arc<Shared>,
    pub outlet: Outlet,
    interface: Interface,
    epoch: Instant,
    connections: HashMap<Flow, Arc<Connection>>,
    /// Those that have something to send or to be looked at.
    active: VecDeque<Arc<Connection>>,
    /// Those that wait for a time.
    timers: BTreeMap<(u64, u64), Arc<Connection>>,
    /// Connections that are over and whose ports stay reserved, by the time of their end.
    past: VecDeque<(u64, Flow)>,
    /// For packets of no connection.
    nobody: SocketSet<'static>,
    reassembler: Reassembler,
}

impl Stack {
    pub fn new(shared: Arc<Shared>, mut outlet: Outlet) -> Self {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = shared.settings.seed;
        let port = &mut Port { incoming: None, outlet: &mut outlet, corrections: None };
        let mut interface = Interface::new(config, port, StackInstant::from_micros(0));
        // This file decides which addresses are ours; smoltcp takes packets for all of them.
        interface.set_any_ip(true);
        let epoch = outlet.now;
        Self {
            shared,
            outlet,
            interface,
            epoch,
            connections: HashMap::new(),
            active: VecDeque::new(),
            timers: BTreeMap::new(),
            past: VecDeque::new(),
            nobody: SocketSet::new(Vec::new()),
            reassembler: Reassembler::default(),
        }
    }

    /// Takes note of the time.
    pub fn now_is(&mut self, now: Instant) {
        self.outlet.now = now;
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.outlet.now.duration_since(self.epoch).as_micros()).unwrap_or(u64::MAX)
    }

    fn stack_now(&self) -> StackInstant {
        StackInstant::from_micros(i64::try_from(self.micros()).unwrap_or(i64::MAX))
    }

    /// The time that smoltcp is told for a connection.
    fn time_of(&self, inner: &Inner) -> StackInstant {
        self.stack_now() + inner.corrections.ahead()
    }

    /// Returns `true` if connections have something to do now.
    pub fn is_busy(&self) -> bool {
        !self.active.is_empty()
    }

    /// When a connection has to be looked at though nothing comes.
    pub fn wakes_at(&self) -> Option<Instant> {
        let ((micros, _), _) = self.timers.first_key_value()?;
        Some(self.epoch + Duration::from_micros(*micros))
    }

    /// Does a job that a handle has given.
    pub fn work(&mut self, job: Job) {
        match job {
            Job::Open(connection) => self.open(connection),
            Job::Look(connection) => {
                connection.answered();
                self.activate(&connection);
            }
        }
    }

    /// Begins a connection of this end.
    fn open(&mut self, connection: Arc<Connection>) {
        let mut inner = connection.lock();
        if inner.orphaned.is_some() {
            drop(inner);
            return self.shared.sockets().forget(connection.flow);
        }
        let Flow { local, remote } = connection.flow;
        let patience = stack_duration(self.shared.settings.connect_timeout);
        let cx = self.interface.context();
        let socket = inner.socket();
        socket.set_timeout(Some(patience));
        if socket.connect(cx, remote, local).is_err() {
            inner.end = Some(End::Unreachable);
            inner.socket().abort();
            drop(inner);
            return self.shared.sockets().forget(connection.flow);
        }
        inner.before = Some(State::SynSent);
        drop(inner);
        self.connections.insert(connection.flow, Arc::clone(&connection));
        self.activate(&connection);
    }

    /// Takes a packet that came out of a tunnel.
    pub fn take(&mut self, packet: &[u8], gso: Gso) {
        let Some(parsed) = packet::parse(packet) else { return };
        if parsed.fragment {
            let since = self.outlet.now.duration_since(self.epoch);
            if let Some(whole) = self.reassembler.take(since, packet) {
                self.take(&whole, Gso::NONE);
            }
            return;
        }
        // Joined packets were verified one by one, before they were joined.
        let verified = gso.checksum_verified || gso.checksum.is_some();
        let transport = [TCP, UDP, ICMP, ICMPV6].contains(&parsed.protocol);
        if transport && !verified && !parsed.is_intact(packet) {
            return self.shared.counts.damaged();
        }
        match parsed.protocol {
            TCP => self.take_tcp(packet, &parsed),
            UDP => self.take_udp(packet, &parsed, gso),
            ICMP | ICMPV6 => self.take_icmp(packet, &parsed),
            _ => self.answer_as_nobody(packet, &parsed),
        }
    }

    /// Puts a connection among those that have their turn, at most once.
    fn activate(&mut self, connection: &Arc<Connection>) {
        if connection.queues() {
            self.active.push_back(Arc::clone(connection));
        }
    }

    /// Answers a packet that no socket is for: a reset, an echo reply, or an error.
    fn answer_as_nobody(&mut self, packet: &[u8], parsed: &Parsed) {
        if !self.shared.routes.is_own(parsed.destination) {
            return self.shared.counts.not_ours();
        }
        let now = self.stack_now();
        let incoming = Some(&packet[..parsed.end]);
        let port = &mut Port { incoming, outlet: &mut self.outlet, corrections: None };
        self.interface.poll_ingress_single(now, port, &mut self.nobody);
    }

    /// Has connections send until nothing is left, or the queue of sealed packets is full.
    pub fn send(&mut self) {
        self.wake_sleepers();
        let mut turns = self.active.len();
        while turns > 0 && !self.outlet.queue.is_full() {
            turns -= 1;
            let Some(connection) = self.active.pop_front() else { return };
            connection.has_turn();
            if self.serve(&connection) {
                self.activate(&connection);
            }
        }
    }

    fn wake_sleepers(&mut self) {
        let now = self.micros();
        while let Some((_, flow)) =
            self.past.front().copied().filter(|(end, _)| end + TIME_WAIT <= now)
        {
            self.past.pop_front();
            self.shared.sockets().forget(flow);
        }
        while let Some(entry) = self.timers.first_entry().filter(|entry| entry.key().0 <= now) {
            let connection = entry.remove();
            connection.lock().wakes_at = None;
            self.activate(&connection);
        }
    }

    /// Gives a connection its turn. Returns `true` if it has more to send.
    fn serve(&mut self, connection: &Arc<Connection>) -> bool {
        let mut inner = connection.lock();
        if inner.before.is_none() || !self.connections.contains_key(&connection.flow) {
            return false;
        }
        let (snapshot, patience) = (inner.snapshot(), self.shared.settings.dead_after);
        if inner.corrections.due(&snapshot, patience, self.outlet.now) {
            inner.end.get_or_insert(End::TimedOut);
            inner.socket().abort();
        }
        let delays = inner.corrections.delays(&snapshot);
        inner.socket().set_nagle_enabled(delays);
        let mut sent = 0;
        while sent < TURN && !self.outlet.queue.is_full() {
            let sends = self.poll(&mut inner, None, |interface, now, port, set| {
                interface.poll_egress(now, port, set) != PollResult::None
            });
            if !sends {
                break;
            }
            sent += 1;
        }
        let room = inner.room();
        inner.corrections.has_told(room);
        !self.settle(connection, &mut inner, false) && self.sleep(connection, &mut inner, sent > 0)
    }

    /// Has smoltcp take or send a packet of a connection.
    fn poll<R>(
        &mut self,
        inner: &mut Inner,
        incoming: Option<&[u8]>,
        poll: impl FnOnce(&mut Interface, StackInstant, &mut Port<'_>, &mut SocketSet<'static>) -> R,
    ) -> R {
        let time = self.time_of(inner);
        let corrections = Some(&mut inner.corrections);
        let port = &mut Port { incoming, outlet: &mut self.outlet, corrections };
        poll(&mut self.interface, time, port, &mut inner.socket.set)
    }

    /// Notes when the connection is to be looked at again. Returns `true`: at once.
    fn sleep(&mut self, connection: &Arc<Connection>, inner: &mut Inner, sent: bool) -> bool {
        let wants = self.interface.poll_at(self.time_of(inner), &inner.socket.set);
        let ahead = inner.corrections.ahead();
        let mut at = wants.map(|at| u64::try_from((at - ahead).total_micros()).unwrap_or(0));
        let micros = self.micros();
        if at.is_some_and(|at| at <= micros) {
            if sent || self.outlet.queue.is_full() {
                return true;
            }
            at = Some(micros + PAUSE);
        }
        let lingers = inner.orphaned.map(|since| since + LINGER);
        let (snapshot, patience) = (inner.snapshot(), self.shared.settings.dead_after);
        let due = inner.corrections.due_at(&snapshot, patience, self.outlet.now);
        for end in [lingers, due].into_iter().flatten() {
            let end = end.duration_since(self.epoch).as_micros();
            let end = u64::try_from(end).unwrap_or(u64::MAX).max(micros + PAUSE);
            at = Some(at.map_or(end, |at| at.min(end)));
        }
        if at != inner.wakes_at {
            if let Some(before) = inner.wakes_at.take() {
                self.timers.remove(&(before, connection.number));
            }
            if let Some(at) = at {
                self.timers.insert((at, connection.number), Arc::clone(connection));
                inner.wakes_at = Some(at);
            }
        }
        false
    }

    /// Draws the conclusions of what has happened to a connection. Returns `true` if that was its end.
    fn settle(&mut self, connection: &Arc<Connection>, inner: &mut Inner, came: bool) -> bool {
        inner.count();
        let state = inner.state();
        let before = inner.before.replace(state).filter(|before| *before != State::Closed);
        if let Some(before) = before.filter(|_| state == State::Closed && inner.end.is_none()) {
            inner.end = end_of(before, came);
        }
        self.establish(connection, inner, state);
        if inner.can_yield() && !std::mem::replace(&mut inner.yields, true) {
            self.shared.yields(connection);
        }
        if let Some(since) = inner.orphaned
            && ![State::Closed, State::TimeWait].contains(&state)
            && (inner.socket().recv_queue() > 0 || self.outlet.now.duration_since(since) >= LINGER)
        {
            // Nobody is going to read it.
            inner.socket().abort();
            inner.before = Some(State::Closed);
        }
        let back = state == State::Listen && came;
        let resets = inner.socket().remote_endpoint().is_some();
        // Nobody reads any more, and all is acknowledged: its memory is free, but not its ports.
        let past = state == State::TimeWait && inner.orphaned.is_some() && !came;
        let ended = inner.state() == State::Closed && !resets || back || past;
        if ended {
            self.remove(connection, inner, past);
        }
        ended
    }

    /// Hands a connection that has just been established to the task that waits for it.
    fn establish(&mut self, connection: &Arc<Connection>, inner: &mut Inner, state: State) {
        use State::{CloseWait, Established};
        if ![Established, CloseWait].contains(&state) {
            return;
        }
        // From here on, `Corrections::due` has the limit.
        inner.socket().set_timeout(None);
        let Some(listener) = inner.listener.take() else { return };
        let listener = Weak::upgrade(&listener);
        if !listener.is_some_and(|listener| listener.put(Arc::clone(connection))) {
            inner.socket().abort();
        }
    }

    fn remove(&mut self, connection: &Arc<Connection>, inner: &mut Inner, past: bool) {
        inner.count();
        if let Some(at) = inner.wakes_at.take() {
            self.timers.remove(&(at, connection.number));
        }
        if let Some(listener) = inner.listener.take().and_then(|listener| listener.upgrade()) {
            listener.expects_no_more(connection);
        }
        self.connections.remove(&connection.flow);
        match past {
            true => self.reserve(connection.flow),
            false => self.shared.sockets().forget(connection.flow),
        }
    }

    /// Keeps the ports of a connection that is over.
    fn reserve(&mut self, flow: Flow) {
        self.shared.sockets().keep(flow);
        self.past.push_back((self.micros(), flow));
        if self.past.len() > MOST_PAST
            && let Some((_, oldest)) = self.past.pop_front()
        {
            self.shared.sockets().forget(oldest);
        }
    }

    /// Ends every connection: the gateway has stopped.
    pub fn stop(&mut self) {
        for connection in self.connections.values() {
            let mut inner = connection.lock();
            inner.end.get_or_insert(End::Stopped);
            inner.socket().abort();
        }
        self.connections.clear();
        self.timers.clear();
        self.active.clear();
    }
}

/// Why a connection is closed that was in this state before. `came`: by a packet of the peer.
fn end_of(before: State, came: bool) -> Option<End> {
    match (before, came) {
        (State::LastAck | State::TimeWait | State::Closing | State::Listen, _) => None,
        (State::SynSent, true) => Some(End::Refused),
        (_, true) => Some(End::Reset),
        (_, false) => Some(End::TimedOut),
    }
}

#[cfg(test)]
mod tests;
