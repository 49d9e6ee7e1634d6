//! The algorithms that were chosen for an IKE SA or a Child SA.

use super::transforms::protocol;
use crate::wire::registry::ProtocolId;
use ::crypto::Suite;
use policy::{Group, IkeEncryption, Integrity, Lifetime, Prf, Protection};
use std::fmt;

/// The algorithms of an IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IkeSuite {
    /// Cipher of SK payloads.
    pub encryption: IkeEncryption,
    /// Its integrity; `None` with AEAD.
    pub integrity: Option<Integrity>,
    /// PRF.
    pub prf: Prf,
    /// Key exchange.
    pub group: Group,
}

impl IkeSuite {
    /// A suite; `integrity` is `None` with AEAD.
    pub fn new(
        encryption: IkeEncryption,
        integrity: Option<Integrity>,
        prf: Prf,
        group: Group,
    ) -> Self {
        Self { encryption, integrity, prf, group }
    }

    /// The suite of SK payloads; `None` if cipher and integrity do not go together.
    pub fn protection(&self) -> Option<Suite> {
        match (self.encryption, self.integrity) {
            (IkeEncryption::AesGcm16(k), None) => Some(Suite::AesGcm16(k)),
            (IkeEncryption::ChaCha20Poly1305, None) => Some(Suite::ChaCha20Poly1305),
            (IkeEncryption::AesCbc(k), Some(i)) => Some(Suite::AesCbcMac(k, i)),
            _ => None,
        }
    }
}

impl fmt::Display for IkeSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.encryption)?;
        if let Some(integrity) = self.integrity {
            write!(f, "/{integrity}")?;
        }
        write!(f, "/{}/{}", self.prf, self.group)
    }
}

/// The algorithms of a Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ChildSuite {
    /// Protocol and algorithms.
    pub protection: Protection,
    /// Key exchange of its own (PFS).
    pub group: Option<Group>,
    /// Extended sequence numbers.
    pub esn: bool,
}

impl ChildSuite {
    /// A suite without a key exchange of its own and without extended sequence numbers.
    pub fn new(protection: Protection) -> Self {
        Self { protection, group: None, esn: false }
    }
}

impl fmt::Display for ChildSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.protection)?;
        if let Some(group) = self.group {
            write!(f, "/{group}")?;
        }
        f.write_str(if self.esn { "/ESN" } else { "" })
    }
}

/// The choice for a Child SA: its algorithms, and what the policy says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildChoice {
    /// Protocol and algorithms.
    pub protection: Protection,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Lifetime, by the policy's proposal that it comes from.
    pub lifetime: Lifetime,
    /// Key exchange of its own (PFS).
    pub group: Option<Group>,
}

impl ChildChoice {
    /// The protocol of these SAs.
    pub fn protocol(&self) -> ProtocolId {
        protocol(self.protection)
    }

    /// The suite that protects packets.
    pub fn suite(&self) -> Option<Suite> {
        Suite::of(self.protection)
    }

    /// The algorithms alone.
    pub fn algorithms(&self) -> ChildSuite {
        ChildSuite { protection: self.protection, group: self.group, esn: self.esn }
    }
}
