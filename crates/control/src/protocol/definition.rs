//! The policy's settings of a tunnel, whether it is up or not.

use serde::{Deserialize, Serialize};

/// The policy's settings of a phase 1 tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelPolicy {
    /// Name of its IKEProtection; `null` where the policy comes from no file.
    pub protection: Option<String>,
    /// Kind of this side's identity, as the file has it: `IPV4_Address`, `FQDN`, ….
    pub local_id_type: String,
    /// Kind of the peer's.
    pub remote_id_type: String,
    /// `both`, `initiator` or `responder`.
    pub role: String,
    /// `preshared_key`, or `signature` of a certificate's key.
    pub authentication: String,
    /// Seconds that an IKE SA lives.
    pub lifetime_seconds: u64,
    /// Percent of it during which old and new keys coexist.
    pub overlap_percent: u8,
    /// True if it starts with the daemon.
    pub auto_start: bool,
}

/// The policy's settings of a phase 2 tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildPolicy {
    /// Name of its IPSecProtection; `null` where the policy comes from no file.
    pub protection: Option<String>,
    /// `both`, `initiator` or `responder`.
    pub role: String,
    /// Key exchanges offered for rekeys, in order of preference; empty: none.
    pub pfs: Vec<String>,
    /// True if it starts with the daemon.
    pub auto_start: bool,
    /// True if the first packet starts it.
    pub on_demand: bool,
}
