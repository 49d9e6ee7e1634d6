//! Private keys that sign proofs.

use super::certificate::PublicKey;
use super::outside::OutsideKey;
use crypto::asymmetric::SigningKey;
use policy::{KeyKind, Secret};
use std::fmt;
use std::sync::Arc;

/// A private key.
pub(crate) enum PrivateKey {
    Here(SigningKey),
    Outside(Arc<OutsideKey>),
}

/// A private key cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "is no private key that can be used: an unencrypted PKCS#8, PKCS#1 (RSA) or SEC1 (EC) key is wanted, RSA with 2048 to 8192 bits, EC on P-256, P-384 or P-521, or Ed25519; 'openssl pkey' converts others"
)]
pub struct KeyError;

policy::readable_debug!(KeyError);

impl PrivateKey {
    /// Reads PKCS#8, PKCS#1 or SEC1 in DER.
    pub fn read(der: &Secret) -> Result<Self, KeyError> {
        SigningKey::read(der).map(Self::Here).ok_or(KeyError)
    }

    pub fn kind(&self) -> KeyKind {
        match self {
            Self::Here(key) => key.kind(),
            Self::Outside(key) => key.public.kind,
        }
    }

    /// The place of a key that is not in this process.
    pub fn place(&self) -> Option<String> {
        match self {
            Self::Outside(key) => Some(key.place.clone()),
            _ => None,
        }
    }

    /// Returns `true` if the certificate's public key belongs to this private key.
    pub fn belongs_to(&self, public: &PublicKey) -> bool {
        match self {
            Self::Here(key) => key.public_key_info().as_ref() == Some(&public.info),
            Self::Outside(key) => key.public.info == public.info,
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.kind())
    }
}
