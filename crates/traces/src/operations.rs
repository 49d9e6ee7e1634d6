//! From events to spans: which event begins an operation, which ends it, and how.

use crate::live::{self, Live};
use crate::span::{Outcome, Span, SpanId, TraceId, Value};
use ike::durations::Exchange;
use ike::event::{Event, EventKind, ExchangeStep, Negotiated, Step};
use ike::wire::header::IkeSpi;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// Operations that may be under way at a time. Of more than these, no spans are made.
const MOST: usize = 8192;

/// The operations of a gateway that are under way.
///
/// The time is an argument. Spans have no keys, and no identities but the names that the policy gives tunnels.
pub struct Operations {
    new_id: Box<dyn FnMut() -> u64 + Send>,
    /// A subscriber of this process sees the spans.
    is_live: bool,
    under_way: BTreeMap<Key, Span>,
    /// By this side's SPI of the IKE SA and the number of the request; with the operation that it is for.
    exchanges: BTreeMap<(IkeSpi, u32), (Key, Span)>,
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operations")
            .field("under_way", &self.under_way.len())
            .finish_non_exhaustive()
    }
}

/// An operation: its tunnel, its phase 2 tunnel, and what is done.
type Key = (String, Option<String>, Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Negotiation,
    Rekey,
}

impl Kind {
    fn name(self, of_child: bool) -> &'static str {
        match (self, of_child) {
            (Self::Negotiation, false) => "negotiate IKE SA",
            (Self::Negotiation, true) => "negotiate Child SA",
            (Self::Rekey, false) => "rekey IKE SA",
            (Self::Rekey, true) => "rekey Child SA",
        }
    }
}

/// The span of which another one is a part.
struct Parent {
    trace: TraceId,
    id: SpanId,
    live: tracing::Span,
}

impl Parent {
    fn of(span: &Span) -> Self {
        Self { trace: span.trace, id: span.id, live: span.live.0.clone() }
    }
}

fn key(event: &Event, kind: Kind) -> Key {
    (event.tunnel.clone(), event.child.clone(), kind)
}

impl Operations {
    /// None is under way yet. `new_id` gives numbers at random; 0 stands for none.
    pub fn new(new_id: impl FnMut() -> u64 + Send + 'static) -> Self {
        let new_id = Box::new(new_id);
        Self { new_id, is_live: false, under_way: BTreeMap::new(), exchanges: BTreeMap::new() }
    }

    /// None is under way yet. Each is also a span of the crate `tracing`, with the target `vpn`, which the subscriber
    /// of this process sees from its beginning to its end. The subscriber numbers them.
    pub fn live() -> Self {
        Self { is_live: true, ..Self::new(|| 0) }
    }

    /// Takes an event that came now. Returns the spans that it finishes.
    #[must_use]
    pub fn see(&mut self, event: &Event, now: SystemTime) -> Vec<Span> {
        let mut done = Vec::new();
        match &event.kind {
            EventKind::Negotiating { initiator } => {
                let key = key(event, Kind::Negotiation);
                done.extend(
                    self.under_way
                        .remove(&key)
                        .map(|span| end(span, Outcome::Error("begun again".to_owned()), now)),
                );
                self.begin(key, event, *initiator, now);
            }
            EventKind::Exchange(step) => self.take_step(event, step, now, &mut done),
            EventKind::Established { suite } => {
                self.succeed(event, Kind::Negotiation, suite, now, &mut done);
            }
            EventKind::Rekeyed { suite } => {
                self.succeed(event, Kind::Rekey, suite, now, &mut done);
            }
            EventKind::Failed(failure) => {
                let told = diagnosis::line::failure(failure);
                self.fail(event, failure.kind.name(), &told, now, &mut done);
            }
            EventKind::Closed { reason } => {
                self.fail(event, "closed", &reason.to_string(), now, &mut done);
            }
            // A peer began it, and its beginning was no event.
            EventKind::TurnedAway(failure) => {
                let mut span = self.span(Kind::Negotiation, event, None, false, now);
                span.set("error.type", failure.kind.name());
                let told = diagnosis::line::failure(failure);
                done.push(end(span, Outcome::Error(told), now));
            }
            _ => {}
        }
        done
    }

    /// Forgets what is under way: events were missed, which may have ended it.
    pub fn forget(&mut self) {
        self.under_way.clear();
        self.exchanges.clear();
    }

    fn begin(&mut self, key: Key, event: &Event, initiator: bool, now: SystemTime) {
        if self.under_way.len() >= MOST {
            return;
        }
        // The first Child SA of an IKE SA is negotiated with it.
        let whole = (event.tunnel.clone(), None, Kind::Negotiation);
        let parent = match key {
            (_, Some(_), Kind::Negotiation) => self.under_way.get(&whole),
            _ => None,
        };
        let parent = parent.map(Parent::of);
        let span = self.span(key.2, event, parent, initiator, now);
        self.under_way.insert(key, span);
    }

    /// The span of an operation that begins now.
    fn span(
        &mut self,
        kind: Kind,
        event: &Event,
        parent: Option<Parent>,
        initiator: bool,
        now: SystemTime,
    ) -> Span {
        let name = Cow::Borrowed(kind.name(event.child.is_some()));
        let mut span = self.blank(parent, name, false, now);
        describe(&mut span, event);
        span.set("ike.initiator", Value::Flag(initiator));
        span
    }

