//! AWS-LC.

use super::{Curve, Hash, MlKem, Scheme};
use aws_lc_rs::agreement::{self, UnparsedPublicKey};
use aws_lc_rs::encoding::{AsBigEndian, AsDer, Curve25519SeedBin, EcPrivateKeyBin};
use aws_lc_rs::kem::{self, Ciphertext, EncapsulationKey};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING,
    ECDSA_P521_SHA512_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair,
    RsaEncoding, RsaKeyPair, VerificationAlgorithm,
};
use policy::{KeyKind, Secret};

fn ecdh(curve: Curve) -> &'static agreement::Algorithm {
    match curve {
        Curve::P256 => &agreement::ECDH_P256,
        Curve::P384 => &agreement::ECDH_P384,
        Curve::P521 => &agreement::ECDH_P521,
        Curve::X25519 => &agreement::X25519,
    }
}

/// AWS-LC wipes it.
pub(super) struct AgreementKey(agreement::PrivateKey);

impl AgreementKey {
    pub(super) fn generate(curve: Curve) -> Self {
        let key = agreement::PrivateKey::generate(ecdh(curve));
        Self(key.expect("the system's randomness never runs dry"))
    }

    pub(super) fn from_private_value(curve: Curve, octets: &[u8]) -> Option<Self> {
        agreement::PrivateKey::from_private_key(ecdh(curve), octets).ok().map(Self)
    }

    pub(super) fn private_value(&self) -> Secret {
        // AWS-LC wipes its copies.
        let octets = match self.0.algorithm() == &agreement::X25519 {
            true => AsBigEndian::<Curve25519SeedBin<'_>>::as_be_bytes(&self.0)
                .map(|seed| seed.as_ref().to_vec()),
            false => AsBigEndian::<EcPrivateKeyBin<'_>>::as_be_bytes(&self.0)
                .map(|number| number.as_ref().to_vec()),
        };
        Secret::new(octets.expect("a private key has a private value"))
    }

    pub(super) fn public_key(&self) -> Vec<u8> {
        let public = self.0.compute_public_key().expect("a private key has a public one");
        public.as_ref().to_vec()
    }

    pub(super) fn agree(&self, peer: &[u8]) -> Option<Secret> {
        let peer = UnparsedPublicKey::new(self.0.algorithm(), peer);
        agreement::agree(&self.0, peer, (), |x| Ok(Secret::new(x.to_vec()))).ok()
    }
}

/// AWS-LC wipes it.
pub(super) struct DecapsulationKey(kem::DecapsulationKey);

fn algorithm(set: MlKem) -> &'static kem::Algorithm {
    match set {
        MlKem::MlKem512 => &kem::ML_KEM_512,
        MlKem::MlKem768 => &kem::ML_KEM_768,
        MlKem::MlKem1024 => &kem::ML_KEM_1024,
    }
}

impl DecapsulationKey {
    pub(super) fn generate(set: MlKem) -> Self {
        let key = kem::DecapsulationKey::generate(algorithm(set));
        Self(key.expect("the system's randomness never runs dry"))
    }

    pub(super) fn from_octets(set: MlKem, octets: &[u8]) -> Option<Self> {
        kem::DecapsulationKey::new(algorithm(set), octets).ok().map(Self)
    }

    pub(super) fn octets(&self) -> Secret {
        let octets = self.0.key_bytes().expect("a decapsulation key has octets");
        Secret::new(octets.as_ref().to_vec())
    }

    pub(super) fn encapsulation_key(&self) -> Vec<u8> {
        let public =
            self.0.encapsulation_key().and_then(|key| Ok(key.key_bytes()?.as_ref().to_vec()));
        public.expect("a decapsulation key has an encapsulation key")
    }

    pub(super) fn decapsulate(&self, ciphertext: &[u8]) -> Option<Secret> {
        let shared = self.0.decapsulate(Ciphertext::from(ciphertext)).ok()?;
        Some(Secret::new(shared.as_ref().to_vec()))
    }
}

pub(super) fn encapsulate(set: MlKem, encapsulation_key: &[u8]) -> Option<(Vec<u8>, Secret)> {
    // AWS-LC checks the length here, and the coefficients when it encapsulates.
    let key = EncapsulationKey::new(algorithm(set), encapsulation_key).ok()?;
    let (ciphertext, shared) = key.encapsulate().ok()?;
    Some((ciphertext.as_ref().to_vec(), Secret::new(shared.as_ref().to_vec())))
}

/// AWS-LC wipes them.
pub(super) enum SigningKey {
    Rsa(RsaKeyPair),
    Ecdsa(KeyKind, EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

const CURVES: [(KeyKind, &EcdsaSigningAlgorithm); 3] = [
    (KeyKind::EcdsaP256, &ECDSA_P256_SHA256_ASN1_SIGNING),
    (KeyKind::EcdsaP384, &ECDSA_P384_SHA384_ASN1_SIGNING),
    (KeyKind::EcdsaP521, &ECDSA_P521_SHA512_ASN1_SIGNING),
];

impl SigningKey {
    pub(super) fn read(der: &[u8]) -> Option<Self> {
        if let Ok(key) = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)) {
            return Some(Self::Rsa(key));
        }
        if let Ok(key) = Ed25519KeyPair::from_pkcs8(der) {
            return Some(Self::Ed25519(key));
        }
        CURVES.into_iter().find_map(|(kind, curve)| {
            EcdsaKeyPair::from_private_key_der(curve, der).ok().map(|key| Self::Ecdsa(kind, key))
        })
    }

