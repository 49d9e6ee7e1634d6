//! Suites by the names that configurations and commands have for them.

use crate::suite::Suite;
use policy::{AhIntegrity, EspEncryption, Integrity, Protection};
use std::str::FromStr;

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
        let esp = EspEncryption::ALL.into_iter().flat_map(|encryption| -> Vec<Protection> {
            match encryption.is_aead() {
                true => vec![Protection::aead(encryption)],
                false => {
                    Integrity::ALL.map(|mac| Protection::encrypt_and_mac(encryption, mac)).into()
                }
            }
        });
        esp.chain(AhIntegrity::all().map(Protection::Ah)).filter_map(Self::of)
    }
}

impl FromStr for Suite {
    type Err = NoSuchSuite;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::all()
            .find(|suite| suite.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| NoSuchSuite(text.to_owned()))
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
