//! Suites by the names that configurations and commands have for them.

use crate::suite::Suite;
use policy::{AhIntegrity, DesKeys, Integrity, KeyBits};
use std::str::FromStr;

const BITS: [KeyBits; 3] = [KeyBits::B128, KeyBits::B192, KeyBits::B256];

const INTEGRITY: [Integrity; 7] = [
    Integrity::HmacMd5_96,
    Integrity::HmacSha1_96,
    Integrity::HmacSha2_256_128,
    Integrity::HmacSha2_384_192,
    Integrity::HmacSha2_512_256,
    Integrity::AesXcbc96,
    Integrity::AesCmac96,
];

/// The name is none of a [`Suite`].
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no suite {0:?}; write one as \"vpnctl list\" does: AES-GCM-16-256, CHACHA20-POLY1305, NULL-AUTH-AES-GMAC-128, \
     AES-CBC-256/HMAC-SHA2-256-128, NULL/HMAC-SHA2-256-128, AH/AES-GMAC-128 or AH/HMAC-SHA2-256-128"
)]
pub struct NoSuchSuite(String);

policy::readable_debug!(NoSuchSuite);

impl Suite {
    /// Every suite there is.
    pub fn all() -> impl Iterator<Item = Self> {
        let aead = BITS.into_iter().flat_map(|bits| [Self::AesGcm16(bits), Self::AesGmac(bits)]);
        let gmac = BITS.map(|bits| Self::Ah(AhIntegrity::AesGmac(bits)));
        let with_mac = INTEGRITY.into_iter().flat_map(|mac| {
            let cbc = BITS.map(|bits| Self::AesCbcMac(bits, mac));
            let des = [DesKeys::One, DesKeys::Three].map(|keys| Self::DesCbcMac(keys, mac));
            let alone = [Self::NullMac(mac), Self::Ah(AhIntegrity::Mac(mac))];
            cbc.into_iter().chain(des).chain(alone)
        });
        aead.chain([Self::ChaCha20Poly1305]).chain(gmac).chain(with_mac)
    }
}

impl FromStr for Suite {
    type Err = NoSuchSuite;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = |suite: &Self| suite.to_string().eq_ignore_ascii_case(text);
        Self::all().find(named).ok_or_else(|| NoSuchSuite(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_has_a_name_of_its_own() {
        for suite in Suite::all() {
            assert_eq!(suite.to_string().parse(), Ok(suite));
        }
        let error = "aes".parse::<Suite>().expect_err("no suite").to_string();
        assert!(error.starts_with("no suite \"aes\"; write one as"), "{error}");
    }
}
