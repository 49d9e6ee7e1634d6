//! The policy's settings of a tunnel, whether it is up or not.

use serde::{Deserialize, Serialize};

/// A responder's window: bounds of the lifetime of SAs that the peer asks for, as far as they have an effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponderWindow {
    /// The shortest lifetime, in seconds.
    pub min_seconds: Option<u64>,
    /// The longest.
    pub max_seconds: Option<u64>,
    /// The smallest limit by volume, in octets.
    pub min_bytes: Option<u64>,
    /// The largest.
    pub max_bytes: Option<u64>,
}

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
    /// The same of an IKE SA that the peer asks for, if the responder's window makes it another.
    #[serde(default)]
    pub lifetime_as_responder_seconds: Option<u64>,
    /// The responder's window of IKE SAs; `null`: none.
    #[serde(default)]
    pub responder_window: Option<ResponderWindow>,
    /// Percent of it during which old and new keys coexist.
    pub overlap_percent: u8,
    /// True if it starts with the daemon.
    pub auto_start: bool,
}

impl TunnelPolicy {
    /// Seconds that an IKE SA lives that this side has asked for, or that the peer has.
    pub fn lifetime_seconds_of(&self, initiator: bool) -> u64 {
        let peers = self.lifetime_as_responder_seconds.filter(|_| !initiator);
        peers.unwrap_or(self.lifetime_seconds)
    }
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
    /// The responder's window of Child SAs; `null`: none.
    #[serde(default)]
    pub responder_window: Option<ResponderWindow>,
    /// True if it starts with the daemon.
    pub auto_start: bool,
    /// True if the first packet starts it.
    pub on_demand: bool,
}
