//! The seam to the daemon, which has the numbers.

use crate::fleet::Fleet;
use crate::news::News;
use control::protocol::{CertificateInfo, GuardInfo, Refusal, Tunnel};
use hyper::body::Bytes;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The side that has the numbers. Where it answers `None`, the gateway has stopped.
pub trait Source: Send + Sync + 'static {
    /// The text of a scrape.
    fn scrape(&self) -> impl Future<Output = Option<Bytes>> + Send;

    /// The daemon itself.
    fn about(&self) -> About;

    /// All tunnels, as they were a moment ago.
    fn fleet(&self) -> impl Future<Output = Option<Reading>> + Send;

    /// The phase 1 tunnel of this name as it is now, or the one with the phase 2 tunnel of this name, with that one
    /// alone. `None` also if there is none.
    fn tunnel(&self, name: &str) -> impl Future<Output = Option<Tunnel>> + Send;

    /// The explanation of a tunnel's state.
    fn why(&self, name: &str) -> impl Future<Output = Result<Why, Refusal>> + Send;

    /// Certificates and revocation lists.
    fn certificates(&self) -> Vec<CertificateInfo>;

    /// Discarded packets and messages.
    fn drops(&self) -> impl Future<Output = Option<Drops>> + Send;

    /// The events.
    fn news(&self) -> &News;
}

/// A daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its version.
    pub version: String,
    /// The time since its start.
    pub up: Duration,
    /// The keys of all SAs are written to files.
    pub keys_exported: bool,
}

/// All tunnels at one time.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The time of the daemon's start until then.
    pub at: Duration,
    /// The tunnels.
    pub fleet: Arc<Fleet>,
}

/// The explanation of a tunnel's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// As [`Tunnel::state`].
    pub state: String,
    /// The explanation in lines, for people.
    pub text: String,
}

/// Discarded packets and messages since the daemon's start.
#[derive(Clone, Debug, Default)]
pub struct Drops {
    /// Those that were discarded at least once.
    pub reasons: Vec<Reason>,
    /// Packets that no SA served, by phase 2 tunnel.
    pub unserved: BTreeMap<String, u64>,
    /// The guard; `None`: unknown.
    pub guard: Option<GuardInfo>,
}

/// A reason why packets or messages are discarded.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Reason {
    /// Its name, with its layer, as in `esp.replayed`.
    pub name: String,
    /// Packets or messages.
    pub count: u64,
    /// A sentence for people; empty if there is none.
    pub meaning: &'static str,
}

#[cfg(test)]
pub(crate) mod twin;
