//! Algorithms of signatures.

use crate::crypto::tally::{self, Operation};
pub use crypto::asymmetric::{Hash, Scheme};

/// Takes note of the hash of the octets that are signed. That of Ed25519 is a part of the signature.
pub(super) fn count_hash(scheme: Scheme) {
    let (Scheme::Pkcs1(hash) | Scheme::Pss(hash) | Scheme::Ecdsa(hash)) = scheme else { return };
    tally::count(Operation::Hash(hash.into()));
}
