use super::*;
use esp::plane::Spi;
use ike::CloseReason;
use ike::failure::{Failure, FailureKind};
use ike::negotiation::suite::{ChildSuite, IkeSuite};
use ike::wire::registry::ExchangeType;
use policy::{EspEncryption, Group, IkeEncryption, KeyBits, Mode, Prf, Protection};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context as LayerContext, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Operations, whose spans get the numbers 1, 2 and so on, with the time in milliseconds.
struct Clock {
    operations: Operations,
    finished: Vec<Span>,
}

impl Clock {
    fn new() -> Self {
        let mut last = 0;
        let operations = Operations::new(move || {
            last += 1;
            last
        });
        Self { operations, finished: Vec::new() }
    }

    fn at(&mut self, milliseconds: u64, child: Option<&str>, kind: EventKind) {
        let mut event = Event::new("site", kind);
        event.child = child.map(str::to_owned);
        event.peer = Some(([192, 0, 2, 2], 4500).into());
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
        self.finished.extend(self.operations.see(&event, now));
    }

    /// Each finished span: its name, the name of its parent, when it began and ended, and its error.
    fn told(&self) -> Vec<(&str, &str, u128, u128, &str)> {
        let since = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).expect("later");
        let name = |id: SpanId| self.finished.iter().find(|s| s.id == id).map(|s| &*s.name);
        let told = self.finished.iter().map(|span| {
            let (begun, ended) = (since(span.begun).as_millis(), since(span.ended).as_millis());
            let parent = span.parent.map_or("", |id| name(id).expect("a finished span"));
            let error = match &span.outcome {
                Outcome::Ok => "",
                Outcome::Error(reason) => reason.as_str(),
            };
            (&*span.name, parent, begun, ended, error)
        });
        told.collect()
    }

    fn span(&self, name: &str) -> &Span {
        self.finished.iter().find(|span| span.name == name).expect("a finished span")
    }
}

fn step(exchange: ExchangeType, id: u32, purpose: Option<Exchange>, step: Step) -> EventKind {
    let mut told = ExchangeStep::first(step);
    (told.exchange, told.message_id, told.purpose) = (exchange, id, purpose);
    told.local_spi = IkeSpi(0xa1);
    if step == Step::Answered || id > 0 {
        told.remote_spi = IkeSpi(0xb2);
    }
    EventKind::Exchange(told)
}

fn ike_up() -> EventKind {
    let cipher = IkeEncryption::AesGcm16(KeyBits::B128);
    let suite = IkeSuite::new(cipher, None, Prf::HmacSha2_256, Group::Ecp384);
    EventKind::Established { suite: Negotiated::Ike(suite) }
}

fn child_suite() -> Negotiated {
    let protection = Protection::aead(EspEncryption::AesGcm16(KeyBits::B128));
    Negotiated::Child {
        mode: Mode::Tunnel,
        suite: ChildSuite::new(protection),
        inbound_spi: Spi(0x1000_0001),
        outbound_spi: Spi(0x2000_0002),
    }
}

fn failure(kind: FailureKind, detail: &str) -> EventKind {
    EventKind::Failed(Failure::new(kind, detail.to_owned()))
}

const BEGIN: EventKind = EventKind::Negotiating { initiator: true };

#[test]
fn a_negotiation_has_its_exchanges_and_its_child() {
    let mut clock = Clock::new();
    let init = |what| step(ExchangeType::IKE_SA_INIT, 0, None, what);
    let auth = |what| step(ExchangeType::IKE_AUTH, 1, None, what);
    clock.at(0, None, BEGIN);
    clock.at(1, None, init(Step::Sent));
    // With a cookie.
    clock.at(5, None, init(Step::Sent));
    clock.at(9, None, init(Step::Answered));
    clock.at(10, Some("lan"), BEGIN);
    clock.at(11, None, auth(Step::Sent));
    clock.at(1011, None, auth(Step::Repeated));
    clock.at(1020, None, auth(Step::Answered));
    clock.at(1021, None, ike_up());
    clock.at(1022, Some("lan"), EventKind::Established { suite: child_suite() });
    let whole = "negotiate IKE SA";
    assert_eq!(
        clock.told(),
        [
            ("IKE_SA_INIT", whole, 1, 5, ""),
            ("IKE_SA_INIT", whole, 5, 9, ""),
            ("IKE_AUTH", whole, 11, 1020, ""),
            (whole, "", 0, 1021, ""),
            ("negotiate Child SA", whole, 10, 1022, ""),
        ]
    );
    assert!(clock.finished.iter().all(|span| span.trace == clock.finished[0].trace));
    let auth = clock.span("IKE_AUTH");
    let moment = SystemTime::UNIX_EPOCH + Duration::from_millis(1011);
    assert_eq!(auth.moments, [(moment, "retransmission")]);
    let text = |text: &str| Some(Value::from(text));
    for (name, value) in [
        ("vpn.tunnel", text("site")),
        ("network.peer.address", text("192.0.2.2")),
        ("network.peer.port", Some(Value::Number(4500))),
        ("ike.message_id", Some(Value::Number(1))),
        ("ike.spi.local", text("00000000000000a1")),
        ("ike.spi.remote", text("00000000000000b2")),
    ] {
        assert_eq!(auth.attribute(name).cloned(), value, "{name}");
    }
    let child = clock.span("negotiate Child SA");
    assert_eq!(child.attribute("vpn.child").cloned(), text("lan"));
    assert_eq!(child.attribute("esp.spi.in").cloned(), text("10000001"));
    assert_eq!(child.attribute("ike.initiator"), Some(&Value::Flag(true)));
    assert!(clock.operations.exchanges.is_empty() && clock.operations.under_way.is_empty());
}

