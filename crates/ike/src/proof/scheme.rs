//! Algorithms of signatures.

use crate::crypto::tally::{self, Operation};
use std::fmt;

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

/// The hash of a signature.
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

impl Scheme {
    /// Takes note of the hash of the octets that are signed. That of Ed25519 is a part of the signature.
    pub(super) fn count_hash(self) {
        let (Self::Pkcs1(hash) | Self::Pss(hash) | Self::Ecdsa(hash)) = self else { return };
        tally::count(Operation::Hash(match hash {
            Hash::Sha1 => tally::Hash::Sha1,
            Hash::Sha256 => tally::Hash::Sha2_256,
            Hash::Sha384 => tally::Hash::Sha2_384,
            Hash::Sha512 => tally::Hash::Sha2_512,
        }));
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