    /// A span that begins now, without attributes.
    fn blank(
        &mut self,
        parent: Option<Parent>,
        name: Cow<'static, str>,
        is_exchange: bool,
        now: SystemTime,
    ) -> Span {
        let trace = match &parent {
            Some(parent) => parent.trace,
            None => TraceId((u128::from((self.new_id)()) << 64) | u128::from((self.new_id)())),
        };
        let live = match (self.is_live, &parent) {
            (false, _) => tracing::Span::none(),
            (true, None) => live::begin(&name, is_exchange, &tracing::Span::none()),
            (true, Some(parent)) => live::begin(&name, is_exchange, &parent.live),
        };
        Span {
            trace,
            id: SpanId((self.new_id)()),
            parent: parent.map(|parent| parent.id),
            name,
            is_exchange,
            begun: now,
            ended: now,
            attributes: Vec::new(),
            moments: Vec::new(),
            outcome: Outcome::Ok,
            live: Live(live),
        }
    }

    fn take_step(
        &mut self,
        event: &Event,
        step: &ExchangeStep,
        now: SystemTime,
        done: &mut Vec<Span>,
    ) {
        let id = (step.local_spi, step.message_id);
        match step.step {
            Step::Sent => {
                // IKE_SA_INIT with a cookie or another group.
                if let Some((_, mut span)) = self.exchanges.remove(&id) {
                    span.note("begun again", now);
                    done.push(end(span, Outcome::Ok, now));
                }
                self.begin_exchange(event, step, now);
            }
            Step::Repeated => {
                if let Some((_, span)) = self.exchanges.get_mut(&id) {
                    span.note("retransmission", now);
                }
            }
            Step::Answered => {
                if let Some((_, mut span)) = self.exchanges.remove(&id) {
                    describe(&mut span, event);
                    span.set("ike.spi.remote", step.remote_spi.to_string());
                    done.push(end(span, Outcome::Ok, now));
                }
            }
        }
    }

    fn begin_exchange(&mut self, event: &Event, step: &ExchangeStep, now: SystemTime) {
        let Some(key) = self.operation_of(event, step) else { return };
        if !self.under_way.contains_key(&key) {
            self.begin(key.clone(), event, true, now);
        }
        // There are too many.
        let Some(operation) = self.under_way.get(&key) else { return };
        let parent = Parent::of(operation);
        let name = Cow::Owned(step.exchange.to_string());
        let mut span = self.blank(Some(parent), name, true, now);
        describe(&mut span, event);
        span.set("ike.message_id", Value::Number(step.message_id.into()));
        span.set("ike.spi.local", step.local_spi.to_string());
        if step.remote_spi != IkeSpi(0) {
            span.set("ike.spi.remote", step.remote_spi.to_string());
        }
        self.exchanges.insert((step.local_spi, step.message_id), (key, span));
    }

    /// The operation that an exchange is for. Checks whether the peer lives, and others of their kind, are for none.
    fn operation_of(&self, event: &Event, step: &ExchangeStep) -> Option<Key> {
        match step.purpose {
            None | Some(Exchange::NewChild) => Some(key(event, Kind::Negotiation)),
            Some(Exchange::RekeyIke | Exchange::RekeyChild) => Some(key(event, Kind::Rekey)),
            Some(Exchange::FollowUp) => [Kind::Rekey, Kind::Negotiation]
                .map(|kind| key(event, kind))
                .into_iter()
                .find(|key| self.under_way.contains_key(key)),
            _ => None,
        }
    }

    /// An SA is there. One whose beginning was no event, since the peer began it, took no time that is known.
    fn succeed(
        &mut self,
        event: &Event,
        kind: Kind,
        suite: &Negotiated,
        now: SystemTime,
        done: &mut Vec<Span>,
    ) {
        let begun = self.under_way.remove(&key(event, kind));
        let mut span = match begun {
            Some(span) => span,
            None => self.span(kind, event, None, false, now),
        };
        describe(&mut span, event);
        match suite {
            Negotiated::Child { suite, inbound_spi, outbound_spi, .. } => {
                span.set("vpn.suite", suite.to_string());
                span.set("esp.spi.in", inbound_spi.to_string());
                span.set("esp.spi.out", outbound_spi.to_string());
            }
            suite => span.set("vpn.suite", suite.to_string()),
        }
        done.push(end(span, Outcome::Ok, now));
    }

    /// A tunnel's failure ends its operations under way; that of an IKE SA also ends those of its phase 2 tunnels.
    fn fail(
        &mut self,
        event: &Event,
        kind: &'static str,
        reason: &str,
        now: SystemTime,
        done: &mut Vec<Span>,
    ) {
        let exchanges = self.exchanges.extract_if(.., |_, (key, _)| concerns(event, key));
        let operations = self.under_way.extract_if(.., |key, _| concerns(event, key));
        let spans = exchanges.map(|(_, (_, span))| span).chain(operations.map(|(_, span)| span));
        for mut span in spans {
            describe(&mut span, event);
            span.set("error.type", kind);
            done.push(end(span, Outcome::Error(reason.to_owned()), now));
        }
    }
}

fn concerns(event: &Event, (tunnel, child, _): &Key) -> bool {
    *tunnel == event.tunnel && (event.child.is_none() || *child == event.child)
}

/// The attributes that all spans have. The first events of a negotiation do not name the peer.
fn describe(span: &mut Span, event: &Event) {
    span.set("vpn.tunnel", event.tunnel.as_str());
    if let Some(child) = &event.child {
        span.set("vpn.child", child.as_str());
    }
    if let Some(peer) = event.peer {
        span.set("network.peer.address", peer.ip().to_string());
        span.set("network.peer.port", Value::Number(peer.port().into()));
    }
}

fn end(mut span: Span, outcome: Outcome, now: SystemTime) -> Span {
    // The clock may have been set back meanwhile.
    span.ended = now.max(span.begun);
    live::end(&span.live.0, &outcome);
    span.outcome = outcome;
    span
}

#[cfg(test)]
mod tests;
