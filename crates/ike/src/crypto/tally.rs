//! Counters of the cryptographic functions of IKE in this process, over all engines. Only reports read them, so that
//! they need not be passed to every place that computes.

use ::crypto::{Function, Provider, asymmetric};
use policy::{Group, KeyKind, Prf};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// An operation that a handshake or a rekey needs once or a few times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// A hash function by itself, or of octets whose signature is made or checked; one that is part of a PRF does not
    /// count.
    Hash(Hash),
    /// Octets of the engine's random generator: a nonce, an SPI, a jitter.
    Random,
    /// A pseudorandom function of one input; prf+ takes several.
    Prf(Prf, Provider),
    /// A function of a cipher has sealed a message, or a fragment of one.
    Encrypt(Function, Provider),
    /// A function of a cipher has opened a message or a fragment, or refused it.
    Decrypt(Function, Provider),
    /// A public value was made.
    Generate(Group),
    /// A shared secret was made.
    Agree(Group),
    /// A signature was made.
    Sign(KeyKind),
    /// A signature in an AUTH payload was checked.
    Verify(KeyKind),
}

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hash {
    /// SHA-1, only where RFC 7296 names it.
    Sha1,
    /// SHA2-256.
    Sha2_256,
    /// SHA2-384.
    Sha2_384,
    /// SHA2-512.
    Sha2_512,
}

impl Hash {
    /// Every one; IKEv2 has no use for SHA2-224.
    pub const ALL: [Self; 4] = [Self::Sha1, Self::Sha2_256, Self::Sha2_384, Self::Sha2_512];
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha1 => "SHA1",
            Self::Sha2_256 => "SHA2-256",
            Self::Sha2_384 => "SHA2-384",
            Self::Sha2_512 => "SHA2-512",
        })
    }
}

impl From<asymmetric::Hash> for Hash {
    fn from(hash: asymmetric::Hash) -> Self {
        match hash {
            asymmetric::Hash::Sha1 => Self::Sha1,
            asymmetric::Hash::Sha256 => Self::Sha2_256,
            asymmetric::Hash::Sha384 => Self::Sha2_384,
            asymmetric::Hash::Sha512 => Self::Sha2_512,
        }
    }
}

static DONE: Mutex<BTreeMap<Operation, u64>> = Mutex::new(BTreeMap::new());

/// Takes note of one.
pub(crate) fn count(operation: Operation) {
    *DONE.lock().unwrap_or_else(PoisonError::into_inner).entry(operation).or_default() += 1;
}

/// The hash of octets, which counts.
pub(crate) fn digest(hash: asymmetric::Hash, octets: &[u8]) -> Vec<u8> {
    count(Operation::Hash(hash.into()));
    asymmetric::digest(hash, octets)
}

/// The counter of each function, since the process began.
pub fn done() -> BTreeMap<Operation, u64> {
    DONE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
