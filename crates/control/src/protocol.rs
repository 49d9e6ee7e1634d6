//! The messages of the control protocol. Field names are stable: a client may rely on them, and must ignore fields it
//! does not know.

mod course;
mod crypto;
mod definition;
mod explanation;
mod filter;
mod happening;
mod manual;
mod offload;
mod overview;
mod request;
mod stored;
pub mod workers;

pub use course::{CourseInfo, TraceInfo, TracedSa};
pub use crypto::{Amount, CryptoState, CryptoStats, FunctionWork, Served, Tunable};
pub use definition::{ChildPolicy, TunnelPolicy};
pub use explanation::{Defined, Explanation, Row, Story, Waits};
pub use filter::{Count, DefaultAction, FilterChange, FilterInfo, FilterRuleInfo};
pub use happening::Happening;
pub use manual::ManualSaInfo;
pub use offload::{CardInfo, FallbackInfo, OffloadInfo, PlacedInfo, ResyncInfo};
pub use overview::{Fallback, Fleet, Overview, PlaneInfo, Unrouted};
pub use request::parse;
pub use stored::{GetPolicy, ObjectChange, Objects, PolicyText, PutPolicy, Stored};
pub use workers::WorkersChange;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use zeroize::Zeroizing;

/// Version of the protocol; a request with another one is refused.
pub const VERSION: u32 = 1;

/// Longest request in octets, with its newline: a mebibyte of objects, in which JSON escapes every character, and the rest.
/// Each connection has room for it, so that what is read stays in one place that is wiped.
pub const MAX_REQUEST: usize = (2 << 20) + 64 * 1024;

/// Where `vpnd` listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/vpnd/control.sock";

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// The command with its fields.
    #[serde(flatten)]
    pub command: Command,
}

/// A command of a client, named by the field `command`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Starts tunnels and answers when each is up or has failed.
    Activate {
        /// Phase 1 or phase 2 tunnels; empty: all that this side may start.
        #[serde(default)]
        names: Vec<String>,
    },
    /// Deletes a tunnel and answers when it is gone.
    Deactivate {
        /// Phase 1 or phase 2 tunnel.
        name: String,
    },
    /// Asks for tunnels.
    List {
        /// Also those that are defined but down.
        #[serde(default)]
        all: bool,
    },
    /// Asks for one tunnel.
    Status {
        /// Phase 1 tunnel, or phase 2 tunnel: then the answer holds only this child.
        name: String,
    },
    /// Asks why a tunnel is as it is.
    Why {
        /// Phase 1 tunnel, or phase 2 tunnel: then only this child is explained.
        name: String,
    },
    /// Asks to be told of everything that happens from now on, until the connection is closed.
    Events {
        /// Phase 1 or phase 2 tunnels; empty: all.
        #[serde(default)]
        names: Vec<String>,
    },
    /// Replaces an SA without interruption and answers when the new one is in use.
    Rekey {
        /// Phase 1 or phase 2 tunnel.
        name: String,
    },
    /// Reads the policy file and the certificates again; a file with errors changes nothing.
    Reload {
        /// Only says what it would change.
        #[serde(default)]
        dry_run: bool,
    },
    /// Puts the objects of a file into the policy store, and what comes of it in force.
    PolicyPut(PutPolicy),
    /// Asks for what is stored, or for the policy file where the daemon runs one.
    PolicyGet(GetPolicy),
    /// Deletes objects from the policy store to which no others refer.
    PolicyDelete(Objects),
    /// Deletes everything in the policy store.
    PolicyPurge,
    /// Changes what is logged until the daemon stops.
    Log {
        /// `error`, `warn`, `info`, `debug`, `trace`, `off`, or directives such as `info,ike=debug`.
        level: String,
    },
    /// Asks for discarded datagrams and packets by reason.
    Counters,
    /// Asks what the threads that carry packets are doing.
    Workers,
    /// Changes how they work, without losing a packet.
    WorkersSet(WorkersChange),
    /// Asks for certificates and revocation lists.
    Certs,
    /// Asks for the tunables of the crypto facility, and who does what.
    Crypto,
    /// Sets a tunable of the crypto facility; running SAs follow at once.
    CryptoSet {
        /// `nx_enabled`, `min_sz` or `in_core_enabled`.
        tunable: String,
        /// `null`: its default.
        value: Option<u64>,
        /// Also after the daemon has been restarted.
        #[serde(default)]
        persist: bool,
    },
    /// Asks for what was done by the CPU's instructions, in software, in the kernel and in network cards.
    CryptoStats,
    /// Asks for an overview of the daemon.
    Overview,
    /// Asks for SAs that are keyed by hand.
    ManualSas,
    /// Asks what network cards do for SAs in the kernel.
    Offload,
    /// Asks for what the daemon has in the kernel, as commands of `ip xfrm`.
    Xfrm {
        /// With keys; refused unless the daemon was started to export them.
        #[serde(default)]
        keys: bool,
    },
    /// Puts back what others have removed from the kernel, and SAs to where they are wanted.
    Resync,
    /// Asks what happens to traffic that is no tunnel's.
    Filter,
    /// Changes what happens to what no rule and no tunnel covers, until the daemon stops or reads its configuration
    /// again.
    SetFilter {
        /// `permit` or `deny`; `None`: as it is.
        #[serde(default)]
        ipv4: Option<DefaultAction>,
        /// The same for IPv6.
        #[serde(default)]
        ipv6: Option<DefaultAction>,
    },
    /// Asks what would become of a packet.
    Trace {
        /// As in `tcp 10.1.0.5:40000 10.2.0.7:443`.
        packet: String,
    },
    /// Deletes all tunnels and ends the daemon. The answer comes before it has ended.
    Stop,
}

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
    /// Something happened; only after [`Command::Events`].
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
}

