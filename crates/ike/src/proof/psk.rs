//! Shared key message integrity code (RFC 7296 §2.15).

use super::SignedOctets;
use crate::crypto::prf::prf;
use policy::{Prf, Secret};
use subtle::ConstantTimeEq;

/// The AUTH value of a side.
pub fn sign(algorithm: Prf, key: &Secret, octets: SignedOctets<'_>) -> Secret {
    let padded = prf(octets.by, algorithm, key.expose(), &[b"Key Pad for IKEv2"]);
    mac(algorithm, &padded, octets)
}

/// The AUTH value of a side that has resumed a session: its SK_p is the key (RFC 5723 §4.3.3).
pub fn sign_resumed(algorithm: Prf, octets: SignedOctets<'_>) -> Secret {
    mac(algorithm, octets.sk_p, octets)
}

fn mac(algorithm: Prf, key: &Secret, octets: SignedOctets<'_>) -> Secret {
    let maced_id = octets.maced_id(algorithm);
    let parts = [octets.message, octets.nonce, maced_id.expose(), octets.intermediate];
    prf(octets.by, algorithm, key.expose(), &parts)
}

/// Returns `true` if an AUTH value is the one that the key gives. The comparison takes the same time wherever they
/// differ.
pub fn verify(algorithm: Prf, key: &Secret, octets: SignedOctets<'_>, value: &[u8]) -> bool {
    sign(algorithm, key, octets).expose().ct_eq(value).into()
}

/// The same for the AUTH value of a side that has resumed a session.
pub fn verify_resumed(algorithm: Prf, octets: SignedOctets<'_>, value: &[u8]) -> bool {
    sign_resumed(algorithm, octets).expose().ct_eq(value).into()
}
