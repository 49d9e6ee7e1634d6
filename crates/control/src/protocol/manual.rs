//! SAs that are keyed by hand, as the control protocol tells of them.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

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
}
