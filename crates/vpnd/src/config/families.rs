//! `[families]`.

use ::esp::families::Families;
use std::path::PathBuf;

settings::section! {
    /// `[families]`: whether tunnels may use IPv4 and IPv6.
    pub struct FamiliesSection = "families" {
        /// Whether tunnels may use IPv4 and IPv6 (docs/operate/planes.md). While a family is off, the traffic of its
        /// tunnels is blocked. "vpnctl family" changes these settings while vpnd runs.
        pub ipv4: bool = true;
        pub ipv6: bool = true;
        /// File of "vpnctl family ... --persist". Its values override the two above.
        pub file: PathBuf = PathBuf::from("/var/lib/vpnd/families.toml");
    }
}

impl FamiliesSection {
    /// The families that are on.
    pub fn families(&self) -> Families {
        Families { ipv4: self.ipv4, ipv6: self.ipv6 }
    }
}
