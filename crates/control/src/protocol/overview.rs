//! An overview of the daemon.

use super::filter::FilterInfo;
use super::manual::ManualSaInfo;
use serde::{Deserialize, Serialize};

/// The state of the whole daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since it started.
    pub up_seconds: u64,
    /// The policy file.
    pub policy: String,
    /// The configuration file; `null`: the defaults.
    pub configuration: Option<String>,
    /// The log level in force; `null`: unknown.
    #[serde(default)]
    pub log_level: Option<String>,
    /// Phase 1 tunnels.
    pub tunnels: Fleet,
    /// Phase 2 tunnels.
    pub children: Fleet,
    /// The reasons why tunnels cannot come up, in words: missing addresses and routes, certificates, and address
    /// families that are off. These are the remarks of the severity `warning`.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// All remarks about the policy, the configuration and this host.
    #[serde(default)]
    pub remarks: Vec<RemarkInfo>,
    /// The planes, which protect packets.
    pub planes: Vec<PlaneInfo>,
    /// The locations of the kernel plane's SAs, in words; `null`: it has none.
    #[serde(default)]
    pub offload: Option<String>,
    /// The reasons why SAs are not in the network card that is wanted for them, in words.
    #[serde(default)]
    pub not_offloaded: Vec<String>,
    /// SAs that are keyed by hand.
    #[serde(default)]
    pub manual_sas: Vec<ManualSaInfo>,
    /// Phase 2 tunnels that the kernel was to have and does not take.
    #[serde(default)]
    pub fallbacks: Vec<Fallback>,
    /// Phase 2 tunnels in the kernel to whose remote network no route leads.
    #[serde(default)]
    pub unrouted: Vec<Unrouted>,
    /// Changes of the policy that network cards need in order to offload its tunnels.
    #[serde(default)]
    pub offload_advice: Vec<String>,
    /// The guard, which blocks the traffic of the tunnels unless it is protected; `null`: unknown.
    #[serde(default)]
    pub guard: Option<GuardInfo>,
    /// The confinement of the daemon's process; `null`: it is not confined.
    #[serde(default)]
    pub confinement: Option<ConfinementInfo>,
    /// The filter for traffic outside tunnels; `null`: the plane does not filter.
    pub filter: Option<FilterInfo>,
    /// IKE messages that were discarded.
    pub ike_discarded: u64,
    /// Packets that were discarded by the planes, those that the filter denies aside.
    pub esp_discarded: u64,
    /// Directory where the daemon writes the keys of all SAs; `null`: it keeps them.
    pub keys_exported_to: Option<String>,
}

/// A remark about the policy, the configuration or this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemarkInfo {
    /// A stable name, such as `certificates`.
    pub kind: String,
    /// `warning`: tunnels cannot come up, or soon will not. `note`: something is less safe or slower than it could be, or
    /// has no effect.
    pub severity: String,
    /// The tunnels that it is about; none: it is about the daemon.
    pub tunnels: Vec<String>,
    /// For people.
    pub message: String,
    /// The cure; `null`: the message says it.
    pub help: Option<String>,
}

/// The guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardInfo {
    /// Its nftables table is there.
    pub in_force: bool,
    /// Seconds since `vpnd guard`, which has it stay when the daemon ends; `null`: it goes with the daemon.
    pub held_seconds: Option<u64>,
    /// Packets that would have left in the clear.
    pub unprotected_leaving: u64,
    /// Packets that arrived in the clear.
    pub unprotected_arriving: u64,
}

/// The confinement of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfinementInfo {
    /// The parts in force, each with a remark if the kernel has only a part of it.
    pub in_force: Vec<String>,
    /// The parts that are not in force, each with the reason.
    pub missing: Vec<String>,
}

/// Numbers of tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    /// In the policy.
    pub defined: usize,
    /// Up.
    pub up: usize,
}

/// A plane, which protects packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaneInfo {
    /// `userspace` or `xfrm`.
    pub kind: String,
    /// The device that its packets come from and go to; empty for the kernel's.
    pub device: String,
    /// A remark for the operator; `null`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

/// A tunnel whose packets never come to the kernel's ESP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unrouted {
    /// Phase 2 tunnel.
    pub tunnel: String,
    /// The network without a route.
    pub network: String,
    /// A route to it.
    pub command: String,
}

/// A tunnel whose packets are not protected where that is preferred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    /// Phase 2 tunnel.
    pub tunnel: String,
    /// The reason why the kernel does not take it.
    pub reason: String,
}
