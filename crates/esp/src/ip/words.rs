//! The sum under a checksum, which takes longer than anything else that is done to a packet but its encryption.

// Calling what was compiled for a CPU that has AVX2.
#![allow(unsafe_code)]

/// A number that is congruent, modulo 2^16 - 1, to the sum of the octets as 16-bit words in this machine's byte order; far
/// below 2^48. A last odd octet counts as if a zero followed.
#[inline]
pub(super) fn sum(octets: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if octets.len() >= 2 * x86_64::BLOCK && std::arch::is_x86_feature_detected!("avx2") {
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

    /// Octets that are added at once.
    pub(super) const BLOCK: usize = 32;

    /// Blocks after which lanes of 32 bits might overflow: each adds at most 2^16 to a lane.
    const FULL: usize = 16_384;

    /// Pairs of words are added by multiplying them by one, which takes them for signed: half of the range is subtracted
    /// from each before, and added again in the end.
    #[target_feature(enable = "avx2")]
    pub(super) fn sum(octets: &[u8]) -> u64 {
        let (blocks, rest) = octets.as_chunks::<BLOCK>();
        let mut sum = super::plain(rest);
        for blocks in blocks.chunks(FULL) {
            let (quads, single) = blocks.as_chunks::<4>();
            let mut lanes = [_mm256_setzero_si256(); 4];
            for quad in quads {
                for (lanes, block) in lanes.iter_mut().zip(quad) {
                    *lanes = _mm256_add_epi32(*lanes, pairs(block));
                }
            }
            for block in single {
                lanes[0] = _mm256_add_epi32(lanes[0], pairs(block));
            }
            let [a, b, c, d] = lanes;
            let eight = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
            let (low, high) = (_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
            let [low, high] = [low, high].map(|four| {
                let (sign, four) = (_mm_srai_epi32(four, 31), four);
                _mm_add_epi64(_mm_unpacklo_epi32(four, sign), _mm_unpackhi_epi32(four, sign))
            });
            let two = _mm_add_epi64(low, high);
            let signed = _mm_cvtsi128_si64(two) + _mm_extract_epi64(two, 1);
            let halves = (blocks.len() * BLOCK / 2) as i64 * 0x8000;
            sum += (signed + halves) as u64;
        }
        sum
    }

    /// Each lane is the sum of two words, less 2^16.
    #[target_feature(enable = "avx2")]
    fn pairs(block: &[u8; BLOCK]) -> __m256i {
        // SAFETY: the pointer is that of a block, which may lie anywhere.
        let words = unsafe { _mm256_loadu_si256(block.as_ptr().cast()) };
        let signed = _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN));
        _mm256_madd_epi16(signed, _mm256_set1_epi16(1))
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
            assert_eq!(folded(sum(&octets)), folded(plain(&octets)), "{octet:02x}");
        }
    }
}
