//! Tunnels and their SAs, and how a negotiation failed.

use super::definition::{ChildPolicy, TunnelPolicy};
use super::explanation::{Down, FindingInfo, Unanswered, Waits};
use super::offload::PlacedInfo;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

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
    /// This side's identity. Its type stands before it where the value alone would be read as another type: `Key_ID gate`.
    pub local_id: String,
    /// The peer's identity, likewise.
    pub remote_id: String,
    /// The policy's address of this side; `null`: any.
    pub local_address: Option<IpAddr>,
    /// The policy's address of the peer; `null`: any.
    pub remote_address: Option<IpAddr>,
    /// The peer's IKE daemon and its version, as it introduced itself last; `null`: it did not.
    #[serde(default)]
    pub peer_product: Option<String>,
    /// The IKE SA; `null` while down.
    pub ike_sa: Option<IkeSa>,
    /// The request that the peer has not answered yet although it was sent again, or of which it is known that it may
    /// not have reached the peer.
    #[serde(default)]
    pub unanswered: Option<Unanswered>,
    /// Its phase 2 tunnels.
    pub children: Vec<Child>,
    /// The last failed negotiation of the IKE SA.
    pub last_failure: Option<FailureInfo>,
    /// The last end of the tunnel; `null` while it is up, and if it was never up.
    #[serde(default)]
    pub down: Option<Down>,
    /// The policy's other settings of it.
    #[serde(default)]
    pub policy: Option<TunnelPolicy>,
    /// Directory where the daemon writes the keys of all SAs; `null`: it keeps them.
    #[serde(default)]
    pub keys_exported_to: Option<String>,
}

impl Tunnel {
    /// This side's identity without its type.
    pub fn local_id_value(&self) -> &str {
        value(&self.local_id, self.policy.as_ref().map(|policy| &*policy.local_id_type))
    }

    /// The peer's identity without its type.
    pub fn remote_id_value(&self) -> &str {
        value(&self.remote_id, self.policy.as_ref().map(|policy| &*policy.remote_id_type))
    }
}

fn value<'t>(id: &'t str, kind: Option<&str>) -> &'t str {
    kind.and_then(|kind| id.strip_prefix(kind)?.strip_prefix(' ')).unwrap_or(id)
}

/// An IKE SA.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IkeSa {
    /// True if this side is its original initiator.
    pub initiator: bool,
    /// SPI of the original initiator, 16 hexadecimal digits.
    pub initiator_spi: String,
    /// SPI of the original responder, 16 hexadecimal digits.
    pub responder_spi: String,
    /// This side's address and port now.
    pub local: SocketAddr,
    /// The peer's address and port now.
    pub remote: SocketAddr,
    /// True if this side is behind a NAT.
    pub nat_local: bool,
    /// True if the peer is behind a NAT.
    pub nat_remote: bool,
    /// Algorithms; empty while unknown.
    pub suite: String,
    /// True if a postquantum preshared key (RFC 8784) is in the keys of its Child SAs.
    #[serde(default)]
    pub ppk: bool,
    /// True if its keys withstand a quantum computer.
    #[serde(default)]
    pub quantum_safe: bool,
    /// Why they do not; `null` where they do, and while it is not up.
    #[serde(default)]
    pub not_quantum_safe: Option<String>,
    /// The resumptions since both sides last proved by their credentials who they are; `null`: it was not resumed.
    #[serde(default)]
    pub resumptions: Option<u8>,
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
    /// The policy's traffic, where both sides have agreed on less of it; `null` elsewhere.
    #[serde(default)]
    pub narrowed: Option<Narrowed>,
    /// The Child SA; `null` while down.
    pub child_sa: Option<ChildSa>,
    /// The reason why no packet passes although the Child SA is up; `null` if packets pass.
    #[serde(default)]
    pub fault: Option<String>,
    /// The event that it waits for; `null` while up.
    #[serde(default)]
    pub waits: Option<Waits>,
    /// As [`Explanation::findings`](super::Explanation::findings); empty in the answer about all tunnels.
    #[serde(default)]
    pub findings: Vec<FindingInfo>,
    /// The last failed negotiation of the Child SA.
    pub last_failure: Option<FailureInfo>,
    /// As [`Tunnel::down`].
    #[serde(default)]
    pub down: Option<Down>,
    /// The policy's other settings of it.
    #[serde(default)]
    pub policy: Option<ChildPolicy>,
}

