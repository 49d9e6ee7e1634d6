//! RustCrypto, which needs no C compiler.

use super::{Curve, Hash, MlKem, Scheme};
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePublicKey};
use ed25519_dalek::{Signer, Verifier};
use ml_kem::kem::{Decapsulate, Encapsulate, Kem, KeyExport, TryKeyInit};
use ml_kem::{MlKem512, MlKem768, MlKem1024};
use p256::ecdsa::signature::hazmat::{PrehashVerifier, RandomizedPrehashSigner};
use p256::elliptic_curve::Generate;
use policy::{KeyKind, Secret};
use rsa::pkcs1::{DecodeRsaPrivateKey, DecodeRsaPublicKey};
use rsa::traits::PublicKeyParts;
use sha1_0_11::Sha1;
use sha2_0_11::{Digest, Sha256, Sha384, Sha512};
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// Bits of an RSA key. AWS-LC knows the same.
const RSA_BITS: std::ops::RangeInclusive<u32> = 2048..=8192;

/// The keys that are wiped when they are dropped.
const _: () = {
    const fn is_wiped<T: ZeroizeOnDrop>() {}
    is_wiped::<p256::SecretKey>();
    is_wiped::<p384::SecretKey>();
    is_wiped::<p521::SecretKey>();
    is_wiped::<x25519_dalek::StaticSecret>();
    is_wiped::<ml_kem::DecapsulationKey<MlKem512>>();
    is_wiped::<ml_kem::DecapsulationKey<MlKem768>>();
    is_wiped::<ml_kem::DecapsulationKey<MlKem1024>>();
    is_wiped::<rsa::PrivateKey>();
    is_wiped::<ed25519_dalek::SigningKey>();
};

/// The crates wipe them.
pub(super) enum AgreementKey {
    P256(p256::SecretKey),
    P384(p384::SecretKey),
    P521(p521::SecretKey),
    X25519(x25519_dalek::StaticSecret),
}

impl AgreementKey {
    pub(super) fn generate(curve: Curve) -> Self {
        match curve {
            Curve::P256 => Self::P256(p256::SecretKey::generate()),
            Curve::P384 => Self::P384(p384::SecretKey::generate()),
            Curve::P521 => Self::P521(p521::SecretKey::generate()),
            Curve::X25519 => {
                let mut octets = Zeroizing::new([0; 32]);
                crate::fill_random(&mut *octets);
                Self::X25519((*octets).into())
            }
        }
    }

    pub(super) fn from_private_value(curve: Curve, octets: &[u8]) -> Option<Self> {
        Some(match curve {
            Curve::P256 => Self::P256(p256::SecretKey::from_slice(octets).ok()?),
            Curve::P384 => Self::P384(p384::SecretKey::from_slice(octets).ok()?),
            Curve::P521 => Self::P521(p521::SecretKey::from_slice(octets).ok()?),
            Curve::X25519 => Self::X25519(<[u8; 32]>::try_from(octets).ok()?.into()),
        })
    }

    pub(super) fn private_value(&self) -> Secret {
        Secret::new(match self {
            Self::P256(key) => Zeroizing::new(key.to_bytes()).to_vec(),
            Self::P384(key) => Zeroizing::new(key.to_bytes()).to_vec(),
            Self::P521(key) => Zeroizing::new(key.to_bytes()).to_vec(),
            Self::X25519(key) => key.as_bytes().to_vec(),
        })
    }

    pub(super) fn public_key(&self) -> Vec<u8> {
        match self {
            Self::P256(key) => key.public_key().to_sec1_bytes().into_vec(),
            Self::P384(key) => key.public_key().to_sec1_bytes().into_vec(),
            Self::P521(key) => key.public_key().to_sec1_bytes().into_vec(),
            Self::X25519(key) => x25519_dalek::PublicKey::from(key).to_bytes().to_vec(),
        }
    }

