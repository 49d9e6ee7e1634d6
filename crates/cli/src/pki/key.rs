//! Private keys: made, read, written as PKCS#8 in PEM, and signing for rcgen.
//!
//! The algorithms are RustCrypto's: `vpnctl` has no AWS-LC, and needs no C compiler. They take the place of those that
//! rcgen has with its feature `crypto`.

use clap::ValueEnum;
use ed25519_dalek::Signer;
use ed25519_dalek::pkcs8::KeypairBytes;
use getrandom::SysRng;
use p256::ecdsa::signature::RandomizedSigner;
use p256::elliptic_curve::Generate;
use rcgen::{Error, KeyIdMethod, PublicKeyData, SignatureAlgorithm, SigningKey};
use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPublicKey};
use rsa::pkcs8::{DecodePrivateKey, EncodePrivateKey, LineEnding, SecretDocument};
use rsa::traits::PublicKeyParts;
use sha2_0_11::{Digest, Sha256};
use std::ops::RangeInclusive;
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// Bits of an RSA key that can be read. Gateways accept the same.
const RSA_BITS: RangeInclusive<u32> = 2048..=8192;

/// Octets of a key identifier (RFC 7093 §2).
const IDENTIFIER_LEN: usize = 20;

/// Kinds of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KeyKind {
    /// ECDSA with P-256
    #[default]
    Ecdsa256,
    /// ECDSA with P-384
    Ecdsa384,
    /// RSA with 3072 bits, for peers without ECDSA
    Rsa3072,
    /// RSA with 4096 bits
    Rsa4096,
    /// Ed25519 (RFC 8420), which AIX and some other peers lack
    Ed25519,
}

/// A private key, and its public key as a certificate has it.
pub(super) struct Key {
    private: Private,
    public: Vec<u8>,
}

enum Private {
    P256(p256::SecretKey),
    P384(p384::SecretKey),
    Rsa(Box<rsa::PrivateKey>),
    Ed25519(Box<ed25519_dalek::SigningKey>),
}

/// The keys are wiped when they are dropped.
const _: () = {
    const fn is_wiped<T: ZeroizeOnDrop>() {}
    is_wiped::<p256::SecretKey>();
    is_wiped::<p384::SecretKey>();
    is_wiped::<rsa::PrivateKey>();
    is_wiped::<ed25519_dalek::SigningKey>();
};

impl Key {
    /// Makes a key.
    pub(super) fn generate(kind: KeyKind) -> Result<Self, Error> {
        Self::new(match kind {
            KeyKind::Ecdsa256 => Private::P256(p256::SecretKey::generate()),
            KeyKind::Ecdsa384 => Private::P384(p384::SecretKey::generate()),
            KeyKind::Rsa3072 => Private::rsa(3072)?,
            KeyKind::Rsa4096 => Private::rsa(4096)?,
            KeyKind::Ed25519 => {
                let mut seed = Zeroizing::new([0; 32]);
                getrandom::fill(&mut *seed).expect("the system's random number generator works");
                Private::Ed25519(Box::new(ed25519_dalek::SigningKey::from_bytes(&seed)))
            }
        })
    }

    fn new(private: Private) -> Result<Self, Error> {
        let public = match &private {
            Private::P256(key) => key.public_key().to_sec1_bytes().into_vec(),
            Private::P384(key) => key.public_key().to_sec1_bytes().into_vec(),
            Private::Rsa(key) => {
                let public = key.as_public_key().to_pkcs1_der();
                public.map_err(|_| Error::CouldNotParseKeyPair)?.into_vec()
            }
            Private::Ed25519(key) => key.verifying_key().to_bytes().to_vec(),
        };
        Ok(Self { private, public })
    }

    /// Reads the text of a file: PKCS#8 of both versions, SEC 1 or PKCS#1.
    pub(super) fn from_pem(text: &str) -> Result<Self, Error> {
        let (_, document) = SecretDocument::from_pem(first(text))
            .map_err(|error| Error::PemError(error.to_string()))?;
        Self::from_der(document.as_bytes())
    }