/// Traffic of which both sides have agreed on a part for a phase 2 tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Narrowed {
    /// This side's traffic: that of the policy; with `grant`, that of the peer's request.
    pub local: Vec<String>,
    /// The peer's traffic, likewise.
    pub remote: Vec<String>,
    /// `answer`: this side asked for all of it and the peer granted less; `request`: the peer asked for less; `grant`: the
    /// peer asked for more than the policy has for this tunnel.
    pub by: String,
}

/// A Child SA: a pair of ESP SAs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildSa {
    /// Algorithms.
    pub suite: String,
    /// True if its keys withstand a quantum computer.
    #[serde(default)]
    pub quantum_safe: bool,
    /// Why they do not; `null` where they do.
    #[serde(default)]
    pub not_quantum_safe: Option<String>,
    /// True if sequence numbers have 64 bits.
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
    /// Seconds since the last packet was received; `null`: none was.
    #[serde(default)]
    pub idle_in_seconds: Option<u64>,
    /// Seconds since the last packet was sent; `null`: none was.
    #[serde(default)]
    pub idle_out_seconds: Option<u64>,
    /// Packets refused on these SAs: replayed, forged or outside the selectors.
    pub refused: u64,
    /// Octets of the longest packet that the path to the peer carries; `null`: the data plane does not tell.
    #[serde(default)]
    pub path_mtu: Option<u64>,
    /// Octets of the longest packet that the tunnel carries in one piece.
    #[serde(default)]
    pub inner_mtu: Option<u64>,
    /// True if the path MTU was learned from the network; it expires after a while.
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
    /// The locations of the inbound and the outbound SA, if the kernel has them; empty: this process has them.
    #[serde(default)]
    pub placed: Vec<PlacedInfo>,
}

/// Returns `true` if packets pass in the state with this name, as far as the two gateways are concerned.
pub(super) fn is_up(state: &str) -> bool {
    matches!(state, "established" | "rekeying")
}

impl Tunnel {
    /// Returns `true` if its IKE SA is up.
    pub fn is_up(&self) -> bool {
        is_up(&self.state)
    }

    /// Returns `true` if something of it is up or being negotiated.
    pub fn is_active(&self) -> bool {
        self.state != "down" || self.children.iter().any(|c| c.state != "down")
    }
}

impl Child {
    /// Returns `true` if its Child SA is up and packets pass, as far as the two gateways are concerned.
    pub fn is_up(&self) -> bool {
        is_up(&self.state)
    }

    /// Returns `true` if both gateways have the Child SA, whether or not its packets pass.
    pub fn has_sa(&self) -> bool {
        self.is_up() || self.state == "blocked"
    }
}

/// Some of the tunnels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunnelPage {
    /// The tunnels. The first one may be the rest of the last one of the page before: then it has the same name and the
    /// phase 2 tunnels that are not told yet. There may be none although others follow.
    pub tunnels: Vec<Tunnel>,
    /// The field `after` of the request for the next page; `null`: this is the last one.
    pub next: Option<String>,
}

/// The outcome for one tunnel of [`Command::Activate`](super::Command::Activate).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activation {
    /// The name asked for.
    pub name: String,
    /// True if it is up.
    pub up: bool,
    /// The failure, if it is not up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureInfo>,
}

/// A failed negotiation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureInfo {
    /// Stable name: `no_answer`, `authentication_failed`, `no_proposal_chosen`, `ts_unacceptable`,
    /// `traffic_claimed`, `mode_mismatch`, `no_matching_tunnel`, `other_version`, `protocol_error`, `refused`,
    /// `data_plane`, `cancelled`.
    pub kind: String,
    /// For people.
    pub message: String,
    /// Seconds since then, where it is not the outcome of this very request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_ago: Option<u64>,
}