#[test]
fn a_failure_is_the_status_of_all_that_was_under_way() {
    let mut clock = Clock::new();
    clock.at(0, None, BEGIN);
    clock.at(0, None, step(ExchangeType::IKE_SA_INIT, 0, None, Step::Sent));
    clock.at(0, None, step(ExchangeType::IKE_SA_INIT, 0, None, Step::Answered));
    clock.at(1, Some("lan"), BEGIN);
    clock.at(1, None, step(ExchangeType::IKE_AUTH, 1, None, Step::Sent));
    clock.at(2, Some("lan"), failure(FailureKind::NoAnswer, "6 sent"));
    clock.at(2, None, failure(FailureKind::NoAnswer, "6 sent"));
    let (whole, why) = ("negotiate IKE SA", "no answer from the peer: 6 sent");
    assert_eq!(
        clock.told(),
        [
            ("IKE_SA_INIT", whole, 0, 0, ""),
            ("negotiate Child SA", whole, 1, 2, why),
            ("IKE_AUTH", whole, 1, 2, why),
            (whole, "", 0, 2, why),
        ]
    );
    let kind = clock.span("IKE_AUTH").attribute("error.type");
    assert_eq!(kind, Some(&Value::from("no_answer")));
}

#[test]
fn a_rekey_begins_with_its_request() {
    let mut clock = Clock::new();
    let of_child = |what| step(ExchangeType::CREATE_CHILD_SA, 7, Some(Exchange::RekeyChild), what);
    let follow_up = |what| step(ExchangeType::IKE_FOLLOWUP_KE, 8, Some(Exchange::FollowUp), what);
    let rekeyed = || EventKind::Rekeyed { suite: child_suite() };
    clock.at(0, Some("lan"), of_child(Step::Sent));
    clock.at(4, Some("lan"), of_child(Step::Answered));
    clock.at(4, Some("lan"), follow_up(Step::Sent));
    clock.at(6, Some("lan"), follow_up(Step::Answered));
    clock.at(7, Some("lan"), rekeyed());
    // The peer's.
    clock.at(90, Some("lan"), rekeyed());
    // No part of a rekey or a negotiation.
    for purpose in [Exchange::Liveness, Exchange::Delete, Exchange::Addresses] {
        clock.at(95, None, step(ExchangeType::INFORMATIONAL, 9, Some(purpose), Step::Sent));
    }
    let ike = |what| step(ExchangeType::CREATE_CHILD_SA, 10, Some(Exchange::RekeyIke), what);
    clock.at(100, None, ike(Step::Sent));
    clock.at(101, None, EventKind::Closed { reason: CloseReason::Deactivated });
    let (child, ike) = ("rekey Child SA", "rekey IKE SA");
    let closed = CloseReason::Deactivated.to_string();
    assert_eq!(
        clock.told(),
        [
            ("CREATE_CHILD_SA", child, 0, 4, ""),
            ("IKE_FOLLOWUP_KE", child, 4, 6, ""),
            (child, "", 0, 7, ""),
            (child, "", 90, 90, ""),
            ("CREATE_CHILD_SA", ike, 100, 101, &*closed),
            (ike, "", 100, 101, &*closed),
        ]
    );
    assert_eq!(clock.finished[3].attribute("ike.initiator"), Some(&Value::Flag(false)));
}

