//! Answers of the daemon.

use super::certificate::CertificateInfo;
use super::command::VERSION;
use super::crypto::{CryptoState, CryptoStats};
use super::explanation::Explanation;
use super::family::FamiliesInfo;
use super::filter::FilterInfo;
use super::happening::Happening;
use super::manual::{ManualSaInfo, SaList, SaName, SaRemoved};
use super::offload::{OffloadInfo, ResyncInfo};
use super::overview::Overview;
use super::refusal::{Refusal, RefusalCode};
use super::reload::Reloaded;
use super::stored::{PolicyText, Stored};
use super::trace::TraceInfo;
use super::tunnel::{Activation, Tunnel, TunnelPage};
use super::workers;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// An answer of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// [`VERSION`] of the daemon.
    pub version: u32,
    /// Field `result` or field `error`.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was done.
    Result(Reply),
    /// It was refused or failed.
    Error(Refusal),
    /// Something happened; only after [`Command::Events`](super::Command::Events).
    Event(Happening),
}

impl Response {
    /// Wraps something that happened.
    pub fn event(happening: Happening) -> Self {
        Self { version: VERSION, outcome: Outcome::Event(happening) }
    }

    /// Wraps how a request ended.
    pub fn new(outcome: Result<Reply, Refusal>) -> Self {
        let outcome = match outcome {
            Ok(reply) => Outcome::Result(reply),
            Err(refusal) => Outcome::Error(refusal),
        };
        Self { version: VERSION, outcome }
    }

    /// The line that a client reads, with its newline.
    pub fn line(&self) -> Zeroizing<Vec<u8>> {
        let octets = serde_json::to_vec(self).unwrap_or_else(|error| {
            // Only a value that JSON cannot hold leads here; the client is told rather than left waiting.
            let refusal = Refusal::new(RefusalCode::BadRequest, error.to_string());
            serde_json::to_vec(&Self { version: VERSION, outcome: Outcome::Error(refusal) })
                .expect("a refusal is strings")
        });
        let mut octets = Zeroizing::new(octets);
        octets.push(b'\n');
        octets
    }
}

/// The content of the field `result`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// `"done"`: nothing to tell.
    Done,
    /// The outcome for each tunnel of [`Command::Activate`](super::Command::Activate); some may have failed.
    Activations(Vec<Activation>),
    /// Tunnels, in the order of the policy.
    Tunnels(Vec<Tunnel>),
    /// Some of the tunnels, in the order of the policy.
    TunnelPage(TunnelPage),
    /// The explanation of the state of a tunnel.
    Why(Box<Explanation>),
    /// Count by reason.
    Counters(BTreeMap<String, u64>),
    /// Count by tunnel and reason, without tunnels that have none.
    TunnelCounters(BTreeMap<String, BTreeMap<String, u64>>),
    /// A sentence about each reason.
    CounterMeanings(BTreeMap<String, String>),
    /// The threads that carry packets, after a change as they are then.
    Workers(workers::Workers),
    /// Certificates and revocation lists: authorities first, then intermediate and own ones.
    Certificates(Vec<CertificateInfo>),
    /// The new policy is in force.
    Reloaded(Reloaded),
    /// The text of a policy file with what was asked for.
    Policy(PolicyText),
    /// The policy store has changed, or would change.
    Stored(Stored),
    /// The crypto facility.
    Crypto(CryptoState),
    /// The work of the crypto facility.
    CryptoStats(CryptoStats),
    /// The address families that tunnels may use.
    Families(FamiliesInfo),
    /// An overview of the daemon.
    Overview(Box<Overview>),
    /// SAs that are keyed by hand.
    ManualSas(Vec<ManualSaInfo>),
    /// The same, and the traffic that is blocked.
    SaList(SaList),
    /// The names of the SAs that were added.
    SaAdded(Vec<SaName>),
    /// SAs that are keyed by hand were removed.
    SaRemoved(SaRemoved),
    /// Offload to network cards.
    Offload(OffloadInfo),
    /// Commands, one a line.
    Xfrm(Zeroizing<String>),
    /// The repairs in the kernel.
    Resync(ResyncInfo),
    /// The filter for traffic outside tunnels.
    Filter(FilterInfo),
    /// The way of a packet.
    Trace(TraceInfo),
}
