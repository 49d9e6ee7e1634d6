//! The libraries that make ciphers.

#[cfg(feature = "aws-lc")]
use crate::aws_lc;
use crate::cipher::Cipher;
use crate::mac;
#[cfg(feature = "insecure-null-cipher")]
use crate::null;
#[cfg(feature = "portable")]
use crate::portable;
#[cfg(feature = "ring")]
use crate::ring;
use crate::suite::Suite;
use policy::{Protection, Secret};
use std::fmt;

/// A library that implements the ciphers. The default is the first of them that is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Provider {
    /// AWS-LC: everything.
    #[cfg_attr(feature = "aws-lc", default)]
    AwsLc,
    /// ring: no AES-192, and no suite with a MAC of its own.
    #[cfg_attr(all(feature = "ring", not(feature = "aws-lc")), default)]
    Ring,
    /// RustCrypto's software: everything, without any instruction made for cryptography, and in constant time.
    #[cfg_attr(not(any(feature = "aws-lc", feature = "ring")), default)]
    Portable,
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A provider cannot make a cipher.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
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

policy::readable_debug!(CipherError);

impl Provider {
    /// Takes a key for the MAC of this provider. ring has none that this crate uses: that of the provider that has
    /// every suite stands for it.
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

    /// The provider that has every suite.
    pub(crate) const COMPLETE: Self =
        if cfg!(feature = "aws-lc") { Self::AwsLc } else { Self::Portable };

    /// Returns `true` if the provider is a part of this build: each is a feature of this crate.
    pub fn is_built(self) -> bool {
        match self {
            Self::AwsLc => cfg!(feature = "aws-lc"),
            Self::Ring => cfg!(feature = "ring"),
            Self::Portable => cfg!(feature = "portable"),
        }
    }

    /// Returns `true` if the provider has the suite.
    pub fn supports(self, suite: Suite) -> bool {
        let is_weak = matches!(
            suite.protection(),
            Protection::Esp { encryption, .. } if encryption.is_weak()
        );
        let has_code = match self {
            #[cfg(feature = "ring")]
            Self::Ring => ring::algorithm(suite.cipher()).is_some(),
            _ => true,
        };
        self.is_built() && (cfg!(feature = "legacy") || !is_weak) && has_code
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
        Ok(match self {
            #[cfg(feature = "aws-lc")]
            Self::AwsLc => aws_lc::cipher(suite.cipher(), key),
            #[cfg(feature = "ring")]
            Self::Ring => ring::cipher(suite.cipher(), key),
            #[cfg(feature = "portable")]
            Self::Portable => portable::cipher(suite.cipher(), key),
            #[allow(unreachable_patterns, reason = "the features decide which are left")]
            _ => unreachable!("a provider that is not built supports nothing"),
        })
    }
}
