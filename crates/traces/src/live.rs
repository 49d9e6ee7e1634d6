//! Spans of the crate `tracing`, which a subscriber sees from their beginning to their end.
//!
//! A name of `tracing` is fixed where it is written, and so are the names of its fields. The name that a collector shows
//! stands in `otel.name`, where tracing-opentelemetry looks for it.

use crate::span::{Outcome, Value};
use tracing::field::Empty;

/// A span of `tracing` with all the fields that any span has, and no values yet.
macro_rules! span {
    ($name:literal, $title:expr, $parent:expr) => {
        tracing::info_span!(
            target: "vpn",
            parent: $parent.id(),
            $name,
            otel.name = $title,
            otel.status_code = Empty,
            vpn.tunnel = Empty,
            vpn.child = Empty,
            vpn.suite = Empty,
            network.peer.address = Empty,
            network.peer.port = Empty,
            ike.initiator = Empty,
            ike.message_id = Empty,
            ike.spi.local = Empty,
            ike.spi.remote = Empty,
            esp.spi.in = Empty,
            esp.spi.out = Empty,
            error.type = Empty,
            error.message = Empty,
        )
    };
}

/// A handle of such a span. It says nothing about the octets of a trace, and makes no difference between two of them.
#[derive(Clone, Debug)]
pub(crate) struct Live(pub tracing::Span);

impl PartialEq for Live {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// An operation, or one of its exchanges. A root has the parent [`tracing::Span::none`].
pub(crate) fn begin(title: &str, is_exchange: bool, parent: &tracing::Span) -> tracing::Span {
    match is_exchange {
        true => span!("exchange", title, parent),
        false => span!("operation", title, parent),
    }
}

/// Sets a field.
pub(crate) fn record(span: &tracing::Span, name: &'static str, value: &Value) {
    match value {
        Value::Text(text) => span.record(name, text.as_str()),
        Value::Number(number) => span.record(name, number),
        Value::Flag(flag) => span.record(name, flag),
    };
}

/// An event within a span.
pub(crate) fn note(span: &tracing::Span, name: &'static str) {
    // Without its span, an event would say nothing.
    if span.is_disabled() {
        return;
    }
    tracing::info!(target: "vpn", parent: span, "{name}");
}

/// Sets the outcome. The span ends when its last handle is dropped.
pub(crate) fn end(span: &tracing::Span, outcome: &Outcome) {
    match outcome {
        Outcome::Ok => span.record("otel.status_code", "OK"),
        Outcome::Error(reason) => {
            span.record("otel.status_code", "ERROR").record("error.message", reason.as_str())
        }
    };
}
