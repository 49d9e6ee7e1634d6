//! Suites: the algorithms that protect the packets of one SA, with their lengths.
//!
//! A new cipher needs its value with its row in `crates/algorithms/src/cipher.rs`, its lengths here, its code in `provider.rs`, its
//! names in `name.rs` and `choice.rs`, and its counter in `function.rs`. For IKE it goes into
//! `crates/ike/src/negotiation/proposal.rs`, for the kernel into `crates/xfrm/src/algorithm.rs`, and for ESP into
//! `fill_iv` in `crates/esp/src/outbound.rs`. The compiler does not check two lists: `counts_nonces` in
//! `crates/esp/src/manual.rs`, which decides about nonce reuse, and `obstacle` in `crates/xfrm/src/placement/steps.rs`.
//! A new MAC needs its algorithm in `mac.rs`, and the ICV cut from it in `mac_of`.

use crate::mac;
use policy::{AhIntegrity, DesKeys, EspEncryption, Integrity, KeyBits, Protection};
use std::fmt;

/// The algorithms that protect an SA's packets: an AEAD, a cipher with a MAC, or a MAC alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suite {
    /// AES-GCM with an 8-octet IV and a 16-octet ICV (RFC 4106, RFC 5282).
    AesGcm16(KeyBits),
    /// AES-CBC (RFC 3602) with a MAC over everything, encrypt-then-MAC.
    AesCbcMac(KeyBits, Integrity),
    /// ChaCha20-Poly1305 with an 8-octet IV and a 16-octet ICV (RFC 7634).
    ChaCha20Poly1305,
    /// AES-GMAC with an 8-octet IV and a 16-octet ICV (RFC 4543): everything travels in the clear.
    AesGmac(KeyBits),
    /// No cipher (RFC 2410), and a MAC over everything: everything travels in the clear.
    NullMac(Integrity),
    /// DES or triple DES in CBC mode (RFC 2405, RFC 2451) with a MAC over everything; only with the feature `legacy`.
    DesCbcMac(DesKeys, Integrity),
    /// Not ESP but AH (RFC 4302). With AES-GMAC, an 8-octet IV precedes the 16-octet ICV (RFC 4543 §4).
    Ah(AhIntegrity),
}

impl Suite {
    /// The suite of a Child SA's proposal; `None` where cipher and integrity do not go together.
    pub fn of(protection: Protection) -> Option<Self> {
        let (encryption, integrity) = match protection {
            Protection::Ah(integrity) => return Some(Self::Ah(integrity)),
            Protection::Esp { encryption, integrity } => (encryption, integrity),
        };
        match (encryption, integrity) {
            (EspEncryption::AesGcm16(k), None) => Some(Self::AesGcm16(k)),
            (EspEncryption::AesCbc(k), Some(i)) => Some(Self::AesCbcMac(k, i)),
            (EspEncryption::ChaCha20Poly1305, None) => Some(Self::ChaCha20Poly1305),
            (EspEncryption::AesGmac(k), None) => Some(Self::AesGmac(k)),
            (EspEncryption::Null, Some(i)) => Some(Self::NullMac(i)),
            (EspEncryption::DesCbc(k), Some(i)) => Some(Self::DesCbcMac(k, i)),
            _ => None,
        }
    }

    /// Returns `true` for a suite of AH, which authenticates the IP header as well, and `false` for one of ESP.
    pub fn is_ah(self) -> bool {
        matches!(self, Self::Ah(_))
    }

    /// The suite whose cipher makes the ICV of AH, when it is given no text: everything that AH covers is additional
    /// authenticated data.
    pub fn cipher(self) -> Self {
        match self {
            Self::Ah(AhIntegrity::AesGmac(bits)) => Self::AesGcm16(bits),
            Self::Ah(AhIntegrity::Mac(integrity)) => Self::NullMac(integrity),
            suite => suite,
        }
    }

