//! Suites: the algorithms that protect the packets of one SA, with their lengths.
//!
//! A new cipher needs its value with its row in `crates/algorithms/src/cipher.rs`, its variant here, in three places
//! that the compiler names, its code in each provider that has it (`aws_lc.rs`, `portable.rs`, `ring.rs`), and an arm
//! in `crates/ike/src/sa/keys.rs` for the IVs of IKE. Everything else reads the row. A new MAC needs its row in
//! `crates/algorithms/src/integrity.rs`, its algorithm in `mac.rs`, and the pair of both in `mac_of`.

use crate::mac;
use algorithms::{CipherRow, Iv};
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
            (
                EspEncryption::AesGcm16(_)
                | EspEncryption::ChaCha20Poly1305
                | EspEncryption::AesGmac(_),
                Some(_),
            )
            | (EspEncryption::AesCbc(_) | EspEncryption::Null | EspEncryption::DesCbc(_), None) => {
                None
            }
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

    /// The protocol and the algorithms: the other direction of [`Suite::of`].
    #[inline]
    pub const fn protection(self) -> Protection {
        match self {
            Self::AesGcm16(bits) => Protection::aead(EspEncryption::AesGcm16(bits)),
            Self::AesCbcMac(bits, mac) => {
                Protection::encrypt_and_mac(EspEncryption::AesCbc(bits), mac)
            }
            Self::ChaCha20Poly1305 => Protection::aead(EspEncryption::ChaCha20Poly1305),
            Self::AesGmac(bits) => Protection::aead(EspEncryption::AesGmac(bits)),
            Self::NullMac(mac) => Protection::encrypt_and_mac(EspEncryption::Null, mac),
            Self::DesCbcMac(keys, mac) => {
                Protection::encrypt_and_mac(EspEncryption::DesCbc(keys), mac)
            }
            Self::Ah(integrity) => Protection::Ah(integrity),
        }
    }

    /// The cipher, with a key of any length, for lengths that do not depend on that: packets need them.
    #[inline]
    const fn form(self) -> &'static CipherRow {
        match self {
            Self::AesGcm16(_) | Self::Ah(AhIntegrity::AesGmac(_)) => {
                const { EspEncryption::AesGcm16(KeyBits::B128).row() }
            }
            Self::AesCbcMac(..) => const { EspEncryption::AesCbc(KeyBits::B128).row() },
            Self::ChaCha20Poly1305 => const { EspEncryption::ChaCha20Poly1305.row() },
            Self::AesGmac(_) => const { EspEncryption::AesGmac(KeyBits::B128).row() },
            Self::NullMac(_) | Self::Ah(AhIntegrity::Mac(_)) => const { EspEncryption::Null.row() },
            Self::DesCbcMac(..) => const { EspEncryption::DesCbc(DesKeys::Three).row() },
        }
    }

    /// The integrity algorithm beside the cipher; `None` of an AEAD.
    #[inline]
    const fn integrity(self) -> Option<Integrity> {
        match self.protection() {
            Protection::Esp { integrity, .. } => integrity,
            Protection::Ah(AhIntegrity::Mac(integrity)) => Some(integrity),
            Protection::Ah(AhIntegrity::AesGmac(_)) => None,
        }
    }

    /// Octets of key material one direction takes from KEYMAT: key and salt (RFC 4106 §8.1, RFC 4543 §5.4, RFC 7634
    /// §2), or cipher key and then integrity key (RFC 7296 §2.17).
    pub const fn key_material_len(self) -> usize {
        let cipher = match self.protection() {
            Protection::Esp { encryption, .. } => encryption,
            Protection::Ah(AhIntegrity::AesGmac(bits)) => EspEncryption::AesGmac(bits),
            Protection::Ah(AhIntegrity::Mac(_)) => EspEncryption::Null,
        };
        let row = cipher.row();
        let integrity = match self.integrity() {
            Some(integrity) => integrity_key_len(integrity),
            None => 0,
        };
        row.key_len + row.salt_len + integrity
    }

    /// The kind of IV that travels in the packet.
    #[inline]
    pub const fn iv(self) -> Iv {
        self.form().iv
    }

    /// Octets of that IV.
    #[inline]
    pub const fn iv_len(self) -> usize {
        self.form().iv_len
    }

    /// Octets of the integrity check value.
    #[inline]
    pub const fn icv_len(self) -> usize {
        match (self.form().icv_len, self.integrity()) {
            (Some(len), _) => len,
            (None, Some(integrity)) => integrity.row().icv_len,
            (None, None) => 0,
        }
    }

    /// Octets to which the plaintext with padding must be aligned by the cipher itself (ESP also aligns to 4).
    #[inline]
    pub const fn block_len(self) -> usize {
        self.form().block_len
    }
}

/// Octets of an integrity key: as many as the uncut MAC has (RFC 2403, RFC 2404, RFC 3566, RFC 4494, RFC 4868 §2.1.1).
pub const fn integrity_key_len(integrity: Integrity) -> usize {
    integrity.row().key_len
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
        self.protection().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_has_the_algorithms_that_it_was_made_of_and_their_lengths() {
        for suite in Suite::all() {
            assert_eq!(Suite::of(suite.protection()), Some(suite));
            let Protection::Esp { encryption, .. } = suite.protection() else { continue };
            let row = encryption.row();
            let lengths = (suite.iv(), suite.iv_len(), suite.block_len());
            assert_eq!(lengths, (row.iv, row.iv_len, row.block_len), "{suite}");
            let icv = row.icv_len.or(suite.integrity().map(|integrity| integrity.row().icv_len));
            assert_eq!(Some(suite.icv_len()), icv, "{suite}");
        }
    }

    #[test]
    fn the_key_of_an_integrity_algorithm_is_as_long_as_its_mac() {
        for integrity in Integrity::ALL {
            assert_eq!(integrity_key_len(integrity), mac_of(integrity).output_len(), "{integrity}");
        }
    }
}