    pub(super) fn agree(&self, peer: &[u8]) -> Option<Secret> {
        Some(Secret::new(match self {
            Self::P256(key) => {
                let peer = p256::PublicKey::from_sec1_bytes(peer).ok()?;
                key.diffie_hellman(&peer).raw_secret_bytes().to_vec()
            }
            Self::P384(key) => {
                let peer = p384::PublicKey::from_sec1_bytes(peer).ok()?;
                key.diffie_hellman(&peer).raw_secret_bytes().to_vec()
            }
            Self::P521(key) => {
                let peer = p521::PublicKey::from_sec1_bytes(peer).ok()?;
                key.diffie_hellman(&peer).raw_secret_bytes().to_vec()
            }
            Self::X25519(key) => {
                let peer = <[u8; 32]>::try_from(peer).ok()?;
                let shared = key.diffie_hellman(&peer.into());
                shared.was_contributory().then(|| shared.as_bytes().to_vec())?
            }
        }))
    }
}

/// The crate wipes them.
pub(super) enum DecapsulationKey {
    MlKem512(Box<ml_kem::DecapsulationKey<MlKem512>>),
    MlKem768(Box<ml_kem::DecapsulationKey<MlKem768>>),
    MlKem1024(Box<ml_kem::DecapsulationKey<MlKem1024>>),
}

impl DecapsulationKey {
    pub(super) fn generate(set: MlKem) -> Self {
        match set {
            MlKem::MlKem512 => Self::MlKem512(Box::new(MlKem512::generate_keypair().0)),
            MlKem::MlKem768 => Self::MlKem768(Box::new(MlKem768::generate_keypair().0)),
            MlKem::MlKem1024 => Self::MlKem1024(Box::new(MlKem1024::generate_keypair().0)),
        }
    }

    #[expect(deprecated, reason = "the form of FIPS 203 is what published values have")]
    pub(super) fn from_octets(set: MlKem, octets: &[u8]) -> Option<Self> {
        Some(match set {
            MlKem::MlKem512 => {
                let key = ml_kem::DecapsulationKey::from_expanded(octets.try_into().ok()?).ok()?;
                Self::MlKem512(Box::new(key))
            }
            MlKem::MlKem768 => {
                let key = ml_kem::DecapsulationKey::from_expanded(octets.try_into().ok()?).ok()?;
                Self::MlKem768(Box::new(key))
            }
            MlKem::MlKem1024 => {
                let key = ml_kem::DecapsulationKey::from_expanded(octets.try_into().ok()?).ok()?;
                Self::MlKem1024(Box::new(key))
            }
        })
    }

    #[expect(deprecated, reason = "the form of FIPS 203 is that of both libraries")]
    pub(super) fn octets(&self) -> Secret {
        use ml_kem::ExpandedKeyEncoding;
        Secret::new(match self {
            Self::MlKem512(key) => Zeroizing::new(key.to_expanded_bytes()).to_vec(),
            Self::MlKem768(key) => Zeroizing::new(key.to_expanded_bytes()).to_vec(),
            Self::MlKem1024(key) => Zeroizing::new(key.to_expanded_bytes()).to_vec(),
        })
    }

    pub(super) fn encapsulation_key(&self) -> Vec<u8> {
        match self {
            Self::MlKem512(key) => key.encapsulation_key().to_bytes().to_vec(),
            Self::MlKem768(key) => key.encapsulation_key().to_bytes().to_vec(),
            Self::MlKem1024(key) => key.encapsulation_key().to_bytes().to_vec(),
        }
    }

    pub(super) fn decapsulate(&self, ciphertext: &[u8]) -> Option<Secret> {
        let shared = match self {
            Self::MlKem512(key) => key.decapsulate_slice(ciphertext),
            Self::MlKem768(key) => key.decapsulate_slice(ciphertext),
            Self::MlKem1024(key) => key.decapsulate_slice(ciphertext),
        };
        shared.ok().map(|shared| Secret::new(Zeroizing::new(shared).to_vec()))
    }
}

