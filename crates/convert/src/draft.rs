//! Connections in the words of the file, the same for both formats.

use super::finding::Report;
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
    /// The file's word for a connection: `connection` or `conn`.
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

/// The authentication method of one side.
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
    /// Whether the proposals are of AH.
    pub ah: bool,
    pub proposals: Vec<Value>,
    pub times: Times,
    pub auto_start: bool,
    pub on_demand: bool,
}

/// Whether a child is protected by AH, and what it offers: ESP where there are both.
pub(super) fn offers(
    ah: Option<Value>,
    esp: Option<Value>,
    report: &mut Report,
) -> (bool, Vec<Value>) {
    if let (Some(ah), Some(_)) = (&ah, &esp) {
        let message =
            "AH beside ESP: a Child SA has one of them, and the proposals of ESP are taken";
        report.dropped(&ah.place, message, "ESP protects integrity as well");
    }
    let is_ah = ah.is_some() && esp.is_none();
    (is_ah, esp.or(ah).into_iter().collect())
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
