//! SAs that are keyed by hand, as the control protocol tells of them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use zeroize::Zeroizing;

/// An SA of one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManualSaInfo {
    /// Its name in `vpnd.toml`, which one of the other direction may have as well.
    pub name: String,
    /// `in` or `out`.
    pub direction: String,
    /// Eight hexadecimal digits.
    pub spi: String,
    /// The source address of its packets.
    pub source: IpAddr,
    /// The destination address of its packets.
    pub destination: IpAddr,
    /// `transport` or `tunnel`.
    pub mode: String,
    /// `native`, `udp` or `ah`.
    pub encapsulation: String,
    /// Algorithms.
    pub suite: String,
    /// True if sequence numbers have 64 bits.
    pub esn: bool,
    /// This side's traffic.
    pub local: Vec<String>,
    /// The peer's traffic.
    pub remote: Vec<String>,
    /// Packets since the start.
    pub packets: u64,
    /// Octets of inner packets.
    pub bytes: u64,
    /// Packets refused: replayed, forged or outside the selectors.
    pub refused: u64,
    /// The last sequence number used, over all restarts; `null` for one that receives.
    pub sequence: Option<u64>,
    /// True if the SA was added while the daemon ran: it is gone when the daemon stops.
    #[serde(default)]
    pub added: bool,
}

/// SAs that are keyed by hand, and the traffic of those that were removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaList {
    /// The SAs.
    pub sas: Vec<ManualSaInfo>,
    /// Names without SAs, whose traffic is blocked.
    pub blocked: Vec<String>,
}

/// The name of an SA that is keyed by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaName {
    /// Its name.
    pub name: String,
    /// `in` or `out`.
    pub direction: String,
    /// Eight hexadecimal digits.
    pub spi: String,
}

/// The result of a removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaRemoved {
    /// The name of the SAs.
    pub name: String,
    /// The number of SAs that were removed.
    pub sas: usize,
    /// True if their traffic stays blocked; otherwise it takes the host's other routes, in the clear.
    pub blocked: bool,
    /// True if the configuration of the daemon defines them: they are back after a restart.
    pub configured: bool,
}

/// `[[sa]]` tables, which hold keys: wiped when dropped, not shown by `Debug`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyedText(pub Zeroizing<String>);

impl fmt::Debug for KeyedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyedText({} octets)", self.0.len())
    }
}
