//! What both formats have in common: connections in the words of the file.

use super::keys::Key;
use super::settings::Setting;
use super::source::{Place, Value};
use policy::KeyKind;
use std::time::Duration;

/// Everything a file says.
#[derive(Default)]
pub(super) struct Draft {
    pub connections: Vec<Connection>,
    pub keys: Vec<Key>,
    pub settings: Vec<Setting>,
}

/// Phase 1, and what it carries.
pub(super) struct Connection {
    pub name: String,
    pub place: Place,
    /// What the file calls one: `connection` or `conn`.
    pub what: &'static str,
    pub local: Side,
    pub remote: Side,
    /// One text per list; none: the defaults.
    pub proposals: Vec<Value>,
    pub times: Times,
    pub children: Vec<Child>,
}

/// One end of a connection.
pub(super) struct Side {
    /// The setting and what it says; `None`, `%any` and the like: not known.
    pub address: Option<Value>,
    pub identity: Option<Value>,
    pub method: Method,
    /// Whether a certificate needs a revocation list.
    pub strict: bool,
    /// Where this side is described.
    pub place: Place,
}

/// How a side proves itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Preshared,
    /// Kinds of keys that may sign.
    Signature(Vec<KeyKind>),
}

/// Lengths of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// From when on keys are renewed.
    pub soft: Duration,
    /// When they end.
    pub hard: Duration,
    /// The same for octets.
    pub bytes: Option<(u64, u64)>,
}

/// Phase 2.
pub(super) struct Child {
    pub name: String,
    pub place: Place,
    /// Traffic selectors; none: what the ends are themselves.
    pub local: Option<Value>,
    pub remote: Option<Value>,
    pub transport: bool,
    pub proposals: Vec<Value>,
    pub times: Times,
    pub auto_start: bool,
    pub on_demand: bool,
}

/// Something a [`Connection`] or [`Child`] cannot be made of: it is left out, and this says why.
pub(super) struct Unfit {
    pub place: Place,
    pub message: String,
    pub help: String,
}

impl Unfit {
    pub fn new(place: &Place, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { place: place.clone(), message: message.into(), help: help.into() }
    }
}