/// The content of the field `result`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// `"done"`: nothing to tell.
    Done,
    /// The outcome for each tunnel of [`Command::Activate`]; some may have failed.
    Activations(Vec<Activation>),
    /// Tunnels, in the order of the policy.
    Tunnels(Vec<Tunnel>),
    /// Why a tunnel is as it is.
    Why(Explanation),
    /// Count by reason.
    Counters(BTreeMap<String, u64>),
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
    /// An overview of the daemon.
    Overview(Box<Overview>),
    /// SAs that are keyed by hand.
    ManualSas(Vec<ManualSaInfo>),
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

/// The new policy after [`Command::Reload`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Number of phase 1 tunnels.
    pub tunnels: usize,
    /// Warnings of the reader of the file.
    pub warnings: Vec<String>,
    /// Whether it was only asked what would change.
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

/// Why a request was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// For people.
    pub message: String,
    /// [`FailureInfo::kind`] where a negotiation failed.
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

/// The outcome for one tunnel of [`Command::Activate`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activation {
    /// The name asked for.
    pub name: String,
    /// Whether it is up.
    pub up: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureInfo>,
}

/// A failed negotiation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureInfo {
    /// Stable name: `no_answer`, `authentication_failed`, `no_proposal_chosen`, `ts_unacceptable`,
    /// `traffic_claimed`, `mode_mismatch`, `no_matching_tunnel`, `protocol_error`, `refused`, `data_plane`, `cancelled`.
    pub kind: String,
    /// For people.
    pub message: String,
    /// Seconds since then, where it is not the outcome of this very request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_ago: Option<u64>,
}

/// A certificate or revocation list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateInfo {
    /// `authority`, `intermediate`, `own`, `revocation_list` or `ocsp_response`.
    pub role: String,
    /// The file, with the line where there are several in one, or the address it was fetched from.
    pub source: String,
    /// Whom it is for; empty where only `names` says that, and for revocation lists.
    pub subject: String,
    /// The issuer that has signed it.
    pub issuer: String,
    /// Subject alternative names.
    pub names: Vec<String>,
    /// Hexadecimal; empty for revocation lists.
    pub serial: String,
    /// Kind of the key, with the bits of RSA; `null` for revocation lists.
    pub key: Option<String>,
    /// From when it counts, as in `2026-01-31T00:00:00Z`.
    pub not_before: String,
    /// Until when it counts, or until when the next list is to come; `null`: for ever.
    pub not_after: Option<String>,
    /// Whole days until then, negative after it.
    pub days_left: Option<i64>,
    /// Phase 1 tunnels for which this side proves itself by it.
    pub tunnels: Vec<String>,
}

/// A phase 1 tunnel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tunnel {
    /// Name in the policy.
    pub name: String,
    /// Its number among phase 1 tunnels, as long as the daemon knows it; 0 comes from a daemon that has none.
    #[serde(default)]
    pub number: u32,
    /// `down`, `negotiating`, `established`, `rekeying` or `closing`.
    pub state: String,
    /// This side's identity.
    pub local_id: String,
    /// The peer's identity.
    pub remote_id: String,
    /// The policy's address of this side; `null`: any.
    pub local_address: Option<IpAddr>,
    /// The policy's address of the peer; `null`: any.
    pub remote_address: Option<IpAddr>,
    /// The IKE SA; `null` while down.
    pub ike_sa: Option<IkeSa>,
    /// Its phase 2 tunnels.
    pub children: Vec<Child>,
    /// The last failed negotiation of the IKE SA.
    pub last_failure: Option<FailureInfo>,
    /// The policy's other settings of it.
    #[serde(default)]
    pub policy: Option<TunnelPolicy>,
    /// Directory where the daemon writes the keys of all SAs; `null`: it keeps them.
    #[serde(default)]
    pub keys_exported_to: Option<String>,
}

