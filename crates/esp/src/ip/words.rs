//! The sum under a checksum, which takes longer than anything else that is done to a packet but its encryption.

// Calling what was compiled for a CPU that has AVX2.
#![allow(unsafe_code)]

/// A number that is congruent, modulo 2^16 - 1, to the sum of the octets as 16-bit words in this machine's byte order;
/// far below 2^48. A last odd octet counts as if a zero followed.
#[inline(always)]
pub(super) fn sum(octets: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if x86_64::LENGTHS.contains(&octets.len()) && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        return unsafe { x86_64::sum(octets) };
    }
    plain(octets)
}

#[inline]
fn plain(octets: &[u8]) -> u64 {
    let (words, rest) = octets.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]);
    let sum: u64 = words.map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    (sum & 0xffff_ffff) + (sum >> 32)
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::*;
    use std::ops::RangeInclusive;

    /// Octets that are added at once.
    const BLOCK: usize = 32;

    /// Octets that are worth it, and whose sum is below 2^32.
    pub(super) const LENGTHS: RangeInclusive<usize> = 2 * BLOCK..=1 << 17;

    /// The number that is subtracted from the words of a block.
    const HALVES: u32 = (BLOCK as u32 / 2) << 15;

    /// A block of zeros before one of ones.
    static MASKS: [u8; 2 * BLOCK] = {
        let mut masks = [0; 2 * BLOCK];
        let mut at = BLOCK;
        while at < masks.len() {
            masks[at] = 0xff;
            at += 1;
        }
        masks
    };

    /// Of as many octets as [`LENGTHS`] has. Pairs of words are added by multiplying them by one, which takes them for
    /// signed: half of the range is subtracted from each before, and added again in the end.
    #[target_feature(enable = "avx2")]
    pub(super) fn sum(octets: &[u8]) -> u64 {
        let (blocks, rest) = octets.as_chunks::<BLOCK>();
        let (quads, single) = blocks.as_chunks::<4>();
        let mut lanes = [_mm256_setzero_si256(); 4];
        for quad in quads {
            for (lanes, block) in lanes.iter_mut().zip(quad) {
                *lanes = _mm256_add_epi32(*lanes, pairs(load(block)));
            }
        }
        for block in single {
            lanes[0] = _mm256_add_epi32(lanes[0], pairs(load(block)));
        }
        // The rest is the end of another block, whose words may lie askew.
        let mask = MASKS[rest.len()..].first_chunk();
        let (ending, rest) = match (octets.last_chunk(), mask) {
            (Some(last), Some(mask)) if rest.len().is_multiple_of(2) => {
                (_mm256_and_si256(load(last), load(mask)), 0)
            }
            _ => (_mm256_setzero_si256(), super::plain(rest)),
        };
        lanes[1] = _mm256_add_epi32(lanes[1], pairs(ending));
        let [a, b, c, d] = lanes;
        let eight = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
        let (low, high) = (_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
        let four = _mm_add_epi32(low, high);
        let two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0b1110));
        let one = _mm_add_epi32(two, _mm_shuffle_epi32(two, 0b01));
        let halves = (blocks.len() as u32 + 1) * HALVES;
        u64::from((_mm_cvtsi128_si32(one) as u32).wrapping_add(halves)) + rest
    }

    /// Each lane is the sum of two words, less 2^16.
    #[target_feature(enable = "avx2")]
    fn pairs(words: __m256i) -> __m256i {
        let signed = _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN));
        _mm256_madd_epi16(signed, _mm256_set1_epi16(1))
    }

    #[target_feature(enable = "avx2")]
    fn load(block: &[u8; BLOCK]) -> __m256i {
        // SAFETY: the pointer is that of a block, which may lie anywhere.
        unsafe { _mm256_loadu_si256(block.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn folded(mut sum: u64) -> u64 {
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        // Both are zero.
        if sum == 0xffff { 0 } else { sum }
    }

    proptest! {
        #[test]
        fn every_way_comes_to_the_same(octets in prop::collection::vec(any::<u8>(), 0..700), skip in 0..40usize) {
            let octets = &octets[skip.min(octets.len())..];
            prop_assert_eq!(folded(sum(octets)), folded(plain(octets)));
        }
    }

    #[test]
    fn nothing_overflows() {
        for octet in [0, 0x7f, 0x80, 0xff] {
            let octets = vec![octet; 2 << 20];
            for len in [1 << 16, 1 << 17, octets.len()] {
                let octets = &octets[..len];
                let one = u64::from(u16::from_ne_bytes([octet; 2]));
                assert_eq!(folded(sum(octets)), folded(len as u64 / 2 * one), "{octet:02x}");
            }
        }
    }
}
