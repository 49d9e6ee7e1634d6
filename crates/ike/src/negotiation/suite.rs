//! The algorithms that were chosen for an IKE SA or a Child SA.

use super::transforms::protocol;
use crate::wire::registry::ProtocolId;
use ::crypto::Suite;
use policy::{Group, IkeEncryption, Integrity, Lifetime, MAX_ADDITIONAL, Prf, Protection};
use std::fmt;

/// The additional key exchanges that were chosen, by transform type (RFC 9370 §2.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Additional(pub [Option<Group>; MAX_ADDITIONAL]);

impl Additional {
    /// The methods, in the order in which they take place.
    pub fn methods(&self) -> impl Iterator<Item = Group> + '_ {
        self.0.iter().copied().flatten()
    }

    /// Returns `true` if there is none.
    pub fn is_empty(&self) -> bool {
        self.methods().next().is_none()
    }
}

impl fmt::Display for Additional {
    /// Each behind a plus: `+ML-KEM-768`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.methods().try_for_each(|method| write!(f, "+{method}"))
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Additional {
    /// The methods in their order.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.methods())
    }
}

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
    /// Key exchanges in addition to that.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Additional::is_empty"))]
    pub additional: Additional,
}

impl IkeSuite {
    /// A suite; `integrity` is `None` with AEAD.
    pub fn new(
        encryption: IkeEncryption,
        integrity: Option<Integrity>,
        prf: Prf,
        group: Group,
    ) -> Self {
        Self { encryption, integrity, prf, group, additional: Additional::default() }
    }

    /// Returns `true` if one of its key exchanges withstands a quantum computer.
    pub fn is_quantum_safe(&self) -> bool {
        self.group.is_quantum_safe() || self.additional.methods().any(Group::is_quantum_safe)
    }

    /// The suite of SK payloads; `None` if cipher and integrity do not go together.
    pub fn protection(&self) -> Option<Suite> {
        let (encryption, integrity) = (self.encryption.in_esp(), self.integrity);
        Suite::of(Protection::Esp { encryption, integrity })
    }
}

impl fmt::Display for IkeSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.encryption)?;
        if let Some(integrity) = self.integrity {
            write!(f, "/{integrity}")?;
        }
        write!(f, "/{}/{}{}", self.prf, self.group, self.additional)
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
    /// Key exchanges in addition to that.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Additional::is_empty"))]
    pub additional: Additional,
    /// Extended sequence numbers.
    pub esn: bool,
}

impl ChildSuite {
    /// A suite without a key exchange of its own and without extended sequence numbers.
    pub fn new(protection: Protection) -> Self {
        Self { protection, group: None, additional: Additional::default(), esn: false }
    }
}

impl fmt::Display for ChildSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.protection)?;
        if let Some(group) = self.group {
            write!(f, "/{group}{}", self.additional)?;
        }
        f.write_str(if self.esn { "/ESN" } else { "" })
    }
}

/// The choice for a Child SA: its algorithms, and the lifetime that the policy gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildChoice {
    /// The algorithms.
    pub algorithms: ChildSuite,
    /// Lifetime, by the policy's proposal that it comes from.
    pub lifetime: Lifetime,
}

impl ChildChoice {
    /// Returns `true` if one of its key exchanges withstands a quantum computer.
    pub fn is_quantum_safe(&self) -> bool {
        let ChildSuite { group, additional, .. } = self.algorithms;
        group.into_iter().chain(additional.methods()).any(Group::is_quantum_safe)
    }

    /// The protocol of these SAs.
    pub fn protocol(&self) -> ProtocolId {
        protocol(self.algorithms.protection)
    }

    /// The suite that protects packets.
    pub fn suite(&self) -> Option<Suite> {
        Suite::of(self.algorithms.protection)
    }
}
