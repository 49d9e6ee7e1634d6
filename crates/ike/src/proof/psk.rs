//! Shared key message integrity code (RFC 7296 §2.15).

use crate::crypto::prf::prf;
use crate::wire::payload::Identification;
use policy::{Prf, Secret};
use subtle::ConstantTimeEq;

/// What one side signs.
#[derive(Clone, Copy)]
pub struct SignedOctets<'a> {
    /// The signer's own IKE_SA_INIT message, header included.
    pub message: &'a [u8],
    /// The other side's nonce.
    pub nonce: &'a [u8],
    /// The signer's SK_p.
    pub sk_p: &'a Secret,
    /// The signer's ID payload.
    pub id: &'a Identification,
}

/// The AUTH value of a side.
pub fn sign(algorithm: Prf, key: &Secret, octets: SignedOctets<'_>) -> Secret {
    let padded = prf(algorithm, key.expose(), &[b"Key Pad for IKEv2"]);
    let id_header = [octets.id.kind.0, 0, 0, 0];
    let maced_id = prf(algorithm, octets.sk_p.expose(), &[&id_header, &octets.id.data]);
    prf(algorithm, padded.expose(), &[octets.message, octets.nonce, maced_id.expose()])
}

/// Whether an AUTH value is the one the key gives; takes the same time wherever they differ.
pub fn verify(algorithm: Prf, key: &Secret, octets: SignedOctets<'_>, value: &[u8]) -> bool {
    sign(algorithm, key, octets).expose().ct_eq(value).into()
}
