//! PRFs and prf+ (RFC 7296 §2.13).

use policy::{Prf, Secret};

/// `prf(key, parts[0] | parts[1] | …)`; [`output_len`] octets.
pub fn prf(algorithm: Prf, key: &[u8], parts: &[&[u8]]) -> Secret {
    let _ = (algorithm, key, parts);
    unimplemented!()
}

/// `prf+(key, seed[0] | seed[1] | …)`, the first `len` octets.
///
/// # Panics
/// If `len` is above 255 × [`output_len`].
pub fn prf_plus(algorithm: Prf, key: &[u8], seed: &[&[u8]], len: usize) -> Secret {
    let _ = (algorithm, key, seed, len);
    unimplemented!()
}

/// Octets of output, and preferred octets of key.
pub fn output_len(algorithm: Prf) -> usize {
    let _ = algorithm;
    unimplemented!()
}
