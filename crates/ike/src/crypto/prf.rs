//! PRFs and prf+ (RFC 7296 §2.13).

use super::tally::{self, Operation};
use ::crypto::mac::{Algorithm, Key};
use ::crypto::{CryptoProviders, Provider};
use policy::{Prf, Secret};

/// The provider that computes a PRF now.
pub fn provider(of: &CryptoProviders, algorithm: Prf) -> Provider {
    of.mac_provider(mac(algorithm))
}

/// `prf(key, parts[0] | parts[1] | …)`; [`output_len`] octets. Every provider computes the same.
pub fn prf(by: Provider, algorithm: Prf, key: &[u8], parts: &[&[u8]]) -> Secret {
    tally::count(Operation::Prf(algorithm, by));
    Secret::new(keyed(by, algorithm, key).tag(parts).as_ref().to_vec())
}

/// `prf+(key, seed[0] | seed[1] | …)`, the first `len` octets.
///
/// # Panics
/// If `len` is above 255 × [`output_len`].
pub fn prf_plus(by: Provider, algorithm: Prf, key: &[u8], seed: &[&[u8]], len: usize) -> Secret {
    let key = keyed(by, algorithm, key);
    let step = output_len(algorithm);
    let blocks = u8::try_from(len.div_ceil(step)).expect("prf+ ends after 255 blocks");
    // All room at once: a vector that grows leaves copies of the secret behind.
    let mut out = Vec::with_capacity(usize::from(blocks) * step);
    for block in 1..=blocks {
        let last = &out[out.len().saturating_sub(step)..];
        tally::count(Operation::Prf(algorithm, by));
        let tag = key.tag(&[&[last], seed, &[&[block]]].concat());
        out.extend_from_slice(tag.as_ref());
    }
    out.truncate(len);
    Secret::new(out)
}

/// Octets of output, and preferred octets of key.
pub fn output_len(algorithm: Prf) -> usize {
    mac(algorithm).output_len()
}

/// Returns `true` if a nonce is long enough for a PRF: it must have half the octets of the PRF's key (RFC 7296 §2.10).
pub fn is_long_enough(algorithm: Prf, nonce: &[u8]) -> bool {
    nonce.len() >= output_len(algorithm) / 2
}

/// `prf(Ni | Nr, parts[0] | …)`, the beginning of an IKE SA's keys (RFC 7296 §2.14).
pub fn prf_of_nonces(
    by: Provider,
    algorithm: Prf,
    [ni, nr]: [&[u8]; 2],
    parts: &[&[u8]],
) -> Secret {
    let half = match algorithm {
        // The two that take no more than the first 64 bits of each nonce.
        Prf::Aes128Xcbc | Prf::Aes128Cmac => 8,
        _ => usize::MAX,
    };
    let key = [&ni[..ni.len().min(half)], &nr[..nr.len().min(half)]].concat();
    prf(by, algorithm, &key, parts)
}

fn keyed(by: Provider, algorithm: Prf, key: &[u8]) -> Key {
    const LEN: usize = 16;
    let mac = mac(algorithm);
    match (algorithm, key.len()) {
        // RFC 4434 §2
        (Prf::Aes128Xcbc, ..LEN) => {
            let mut padded = zeroize::Zeroizing::new([0; LEN]);
            padded[..key.len()].copy_from_slice(key);
            by.mac(mac, &*padded)
        }
        // RFC 4434 §2, RFC 4615 §3: any other length is brought to the right one by the MAC itself.
        (Prf::Aes128Xcbc | Prf::Aes128Cmac, len) if len != LEN => {
            by.mac(mac, by.mac(mac, &[0; LEN]).tag(&[key]).as_ref())
        }
        _ => by.mac(mac, key),
    }
}

/// The MAC it is.
pub fn mac(algorithm: Prf) -> Algorithm {
    match algorithm {
        Prf::HmacMd5 => Algorithm::HmacMd5,
        Prf::HmacSha1 => Algorithm::HmacSha1,
        Prf::HmacSha2_256 => Algorithm::HmacSha2_256,
        Prf::HmacSha2_384 => Algorithm::HmacSha2_384,
        Prf::HmacSha2_512 => Algorithm::HmacSha2_512,
        Prf::Aes128Xcbc => Algorithm::AesXcbc,
        Prf::Aes128Cmac => Algorithm::AesCmac,
    }
}
