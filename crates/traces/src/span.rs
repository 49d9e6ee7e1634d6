//! Spans: what took place between two moments.

use crate::live::{self, Live};
use std::borrow::Cow;
use std::time::SystemTime;

/// The number that all spans of an operation have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub u128);

/// The number of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(pub u64);

/// An operation or one of its exchanges.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The trace that it belongs to.
    pub trace: TraceId,
    /// Its own number.
    pub id: SpanId,
    /// The span that it is a part of.
    pub parent: Option<SpanId>,
    /// Its name: that of the operation, or of the exchange.
    pub name: Cow<'static, str>,
    /// A request to the peer and its answer. Other spans are work of this side.
    pub is_exchange: bool,
    /// When it began.
    pub begun: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
    /// Moments within it, by name.
    pub moments: Vec<(SystemTime, &'static str)>,
    /// How it ended.
    pub outcome: Outcome,
    /// The same span for the subscriber of this process, if it is to see them.
    pub(crate) live: Live,
}

/// An attribute with its name.
pub type Attribute = (&'static str, Value);

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

/// How a span ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it was meant to.
    Ok,
    /// Otherwise, for this reason.
    Error(String),
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Span {
    /// Sets an attribute that has another value so far, or none.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        let value = value.into();
        live::record(&self.live.0, name, &value);
        match self.attributes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.attributes.push((name, value)),
        }
    }

    /// Notes a moment within it.
    pub(crate) fn note(&mut self, name: &'static str, now: SystemTime) {
        live::note(&self.live.0, name);
        self.moments.push((now, name));
    }

    /// The value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&Value> {
        self.attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}
