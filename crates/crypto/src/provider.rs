//! The libraries that make ciphers.

use crate::cipher::Cipher;
#[cfg(feature = "legacy")]
use crate::des;
use crate::gmac::Gmac;
#[cfg(feature = "insecure-null-cipher")]
use crate::null;
#[cfg(feature = "portable")]
use crate::portable;
#[cfg(feature = "ring")]
use crate::ring;
use crate::suite::{Suite, mac_of};
use crate::with_mac::{CbcMac, NullMac};
use crate::{aws_lc, mac};
use policy::{KeyBits, Secret};
use std::fmt;

/// A library that implements the ciphers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Provider {
    /// AWS-LC: everything.
    #[default]
    AwsLc,
    /// ring: no AES-192, and no suite with a MAC of its own.
    Ring,
    /// RustCrypto's software: everything, without any instruction made for cryptography, and in constant time.
    Portable,
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A provider cannot make a cipher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CipherError {
    /// The provider lacks the suite.
    #[error("{provider} has no {suite}")]
    Unsupported {
        /// The provider asked.
        provider: Provider,
        /// The suite asked for.
        suite: Suite,
    },
    /// Key material of the wrong length.
    #[error("{suite} takes {} octets of key material, not {got}", suite.key_material_len())]
    KeyLength {
        /// The suite asked for.
        suite: Suite,
        /// Octets handed over.
        got: usize,
    },
}

impl Provider {
    /// Takes a key for the MAC of this provider. ring has none that this crate uses: AWS-LC's stands for it.
    ///
    /// # Panics
    /// On the same conditions as [`mac::Key::new`].
    pub fn mac(self, algorithm: mac::Algorithm, key: &[u8]) -> mac::Key {
        match self {
            #[cfg(feature = "portable")]
            Self::Portable => mac::Key::portable(algorithm, key),
            _ => mac::Key::new(algorithm, key),
        }
    }

    /// All of them, the default first.
    pub const ALL: [Self; 3] = [Self::AwsLc, Self::Ring, Self::Portable];

    /// The name in configurations and reports: `aws-lc`, `ring` or `portable`.
    pub fn name(self) -> &'static str {
        match self {
            Self::AwsLc => "aws-lc",
            Self::Ring => "ring",
            Self::Portable => "portable",
        }
    }

    /// Returns `true` if the provider has the suite.
    pub fn supports(self, suite: Suite) -> bool {
        let built_in = match self {
            Self::AwsLc => true,
            Self::Ring => cfg!(feature = "ring"),
            Self::Portable => cfg!(feature = "portable"),
        } && (cfg!(feature = "legacy") || !matches!(suite, Suite::DesCbcMac(..)));
        built_in
            && !matches!(
                (self, suite.cipher()),
                (
                    Self::Ring,
                    Suite::AesGcm16(KeyBits::B192)
                        | Suite::AesGmac(KeyBits::B192)
                        | Suite::AesCbcMac(..)
                        | Suite::DesCbcMac(..)
                        | Suite::NullMac(_)
                )
            )
    }

    /// Makes one direction's cipher from [`Suite::key_material_len`] octets.
    ///
    /// AH gives the octets that it covers as [`Aad::Octets`](crate::Aad::Octets), with no text. The cipher then writes
    /// only IV ‖ ICV, which is the content of AH's ICV field.
    pub fn cipher(
        self,
        suite: Suite,
        key_material: &Secret,
    ) -> Result<Box<dyn Cipher>, CipherError> {
        if !self.supports(suite) {
            return Err(CipherError::Unsupported { provider: self, suite });
        }
        if key_material.len() != suite.key_material_len() {
            return Err(CipherError::KeyLength { suite, got: key_material.len() });
        }
        #[cfg(feature = "insecure-null-cipher")]
        if matches!(suite, Suite::AesGcm16(_)) {
            return Ok(Box::new(null::Copying(suite)));
        }
        let key = key_material.expose();
        Ok(match (self, suite.cipher()) {
            (Self::AwsLc, Suite::AesGcm16(bits)) => {
                Box::new(aws_lc::Aead::new(aws_lc::gcm(bits), key))
            }
            (Self::AwsLc, Suite::ChaCha20Poly1305) => {
                Box::new(aws_lc::Aead::new(aws_lc::CHACHA20_POLY1305, key))
            }
            (Self::AwsLc, Suite::AesGmac(bits)) => {
                Box::new(Gmac::new(aws_lc::Aead::new(aws_lc::gcm(bits), key)))
            }
            (Self::AwsLc, Suite::AesCbcMac(bits, integrity)) => {
                let (key, mac_key) = key.split_at(bits.octets());
                let mac = mac::Key::new(mac_of(integrity), mac_key);
                Box::new(CbcMac::new(aws_lc::Cbc::new(bits, key), integrity, mac))
            }
            #[cfg(feature = "legacy")]
            (Self::AwsLc, Suite::DesCbcMac(keys, integrity)) => {
                let (key, mac_key) = key.split_at(keys.octets());
                des::cipher(keys, key, integrity, mac::Key::new(mac_of(integrity), mac_key))
            }
            (Self::AwsLc, Suite::NullMac(integrity)) => {
                Box::new(NullMac::new(integrity, mac::Key::new(mac_of(integrity), key)))
            }
            #[cfg(feature = "ring")]
            (Self::Ring, Suite::ChaCha20Poly1305) => {
                Box::new(ring::aead(ring::CHACHA20_POLY1305, key))
            }
            #[cfg(feature = "ring")]
            (Self::Ring, Suite::AesGmac(bits)) => {
                Box::new(Gmac::new(ring::aead(ring::gcm(bits), key)))
            }
            #[cfg(feature = "ring")]
            (Self::Ring, Suite::AesGcm16(bits)) => Box::new(ring::aead(ring::gcm(bits), key)),
            #[cfg(feature = "portable")]
            (Self::Portable, suite) => portable::cipher(suite, key),
            #[allow(unreachable_patterns, reason = "what is left depends on the features")]
            _ => unreachable!("suites that the provider lacks are refused above"),
        })
    }
}
