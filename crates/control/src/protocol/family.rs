//! IPsec of each address family.

use serde::{Deserialize, Serialize};

/// The address families that tunnels may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamiliesInfo {
    /// IPv4, then IPv6.
    pub families: Vec<FamilyInfo>,
    /// The file of settings that outlive a restart.
    pub file: String,
}

/// An address family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyInfo {
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// IPsec of the family is switched on.
    pub on: bool,
    /// The setting of the configuration.
    pub default: bool,
    /// The setting that outlives a restart; `null`: there is none, and the configuration counts.
    pub persistent: Option<bool>,
    /// Phase 2 tunnels that stay down because the family is off.
    pub tunnels_off: Vec<String>,
    /// Packets that were dropped because a family is off, of this daemon's plane; the kernel counts its own.
    pub dropped: u64,
}
