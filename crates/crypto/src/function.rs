//! The cryptographic functions of a suite, as reports and counters name them.

use crate::mac;
use crate::suite::{Suite, mac_of};
use algorithms::Instructions;
use policy::{AhIntegrity, EspEncryption, Integrity, Protection};
use std::fmt;

/// A cryptographic function: one of them works on a packet, or a cipher and a MAC do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Function {
    /// A cipher, which may protect integrity, too.
    Cipher(EspEncryption),
    /// A message authentication code.
    Mac(mac::Algorithm),
}

impl Function {
    /// All of them, in the order of reports.
    pub fn all() -> impl Iterator<Item = Self> {
        let mut ciphers: Vec<_> = EspEncryption::ALL
            .into_iter()
            .filter(|cipher| {
                does_something(*cipher) && (cfg!(feature = "legacy") || !cipher.is_weak())
            })
            .collect();
        ciphers.sort();
        ciphers.into_iter().map(Self::Cipher).chain(mac::Algorithm::ALL.map(Self::Mac))
    }

    /// A suite in which it works, to try it with; a MAC works there by itself.
    pub fn suite(self) -> Suite {
        let protection = match self {
            Self::Cipher(cipher) if cipher.is_aead() => Protection::aead(cipher),
            Self::Cipher(cipher) => {
                Protection::encrypt_and_mac(cipher, Integrity::HmacSha2_256_128)
            }
            Self::Mac(algorithm) => {
                Protection::encrypt_and_mac(EspEncryption::Null, integrity_of(algorithm))
            }
        };
        Suite::of(protection).expect("a cipher that needs a MAC has one, and no other has")
    }

    /// The processor's instructions that are made for it.
    pub(crate) fn instructions(self) -> Instructions {
        match self {
            Self::Cipher(cipher) => cipher.row().instructions,
            Self::Mac(algorithm) => integrity_of(algorithm).row().instructions,
        }
    }

    /// The name by which an operator chooses its provider.
    pub(crate) fn choice(self) -> Option<&'static str> {
        match self {
            Self::Cipher(cipher) => cipher.row().choice,
            Self::Mac(_) => None,
        }
    }
}

/// Returns `true` unless it is NULL, which has no key.
fn does_something(cipher: EspEncryption) -> bool {
    cipher.row().key_len > 0
}

impl Suite {
    /// The functions that work on each packet.
    pub fn functions(self) -> impl Iterator<Item = Function> {
        let (cipher, integrity) = match self.protection() {
            Protection::Esp { encryption, integrity } => (Some(encryption), integrity),
            Protection::Ah(AhIntegrity::AesGmac(bits)) => {
                (Some(EspEncryption::AesGmac(bits)), None)
            }
            Protection::Ah(AhIntegrity::Mac(integrity)) => (None, Some(integrity)),
        };
        let cipher = cipher.filter(|cipher| does_something(*cipher)).map(Function::Cipher);
        let mac = integrity.map(|integrity| Function::Mac(mac_of(integrity)));
        cipher.into_iter().chain(mac)
    }
}

fn integrity_of(algorithm: mac::Algorithm) -> Integrity {
    match algorithm {
        mac::Algorithm::HmacMd5 => Integrity::HmacMd5_96,
        mac::Algorithm::HmacSha1 => Integrity::HmacSha1_96,
        mac::Algorithm::HmacSha2_256 => Integrity::HmacSha2_256_128,
        mac::Algorithm::HmacSha2_384 => Integrity::HmacSha2_384_192,
        mac::Algorithm::HmacSha2_512 => Integrity::HmacSha2_512_256,
        mac::Algorithm::AesXcbc => Integrity::AesXcbc96,
        mac::Algorithm::AesCmac => Integrity::AesCmac96,
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cipher(cipher) => f.write_str(cipher.row().function),
            Self::Mac(algorithm) => algorithm.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_works_in_the_suite_it_is_tried_with() {
        let mut names = std::collections::BTreeSet::new();
        for function in Function::all() {
            assert_eq!(function.suite().functions().next(), Some(function));
            names.insert(function.to_string());
        }
        assert_eq!(
            names.len(),
            3 * 3 + 1 + 7 + if cfg!(feature = "legacy") { 2 } else { 0 },
            "{names:?}"
        );
    }

    #[test]
    fn a_cipher_with_a_mac_is_two_functions() {
        let suite = Suite::AesCbcMac(policy::KeyBits::B128, Integrity::HmacSha2_256_128);
        let names: Vec<_> = suite.functions().map(|f| f.to_string()).collect();
        assert_eq!(names, ["AES-CBC-128", "HMAC-SHA2-256"]);
    }
}
