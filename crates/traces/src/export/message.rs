//! Spans in the form of OTLP: an `ExportTraceServiceRequest` in protobuf.

use crate::span::{Outcome, Span, Value};
use hyper::body::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Told, Status};
use prost::Message;
use std::time::{SystemTime, UNIX_EPOCH};

/// The service and the host that send spans.
pub(super) struct Origin(Resource);

/// Names the sender as OpenTelemetry's conventions do.
pub(super) fn origin(service: &str, host: &str) -> Origin {
    let named = [
        ("service.name", service),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("host.name", host),
    ];
    let attributes = named.map(|(name, value)| attribute(name, &Value::from(value))).to_vec();
    Origin(Resource { attributes, ..Resource::default() })
}

impl Origin {
    /// The octets of a request with these spans.
    pub fn request(&self, spans: &[Span]) -> Bytes {
        let scope = InstrumentationScope {
            name: "vpnd".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let scope_spans = ScopeSpans {
            scope: Some(scope),
            spans: spans.iter().map(told).collect(),
            ..ScopeSpans::default()
        };
        let resource_spans = ResourceSpans {
            resource: Some(self.0.clone()),
            scope_spans: vec![scope_spans],
            ..ResourceSpans::default()
        };
        ExportTraceServiceRequest { resource_spans: vec![resource_spans] }.encode_to_vec().into()
    }
}

fn told(span: &Span) -> Told {
    let kind = if span.is_exchange { SpanKind::Client } else { SpanKind::Internal };
    let (code, message) = match &span.outcome {
        Outcome::Ok => (StatusCode::Ok, String::new()),
        Outcome::Error(reason) => (StatusCode::Error, reason.clone()),
    };
    Told {
        trace_id: span.trace.0.to_be_bytes().to_vec(),
        span_id: span.id.0.to_be_bytes().to_vec(),
        parent_span_id: span.parent.map_or_else(Vec::new, |id| id.0.to_be_bytes().to_vec()),
        name: span.name.clone().into_owned(),
        kind: kind.into(),
        start_time_unix_nano: nanoseconds(span.begun),
        end_time_unix_nano: nanoseconds(span.ended),
        attributes: span.attributes.iter().map(|(name, value)| attribute(name, value)).collect(),
        events: span
            .moments
            .iter()
            .map(|&(at, name)| Event {
                time_unix_nano: nanoseconds(at),
                name: name.to_owned(),
                ..Event::default()
            })
            .collect(),
        status: Some(Status { code: code.into(), message }),
        ..Told::default()
    }
}

fn attribute(name: &str, value: &Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => Any::StringValue(text.clone()),
        Value::Number(number) => Any::IntValue(*number),
        Value::Flag(flag) => Any::BoolValue(*flag),
    };
    KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// Nanoseconds since 1970; 0 for earlier moments.
fn nanoseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
