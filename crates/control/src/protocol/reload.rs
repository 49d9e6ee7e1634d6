//! The effects of a new policy.

use super::filter::FilterChange;
use serde::{Deserialize, Serialize};

/// The new policy after [`Command::Reload`](super::Command::Reload).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Number of phase 1 tunnels.
    pub tunnels: usize,
    /// Warnings of the reader of the file.
    pub warnings: Vec<String>,
    /// True if nothing was changed: the client only asked for the changes.
    #[serde(default)]
    pub dry_run: bool,
    /// The effect on every tunnel of both policies.
    #[serde(default)]
    pub changes: Vec<Change>,
    /// The changes of the filter.
    #[serde(default)]
    pub filter: Vec<FilterChange>,
}

/// The effect of a reload on a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Phase 1 tunnel.
    pub tunnel: String,
    /// Phase 2 tunnel, where it concerns one.
    pub child: Option<String>,
    /// The settings that differ; empty where the tunnel is new, gone or the same.
    pub fields: Vec<String>,
    /// `untouched`, `kept`, `rekeyed`, `reestablished`, `added` or `removed`.
    pub effect: String,
    /// For people.
    pub message: String,
}
