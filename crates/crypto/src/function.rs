//! The cryptographic functions of a suite, as reports and counters name them.

use crate::mac;
use crate::suite::{Suite, mac_of};
use policy::{AhIntegrity, DesKeys, Integrity, KeyBits};
use std::fmt;

/// A cryptographic function: one of them works on a packet, or a cipher and a MAC do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Function {
    /// AES in Galois/Counter Mode.
    AesGcm(KeyBits),
    /// AES-GMAC: Galois/Counter Mode for integrity alone.
    AesGmac(KeyBits),
    /// AES in Cipher Block Chaining mode.
    AesCbc(KeyBits),
    /// DES in Cipher Block Chaining mode; only with the feature `legacy`.
    DesCbc(DesKeys),
    /// ChaCha20 with Poly1305.
    ChaCha20Poly1305,
    /// A message authentication code.
    Mac(mac::Algorithm),
}

impl Function {
    /// All of them, in the order of reports.
    pub fn all() -> impl Iterator<Item = Self> {
        let bits = [KeyBits::B128, KeyBits::B192, KeyBits::B256];
        let legacy = [DesKeys::Three, DesKeys::One].map(Self::DesCbc).into_iter();
        let legacy = legacy.filter(|_| cfg!(feature = "legacy"));
        let ciphers = [Self::AesGcm, Self::AesGmac, Self::AesCbc].into_iter();
        ciphers
            .flat_map(move |function| bits.map(function))
            .chain(legacy)
            .chain([Self::ChaCha20Poly1305])
            .chain(mac::Algorithm::ALL.map(Self::Mac))
    }

    /// A suite in which it works, to try it with; a MAC works there by itself.
    pub fn suite(self) -> Suite {
        match self {
            Self::AesGcm(bits) => Suite::AesGcm16(bits),
            Self::AesGmac(bits) => Suite::AesGmac(bits),
            Self::AesCbc(bits) => Suite::AesCbcMac(bits, Integrity::HmacSha2_256_128),
            Self::DesCbc(keys) => Suite::DesCbcMac(keys, Integrity::HmacSha2_256_128),
            Self::ChaCha20Poly1305 => Suite::ChaCha20Poly1305,
            Self::Mac(algorithm) => Suite::NullMac(integrity_of(algorithm)),
        }
    }
}

impl Suite {
    /// The functions that work on each packet.
    pub fn functions(self) -> impl Iterator<Item = Function> {
        let mac = |integrity| Function::Mac(mac_of(integrity));
        let (first, second) = match self {
            Self::AesGcm16(bits) => (Function::AesGcm(bits), None),
            Self::AesCbcMac(bits, integrity) => (Function::AesCbc(bits), Some(mac(integrity))),
            Self::DesCbcMac(keys, integrity) => (Function::DesCbc(keys), Some(mac(integrity))),
            Self::ChaCha20Poly1305 => (Function::ChaCha20Poly1305, None),
            Self::AesGmac(bits) => (Function::AesGmac(bits), None),
            Self::NullMac(integrity) => (mac(integrity), None),
            Self::Ah(AhIntegrity::AesGmac(bits)) => (Function::AesGmac(bits), None),
            Self::Ah(AhIntegrity::Mac(integrity)) => (mac(integrity), None),
        };
        [Some(first), second].into_iter().flatten()
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
            Self::AesGcm(bits) => write!(f, "AES-GCM-{bits}"),
            Self::AesGmac(bits) => write!(f, "AES-GMAC-{bits}"),
            Self::AesCbc(bits) => write!(f, "AES-CBC-{bits}"),
            Self::DesCbc(keys) => write!(f, "{keys}-CBC"),
            Self::ChaCha20Poly1305 => f.write_str("ChaCha20-Poly1305"),
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
        let suite = Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha2_256_128);
        let names: Vec<_> = suite.functions().map(|f| f.to_string()).collect();
        assert_eq!(names, ["AES-CBC-128", "HMAC-SHA2-256"]);
    }
}