/// An IKE SA.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IkeSa {
    /// Whether this side is its original initiator.
    pub initiator: bool,
    /// SPI of the original initiator, 16 hexadecimal digits.
    pub initiator_spi: String,
    /// SPI of the original responder, 16 hexadecimal digits.
    pub responder_spi: String,
    /// This side's address and port now.
    pub local: SocketAddr,
    /// The peer's address and port now.
    pub remote: SocketAddr,
    /// Whether this side is behind a NAT.
    pub nat_local: bool,
    /// Whether the peer is behind a NAT.
    pub nat_remote: bool,
    /// Algorithms; empty while unknown.
    pub suite: String,
    /// Seconds since the tunnel came up.
    pub established_seconds: Option<u64>,
    /// Seconds to the next rekey.
    pub rekey_in_seconds: Option<u64>,
    /// Seconds to its hard end.
    pub expires_in_seconds: Option<u64>,
    /// Number of rekeys.
    pub rekeys: u64,
}

/// A phase 2 tunnel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Child {
    /// Name in the policy.
    pub name: String,
    /// Its number among phase 2 tunnels, as [`Tunnel::number`].
    #[serde(default)]
    pub number: u32,
    /// As [`Tunnel::state`].
    pub state: String,
    /// `transport` or `tunnel`.
    pub mode: String,
    /// This side's traffic: agreed while up, else the policy's.
    pub local: Vec<String>,
    /// The peer's traffic.
    pub remote: Vec<String>,
    /// The Child SA; `null` while down.
    pub child_sa: Option<ChildSa>,
    /// The last failed negotiation of the Child SA.
    pub last_failure: Option<FailureInfo>,
    /// The policy's other settings of it.
    #[serde(default)]
    pub policy: Option<ChildPolicy>,
}

/// A Child SA: a pair of ESP SAs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildSa {
    /// Algorithms.
    pub suite: String,
    /// Whether sequence numbers have 64 bits.
    pub esn: bool,
    /// `native` (IP protocol 50) or `udp`.
    pub encapsulation: String,
    /// SPI of what is received, 8 hexadecimal digits.
    pub inbound_spi: String,
    /// SPI of what is sent, 8 hexadecimal digits.
    pub outbound_spi: String,
    /// Packets received since the tunnel came up, over all rekeys.
    pub packets_in: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Octets of inner packets received.
    pub bytes_in: u64,
    /// Octets of inner packets sent.
    pub bytes_out: u64,
    /// Packets refused on these SAs: replayed, forged or outside the selectors.
    pub refused: u64,
    /// Octets of the longest packet that the path to the peer carries; `null`: the data plane does not tell.
    #[serde(default)]
    pub path_mtu: Option<u64>,
    /// Octets of the longest packet that the tunnel carries in one piece.
    #[serde(default)]
    pub inner_mtu: Option<u64>,
    /// Whether a network has said so, and it will be forgotten after a while.
    #[serde(default)]
    pub path_mtu_learned: bool,
    /// Seconds since the tunnel came up.
    pub established_seconds: u64,
    /// Seconds to the next rekey.
    pub rekey_in_seconds: Option<u64>,
    /// Seconds to its hard end.
    pub expires_in_seconds: Option<u64>,
    /// Seconds that the present SA lives from its beginning.
    #[serde(default)]
    pub lifetime_seconds: Option<u64>,
    /// Octets that it carries at most; `null`: no limit.
    #[serde(default)]
    pub lifesize_bytes: Option<u64>,
    /// The octets that are left of these.
    #[serde(default)]
    pub lifesize_left_bytes: Option<u64>,
    /// Percent of its life during which old and new keys coexist.
    #[serde(default)]
    pub overlap_percent: Option<u8>,
    /// Number of rekeys.
    pub rekeys: u64,
    /// Where the SA that receives and the one that sends are, of those that the kernel has; empty: this process has them.
    #[serde(default)]
    pub placed: Vec<PlacedInfo>,
}

impl Tunnel {
    /// Whether something of it is up or being negotiated.
    pub fn is_active(&self) -> bool {
        self.state != "down" || self.children.iter().any(|c| c.state != "down")
    }
}
