//! Algorithms a policy may name, in order of preference. A new one also needs its words in XML
//! (`xml/lower/algorithm.rs`).

use crate::Lifetime;
use std::fmt;
use std::time::Duration;

/// Length of an AES key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyBits {
    /// 128 bits.
    B128,
    /// 192 bits.
    B192,
    /// 256 bits.
    B256,
}

impl KeyBits {
    /// The length in bits.
    pub fn bits(self) -> u16 {
        match self {
            Self::B128 => 128,
            Self::B192 => 192,
            Self::B256 => 256,
        }
    }

    /// The length in octets.
    pub fn octets(self) -> usize {
        usize::from(self.bits() / 8)
    }
}

/// The number of keys that DES works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DesKeys {
    /// DES (RFC 2405).
    One,
    /// Triple DES (RFC 2451).
    Three,
}

impl DesKeys {
    /// Octets of key, parity bits among them.
    pub fn octets(self) -> usize {
        match self {
            Self::One => 8,
            Self::Three => 24,
        }
    }
}

/// Encryption of the IKE SA (transform type 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IkeEncryption {
    /// ENCR_AES_CBC (RFC 3602), needs an integrity transform.
    AesCbc(KeyBits),
    /// ENCR_AES_GCM with a 16-octet ICV (RFC 5282).
    AesGcm16(KeyBits),
    /// ENCR_CHACHA20_POLY1305 (RFC 7634).
    ChaCha20Poly1305,
}

impl IkeEncryption {
    /// Returns `true` if it protects integrity itself.
    pub fn is_aead(self) -> bool {
        matches!(self, Self::AesGcm16(_) | Self::ChaCha20Poly1305)
    }
}

/// Encryption of ESP (transform type 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EspEncryption {
    /// ENCR_AES_CBC (RFC 3602), needs an integrity transform.
    AesCbc(KeyBits),
    /// ENCR_AES_GCM with a 16-octet ICV (RFC 4106).
    AesGcm16(KeyBits),
    /// ENCR_CHACHA20_POLY1305 (RFC 7634).
    ChaCha20Poly1305,
    /// ENCR_NULL_AUTH_AES_GMAC (RFC 4543): integrity without secrecy.
    AesGmac(KeyBits),
    /// ENCR_NULL (RFC 2410): no secrecy; needs an integrity transform.
    Null,
    /// ENCR_DES and ENCR_3DES in CBC mode, need an integrity transform; weak, only where the policy names them and the
    /// build has the feature `legacy`.
    DesCbc(DesKeys),
}

impl EspEncryption {
    /// Returns `true` if it protects integrity itself.
    pub fn is_aead(self) -> bool {
        matches!(self, Self::AesGcm16(_) | Self::ChaCha20Poly1305 | Self::AesGmac(_))
    }

    /// Returns `true` if it keeps the traffic secret: without that, everybody on the way can read it.
    pub fn hides(self) -> bool {
        !matches!(self, Self::AesGmac(_) | Self::Null)
    }

    /// Returns `true` if RFC 8221 forbids it or advises against it: only peers without anything better need it.
    pub fn is_weak(self) -> bool {
        matches!(self, Self::DesCbc(_))
    }
}

/// Pseudorandom function (transform type 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Prf {
    /// PRF_HMAC_MD5; weak, only where the policy names it.
    HmacMd5,
    /// PRF_HMAC_SHA1.
    HmacSha1,
    /// PRF_HMAC_SHA2_256.
    HmacSha2_256,
    /// PRF_HMAC_SHA2_384.
    HmacSha2_384,
    /// PRF_HMAC_SHA2_512.
    HmacSha2_512,
    /// PRF_AES128_XCBC (RFC 4434).
    Aes128Xcbc,
    /// PRF_AES128_CMAC (RFC 4615).
    Aes128Cmac,
}

impl Prf {
    /// The PRF that is made of what an integrity algorithm is made of.
    pub fn of(integrity: Integrity) -> Self {
        match integrity {
            Integrity::HmacMd5_96 => Self::HmacMd5,
            Integrity::HmacSha1_96 => Self::HmacSha1,
            Integrity::HmacSha2_256_128 => Self::HmacSha2_256,
            Integrity::HmacSha2_384_192 => Self::HmacSha2_384,
            Integrity::HmacSha2_512_256 => Self::HmacSha2_512,
            Integrity::AesXcbc96 => Self::Aes128Xcbc,
            Integrity::AesCmac96 => Self::Aes128Cmac,
        }
    }

    /// Returns `true` if RFC 8247 forbids it: only peers without anything better need it.
    pub fn is_weak(self) -> bool {
        matches!(self, Self::HmacMd5)
    }
}

/// Integrity (transform type 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Integrity {
    /// AUTH_HMAC_MD5_96 (RFC 2403); weak, only where the policy names it.
    HmacMd5_96,
    /// AUTH_HMAC_SHA1_96 (RFC 2404).
    HmacSha1_96,
    /// AUTH_HMAC_SHA2_256_128 (RFC 4868).
    HmacSha2_256_128,
    /// AUTH_HMAC_SHA2_384_192 (RFC 4868).
    HmacSha2_384_192,
    /// AUTH_HMAC_SHA2_512_256 (RFC 4868).
    HmacSha2_512_256,
    /// AUTH_AES_XCBC_96 (RFC 3566).
    AesXcbc96,
    /// AUTH_AES_CMAC_96 (RFC 4494).
    AesCmac96,
}

impl Integrity {
    /// Returns `true` if RFC 8221 and RFC 8247 forbid it: only peers without anything better need it.
    pub fn is_weak(self) -> bool {
        matches!(self, Self::HmacMd5_96)
    }
}

