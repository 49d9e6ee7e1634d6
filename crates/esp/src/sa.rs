//! An SA as key management describes it to a plane.

#![forbid(unsafe_code)]

use crate::traffic::{RuleId, TrafficSelectors};
use crypto::Suite;
use policy::{Mode, Secret};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Security Parameters Index of ESP: 256 and above (RFC 4303 §2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spi(pub u32);

impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Spi {
    /// As it is displayed, in hexadecimal.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Names one SA of one direction for as long as the plane lives; chosen by key management, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SaId(pub u64);

impl SaId {
    /// Names from here on are those of SAs that are keyed by hand; key management chooses lower ones.
    pub const FIRST_MANUAL: Self = Self(1 << 63);

    /// Returns `true` if the SA is keyed by hand.
    pub fn is_manual(self) -> bool {
        self >= Self::FIRST_MANUAL
    }
}

/// The outer protocol of protected packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Encapsulation {
    /// IP protocol 50.
    Native,
    /// UDP, on the ports of the path (RFC 3948).
    Udp,
    /// Not ESP but AH, IP protocol 51: a packet is a whole IP packet, whose header is covered.
    Ah,
}

/// Between which addresses an SA's packets travel. Without UDP the ports are IKE's and unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// This side.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// Native or in UDP.
    pub encapsulation: Encapsulation,
}

/// The outer fields with which an ESP packet arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Between which addresses, and how.
    pub path: Path,
    /// DSCP and ECN of the outer header, where the socket tells.
    pub tos: Option<u8>,
    /// TTL or hop limit of the outer header, where the socket tells.
    pub ttl: Option<u8>,
}

/// Limits after which the plane reports [`Notice::Expiring`](crate::plane::Notice::Expiring) and, at the hard one,
/// stops using the SA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Octets of inner packets at which a rekey should start.
    pub soft_bytes: Option<u64>,
    /// Octets of inner packets after which no more are protected.
    pub hard_bytes: Option<u64>,
}

/// An SA that receives.
#[derive(Debug)]
pub struct InboundSa {
    /// Its name.
    pub id: SaId,
    /// The rule whose traffic it carries.
    pub rule: RuleId,
    /// Chosen by this side.
    pub spi: Spi,
    /// Cipher.
    pub suite: Suite,
    /// [`Suite::key_material_len`] octets.
    pub key: Secret,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Packets of anti-replay window (RFC 4303 §3.4.3); 0 turns the check off.
    pub replay_window: u32,
    /// Transport or tunnel mode.
    pub mode: Mode,
    /// The path of its packets.
    pub path: Path,
    /// The traffic that its packets may carry (RFC 4301 §5.2).
    pub selectors: Arc<TrafficSelectors>,
    /// The volume at which it is to be rekeyed, and at which it stops.
    pub limits: Limits,
}

/// An SA that sends.
#[derive(Debug)]
pub struct OutboundSa {
    /// Its name.
    pub id: SaId,
    /// The rule whose traffic it carries.
    pub rule: RuleId,
    /// Chosen by the peer.
    pub spi: Spi,
    /// Cipher.
    pub suite: Suite,
    /// [`Suite::key_material_len`] octets.
    pub key: Secret,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Transport or tunnel mode.
    pub mode: Mode,
    /// The path of its packets.
    pub path: Path,
    /// The traffic that it carries.
    pub selectors: Arc<TrafficSelectors>,
    /// The volume at which it is to be rekeyed, and at which it stops.
    pub limits: Limits,
    /// Installed, but not used before [`DataPlane::promote`](crate::plane::DataPlane::promote): the peer may not have
    /// the other half yet.
    pub standby: bool,
}

/// The counters of an SA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Packets protected or accepted.
    pub packets: u64,
    /// Octets of inner packets.
    pub bytes: u64,
    /// The time of the last packet.
    pub last_used: Option<Instant>,
    /// Packets refused on this SA (replayed, forged, wrong selectors, exhausted).
    pub refused: u64,
}
