//! `[families]`.

use ::esp::families::Families;
use serde::Deserialize;
use std::path::PathBuf;

/// `[families]`: whether tunnels may use IPv4 and IPv6.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FamiliesSection {
    /// Tunnels may use IPv4.
    pub ipv4: bool,
    /// Tunnels may use IPv6.
    pub ipv6: bool,
    /// The file of `vpnctl family … --persist`, which takes precedence over the two above.
    pub file: PathBuf,
}

impl FamiliesSection {
    /// The families that are on.
    pub fn families(&self) -> Families {
        Families { ipv4: self.ipv4, ipv6: self.ipv6 }
    }
}

impl Default for FamiliesSection {
    fn default() -> Self {
        Self { ipv4: true, ipv6: true, file: PathBuf::from("/var/lib/vpnd/families.toml") }
    }
}
