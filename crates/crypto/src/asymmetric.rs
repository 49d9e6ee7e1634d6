//! Key exchange, keys that sign, and hash functions: the cryptography of IKE beside its ciphers and MACs.
//!
//! AWS-LC does it if the feature `aws-lc` is on, otherwise RustCrypto (feature `pure-rust`). Both know the same
//! algorithms, and the choice is made when the program is built. RustCrypto's arithmetic with secrets takes constant
//! time as AWS-LC's does; it is slower.

#[cfg(feature = "aws-lc")]
mod aws_lc;
// Beside AWS-LC, only to be compared with it.
#[cfg(all(feature = "pure-rust", any(test, not(feature = "aws-lc"))))]
#[cfg_attr(feature = "aws-lc", allow(dead_code, reason = "the tests compare a part of it"))]
mod pure_rust;
#[cfg(all(test, feature = "aws-lc", feature = "pure-rust"))]
mod tests;

#[cfg(feature = "aws-lc")]
use aws_lc as library;
#[cfg(not(feature = "aws-lc"))]
use pure_rust as library;

use policy::{KeyKind, Secret};
use std::fmt;

/// An elliptic curve on which both sides agree on a secret (RFC 5903, RFC 7748).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// NIST P-256.
    P256,
    /// NIST P-384.
    P384,
    /// NIST P-521.
    P521,
    /// Curve25519.
    X25519,
}

/// A parameter set of ML-KEM (FIPS 203 §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MlKem {
    /// ML-KEM-512.
    MlKem512,
    /// ML-KEM-768.
    MlKem768,
    /// ML-KEM-1024.
    MlKem1024,
}

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SHA-1; nothing is signed with it.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

/// The algorithm of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// RSASSA-PKCS1-v1_5 (RFC 8017 §8.2).
    Pkcs1(Hash),
    /// RSASSA-PSS (RFC 8017 §8.1), with the same hash for the mask, and a salt of its length.
    Pss(Hash),
    /// ECDSA on the curve of the key.
    Ecdsa(Hash),
    /// Ed25519 (RFC 8032).
    Ed25519,
}

/// A private key of a curve, for one key exchange; it is wiped when it is dropped.
pub struct AgreementKey(library::AgreementKey);

impl AgreementKey {
    /// Makes a key from the system's randomness.
    ///
    /// # Panics
    /// If the system's random number generator does not work.
    pub fn generate(curve: Curve) -> Self {
        Self(library::AgreementKey::generate(curve))
    }

    /// Takes a private key: a number in network order, of X25519 the 32 octets of RFC 7748. `None` if it is none of the
    /// curve. A key exchange needs a fresh one ([`generate`](Self::generate)); this is for published values, and for a
    /// key exchange that another process has begun.
    pub fn from_private_value(curve: Curve, octets: &[u8]) -> Option<Self> {
        library::AgreementKey::from_private_value(curve, octets).map(Self)
    }

    /// The private key, as [`from_private_value`](Self::from_private_value) takes it: for a process that goes on with the
    /// key exchange.
    pub fn private_value(&self) -> Secret {
        self.0.private_value()
    }

    /// The public key: an uncompressed point in SEC 1 (an octet 4, x, y), of X25519 the 32 octets of RFC 7748.
    pub fn public_key(&self) -> Vec<u8> {
        self.0.public_key()
    }

    /// The shared secret: the x coordinate, of X25519 the 32 octets of RFC 7748. `None` if `peer` is no point of the
    /// curve, or if X25519 gives zero (RFC 7748 §6.1).
    pub fn agree(&self, peer: &[u8]) -> Option<Secret> {
        self.0.agree(peer)
    }
}

impl fmt::Debug for AgreementKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgreementKey")
    }
}

/// A private key of ML-KEM; it is wiped when it is dropped.
pub struct DecapsulationKey(library::DecapsulationKey);

impl DecapsulationKey {
    /// Makes a key from the system's randomness.
    ///
    /// # Panics
    /// If the system's random number generator does not work.
    pub fn generate(set: MlKem) -> Self {
        Self(library::DecapsulationKey::generate(set))
    }

    /// Takes a decapsulation key as FIPS 203 §7.1 writes it; `None` if it is none (§7.3). A key exchange needs a fresh
    /// one ([`generate`](Self::generate)); this is for published values, and for a key exchange that another process has
    /// begun. With some libraries, such a key does not know its encapsulation key.
    pub fn from_octets(set: MlKem, octets: &[u8]) -> Option<Self> {
        library::DecapsulationKey::from_octets(set, octets).map(Self)
    }