/// Key exchange method (transform type 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Group 2, 1024-bit MODP; weak, only where the policy names it.
    Modp1024,
    /// Group 5, 1536-bit MODP; weak, only where the policy names it.
    Modp1536,
    /// Group 14, 2048-bit MODP (RFC 3526).
    Modp2048,
    /// Group 15, 3072-bit MODP (RFC 3526).
    Modp3072,
    /// Group 16, 4096-bit MODP (RFC 3526).
    Modp4096,
    /// Group 19, NIST P-256 (RFC 5903).
    Ecp256,
    /// Group 20, NIST P-384 (RFC 5903).
    Ecp384,
    /// Group 21, NIST P-521 (RFC 5903).
    Ecp521,
    /// Group 24, 2048-bit MODP with a subgroup of 256 bits (RFC 5114); weak, only where the policy names it.
    Modp2048Sub256,
    /// Group 31, X25519 (RFC 8031).
    Curve25519,
    /// Method 35, ML-KEM-512 (FIPS 203; draft-ietf-ipsecme-ikev2-mlkem).
    MlKem512,
    /// Method 36, ML-KEM-768.
    MlKem768,
    /// Method 37, ML-KEM-1024.
    MlKem1024,
}

impl Group {
    /// Every key exchange method, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Modp1024,
        Self::Modp1536,
        Self::Modp2048,
        Self::Modp3072,
        Self::Modp4096,
        Self::Ecp256,
        Self::Ecp384,
        Self::Ecp521,
        Self::Modp2048Sub256,
        Self::Curve25519,
        Self::MlKem512,
        Self::MlKem768,
        Self::MlKem1024,
    ];

    /// Returns `true` if a quantum computer does not help to find its shared secret, as far as anyone knows.
    pub fn is_quantum_safe(self) -> bool {
        matches!(self, Self::MlKem512 | Self::MlKem768 | Self::MlKem1024)
    }

    /// Returns `true` if RFC 8247 §2.4 advises against it or forbids it.
    pub fn is_weak(self) -> bool {
        matches!(self, Self::Modp1024 | Self::Modp1536 | Self::Modp2048Sub256)
    }
}

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

/// Integrity of AH (transform type 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AhIntegrity {
    /// AUTH_AES_128_GMAC to AUTH_AES_256_GMAC (RFC 4543), which AH alone has.
    AesGmac(KeyBits),
    /// A MAC that ESP has as well.
    Mac(Integrity),
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
    pub fn aead(encryption: EspEncryption) -> Self {
        Self::Esp { encryption, integrity: None }
    }

    /// ESP with a cipher and an integrity algorithm.
    pub fn encrypt_and_mac(encryption: EspEncryption, integrity: Integrity) -> Self {
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

impl fmt::Display for KeyBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bits().fmt(f)
    }
}

impl fmt::Display for DesKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "DES",
            Self::Three => "3DES",
        })
    }
}

impl fmt::Display for IkeEncryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AesCbc(k) => write!(f, "AES-CBC-{k}"),
            Self::AesGcm16(k) => write!(f, "AES-GCM-16-{k}"),
            Self::ChaCha20Poly1305 => f.write_str("CHACHA20-POLY1305"),
        }
    }
}

impl fmt::Display for EspEncryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AesCbc(k) => write!(f, "AES-CBC-{k}"),
            Self::AesGcm16(k) => write!(f, "AES-GCM-16-{k}"),
            Self::ChaCha20Poly1305 => f.write_str("CHACHA20-POLY1305"),
            Self::AesGmac(k) => write!(f, "NULL-AUTH-AES-GMAC-{k}"),
            Self::Null => f.write_str("NULL"),
            Self::DesCbc(keys) => write!(f, "{keys}-CBC"),
        }
    }
}

impl fmt::Display for Prf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HmacMd5 => "PRF-HMAC-MD5",
            Self::HmacSha1 => "PRF-HMAC-SHA1",
            Self::HmacSha2_256 => "PRF-HMAC-SHA2-256",
            Self::HmacSha2_384 => "PRF-HMAC-SHA2-384",
            Self::HmacSha2_512 => "PRF-HMAC-SHA2-512",
            Self::Aes128Xcbc => "PRF-AES128-XCBC",
            Self::Aes128Cmac => "PRF-AES128-CMAC",
        })
    }
}

impl fmt::Display for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HmacMd5_96 => "HMAC-MD5-96",
            Self::HmacSha1_96 => "HMAC-SHA1-96",
            Self::HmacSha2_256_128 => "HMAC-SHA2-256-128",
            Self::HmacSha2_384_192 => "HMAC-SHA2-384-192",
            Self::HmacSha2_512_256 => "HMAC-SHA2-512-256",
            Self::AesXcbc96 => "AES-XCBC-96",
            Self::AesCmac96 => "AES-CMAC-96",
        })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Modp1024 => "MODP-1024",
            Self::Modp1536 => "MODP-1536",
            Self::Modp2048 => "MODP-2048",
            Self::Modp3072 => "MODP-3072",
            Self::Modp4096 => "MODP-4096",
            Self::Ecp256 => "ECP-256",
            Self::Ecp384 => "ECP-384",
            Self::Ecp521 => "ECP-521",
            Self::Modp2048Sub256 => "MODP-2048-256",
            Self::Curve25519 => "CURVE25519",
            Self::MlKem512 => "ML-KEM-512",
            Self::MlKem768 => "ML-KEM-768",
            Self::MlKem1024 => "ML-KEM-1024",
        })
    }
}

impl fmt::Display for AhIntegrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AesGmac(k) => write!(f, "AES-GMAC-{k}"),
            Self::Mac(integrity) => integrity.fmt(f),
        }
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