    fn from_der(der: &[u8]) -> Result<Self, Error> {
        let private = p256::SecretKey::from_der(der).ok().map(Private::P256);
        let private = private.or_else(|| p384::SecretKey::from_der(der).ok().map(Private::P384));
        let private = private.or_else(|| {
            let key = ed25519_dalek::SigningKey::from_pkcs8_der(der).ok()?;
            Some(Private::Ed25519(Box::new(key)))
        });
        let private = private.or_else(|| {
            let pkcs8 = rsa::PrivateKey::from_pkcs8_der(der).ok();
            let key = pkcs8.or_else(|| rsa::PrivateKey::from_pkcs1_der(der).ok())?;
            let is_usual = RSA_BITS.contains(&key.n().bit_width());
            is_usual.then(|| Private::Rsa(Box::new(key)))
        });
        Self::new(private.ok_or(Error::CouldNotParseKeyPair)?)
    }

    /// The text of its file.
    pub(super) fn to_pem(&self) -> Result<Zeroizing<String>, Error> {
        let text = match &self.private {
            Private::P256(key) => key.to_pkcs8_pem(LineEnding::LF),
            Private::P384(key) => key.to_pkcs8_pem(LineEnding::LF),
            Private::Rsa(key) => key.to_pkcs8_pem(LineEnding::LF),
            // Without the public key, this is the first version of PKCS#8. OpenSSL 3.0 and strongSwan do not read the
            // second one.
            Private::Ed25519(key) => KeypairBytes { secret_key: key.to_bytes(), public_key: None }
                .to_pkcs8_pem(LineEnding::LF),
        };
        text.map_err(|error| Error::PemError(error.to_string()))
    }

    /// The key identifier of its certificates and revocation lists (RFC 7093 §2, method 1).
    ///
    /// rcgen knows this method only with its feature `crypto`.
    pub(super) fn identifier(&self) -> KeyIdMethod {
        let digest = Sha256::digest(self.subject_public_key_info());
        KeyIdMethod::PreSpecified(digest[..IDENTIFIER_LEN].to_vec())
    }
}

impl Private {
    fn rsa(bits: usize) -> Result<Self, Error> {
        let key = rsa::PrivateKey::new(&mut SysRng, bits);
        key.map(|key| Self::Rsa(Box::new(key))).map_err(|_| Error::KeyGenerationUnavailable)
    }
}

/// The first block of a file in PEM: others, such as the certificate beside a key, may follow it.
pub(super) fn first(text: &str) -> &str {
    let start = text.find("-----BEGIN ").unwrap_or_default();
    let text = &text[start..];
    let end = text.find("\n-----END ").map(|end| end + 1);
    let end = end.and_then(|end| Some(end + text[end..].find('\n')?));
    end.map_or(text, |end| &text[..end])
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match self.private {
            Private::P256(_) => &rcgen::PKCS_ECDSA_P256_SHA256,
            Private::P384(_) => &rcgen::PKCS_ECDSA_P384_SHA384,
            Private::Rsa(_) => &rcgen::PKCS_RSA_SHA256,
            Private::Ed25519(_) => &rcgen::PKCS_ED25519,
        }
    }
}

impl SigningKey for Key {
    /// Signatures of RSA are blinded: the number that the private exponent works on is random, and unknown to whoever chose
    /// the message. An attack by timing needs thousands of signatures over chosen messages. An operator runs this program by
    /// hand and signs own certificates, so nobody else can ask it for signatures. A gateway signs for strangers; it uses
    /// AWS-LC.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let made = match &self.private {
            Private::P256(key) => {
                let key = p256::ecdsa::SigningKey::from(key);
                let made: Option<p256::ecdsa::DerSignature> =
                    key.try_sign_with_rng(&mut SysRng, message).ok();
                made.map(|made| made.as_bytes().to_vec())
            }
            Private::P384(key) => {
                let key = p384::ecdsa::SigningKey::from(key);
                let made: Option<p384::ecdsa::DerSignature> =
                    key.try_sign_with_rng(&mut SysRng, message).ok();
                made.map(|made| made.as_bytes().to_vec())
            }
            Private::Rsa(key) => key.pkcs1v15_sign_with_rng::<Sha256, _>(&mut SysRng, message).ok(),
            Private::Ed25519(key) => {
                key.try_sign(message).ok().map(|made| made.to_bytes().to_vec())
            }
        };
        made.ok_or(Error::RemoteKeyError)
    }
}

#[cfg(test)]
mod tests;
