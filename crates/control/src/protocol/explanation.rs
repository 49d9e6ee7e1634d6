//! The answer to [`Command::Why`](super::Command::Why).

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The explanation of the state of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Name in the policy.
    pub name: String,
    /// 1 or 2.
    pub phase: u8,
    /// As [`Tunnel::state`](super::Tunnel::state).
    pub state: String,
    /// Seconds since it came up; `null` while down.
    pub up_seconds: Option<u64>,
    /// When it came up, UTC, RFC 3339; `null` while down.
    #[serde(default)]
    pub up_since: Option<String>,
    /// The last end of a tunnel that was up and is down; `null`: it is up, or was never up.
    #[serde(default)]
    pub down: Option<Down>,
    /// As [`Child::fault`](super::Child::fault).
    #[serde(default)]
    pub fault: Option<String>,
    /// The event that it waits for; `null` while up, and for phase 1 unless it is being deleted.
    pub waits: Option<Waits>,
    /// As [`Tunnel::unanswered`](super::Tunnel::unanswered); of phase 1.
    #[serde(default)]
    pub unanswered: Option<Unanswered>,
    /// The renewal of a Child SA, where it takes more than a rekey; of phase 2 tunnels that are up.
    #[serde(default)]
    pub renewal: Option<Renewal>,
    /// Recent failures, the last one first.
    pub failures: Vec<ExplainedFailure>,
    /// Refusals of those who have not proved who they are, and may have meant this tunnel.
    pub turned_away: Vec<ExplainedFailure>,
    /// The elements of the policy file that define it.
    pub defined: Vec<Defined>,
    /// Its phase 2 tunnels.
    pub children: Vec<Explanation>,
    /// Reasons why packets do not pass, or may not pass, although it is up; of phase 2 tunnels.
    #[serde(default)]
    pub findings: Vec<FindingInfo>,
}

impl Explanation {
    /// As [`Tunnel::is_up`](super::Tunnel::is_up) or [`Child::is_up`](super::Child::is_up).
    pub fn is_up(&self) -> bool {
        super::tunnel::is_up(&self.state)
    }
}

/// A reason why packets do not pass through a tunnel that is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingInfo {
    /// The name of its kind, as in `docs/reference/control.md`.
    pub kind: String,
    /// True if packets do not pass for this reason; false if they may not.
    pub certain: bool,
    /// For people.
    pub message: String,
    /// Advice, the likeliest cure first.
    pub cure: Vec<String>,
}

/// The event that a tunnel waits for while it is not up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// `answer`, `attempt`, `packet`, `command` or `peer`.
    #[serde(rename = "for")]
    pub what: String,
    /// For people.
    pub message: String,
    /// The longest time until then, where it is known.
    pub seconds: Option<u64>,
    /// The request that waits for an answer.
    #[serde(default)]
    pub sent: Option<Sent>,
}

/// A request that is not answered yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Its exchange, as in `IKE_SA_INIT`.
    pub request: String,
    /// The number of times that it was sent.
    pub times: u32,
    /// The number of times after which the peer is given up.
    pub most: u32,
}

/// A request that the peer does not answer: the exchange is not given up yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// For people.
    pub message: String,
    /// The request. If the peer is tried in smaller fragments, `most` grows.
    #[serde(default)]
    pub sent: Option<Sent>,
    /// Seconds since it was sent first.
    #[serde(default)]
    pub silent_seconds: u64,
    /// When the peer is given up, UTC, RFC 3339.
    #[serde(default)]
    pub given_up_at: String,
    /// Advice, the likeliest cure first.
    pub cure: Vec<String>,
}

/// The renewal of a Child SA whose rekey was refused, or that is replaced with its whole IKE SA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The present attempt: `widened` (a rekey for any traffic), `new_child_sa` or `new_ike_sa`; `again`: the last one
    /// has failed, and another one follows.
    pub attempt: String,
    /// For people.
    pub message: String,
}

/// The end of a tunnel that was up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// The reason, for people.
    pub reason: String,
    /// Seconds since then.
    pub seconds_ago: u64,
    /// When it happened, UTC, RFC 3339.
    pub since: String,
    /// Advice, if the peer has ended it.
    #[serde(default)]
    pub cure: Vec<String>,
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedFailure {
    /// As [`FailureInfo::kind`](super::FailureInfo::kind).
    pub kind: String,
    /// For people.
    pub message: String,
    /// Seconds since the last occurrence.
    pub seconds_ago: u64,
    /// When that was, UTC, RFC 3339.
    #[serde(default)]
    pub at: String,
    /// When the tunnel came up after it; `null`: it has not.
    #[serde(default)]
    pub overcome_at: Option<String>,
    /// When the policy and the certificates were loaded again after it; `null`: they were not.
    #[serde(default)]
    pub reloaded_at: Option<String>,
    /// Number of times in a row.
    pub times: u32,
    /// True if it comes from this side or from a peer that has proved who it is.
    pub authenticated: bool,
    /// True if the tunnel has been up since.
    pub overcome: bool,
    /// The address of the other side, if that was not the tunnel's peer for certain.
    pub peer: Option<SocketAddr>,
    /// The values of both sides, side by side.
    pub comparison: Vec<Row>,
    /// Advice, the likeliest cure first.
    pub cure: Vec<String>,
}

/// One line of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The compared item.
    pub item: String,
    /// This side's value.
    pub here: String,
    /// The peer's; `null`: it did not say.
    pub there: Option<String>,
    /// True if the two do not go together.
    pub differs: bool,
}

/// An element of the policy file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defined {
    /// Its kind.
    pub element: String,
    /// Its name.
    pub name: String,
    /// The file.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
}
