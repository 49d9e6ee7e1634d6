//! Proofs of identity: preshared keys, certificates and signatures.

mod algorithms;
pub mod certificate;
mod constraints;
pub mod crl;
mod job;
mod key;
mod listing;
pub mod ocsp;
pub mod outside;
mod path;
pub(crate) mod psk;
mod revocation;
mod scheme;
mod shown;
pub(crate) mod signature;
mod signed;
pub mod trust;
pub(crate) mod wishes;

use crate::crypto::prf::prf;
use crate::wire::payload::Identification;
use ::crypto::Provider;
pub(crate) use job::{Checked, Claim, Evidence, Proved, Signing};
pub use job::{Done, Fetch, Job, Sign, Step, Wanted};
use policy::{Prf, Secret};

/// The octets that one side signs (RFC 7296 §2.15).
#[derive(Clone, Copy)]
pub(crate) struct SignedOctets<'a> {
    /// The signer's own IKE_SA_INIT message, header included.
    pub message: &'a [u8],
    /// The other side's nonce.
    pub nonce: &'a [u8],
    /// The signer's SK_p.
    pub sk_p: &'a Secret,
    /// The signer's ID payload.
    pub id: &'a Identification,
    /// The provider of the PRF.
    pub by: Provider,
    /// IntAuth (RFC 9242 §3.3.2); empty without IKE_INTERMEDIATE exchanges.
    pub intermediate: &'a [u8],
}

impl SignedOctets<'_> {
    fn maced_id(&self, algorithm: Prf) -> Secret {
        let header = [self.id.kind.0, 0, 0, 0];
        prf(self.by, algorithm, self.sk_p.expose(), &[&header, &self.id.data])
    }

    /// The octets themselves, for a signature.
    pub fn concat(&self, algorithm: Prf) -> Vec<u8> {
        [self.message, self.nonce, self.maced_id(algorithm).expose(), self.intermediate].concat()
    }
}
