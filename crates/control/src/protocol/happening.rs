//! The events that the daemon streams after [`Command::Events`](super::Command::Events).

use super::tunnel::FailureInfo;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// An event, or a note that events were missed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Happening {
    /// UTC, RFC 3339 with milliseconds.
    pub time: String,
    /// `negotiating`, `established`, `rekeyed`, `failed`, `turned_away`, `moved`, `closed`, `warning`, or `missed`.
    pub event: String,
    /// Phase 1 tunnel, or the peer's address where no tunnel is known; empty where something was missed.
    pub tunnel: String,
    /// Phase 2 tunnel, where it concerns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
    /// The peer's address and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// Algorithms agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// The failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureInfo>,
    /// The reason for the end of the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of events that were missed because they came faster than they were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
    /// For people, without tunnel and time.
    pub message: String,
}

impl Happening {
    /// Returns `true` if the event concerns one of these tunnels; without names, it always does.
    pub fn concerns(&self, names: &[String]) -> bool {
        let named = |name: &String| *name == self.tunnel || self.child.as_ref() == Some(name);
        self.missed.is_some() || names.is_empty() || names.iter().any(named)
    }
}
