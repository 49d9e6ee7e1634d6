//! Everything the engine hands out: datagrams, events, jobs and counters.

use crate::datagram::{Datagram, Transmit};
use crate::deadlines::Deadline;
use crate::discard::Discard;
use crate::event::{Event, EventKind};
use crate::failure::{Failure, FailureKind};
use crate::key_log::{LoggedKeys, Sink};
use crate::past_failures::Failures;
use crate::policy_index::Candidates;
use crate::proof::Job;
use crate::rejection::Rejection;
use crate::wire::header::IkeSpi;
use esp::plane::SaId;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How long the last answer of an IKE SA that is gone is repeated.
const FAREWELL_FOR: Duration = Duration::from_secs(30);
/// How many of them are kept.
const FAREWELLS: usize = 1024;
/// How many strangers are told in a second that they are refused.
const REFUSALS: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);
/// A stranger is warned of once in this time.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// How many strangers are remembered for that.
const STRANGERS: usize = 256;

/// The last answer of an IKE SA that is gone, for a peer that did not get it.
struct Farewell {
    until: Instant,
    spi: IkeSpi,
    request: Vec<u8>,
    answer: Vec<Vec<u8>>,
}

/// Everything the engine hands out, and what limits it.
#[derive(Default)]
pub(crate) struct Outputs {
    pub transmits: VecDeque<Transmit>,
    pub events: VecDeque<Event>,
    pub jobs: VecDeque<Job>,
    pub discards: BTreeMap<&'static str, u64>,
    pub failures: Failures,
    farewells: VecDeque<Farewell>,
    /// The second that began then, and the strangers refused in it.
    refused: Option<(Instant, u32)>,
    strangers: VecDeque<(IpAddr, FailureKind, Instant)>,
    sa_ids: u64,
    /// Where keys go, if they are to go anywhere.
    pub key_sink: Option<Sink>,
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
        *self.discards.entry("bug").or_default() += 1;
    }

    pub fn event(&mut self, tunnel: &str, child: Option<&str>, kind: EventKind) {
        let (tunnel, child) = (tunnel.into(), child.map(Into::into));
        self.events.push_back(Event { tunnel, child, peer: None, kind });
    }

    /// Tells of a failure and remembers it.
    pub fn fail(&mut self, now: Instant, tunnel: &str, child: Option<&str>, failure: Failure) {
        self.failures.note(now, child.unwrap_or(tunnel), failure.clone());
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
        // What sorts itself out, such as another group, is no refusal.
        let Some(failure) = rejection.failure.clone().map(Failure::unauthenticated) else { return };
        if !self.may_tell(now, datagram.remote.ip(), failure.kind) {
            return;
        }
        self.failures.note_stranger(now, datagram, failure.clone());
        let tunnel = match candidates.only() {
            Some(only) => only.name.clone(),
            // Which tunnel is meant cannot be told.
            None => datagram.remote.ip().to_string(),
        };
        let (peer, kind) = (Some(datagram.remote), EventKind::TurnedAway(failure));
        self.events.push_back(Event { tunnel, child: None, peer, kind });
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

    /// Whether one more stranger is told that it is refused: unprotected messages cause only so many (RFC 7296 §2.4,
    /// §2.21.4).
    pub fn may_refuse(&mut self, now: Instant) -> bool {
        let (since, count) = match self.refused {
            Some((since, count)) if now.saturating_duration_since(since) < SECOND => (since, count),
            _ => (now, 0),
        };
        self.refused = Some((since, (count + 1).min(REFUSALS)));
        count < REFUSALS
    }

    /// Keeps the answer with which an IKE SA ended. `request` is what it answers, or fragment 1 of that.
    pub fn farewell(&mut self, now: Instant, spi: IkeSpi, request: &[u8], answer: &[Vec<u8>]) {
        if self.farewells.len() >= FAREWELLS {
            self.farewells.pop_front();
        }
        let (request, answer) = (request.to_vec(), answer.to_vec());
        self.farewells.push_back(Farewell { until: now + FAREWELL_FOR, spi, request, answer });
    }

    /// The answer to the very request with which an IKE SA ended.
    pub fn farewell_of(&self, spi: IkeSpi, request: &[u8]) -> Option<Vec<Vec<u8>>> {
        self.farewells
            .iter()
            .find(|f| f.spi == spi && f.request == request)
            .map(|f| f.answer.clone())
    }

    pub fn next_farewell(&self) -> Option<Deadline> {
        self.farewells
            .front()
            .map(|f| Deadline { at: f.until, reason: "last answer of a deleted IKE SA" })
    }

    pub fn forget_farewells(&mut self, now: Instant) -> Option<Deadline> {
        while self.farewells.front().is_some_and(|f| f.until <= now) {
            self.farewells.pop_front();
        }
        self.next_farewell()
    }

    /// Whether to tell of what somebody without proof has sent: not of every datagram.
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
