//! Cryptographic instructions of POWER processors, by the bits that Linux hands to each process.

use algorithms::Instructions;
use std::collections::BTreeSet;

/// `vcipher`, `vncipher`, `vpmsumd`, `vshasigmaw` and others: the instructions of the category Vector.Crypto, since
/// POWER8.
pub(super) const VECTOR_CRYPTO: &str = "POWER vector crypto";

/// PPC_FEATURE2_VEC_CRYPTO of AT_HWCAP2 (linux/arch/powerpc/include/uapi/asm/cputable.h).
const FEATURE2_VEC_CRYPTO: u64 = 0x0200_0000;

/// The instructions that a value of AT_HWCAP2 announces.
#[cfg_attr(not(target_arch = "powerpc64"), allow(dead_code, reason = "for tests on others"))]
pub(super) fn found(hwcap2: u64) -> BTreeSet<&'static str> {
    let has = hwcap2 & FEATURE2_VEC_CRYPTO != 0;
    has.then_some(VECTOR_CRYPTO).into_iter().collect()
}

/// AWS-LC has aesp8-ppc and ghashp8-ppc: AES and GHASH, but no SHA.
pub(super) fn by_aws_lc(kind: Instructions) -> &'static [&'static [&'static str]] {
    match kind {
        Instructions::AesGcm | Instructions::Aes => &[&[VECTOR_CRYPTO]],
        Instructions::Sha | Instructions::Sha512 | Instructions::None => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power8_and_later_have_the_instructions_and_power7_has_not() {
        // PPC_FEATURE2_ISEL alone, and with ARCH_2_07, HTM, DSCR, EBB, TAR and VEC_CRYPTO.
        let (power7, power8) = (0x0800_0000, 0xfe00_0000);
        assert!(found(0).is_empty() && found(power7).is_empty());
        for hwcap2 in [power8, FEATURE2_VEC_CRYPTO] {
            assert_eq!(found(hwcap2).into_iter().collect::<Vec<_>>(), [VECTOR_CRYPTO]);
        }
        assert!(found(power8 & !FEATURE2_VEC_CRYPTO).is_empty());
    }

    /// Programs of Rust need a POWER8 there.
    #[cfg(all(target_arch = "powerpc64", target_endian = "little"))]
    #[test]
    fn this_cpu_announces_the_instructions() {
        assert!(crate::Cpu::detect().names().any(|name| name == VECTOR_CRYPTO));
    }
}
