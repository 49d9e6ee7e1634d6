//! PRFs and prf+ (RFC 7296 §2.13).

use aws_lc_rs::hmac;
use policy::{Prf, Secret};

/// `prf(key, parts[0] | parts[1] | …)`; [`output_len`] octets.
pub fn prf(algorithm: Prf, key: &[u8], parts: &[&[u8]]) -> Secret {
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hash(algorithm), key));
    for part in parts {
        mac.update(part);
    }
    Secret::new(mac.sign().as_ref().to_vec())
}

/// `prf+(key, seed[0] | seed[1] | …)`, the first `len` octets.
///
/// # Panics
/// If `len` is above 255 × [`output_len`].
pub fn prf_plus(algorithm: Prf, key: &[u8], seed: &[&[u8]], len: usize) -> Secret {
    let key = hmac::Key::new(hash(algorithm), key);
    let step = output_len(algorithm);
    let blocks = u8::try_from(len.div_ceil(step)).expect("prf+ ends after 255 blocks");
    // All room at once: a vector that grows leaves copies of the secret behind.
    let mut out = Vec::with_capacity(usize::from(blocks) * step);
    for block in 1..=blocks {
        let mut mac = hmac::Context::with_key(&key);
        mac.update(&out[out.len().saturating_sub(step)..]);
        for part in seed {
            mac.update(part);
        }
        mac.update(&[block]);
        out.extend_from_slice(mac.sign().as_ref());
    }
    out.truncate(len);
    Secret::new(out)
}

/// Octets of output, and preferred octets of key.
pub fn output_len(algorithm: Prf) -> usize {
    hash(algorithm).digest_algorithm().output_len()
}

fn hash(algorithm: Prf) -> hmac::Algorithm {
    match algorithm {
        Prf::HmacSha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Prf::HmacSha2_256 => hmac::HMAC_SHA256,
        Prf::HmacSha2_384 => hmac::HMAC_SHA384,
        Prf::HmacSha2_512 => hmac::HMAC_SHA512,
        _ => unreachable!("every Prf has its hash here"),
    }
}
