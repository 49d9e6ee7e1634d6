//! The engine's only source of randomness, seeded from outside.

/// A cryptographically secure generator; the same seed gives the same octets.
pub struct Rng {}

impl Rng {
    /// Starts from 32 octets of entropy.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let _ = seed;
        unimplemented!()
    }

    /// Fills a slice.
    pub fn fill(&mut self, octets: &mut [u8]) {
        let _ = octets;
        unimplemented!()
    }

    /// A random number.
    pub fn u64(&mut self) -> u64 {
        unimplemented!()
    }

    /// A random number below `bound` (0 where `bound` is 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        let _ = bound;
        unimplemented!()
    }
}