    /// The key, as [`from_octets`](Self::from_octets) takes it: for a process that goes on with the key exchange.
    pub fn octets(&self) -> Secret {
        self.0.octets()
    }

    /// The key with which the other side encapsulates a secret.
    ///
    /// # Panics
    /// If the key was made of octets, and the library does not keep it then.
    pub fn encapsulation_key(&self) -> Vec<u8> {
        self.0.encapsulation_key()
    }

    /// The secret of a ciphertext: 32 octets. A ciphertext of the right length always gives one, of which only its
    /// maker knows the same (FIPS 203 §7.3); `None` if it has another length.
    pub fn decapsulate(&self, ciphertext: &[u8]) -> Option<Secret> {
        self.0.decapsulate(ciphertext)
    }
}

impl fmt::Debug for DecapsulationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecapsulationKey")
    }
}

/// Encapsulates a fresh secret of 32 octets for the holder of an encapsulation key: the ciphertext and the secret.
/// `None` if `encapsulation_key` is none (FIPS 203 §7.2).
///
/// # Panics
/// If the system's random number generator does not work.
pub fn encapsulate(set: MlKem, encapsulation_key: &[u8]) -> Option<(Vec<u8>, Secret)> {
    library::encapsulate(set, encapsulation_key)
}

/// A private key that signs; it is wiped when it is dropped.
pub struct SigningKey(library::SigningKey);

impl SigningKey {
    /// Reads PKCS#8, PKCS#1 or SEC 1 in DER: RSA with 2048 to 8192 bits, EC on P-256, P-384 or P-521, or Ed25519.
    pub fn read(der: &Secret) -> Option<Self> {
        library::SigningKey::read(der.expose()).map(Self)
    }

    /// Its kind.
    pub fn kind(&self) -> KeyKind {
        self.0.kind()
    }

    /// Its SubjectPublicKeyInfo, in DER.
    pub fn public_key_info(&self) -> Option<Vec<u8>> {
        self.0.public_key_info()
    }

    /// Signs `octets`. RSA answers with as many octets as the modulus has, ECDSA with an ECDSA-Sig-Value (RFC 3279
    /// §2.2.3). ECDSA signs with the hash of its curve alone: SHA-256, SHA-384 or SHA-512. `None` if the key has no
    /// such algorithm, or if the library failed.
    pub fn sign(&self, scheme: Scheme, octets: &[u8]) -> Option<Vec<u8>> {
        self.0.sign(scheme, octets)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.kind())
    }
}

/// Returns `true` if `signature` is of `octets` by this key. `key` is the content of subjectPublicKey (RFC 5280
/// §4.1.2.7): an RSAPublicKey with 2048 to 8192 bits, a point in SEC 1, or the 32 octets of Ed25519. A signature of
/// ECDSA is an ECDSA-Sig-Value.
pub fn verify(kind: KeyKind, scheme: Scheme, key: &[u8], octets: &[u8], signature: &[u8]) -> bool {
    may_be_key(kind, key) && library::verify(kind, scheme, key, octets, signature)
}

/// The libraries know other forms of keys, each its own; RFC 5480 §2.2 forbids those of points. AWS-LC also takes a
/// whole SubjectPublicKeyInfo.
fn may_be_key(kind: KeyKind, key: &[u8]) -> bool {
    match kind {
        // A SEQUENCE that begins with an INTEGER (RFC 8017 §A.1.1). Its length has one octet, or as many more as that
        // says.
        KeyKind::Rsa => {
            let [0x30, length, rest @ ..] = key else { return false };
            let more = if *length < 0x80 { 0 } else { usize::from(length & 0x7f) };
            rest.get(more) == Some(&0x02)
        }
        KeyKind::EcdsaP256 | KeyKind::EcdsaP384 | KeyKind::EcdsaP521 => {
            matches!(key.first(), Some(0x02..=0x04))
        }
        KeyKind::Ed25519 => key.len() == 32,
    }
}

/// The hash of `octets`.
pub fn digest(hash: Hash, octets: &[u8]) -> Vec<u8> {
    library::digest(hash, octets)
}

impl Hash {
    /// Octets of a hash.
    pub fn output_len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
        })
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pkcs1(hash) => write!(f, "RSA (PKCS#1 v1.5) with {hash}"),
            Self::Pss(hash) => write!(f, "RSA (PSS) with {hash}"),
            Self::Ecdsa(hash) => write!(f, "ECDSA with {hash}"),
            Self::Ed25519 => f.write_str("Ed25519"),
        }
    }
}