pub(super) fn encapsulate(set: MlKem, encapsulation_key: &[u8]) -> Option<(Vec<u8>, Secret)> {
    fn to<K: TryKeyInit + Encapsulate>(key: &[u8]) -> Option<(Vec<u8>, Secret)> {
        let (ciphertext, shared) = K::new_from_slice(key).ok()?.encapsulate();
        Some((ciphertext.to_vec(), Secret::new(Zeroizing::new(shared).to_vec())))
    }
    match set {
        MlKem::MlKem512 => to::<ml_kem::EncapsulationKey<MlKem512>>(encapsulation_key),
        MlKem::MlKem768 => to::<ml_kem::EncapsulationKey<MlKem768>>(encapsulation_key),
        MlKem::MlKem1024 => to::<ml_kem::EncapsulationKey<MlKem1024>>(encapsulation_key),
    }
}

/// The crates wipe them.
pub(super) enum SigningKey {
    Rsa(Box<rsa::PrivateKey>),
    P256(p256::SecretKey),
    P384(p384::SecretKey),
    P521(p521::SecretKey),
    Ed25519(Box<ed25519_dalek::SigningKey>),
}

impl SigningKey {
    pub(super) fn read(der: &[u8]) -> Option<Self> {
        let rsa = rsa::PrivateKey::from_pkcs8_der(der).ok();
        if let Some(key) = rsa.or_else(|| rsa::PrivateKey::from_pkcs1_der(der).ok()) {
            return RSA_BITS.contains(&key.n().bit_width()).then(|| Self::Rsa(Box::new(key)));
        }
        if let Ok(key) = ed25519_dalek::SigningKey::from_pkcs8_der(der) {
            return Some(Self::Ed25519(Box::new(key)));
        }
        // PKCS#8 or SEC 1.
        p256::SecretKey::from_der(der)
            .ok()
            .map(Self::P256)
            .or_else(|| p384::SecretKey::from_der(der).ok().map(Self::P384))
            .or_else(|| p521::SecretKey::from_der(der).ok().map(Self::P521))
    }

    pub(super) fn kind(&self) -> KeyKind {
        match self {
            Self::Rsa(_) => KeyKind::Rsa,
            Self::P256(_) => KeyKind::EcdsaP256,
            Self::P384(_) => KeyKind::EcdsaP384,
            Self::P521(_) => KeyKind::EcdsaP521,
            Self::Ed25519(_) => KeyKind::Ed25519,
        }
    }

    pub(super) fn public_key_info(&self) -> Option<Vec<u8>> {
        let info = match self {
            Self::Rsa(key) => key.as_public_key().to_public_key_der(),
            Self::P256(key) => key.public_key().to_public_key_der(),
            Self::P384(key) => key.public_key().to_public_key_der(),
            Self::P521(key) => key.public_key().to_public_key_der(),
            Self::Ed25519(key) => key.verifying_key().to_public_key_der(),
        };
        info.ok().map(|info| info.into_vec())
    }