#[test]
fn missed_events_end_nothing_and_leave_nothing() {
    let mut clock = Clock::new();
    clock.at(0, None, BEGIN);
    clock.at(0, None, step(ExchangeType::IKE_SA_INIT, 0, None, Step::Sent));
    clock.operations.forget();
    clock.at(1, None, step(ExchangeType::IKE_SA_INIT, 0, None, Step::Answered));
    assert!(clock.told().is_empty());
    // A peer that is refused began what is no event.
    let refused = Failure::new(FailureKind::NoMatchingTunnel, String::new());
    clock.at(5, None, EventKind::TurnedAway(refused.clone()));
    assert_eq!(clock.told(), [("negotiate IKE SA", "", 5, 5, &*refused.to_string())]);
}

#[test]
fn a_clock_that_is_set_back_makes_no_span_end_before_it_began() {
    let mut clock = Clock::new();
    clock.at(50, None, BEGIN);
    clock.at(10, None, ike_up());
    assert_eq!(clock.told(), [("negotiate IKE SA", "", 50, 50, "")]);
}

/// The spans that a subscriber of `tracing` sees: when they begin and end, and their fields.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: LayerContext<'_, S>) {
        let mut fields = Fields(String::new());
        attributes.record(&mut fields);
        let parent = context.span(id).and_then(|span| Some(span.parent()?.id().into_u64()));
        let line = format!("{} begins in {parent:?}:{}", id.into_u64(), fields.0);
        self.0.lock().expect("no panic").push(line);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: LayerContext<'_, S>) {
        let mut fields = Fields(String::new());
        values.record(&mut fields);
        self.0.lock().expect("no panic").push(format!("{}:{}", id.into_u64(), fields.0));
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: LayerContext<'_, S>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        let span = context.event_span(event).map(|span| span.id().into_u64());
        self.0.lock().expect("no panic").push(format!("in {span:?}:{}", fields.0));
    }

    fn on_close(&self, id: Id, _: LayerContext<'_, S>) {
        self.0.lock().expect("no panic").push(format!("{} ends", id.into_u64()));
    }
}

#[test]
fn a_subscriber_sees_an_operation_and_its_exchanges_from_their_beginning_to_their_end() {
    let seen = Seen::default();
    let subscriber = tracing_subscriber::registry().with(seen.clone());
    tracing::subscriber::with_default(subscriber, || {
        let mut clock = Clock { operations: Operations::live(), finished: Vec::new() };
        clock.at(0, None, EventKind::Negotiating { initiator: true });
        clock.at(1, None, step(ExchangeType::IKE_SA_INIT, 0, None, Step::Sent));
        clock.at(2, None, step(ExchangeType::IKE_SA_INIT, 0, None, Step::Repeated));
        clock.at(3, None, step(ExchangeType::IKE_SA_INIT, 0, None, Step::Answered));
        clock.finished.clear();
        clock.at(4, None, ike_up());
    });
    let told = seen.0.lock().expect("no panic").join("\n");
    let mut at = 0;
    for part in [
        "1 begins in None: otel.name=\"negotiate IKE SA\"",
        "1: vpn.tunnel=\"site\"",
        "2 begins in Some(1): otel.name=\"IKE_SA_INIT\"",
        "2: ike.spi.local=",
        "in Some(2): message=retransmission",
        "2: ike.spi.remote=",
        "2: otel.status_code=\"OK\"",
        "2 ends",
        "1: vpn.suite=",
        "1 ends",
    ] {
        match told[at..].find(part) {
            Some(found) => at += found + part.len(),
            None => panic!("{part} is missing after {} octets of:\n{told}", at),
        }
    }
}

#[test]
fn operations_for_a_collector_say_nothing_to_a_subscriber() {
    let seen = Seen::default();
    let subscriber = tracing_subscriber::registry().with(seen.clone());
    tracing::subscriber::with_default(subscriber, || {
        let mut clock = Clock::new();
        clock.at(0, None, EventKind::Negotiating { initiator: true });
        clock.at(1, None, step(ExchangeType::IKE_SA_INIT, 0, None, Step::Sent));
        clock.at(2, None, step(ExchangeType::IKE_SA_INIT, 0, None, Step::Repeated));
        clock.at(3, None, ike_up());
        assert_eq!(clock.span("negotiate IKE SA"), &clock.span("negotiate IKE SA").clone());
    });
    assert_eq!(*seen.0.lock().expect("no panic"), Vec::<String>::new());
}
