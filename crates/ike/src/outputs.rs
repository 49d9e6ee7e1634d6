//! Everything the engine hands out: datagrams, events, jobs and counters.

mod frozen;

use crate::close_reason::CloseReason;
use crate::datagram::{Datagram, Transmit};
use crate::deadlines::{Deadline, after};
use crate::discard::Discard;
use crate::durations::ExchangeDurations;
use crate::event::{Event, EventKind, ExchangeStep};
use crate::failure::{Failure, FailureKind};
use crate::key_log::{LoggedKeys, Sink};
use crate::past_failures::Failures;
use crate::policy_index::Candidates;
use crate::product::Products;
use crate::proof::Job;
use crate::rejection::Rejection;
use crate::wire::header::IkeSpi;
use esp::plane::{PacketSummary, SaId};
use policy::IkeTunnel;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// The time for which the final answer of an IKE SA is repeated after its end.
const KEEP_FINAL_ANSWER: Duration = Duration::from_secs(30);
/// The number of final answers that are kept.
const FINAL_ANSWERS: usize = 1024;
/// The number of refusals that are sent to strangers in a second.
const REFUSALS: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);
/// The counter of [`Outputs::bug`].
const BUG: &str = "bug";
/// A stranger is warned of once in this time.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// The number of strangers that are remembered, so that the operator is told of each only once in a while.
const STRANGERS: usize = 256;

/// The answer with which an IKE SA ended, kept for a peer that did not get it.
struct FinalAnswer {
    until: Instant,
    spi: IkeSpi,
    request: Vec<u8>,
    answer: Vec<Vec<u8>>,
    /// If it has not been sent yet: when it is, and the addresses from and to which.
    waits: Option<(Instant, SocketAddr, SocketAddr)>,
}

/// Everything the engine hands out, and what limits it.
#[derive(Default)]
pub(crate) struct Outputs {
    pub transmits: VecDeque<Transmit>,
    pub events: VecDeque<Event>,
    pub jobs: VecDeque<Job>,
    pub discards: BTreeMap<&'static str, u64>,
    pub durations: ExchangeDurations,
    pub failures: Failures,
    pub products: Products,
    /// The ends of tunnels that were up, by name.
    pub ends: BTreeMap<String, (CloseReason, Instant)>,
    /// Packets of phase 2 tunnels, by name, that were about to leave in the clear.
    pub unprotected: BTreeMap<String, Dropped>,
    final_answers: VecDeque<FinalAnswer>,
    /// The second that began then, and the strangers refused in it.
    refused: Option<(Instant, u32)>,
    strangers: VecDeque<(IpAddr, FailureKind, Instant)>,
    sa_ids: u64,
    /// Where keys go, if they are to go anywhere.
    pub key_sink: Option<Sink>,
    /// Whether the steps of exchanges are events.
    pub tells_exchanges: bool,
}

/// The last packet of a phase 2 tunnel that the guard has dropped, as far as it has told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dropped {
    pub packet: PacketSummary,
    pub at: Instant,
    /// The time of the last event about such packets.
    pub told: Instant,
}

impl Dropped {
    /// The packet, and how long ago it was dropped.
    pub fn seen_from(&self, now: Instant) -> (PacketSummary, Duration) {
        (self.packet, now.saturating_duration_since(self.at))
    }
}

impl Outputs {
    pub fn push(&mut self, transmit: Transmit) {
        self.transmits.push_back(transmit);
    }

    pub fn transmit(&mut self, local: SocketAddr, remote: SocketAddr, octets: Vec<u8>) {
        self.push(Transmit { local, remote, octets, keepalive: false });
    }

    /// Sends every datagram of a message.
    pub fn transmit_all(&mut self, local: SocketAddr, remote: SocketAddr, datagrams: &[Vec<u8>]) {
        for octets in datagrams {
            self.transmit(local, remote, octets.clone());
        }
    }

    pub fn keepalive(&mut self, local: SocketAddr, remote: SocketAddr) {
        self.push(Transmit { local, remote, octets: vec![0xff], keepalive: true });
    }

    /// Copies keys to the sink, where there is one.
    pub fn log_keys(&self, keys: impl FnOnce() -> LoggedKeys) {
        if let Some(sink) = &self.key_sink {
            sink.take(keys());
        }
    }