    pub(super) fn kind(&self) -> KeyKind {
        match self {
            Self::Rsa(_) => KeyKind::Rsa,
            Self::Ecdsa(kind, _) => *kind,
            Self::Ed25519(_) => KeyKind::Ed25519,
        }
    }

    pub(super) fn public_key_info(&self) -> Option<Vec<u8>> {
        let info = match self {
            Self::Rsa(key) => key.public_key().as_der(),
            Self::Ecdsa(_, key) => key.public_key().as_der(),
            Self::Ed25519(key) => key.public_key().as_der(),
        };
        info.ok().map(|info| info.as_ref().to_vec())
    }

    pub(super) fn sign(&self, scheme: Scheme, octets: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let padding: &'static dyn RsaEncoding = match scheme {
                    Scheme::Pss(Hash::Sha256) => &signature::RSA_PSS_SHA256,
                    Scheme::Pss(Hash::Sha384) => &signature::RSA_PSS_SHA384,
                    Scheme::Pss(Hash::Sha512) => &signature::RSA_PSS_SHA512,
                    Scheme::Pkcs1(Hash::Sha256) => &signature::RSA_PKCS1_SHA256,
                    Scheme::Pkcs1(Hash::Sha384) => &signature::RSA_PKCS1_SHA384,
                    Scheme::Pkcs1(Hash::Sha512) => &signature::RSA_PKCS1_SHA512,
                    _ => return None,
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &random, octets, &mut signature).ok()?;
                Some(signature)
            }
            Self::Ecdsa(kind, pair) => {
                let hash = match kind {
                    KeyKind::EcdsaP256 => Hash::Sha256,
                    KeyKind::EcdsaP384 => Hash::Sha384,
                    _ => Hash::Sha512,
                };
                (scheme == Scheme::Ecdsa(hash)).then_some(())?;
                Some(pair.sign(&random, octets).ok()?.as_ref().to_vec())
            }
            Self::Ed25519(pair) => {
                (scheme == Scheme::Ed25519).then_some(())?;
                Some(pair.try_sign(octets).ok()?.as_ref().to_vec())
            }
        }
    }
}

pub(super) fn verify(
    kind: KeyKind,
    scheme: Scheme,
    key: &[u8],
    octets: &[u8],
    signature: &[u8],
) -> bool {
    let Some(algorithm) = verification(kind, scheme) else { return false };
    signature::UnparsedPublicKey::new(algorithm, key).verify(octets, signature).is_ok()
}

fn verification(kind: KeyKind, scheme: Scheme) -> Option<&'static dyn VerificationAlgorithm> {
    use Hash::{Sha1, Sha256, Sha384, Sha512};
    use KeyKind::{EcdsaP256, EcdsaP384, EcdsaP521, Ed25519, Rsa};
    Some(match (kind, scheme) {
        (Rsa, Scheme::Pkcs1(Sha1)) => &signature::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
        (Rsa, Scheme::Pkcs1(Sha256)) => &signature::RSA_PKCS1_2048_8192_SHA256,
        (Rsa, Scheme::Pkcs1(Sha384)) => &signature::RSA_PKCS1_2048_8192_SHA384,
        (Rsa, Scheme::Pkcs1(Sha512)) => &signature::RSA_PKCS1_2048_8192_SHA512,
        (Rsa, Scheme::Pss(Sha256)) => &signature::RSA_PSS_2048_8192_SHA256,
        (Rsa, Scheme::Pss(Sha384)) => &signature::RSA_PSS_2048_8192_SHA384,
        (Rsa, Scheme::Pss(Sha512)) => &signature::RSA_PSS_2048_8192_SHA512,
        (EcdsaP256, Scheme::Ecdsa(Sha256)) => &signature::ECDSA_P256_SHA256_ASN1,
        (EcdsaP256, Scheme::Ecdsa(Sha384)) => &signature::ECDSA_P256_SHA384_ASN1,
        (EcdsaP256, Scheme::Ecdsa(Sha512)) => &signature::ECDSA_P256_SHA512_ASN1,
        (EcdsaP384, Scheme::Ecdsa(Sha256)) => &signature::ECDSA_P384_SHA256_ASN1,
        (EcdsaP384, Scheme::Ecdsa(Sha384)) => &signature::ECDSA_P384_SHA384_ASN1,
        (EcdsaP384, Scheme::Ecdsa(Sha512)) => &signature::ECDSA_P384_SHA512_ASN1,
        (EcdsaP521, Scheme::Ecdsa(Sha256)) => &signature::ECDSA_P521_SHA256_ASN1,
        (EcdsaP521, Scheme::Ecdsa(Sha384)) => &signature::ECDSA_P521_SHA384_ASN1,
        (EcdsaP521, Scheme::Ecdsa(Sha512)) => &signature::ECDSA_P521_SHA512_ASN1,
        (Ed25519, Scheme::Ed25519) => &signature::ED25519,
        _ => return None,
    })
}

pub(super) fn digest(hash: Hash, octets: &[u8]) -> Vec<u8> {
    use aws_lc_rs::digest;
    let algorithm = match hash {
        Hash::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        Hash::Sha256 => &digest::SHA256,
        Hash::Sha384 => &digest::SHA384,
        Hash::Sha512 => &digest::SHA512,
    };
    digest::digest(algorithm, octets).as_ref().to_vec()
}
