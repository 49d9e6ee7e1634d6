//! Private keys for certificates, made by AWS-LC.
//!
//! rcgen has such keys with a feature. Cargo compiles rcgen once for all programs of a build, so that `vpnctl`, which uses
//! rcgen, would contain AWS-LC as well.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64ct::{Base64, Encoding};
use rcgen::{Error, PublicKeyData, SignatureAlgorithm, SigningKey};
use std::fmt::Write;

/// A key, and its text in PKCS#8.
pub(super) struct Key {
    pair: Pair,
    pkcs8: Vec<u8>,
}

enum Pair {
    EcdsaP256(EcdsaKeyPair),
    Rsa(Box<RsaKeyPair>),
}

impl Key {
    pub(super) fn ecdsa_p256() -> Result<Self, Unspecified> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)?;
        let pkcs8 = pair.to_pkcs8v1()?.as_ref().to_vec();
        Ok(Self { pair: Pair::EcdsaP256(pair), pkcs8 })
    }

    pub(super) fn rsa_2048() -> Result<Self, Unspecified> {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048)?;
        let pkcs8 = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair)?.as_ref().to_vec();
        Ok(Self { pair: Pair::Rsa(Box::new(pair)), pkcs8 })
    }

    /// The key identifier of certificates (RFC 7093 §2, method 1).
    pub(super) fn identifier(&self) -> Vec<u8> {
        digest(&SHA256, &self.subject_public_key_info()).as_ref()[..20].to_vec()
    }

    /// PKCS#8 in DER.
    pub(super) fn der(&self) -> &[u8] {
        &self.pkcs8
    }

    /// PKCS#8 in PEM.
    pub(super) fn pem(&self) -> String {
        let mut text = "-----BEGIN PRIVATE KEY-----\n".to_owned();
        // 48 octets are a line of 64 characters.
        for line in self.pkcs8.chunks(48) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}", Base64::encode_string(line));
        }
        text + "-----END PRIVATE KEY-----\n"
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        match &self.pair {
            Pair::EcdsaP256(pair) => pair.public_key().as_ref(),
            Pair::Rsa(pair) => pair.public_key().as_ref(),
        }
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match self.pair {
            Pair::EcdsaP256(_) => &rcgen::PKCS_ECDSA_P256_SHA256,
            Pair::Rsa(_) => &rcgen::PKCS_RSA_SHA256,
        }
    }
}

impl SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let random = SystemRandom::new();
        let made = match &self.pair {
            Pair::EcdsaP256(pair) => pair.sign(&random, message).map(|made| made.as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut made = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut made).map(|()| made)
            }
        };
        made.map_err(|_| Error::RemoteKeyError)
    }
}