    /// Counts a datagram that is ignored: the only place where that happens.
    pub fn discard(&mut self, reason: Discard) {
        tracing::debug!(reason = reason.name(), "datagram discarded");
        *self.discards.entry(reason.name()).or_default() += 1;
    }

    /// Counts a branch that was reached although it cannot be (see [`impossible`](crate::impossible)), with its place.
    #[track_caller]
    pub fn bug(&mut self, why: &str) {
        debug_assert!(false, "{why}");
        let place = std::panic::Location::caller();
        tracing::error!(%place, why, "a bug of this program: please report it");
        *self.discards.entry(BUG).or_default() += 1;
    }

    pub fn event(&mut self, tunnel: &str, child: Option<&str>, kind: EventKind) {
        let (tunnel, child) = (tunnel.into(), child.map(Into::into));
        self.events.push_back(Event { tunnel, child, peer: None, kind });
    }

    /// Tells of a step of an exchange of ours, with the phase 2 tunnel that it is for, if anybody wants to know.
    pub fn exchange<'a>(
        &mut self,
        tunnel: &str,
        told: impl FnOnce() -> Option<(Option<&'a str>, ExchangeStep)>,
    ) {
        if self.tells_exchanges
            && let Some((child, step)) = told()
        {
            self.event(tunnel, child, EventKind::Exchange(step));
        }
    }

    /// Tells of the end of a phase 1 tunnel or of one of its phase 2 tunnels, and remembers it.
    pub fn close(
        &mut self,
        now: Instant,
        tunnel: &IkeTunnel,
        child: Option<&str>,
        reason: CloseReason,
    ) {
        self.remember_end(now, tunnel, child, reason);
        self.event(&tunnel.name, child, EventKind::Closed { reason });
    }

    /// Remembers the end of a phase 1 tunnel or of one of its phase 2 tunnels.
    pub fn remember_end(
        &mut self,
        now: Instant,
        tunnel: &IkeTunnel,
        child: Option<&str>,
        reason: CloseReason,
    ) {
        // With a generic policy, the peer makes up the names of phase 2 tunnels.
        if child.is_none() || tunnel.generic.is_none() {
            self.ends.insert(child.unwrap_or(&tunnel.name).to_owned(), (reason, now));
        }
    }

    /// Tells of a failure and remembers it.
    pub fn fail(&mut self, now: Instant, tunnel: &str, child: Option<&str>, failure: Failure) {
        match child {
            Some(child) => self.failures.note_child(now, tunnel, child, failure.clone()),
            None => self.failures.note(now, tunnel, failure.clone()),
        }
        self.event(tunnel, child, EventKind::Failed(failure));
    }

    /// Remembers why somebody who has not proved who it is was refused, and tells of it unless that has just been done.
    /// `candidates` are the tunnels it may have meant.
    pub fn turn_away(
        &mut self,
        now: Instant,
        datagram: Datagram<'_>,
        candidates: &Candidates,
        rejection: &Rejection,
    ) {
        // A request to come again, for example with another group, is no refusal.
        let Some(failure) = rejection.failure.clone().map(Failure::unauthenticated) else { return };
        if !self.may_tell(now, datagram.remote.ip(), failure.kind) {
            self.failures.correct_stranger(now, datagram, failure);
            return;
        }
        self.failures.note_stranger(now, datagram, failure.clone());
        let tunnel = match candidates.only() {
            Some(only) => only.name.clone(),
            // It is unknown which tunnel is meant.
            None => datagram.remote.ip().to_string(),
        };
        let (peer, kind) = (Some(datagram.remote), EventKind::TurnedAway(failure));
        self.events.push_back(Event { tunnel, child: None, peer, kind });
    }

    /// The policy or the certificates were loaded again: what failed before may have been mended. Whatever fails from now
    /// on is told, although the same has been told before.
    pub fn outdate(&mut self, now: Instant) {
        self.failures.outdate(now);
        self.strangers.clear();
    }

    /// Says of the events of a tunnel at which peer they happened.
    pub fn name_peer(&mut self, tunnel: &str, peer: SocketAddr) {
        // They are the last ones; there may be very many others.
        let nameless = self.events.iter_mut().rev().take_while(|e| e.peer.is_none());
        nameless.filter(|e| e.tunnel == tunnel).for_each(|e| e.peer = Some(peer));
    }

