//! Private keys that sign proofs.

use super::certificate::PublicKey;
use super::outside::OutsideKey;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaKeyPair,
};
use policy::{KeyKind, Secret};
use std::fmt;
use std::sync::Arc;

/// A private key.
pub(crate) enum PrivateKey {
    Rsa(RsaKeyPair),
    Ecdsa(KeyKind, EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Outside(Arc<OutsideKey>),
}

/// A private key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is no private key that can be used: an unencrypted PKCS#8, PKCS#1 (RSA) or SEC1 (EC) key is wanted, RSA with 2048 to 8192 bits, EC on P-256, P-384 or P-521, or Ed25519; 'openssl pkey' converts others"
)]
pub struct KeyError;

const CURVES: [(KeyKind, &EcdsaSigningAlgorithm); 3] = [
    (KeyKind::EcdsaP256, &ECDSA_P256_SHA256_ASN1_SIGNING),
    (KeyKind::EcdsaP384, &ECDSA_P384_SHA384_ASN1_SIGNING),
    (KeyKind::EcdsaP521, &ECDSA_P521_SHA512_ASN1_SIGNING),
];

impl PrivateKey {
    /// Reads PKCS#8, PKCS#1 or SEC1 in DER.
    pub fn read(der: &Secret) -> Result<Self, KeyError> {
        let der = der.expose();
        if let Ok(key) = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)) {
            return Ok(Self::Rsa(key));
        }
        if let Ok(key) = Ed25519KeyPair::from_pkcs8(der) {
            return Ok(Self::Ed25519(key));
        }
        let on = |(kind, curve)| {
            EcdsaKeyPair::from_private_key_der(curve, der).ok().map(|key| Self::Ecdsa(kind, key))
        };
        CURVES.into_iter().find_map(on).ok_or(KeyError)
    }

    pub fn kind(&self) -> KeyKind {
        match self {
            Self::Rsa(_) => KeyKind::Rsa,
            Self::Ecdsa(kind, _) => *kind,
            Self::Ed25519(_) => KeyKind::Ed25519,
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
        let info = match self {
            Self::Rsa(key) => key.public_key().as_der(),
            Self::Ecdsa(_, key) => key.public_key().as_der(),
            Self::Ed25519(key) => key.public_key().as_der(),
            Self::Outside(key) => return key.public.info == public.info,
        };
        info.is_ok_and(|info| info.as_ref() == public.info)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.kind())
    }
}
