//! Credentials, with which a side authenticates, and the type that holds every secret.

use std::fmt;
use zeroize::Zeroizing;

/// Secret octets: wiped when dropped, redacted when printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes ownership of secret octets.
    pub fn new(octets: Vec<u8>) -> Self {
        Self(Zeroizing::new(octets))
    }

    /// Reads pairs of hexadecimal digits; `None` if an octet is anything else. No copy of the octets is left in freed
    /// memory.
    pub fn from_hex(digits: &str) -> Option<Self> {
        let digits = digits.as_bytes();
        if !digits.len().is_multiple_of(2) {
            return None;
        }
        // Allocated once: a buffer that grows leaves copies behind.
        let mut octets = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
        for pair in digits.chunks_exact(2) {
            octets.push(of_hex_digit(pair[0])? << 4 | of_hex_digit(pair[1])?);
        }
        Some(Self(octets))
    }

    /// The octets themselves; the only way to read them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Number of octets.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are no octets.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn of_hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} octets)", self.0.len())
    }
}

/// The authentication of both sides of a tunnel (RFC 7296 §2.15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// A preshared key, the same for both sides.
    PresharedKey(Secret),
    /// A signature with the key of an X.509 certificate.
    Signature(Signature),
}

/// The signatures that a tunnel accepts, from each side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The kinds of keys that may sign, at least one.
    pub keys: Vec<KeyKind>,
    /// True if a certificate proves nothing without a current revocation list of its issuer.
    pub use_crl: bool,
    /// True if RSA signatures with SHA-1 pass from a peer that knows nothing else (RFC 7296 §3.8).
    pub sha1: bool,
}

/// Kinds of keys in certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyKind {
    /// RSA.
    Rsa,
    /// ECDSA on P-256.
    EcdsaP256,
    /// ECDSA on P-384.
    EcdsaP384,
    /// ECDSA on P-521.
    EcdsaP521,
    /// Ed25519 (RFC 8420).
    Ed25519,
}

impl KeyKind {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::Rsa, Self::EcdsaP256, Self::EcdsaP384, Self::EcdsaP521, Self::Ed25519];
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rsa => "RSA",
            Self::EcdsaP256 => "ECDSA P-256",
            Self::EcdsaP384 => "ECDSA P-384",
            Self::EcdsaP521 => "ECDSA P-521",
            Self::Ed25519 => "Ed25519",
        })
    }
}