    pub fn next_sa_id(&mut self) -> SaId {
        self.sa_ids += 1;
        SaId(self.sa_ids)
    }

    /// Returns `true` if one more stranger may be told that it is refused. The answers to unprotected messages are
    /// limited (RFC 7296 §2.4, §2.21.4).
    pub fn may_refuse(&mut self, now: Instant) -> bool {
        let (since, count) = match self.refused {
            Some((since, count)) if now.saturating_duration_since(since) < SECOND => (since, count),
            _ => (now, 0),
        };
        self.refused = Some((since, (count + 1).min(REFUSALS)));
        count < REFUSALS
    }

    /// Sends the answer with which an IKE SA ends, after `pause`, and keeps it. `request.octets` is what it answers, or
    /// fragment 1 of that.
    pub fn keep_final_answer(
        &mut self,
        now: Instant,
        spi: IkeSpi,
        request: Datagram<'_>,
        answer: &[Vec<u8>],
        pause: Duration,
    ) {
        if self.final_answers.len() >= FINAL_ANSWERS
            && let Some(oldest) = self.final_answers.pop_front()
        {
            self.send_final_answer(&oldest);
        }
        let mut last = FinalAnswer {
            until: now + KEEP_FINAL_ANSWER,
            spi,
            request: request.octets.to_vec(),
            answer: answer.to_vec(),
            waits: Some((after(now, pause), request.local, request.remote)),
        };
        if pause.is_zero() {
            self.send_final_answer(&last);
            last.waits = None;
        }
        self.final_answers.push_back(last);
    }

    fn send_final_answer(&mut self, last: &FinalAnswer) {
        if let Some((_, local, remote)) = last.waits {
            self.transmit_all(local, remote, &last.answer);
        }
    }

    /// Answers the very request with which an IKE SA ended once more. Returns `false` if no IKE SA ended with it.
    pub fn repeat_final_answer(&mut self, spi: IkeSpi, request: Datagram<'_>) -> bool {
        let Some(last) =
            self.final_answers.iter().find(|f| f.spi == spi && f.request == request.octets)
        else {
            return false;
        };
        // A first answer that still waits is sent in time.
        if last.waits.is_none() {
            let answer = last.answer.clone();
            self.transmit_all(request.local, request.remote, &answer);
        }
        true
    }

    /// The number of final answers that are kept.
    pub fn final_answers(&self) -> usize {
        self.final_answers.len()
    }

    pub fn next_final_answer(&self) -> Option<Deadline> {
        let waits = self.final_answers.iter().filter_map(|f| Some(f.waits?.0));
        let forgotten = self.final_answers.front().map(|f| f.until);
        let at = waits.chain(forgotten).min()?;
        Some(Deadline { at, reason: "last answer of a deleted IKE SA" })
    }

    /// Sends the final answers whose time has come, and forgets old ones.
    pub fn send_due_final_answers(&mut self, now: Instant) -> Option<Deadline> {
        self.send_final_answers_if(|at| at <= now);
        while self.final_answers.front().is_some_and(|f| f.until <= now) {
            self.final_answers.pop_front();
        }
        self.next_final_answer()
    }

    /// Sends every final answer that still waits.
    pub fn send_final_answers_now(&mut self) {
        self.send_final_answers_if(|_| true);
    }

    fn send_final_answers_if(&mut self, is_due: impl Fn(Instant) -> bool) {
        let mut final_answers = std::mem::take(&mut self.final_answers);
        for last in &mut final_answers {
            if last.waits.is_some_and(|(at, ..)| is_due(at)) {
                self.send_final_answer(last);
                last.waits = None;
            }
        }
        self.final_answers = final_answers;
    }

    /// Returns `true` if the operator is to be told of a stranger's failure. Repetitions from the same address are
    /// left out.
    fn may_tell(&mut self, now: Instant, address: IpAddr, kind: FailureKind) -> bool {
        self.strangers.retain(|(.., at)| now.saturating_duration_since(*at) < WARN_EVERY);
        let told = self.strangers.iter().any(|(a, k, _)| (*a, *k) == (address, kind));
        if told || self.strangers.len() >= STRANGERS {
            return false;
        }
        self.strangers.push_back((address, kind, now));
        true
    }
}
