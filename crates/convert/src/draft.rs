//! Connections in the words of the file, the same for both formats.

use super::dialect::Dialect;
use super::finding::Report;
use super::kernel::Kernel;
use super::keys::Key;
use super::settings::Setting;
use super::source::{Location, Value};
use policy::{KeyKind, Ppk};
use std::time::Duration;

/// The connections, keys and settings of a file.
#[derive(Default)]
pub(super) struct Draft {
    pub dialect: Dialect,
    /// The dialect for which the file was taken, and why, if nobody said it.
    pub read_as: Option<String>,
    pub connections: Vec<Connection>,
    pub keys: Vec<Key>,
    pub settings: Vec<Setting>,
}

/// Phase 1, and the children that it carries.
#[derive(Clone)]
pub(super) struct Connection {
    pub name: String,
    pub location: Location,
    /// The file's word for a connection: `connection` or `conn`.
    pub what: &'static str,
    pub local: Side,
    pub remote: Side,
    /// One text per list; none: the defaults.
    pub proposals: Vec<Value>,
    pub times: Times,
    pub ppk: Option<Ppk>,
    pub children: Vec<Child>,
}

/// One end of a connection.
#[derive(Clone)]
pub(super) struct Side {
    /// The value of the setting; `None`, `%any` and the like: not known.
    pub address: Option<Value>,
    pub identity: Option<Value>,
    pub method: Method,
    /// True if a certificate needs a revocation list.
    pub strict: bool,
    /// The location of its description.
    pub location: Location,
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
    /// The age at which keys are renewed.
    pub soft: Duration,
    /// The end of their life.
    pub hard: Duration,
    /// The soft and the hard limit in octets.
    pub bytes: Option<(u64, u64)>,
}

/// The key exchange of new keys for a Child SA.
#[derive(Clone)]
pub(super) enum Pfs {
    /// The proposals say it.
    OfProposals,
    /// There is one, by default with a group of the IKE SA. The location of the setting that says so.
    Always(Option<Location>),
    /// There is none.
    Never(Location),
}

/// Phase 2.
#[derive(Clone)]
pub(super) struct Child {
    pub name: String,
    pub location: Location,
    /// Traffic selectors; `None`: the addresses of the ends themselves.
    pub local: Option<Value>,
    pub remote: Option<Value>,
    pub transport: bool,
    /// True if the proposals are of AH.
    pub ah: bool,
    pub proposals: Vec<Value>,
    pub pfs: Pfs,
    /// Extended sequence numbers where a proposal does not say it, in the order of preference.
    pub esn: Vec<bool>,
    pub times: Times,
    pub auto_start: bool,
    pub on_demand: bool,
    pub kernel: Kernel,
}

/// Returns `true` for a child that is protected by AH, and its proposals; if there are both, those of ESP.
pub(super) fn offers(
    ah: Option<Value>,
    esp: Option<Value>,
    report: &mut Report,
) -> (bool, Vec<Value>) {
    if let (Some(ah), Some(_)) = (&ah, &esp) {
        let message =
            "AH beside ESP: a Child SA has one of them, and the proposals of ESP are taken";
        report.dropped(&ah.location, message, "ESP protects integrity as well");
    }
    let is_ah = ah.is_some() && esp.is_none();
    (is_ah, esp.or(ah).into_iter().collect())
}

/// The reason why a [`Connection`] or [`Child`] is left out.
pub(super) struct Unfit {
    pub location: Location,
    pub message: String,
    pub help: String,
}

impl Unfit {
    pub fn new(location: &Location, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { location: location.clone(), message: message.into(), help: help.into() }
    }
}
