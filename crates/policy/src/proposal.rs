//! Offers: the algorithms that a policy names, in order of preference. The algorithms themselves are those of the crate
//! `vpn-algorithms`.

use crate::Lifetime;
use algorithms::{AhIntegrity, EspEncryption, Group, IkeEncryption, Integrity, KeyBits, Prf};
use std::fmt;
use std::time::Duration;

/// The most additional key exchanges of one SA (RFC 9370 §2.2.1: transform types 6 to 12).
pub const MAX_ADDITIONAL: usize = 7;

/// An additional key exchange (RFC 9370): the methods of which one is used, in order of preference.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AdditionalKe {
    /// At least one.
    pub methods: Vec<Group>,
    /// A peer that does not do it is accepted, too.
    pub optional: bool,
}

impl AdditionalKe {
    /// An exchange that must take place, by one of these methods.
    pub fn required(methods: Vec<Group>) -> Self {
        Self { methods, optional: false }
    }
}

impl fmt::Display for AdditionalKe {
    /// The methods, and `NONE` at the end if it is optional: `ML-KEM-1024|ML-KEM-768|NONE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, method) in self.methods.iter().enumerate() {
            write!(f, "{}{method}", if i == 0 { "" } else { "|" })?;
        }
        f.write_str(if self.optional { "|NONE" } else { "" })
    }
}

/// One offer for an IKE SA; each list is in order of preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IkeProposal {
    /// Either all AEAD or none: RFC 7296 §3.3 has AEAD and other ciphers in separate proposals.
    pub encryption: Vec<IkeEncryption>,
    /// Empty with AEAD ciphers.
    pub integrity: Vec<Integrity>,
    /// At least one.
    pub prf: Vec<Prf>,
    /// At least one; the first is the one whose public value is sent first.
    pub groups: Vec<Group>,
    /// Key exchanges in addition to the first, at most [`MAX_ADDITIONAL`], in the order in which they take place.
    pub additional: Vec<AdditionalKe>,
}

impl IkeProposal {
    /// Returns `true` if it offers SHA-1: a peer that knows nothing better may then sign with it.
    pub fn names_sha1(&self) -> bool {
        self.integrity.contains(&Integrity::HmacSha1_96) || self.prf.contains(&Prf::HmacSha1)
    }
}

impl Default for IkeProposal {
    /// AES-GCM with 256 or 128 bits, HMAC-SHA2-256 or -384, Curve25519 or P-256.
    fn default() -> Self {
        Self {
            encryption: vec![
                IkeEncryption::AesGcm16(KeyBits::B256),
                IkeEncryption::AesGcm16(KeyBits::B128),
            ],
            integrity: Vec::new(),
            prf: vec![Prf::HmacSha2_256, Prf::HmacSha2_384],
            groups: vec![Group::Curve25519, Group::Ecp256],
            additional: Vec::new(),
        }
    }
}

/// The protocol and the algorithms that protect the packets of a Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protection {
    /// ESP (RFC 4303).
    Esp {
        /// Cipher.
        encryption: EspEncryption,
        /// `None` where [`EspEncryption::is_aead`], `Some` otherwise.
        integrity: Option<Integrity>,
    },
    /// AH (RFC 4302): integrity of the header as well, no secrecy.
    Ah(AhIntegrity),
}

impl Protection {
    /// ESP with a cipher that protects integrity itself.
    pub const fn aead(encryption: EspEncryption) -> Self {
        Self::Esp { encryption, integrity: None }
    }

    /// ESP with a cipher and an integrity algorithm.
    pub const fn encrypt_and_mac(encryption: EspEncryption, integrity: Integrity) -> Self {
        Self::Esp { encryption, integrity: Some(integrity) }
    }

    /// Returns `true` if it keeps the traffic secret: without that, everybody on the way can read it.
    pub fn hides(self) -> bool {
        matches!(self, Self::Esp { encryption, .. } if encryption.hides())
    }

    /// Returns `true` if it is AH, which covers the addresses, so that they must not change on the way.
    pub fn is_ah(self) -> bool {
        matches!(self, Self::Ah(_))
    }
}

/// Returns `true` if this build has a cipher: weak ones need the feature `legacy`.
pub const fn is_built(encryption: EspEncryption) -> bool {
    cfg!(feature = "legacy") || !encryption.is_weak()
}

/// One offer for a Child SA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildProposal {
    /// Name in the policy, for messages to the operator.
    pub name: String,
    /// Protocol and algorithms.
    pub protection: Protection,
    /// Extended (64-bit) sequence numbers (RFC 4303 §2.2.1, RFC 4302 §2.5.1).
    pub esn: bool,
    /// Lifetime of Child SAs made from this offer.
    pub lifetime: Lifetime,
}

impl Default for ChildProposal {
    /// ESP with AES-GCM and 256 bits, sequence numbers of 64 bits, a lifetime of an hour.
    fn default() -> Self {
        let protection = Protection::aead(EspEncryption::AesGcm16(KeyBits::B256));
        Self { esn: true, ..Self::new(protection, Lifetime::new(Duration::from_secs(3600))) }
    }
}

impl ChildProposal {
    /// Algorithms with a lifetime, named after the algorithms, with sequence numbers of 32 bits.
    pub fn new(protection: Protection, lifetime: Lifetime) -> Self {
        Self { name: protection.to_string(), protection, esn: false, lifetime }
    }
}

impl fmt::Display for Protection {
    /// The algorithms, and the protocol where it is AH: `AES-CBC-256/HMAC-SHA2-256-128`, `AH/AES-GMAC-128`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Esp { encryption, integrity: None } => encryption.fmt(f),
            Self::Esp { encryption, integrity: Some(integrity) } => {
                write!(f, "{encryption}/{integrity}")
            }
            Self::Ah(integrity) => write!(f, "AH/{integrity}"),
        }
    }
}
