//! Cryptographic instructions of System z processors (CPACF), by the bits that Linux hands to each process and by the
//! facilities that it lists.

use std::collections::BTreeSet;

/// The message-security assist: KM, KMC, KIMD, KLMD and KMAC.
pub(super) const CPACF: &str = "CPACF";
/// Its extension 8: KMA, which does AES-GCM in one instruction, since z14.
pub(super) const KMA: &str = "CPACF KMA";

/// HWCAP_S390_MSA of AT_HWCAP (linux/arch/s390/include/asm/elf.h).
const HWCAP_MSA: u64 = 1 << 3;
/// The bit of the message-security-assist extension 8 in the facility list (z/Architecture Principles of Operation).
const FACILITY_MSA8: u32 = 146;

/// The instructions that a value of AT_HWCAP and the text of `/proc/cpuinfo` announce.
#[cfg_attr(not(target_arch = "s390x"), allow(dead_code, reason = "for tests on others"))]
pub(super) fn found(hwcap: u64, cpuinfo: &str) -> BTreeSet<&'static str> {
    let has_msa = hwcap & HWCAP_MSA != 0;
    let has_kma = has_msa && facilities(cpuinfo).any(|facility| facility == FACILITY_MSA8);
    let all = [(CPACF, has_msa), (KMA, has_kma)];
    all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}

/// The numbers of the line `facilities`.
fn facilities(cpuinfo: &str) -> impl Iterator<Item = u32> {
    let line = cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "facilities").then_some(value)
    });
    line.unwrap_or_default().split_whitespace().filter_map(|number| number.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const Z14: &str = "vendor_id       : IBM/S390\n\
                       features\t: esan3 zarch stfle msa ldisp eimm dfp edat etf3eh highgprs te vx\n\
                       facilities      : 0 1 2 3 4 6 7 17 76 77 78 129 146 147\n";

    fn names(hwcap: u64, cpuinfo: &str) -> Vec<&'static str> {
        found(hwcap, cpuinfo).into_iter().collect()
    }

    #[test]
    fn the_assist_and_its_extension_8_are_told_apart() {
        let (without, with) = (0b0111, 0b1111);
        assert_eq!(names(with, Z14), [CPACF, KMA]);
        assert_eq!(names(with, &Z14.replace(" 146", "")), [CPACF]);
        assert_eq!(names(with, ""), [CPACF]);
        assert_eq!(names(without, Z14), [""; 0]);
        // Only whole numbers of that line count.
        assert_eq!(names(with, "facilities : 1 1460 14\nprocessor 146: version = FF\n"), [CPACF]);
    }
}
