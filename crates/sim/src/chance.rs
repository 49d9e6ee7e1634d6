//! Every random choice of a simulation, from one number.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::ops::Range;
use std::time::Duration;

/// A generator whose choices repeat with its seed.
#[derive(Clone, Debug)]
pub struct Chance(ChaCha8Rng);

impl Chance {
    /// Starts a stream of choices; streams of one seed do not disturb each other.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(rng)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`; 0 where `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias of a remainder does not matter to a test.
        self.0.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// True in `permille` of 1,000 cases.
    pub fn happens(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// A time in the range, with a resolution of microseconds; its start where the range is empty.
    pub fn time(&mut self, range: &Range<Duration>) -> Duration {
        let width = range.end.saturating_sub(range.start).as_micros();
        range.start + Duration::from_micros(self.below(u64::try_from(width).unwrap_or(u64::MAX)))
    }

    /// Thirty-two octets, the seed of an engine.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        seed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, stream| {
            let mut chance = Chance::new(seed, stream);
            (0..8).map(|_| chance.number()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 0), draw(7, 0));
        assert_ne!(draw(7, 0), draw(7, 1));
        assert_ne!(draw(7, 0), draw(8, 0));
    }

    #[test]
    fn choices_stay_in_bounds() {
        let mut chance = Chance::new(1, 0);
        let range = Duration::from_millis(5)..Duration::from_millis(6);
        for _ in 0..1000 {
            assert!(range.contains(&chance.time(&range)));
            assert!(chance.below(3) < 3);
        }
        assert_eq!(chance.below(0), 0);
        assert_eq!(chance.time(&(range.start..range.start)), range.start);
        assert!(!(0..1000).any(|_| chance.happens(0)));
        assert!((0..1000).all(|_| chance.happens(1000)));
    }
}