    pub(super) fn sign(&self, scheme: Scheme, octets: &[u8]) -> Option<Vec<u8>> {
        // Every signature of RSA is blinded, and those of ECDSA add randomness to RFC 6979.
        let mut random = getrandom::SysRng;
        match (self, scheme) {
            (Self::Rsa(key), Scheme::Pkcs1(hash)) => match hash {
                Hash::Sha256 => key.pkcs1v15_sign_with_rng::<Sha256, _>(&mut random, octets),
                Hash::Sha384 => key.pkcs1v15_sign_with_rng::<Sha384, _>(&mut random, octets),
                Hash::Sha512 => key.pkcs1v15_sign_with_rng::<Sha512, _>(&mut random, octets),
                Hash::Sha1 => return None,
            }
            .ok(),
            (Self::Rsa(key), Scheme::Pss(hash)) => match hash {
                Hash::Sha256 => key.pss_sign_with_rng::<Sha256, _>(&mut random, octets),
                Hash::Sha384 => key.pss_sign_with_rng::<Sha384, _>(&mut random, octets),
                Hash::Sha512 => key.pss_sign_with_rng::<Sha512, _>(&mut random, octets),
                Hash::Sha1 => return None,
            }
            .ok(),
            (Self::P256(key), Scheme::Ecdsa(Hash::Sha256)) => {
                let key = p256::ecdsa::SigningKey::from(key);
                let made: p256::ecdsa::Signature =
                    key.sign_prehash_with_rng(&mut random, &Sha256::digest(octets)).ok()?;
                Some(made.to_der().as_bytes().to_vec())
            }
            (Self::P384(key), Scheme::Ecdsa(Hash::Sha384)) => {
                let key = p384::ecdsa::SigningKey::from(key);
                let made: p384::ecdsa::Signature =
                    key.sign_prehash_with_rng(&mut random, &Sha384::digest(octets)).ok()?;
                Some(made.to_der().as_bytes().to_vec())
            }
            (Self::P521(key), Scheme::Ecdsa(Hash::Sha512)) => {
                let key = p521::ecdsa::SigningKey::from(key);
                let made: p521::ecdsa::Signature =
                    key.sign_prehash_with_rng(&mut random, &Sha512::digest(octets)).ok()?;
                Some(made.to_der().as_bytes().to_vec())
            }
            (Self::Ed25519(key), Scheme::Ed25519) => {
                key.try_sign(octets).ok().map(|made| made.to_bytes().to_vec())
            }
            _ => None,
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
    fits(kind, scheme, key, octets, signature).is_some()
}

/// `Some` if a signature is right.
fn fits(kind: KeyKind, scheme: Scheme, key: &[u8], octets: &[u8], signature: &[u8]) -> Option<()> {
    match (kind, scheme) {
        (KeyKind::Rsa, Scheme::Pkcs1(_) | Scheme::Pss(_)) => {
            let key = rsa::PublicKey::from_pkcs1_der(key).ok()?;
            RSA_BITS.contains(&key.n().bit_width()).then_some(())?;
            match scheme {
                Scheme::Pkcs1(Hash::Sha1) => key.pkcs1v15_verify::<Sha1>(octets, signature),
                Scheme::Pkcs1(Hash::Sha256) => key.pkcs1v15_verify::<Sha256>(octets, signature),
                Scheme::Pkcs1(Hash::Sha384) => key.pkcs1v15_verify::<Sha384>(octets, signature),
                Scheme::Pkcs1(Hash::Sha512) => key.pkcs1v15_verify::<Sha512>(octets, signature),
                Scheme::Pss(Hash::Sha256) => key.pss_verify::<Sha256>(octets, signature),
                Scheme::Pss(Hash::Sha384) => key.pss_verify::<Sha384>(octets, signature),
                Scheme::Pss(Hash::Sha512) => key.pss_verify::<Sha512>(octets, signature),
                _ => return None,
            }
            .ok()
        }
        (KeyKind::EcdsaP256, Scheme::Ecdsa(hash)) if hash != Hash::Sha1 => {
            let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(key).ok()?;
            let signature = p256::ecdsa::Signature::from_der(signature).ok()?;
            key.verify_prehash(&digest(hash, octets), &signature).ok()
        }
        (KeyKind::EcdsaP384, Scheme::Ecdsa(hash)) if hash != Hash::Sha1 => {
            let key = p384::ecdsa::VerifyingKey::from_sec1_bytes(key).ok()?;
            let signature = p384::ecdsa::Signature::from_der(signature).ok()?;
            key.verify_prehash(&digest(hash, octets), &signature).ok()
        }
        (KeyKind::EcdsaP521, Scheme::Ecdsa(hash)) if hash != Hash::Sha1 => {
            let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(key).ok()?;
            let signature = p521::ecdsa::Signature::from_der(signature).ok()?;
            key.verify_prehash(&digest(hash, octets), &signature).ok()
        }
        (KeyKind::Ed25519, Scheme::Ed25519) => {
            let key = ed25519_dalek::VerifyingKey::from_bytes(key.try_into().ok()?).ok()?;
            key.verify(octets, &ed25519_dalek::Signature::from_slice(signature).ok()?).ok()
        }
        _ => None,
    }
}

pub(super) fn digest(hash: Hash, octets: &[u8]) -> Vec<u8> {
    match hash {
        Hash::Sha1 => Sha1::digest(octets).to_vec(),
        Hash::Sha256 => Sha256::digest(octets).to_vec(),
        Hash::Sha384 => Sha384::digest(octets).to_vec(),
        Hash::Sha512 => Sha512::digest(octets).to_vec(),
    }
}
