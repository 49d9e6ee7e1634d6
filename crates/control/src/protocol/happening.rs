//! The events that the daemon streams after [`Command::Events`](super::Command::Events).

use super::FailureInfo;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Something that happened, or that some of it was missed.
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
    /// Where the peer was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// Algorithms agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureInfo>,
    /// Why it was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many events were missed because they came faster than they were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
    /// For people, without tunnel and time.
    pub message: String,
}

impl Happening {
    /// Whether somebody who asked for these tunnels wants to know; for none: for all.
    pub fn concerns(&self, names: &[String]) -> bool {
        let named = |name: &String| *name == self.tunnel || self.child.as_ref() == Some(name);
        self.missed.is_some() || names.is_empty() || names.iter().any(named)
    }
}