    /// Octets of key material one direction takes from KEYMAT: key and salt (RFC 4106 §8.1, RFC 4543 §5.4, RFC 7634
    /// §2), or cipher key and then integrity key (RFC 7296 §2.17).
    pub fn key_material_len(self) -> usize {
        match self {
            Self::AesGcm16(k) | Self::AesGmac(k) => k.octets() + 4,
            Self::ChaCha20Poly1305 => 32 + 4,
            Self::NullMac(i) => integrity_key_len(i),
            Self::AesCbcMac(k, i) => k.octets() + integrity_key_len(i),
            Self::DesCbcMac(k, i) => k.octets() + integrity_key_len(i),
            Self::Ah(_) => self.cipher().key_material_len(),
        }
    }

    /// Octets of the IV that travels in the packet.
    pub fn iv_len(self) -> usize {
        match self {
            Self::AesGcm16(_) | Self::ChaCha20Poly1305 | Self::AesGmac(_) | Self::DesCbcMac(..) => {
                8
            }
            Self::AesCbcMac(..) => 16,
            Self::NullMac(_) => 0,
            Self::Ah(_) => self.cipher().iv_len(),
        }
    }

    /// Octets of the integrity check value.
    pub fn icv_len(self) -> usize {
        match self {
            Self::Ah(_) => self.cipher().icv_len(),
            Self::AesGcm16(_) | Self::ChaCha20Poly1305 | Self::AesGmac(_) => 16,
            Self::AesCbcMac(_, i) | Self::DesCbcMac(_, i) | Self::NullMac(i) => match i {
                Integrity::HmacMd5_96
                | Integrity::HmacSha1_96
                | Integrity::AesXcbc96
                | Integrity::AesCmac96 => 12,
                Integrity::HmacSha2_256_128 => 16,
                Integrity::HmacSha2_384_192 => 24,
                Integrity::HmacSha2_512_256 => 32,
            },
        }
    }

    /// Octets to which the plaintext with padding must be aligned by the cipher itself (ESP aligns to 4 besides).
    pub fn block_len(self) -> usize {
        match self {
            Self::AesCbcMac(..) => 16,
            Self::DesCbcMac(..) => 8,
            Self::AesGcm16(_)
            | Self::ChaCha20Poly1305
            | Self::AesGmac(_)
            | Self::NullMac(_)
            | Self::Ah(_) => 1,
        }
    }
}

/// Octets of an integrity key: as many as the uncut MAC has (RFC 2403, RFC 2404, RFC 3566, RFC 4494, RFC 4868 §2.1.1).
pub fn integrity_key_len(integrity: Integrity) -> usize {
    mac_of(integrity).output_len()
}

/// The MAC whose first octets are the ICV.
pub(crate) fn mac_of(integrity: Integrity) -> mac::Algorithm {
    match integrity {
        Integrity::HmacMd5_96 => mac::Algorithm::HmacMd5,
        Integrity::HmacSha1_96 => mac::Algorithm::HmacSha1,
        Integrity::HmacSha2_256_128 => mac::Algorithm::HmacSha2_256,
        Integrity::HmacSha2_384_192 => mac::Algorithm::HmacSha2_384,
        Integrity::HmacSha2_512_256 => mac::Algorithm::HmacSha2_512,
        Integrity::AesXcbc96 => mac::Algorithm::AesXcbc,
        Integrity::AesCmac96 => mac::Algorithm::AesCmac,
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AesGcm16(k) => write!(f, "AES-GCM-16-{k}"),
            Self::AesCbcMac(k, i) => write!(f, "AES-CBC-{k}/{i}"),
            Self::DesCbcMac(k, i) => write!(f, "{k}-CBC/{i}"),
            Self::ChaCha20Poly1305 => f.write_str("CHACHA20-POLY1305"),
            Self::AesGmac(k) => write!(f, "NULL-AUTH-AES-GMAC-{k}"),
            Self::NullMac(i) => write!(f, "NULL/{i}"),
            Self::Ah(integrity) => write!(f, "AH/{integrity}"),
        }
    }
}
