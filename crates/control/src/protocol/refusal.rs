//! Refused and failed requests.

use serde::{Deserialize, Serialize};

/// The reason why a request was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// For people.
    pub message: String,
    /// [`FailureInfo::kind`](super::FailureInfo::kind) where a negotiation failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Refusal {
    /// A refusal without a failed negotiation behind it.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), failure: None }
    }
}

/// Stable names of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RefusalCode {
    /// The line is no JSON object with the fields of a request, or too long.
    BadRequest,
    /// The client speaks another version.
    UnsupportedVersion,
    /// No such command.
    UnknownCommand,
    /// No tunnel of that name in the policy.
    UnknownTunnel,
    /// The command does not fit the tunnel (its role, its state).
    NotPossible,
    /// The negotiation failed; `failure` says how.
    Failed,
    /// The policy file has errors or cannot be read; the old policy stays in force.
    BadPolicy,
    /// A file of certificates, keys or revocation lists cannot be used; the old ones stay in force.
    BadCertificates,
    /// No such object in the policy store, or no such kind of objects.
    UnknownObject,
    /// Other objects refer to the one that is to go.
    ObjectInUse,
    /// The policy store cannot be used.
    StoreFailed,
    /// The log level cannot be understood.
    BadLevel,
    /// The configuration has errors or cannot be read; everything stays as it was.
    BadConfiguration,
    /// The description says no packet.
    BadPacket,
    /// The data plane or the system refused.
    DataPlane,
    /// The policy was replaced since the page before was read: the reading must begin again.
    Outdated,
    /// The workers cannot be set so; they are as they were.
    BadSetting,
    /// Too many clients are connected.
    Busy,
    /// The daemon is stopping.
    Stopping,
    /// A newer daemon's refusal that this client does not know.
    #[serde(other)]
    Other,
}
