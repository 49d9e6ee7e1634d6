//! The engine's only source of randomness, seeded from outside.

use super::tally::{self, Operation};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Octets of our nonces: at least half the PRF's key (RFC 7296 §2.10).
const NONCE_LEN: usize = 32;

/// A cryptographically secure generator (ChaCha20); the same seed gives the same octets.
pub struct Rng {
    generator: ChaCha20Rng,
    /// The first octet of nonces; `None`: a random one.
    #[cfg(feature = "simulation")]
    nonces_begin_with: Option<u8>,
}

impl Rng {
    /// Starts from 32 octets of entropy.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self {
            generator: ChaCha20Rng::from_seed(seed),
            #[cfg(feature = "simulation")]
            nonces_begin_with: None,
        }
    }

    /// Has nonces begin with this octet: it decides which of them is the lowest.
    #[cfg(feature = "simulation")]
    pub fn begin_nonces_with(&mut self, octet: Option<u8>) {
        self.nonces_begin_with = octet;
    }

    /// A nonce for an exchange.
    pub fn nonce(&mut self) -> Vec<u8> {
        let mut nonce = vec![0; NONCE_LEN];
        self.fill(&mut nonce);
        #[cfg(feature = "simulation")]
        if let Some(octet) = self.nonces_begin_with {
            nonce[0] = octet;
        }
        nonce
    }

    /// Fills a slice.
    pub fn fill(&mut self, octets: &mut [u8]) {
        tally::count(Operation::Random);
        self.generator.fill_bytes(octets);
    }

    /// A random number.
    pub fn u64(&mut self) -> u64 {
        tally::count(Operation::Random);
        self.generator.next_u64()
    }

    /// A random number below `bound` (0 where `bound` is 0), each as likely as any other.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // The upper half of a product with `bound` is below it. Products whose lower half is among the first
        // 2^64 mod `bound` are drawn again: without them every upper half has equally many.
        let surplus = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.u64()) * u128::from(bound);
            let (upper, lower) = ((product >> 64) as u64, product as u64);
            if lower >= surplus {
                return upper;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    /// RFC 8439 §2.3.2's block function with an all-zero key and nonce (appendix A.1, vectors 1 and 2).
    #[test]
    fn the_octets_are_chacha20s() {
        let mut octets = [0; 72];
        Rng::from_seed([0; 32]).fill(&mut octets);
        assert_eq!(octets[..8], [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
        assert_eq!(octets[64..], [0x9f, 0x07, 0xe7, 0xbe, 0x55, 0x51, 0x38, 0x7a]);
    }

    #[test]
    fn a_bound_is_kept_and_all_below_it_is_reached_about_equally() {
        let mut rng = Rng::from_seed([7; 32]);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
        let mut seen = [0_u32; 5];
        for _ in 0..5000 {
            seen[usize::try_from(rng.below(5)).expect("below 5")] += 1;
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
        // Half of all draws are above the middle of a bound that a plain remainder would skew.
        let bound = u64::MAX / 4 * 3;
        let upper = (0..4000).filter(|_| rng.below(bound) >= bound / 2).count();
        assert!((1800..2200).contains(&upper), "{upper}");
    }
}
