//! Instructions of this CPU that are made for cryptography, and which of them a provider takes for what.

use crate::function::Function;
use crate::provider::Provider;
use algorithms::Instructions;
use std::collections::BTreeSet;

mod power;
mod processor;
mod system_z;

pub use processor::Processor;

/// The architectures whose cryptographic instructions are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Architecture {
    X86_64,
    Aarch64,
    /// POWER in little endian.
    Ppc64le,
    /// System z.
    S390x,
    Other,
}

/// The architecture of this build.
const HERE: Architecture = if cfg!(target_arch = "x86_64") {
    Architecture::X86_64
} else if cfg!(target_arch = "aarch64") {
    Architecture::Aarch64
} else if cfg!(all(target_arch = "powerpc64", target_endian = "little")) {
    Architecture::Ppc64le
} else if cfg!(target_arch = "s390x") {
    Architecture::S390x
} else {
    Architecture::Other
};

/// The cryptographic instructions of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    architecture: Architecture,
    found: BTreeSet<&'static str>,
    /// The instructions that AWS-LC finds: an environment variable can hide some from it.
    found_by_aws_lc: BTreeSet<&'static str>,
}

/// The environment variable that hides instructions from AWS-LC, as from OpenSSL.
pub const HIDING: &str = "OPENSSL_ia32cap";

/// The value of that variable with which AWS-LC uses no instruction made for cryptography, on x86. It then uses its own
/// software: AES by permutations of vectors (SSSE3) or by bit slices, in constant time.
pub const HIDING_ALL: &str = "~0x200000200000000:~0x60020000000";

impl Cpu {
    /// Looks at this CPU and at the environment. If there are no such instructions, they begin as switched off, and the
    /// chosen provider serves with its own software.
    pub fn detect() -> Self {
        let found = detect();
        let hidden = std::env::var(HIDING).map(|value| hidden(&value)).unwrap_or_default();
        let found_by_aws_lc = &found - &hidden;
        Self { architecture: HERE, found, found_by_aws_lc }
    }

    /// A CPU of this architecture with these instructions.
    pub fn with(instructions: &[&'static str]) -> Self {
        Self::of(HERE, instructions)
    }

    fn of(architecture: Architecture, instructions: &[&'static str]) -> Self {
        let found: BTreeSet<_> = instructions.iter().copied().collect();
        Self { architecture, found_by_aws_lc: found.clone(), found }
    }

    /// The names of all its instructions.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.found.iter().copied()
    }

    /// The instructions that are hidden from AWS-LC.
    pub fn hidden(&self) -> impl Iterator<Item = &'static str> {
        self.found.difference(&self.found_by_aws_lc).copied()
    }

    /// The instructions that no provider has code for, whatever the CPU has.
    pub fn unused(&self) -> impl Iterator<Item = &'static str> {
        let architecture = self.architecture;
        let used: BTreeSet<_> = [Provider::AwsLc, Provider::Ring]
            .into_iter()
            .flat_map(move |p| {
                Function::all().flat_map(move |f| candidates(architecture, p, f).concat())
            })
            .collect();
        self.found.iter().copied().filter(move |name| !used.contains(name))
    }

    /// The instructions with which a provider does a function here; none: it is software, if with general vector
    /// instructions.
    pub fn instructions(&self, provider: Provider, function: Function) -> Vec<&'static str> {
        let found = match provider {
            Provider::AwsLc => &self.found_by_aws_lc,
            Provider::Ring => &self.found,
            Provider::Portable => return Vec::new(),
        };
        candidates(self.architecture, provider, function)
            .iter()
            .find(|set| set.iter().all(|instruction| found.contains(instruction)))
            .map(|set| set.to_vec())
            .unwrap_or_default()
    }

    /// Returns `true` if it accelerates any cipher at all.
    pub fn accelerates(&self) -> bool {
        Provider::ALL
            .into_iter()
            .filter(|provider| provider.is_built())
            .any(|by| Function::all().any(|f| !self.instructions(by, f).is_empty()))
    }
}

/// Sets of instructions, the best first, as the providers' sources choose them (AWS-LC's gcm.c, aes.c and sha, ring's
/// aes_gcm.rs). A provider without code for the instructions of an architecture has none, whatever the CPU has.
fn candidates(
    architecture: Architecture,
    provider: Provider,
    function: Function,
) -> &'static [&'static [&'static str]] {
    let kind = function.instructions();
    match (architecture, provider) {
        (Architecture::X86_64, provider) => x86_64(provider, kind),
        (Architecture::Aarch64, _) => aarch64(kind),
        (Architecture::Ppc64le, Provider::AwsLc) => power::by_aws_lc(kind),
        // ring has no assembly for POWER, and neither has any for System z.
        (Architecture::Ppc64le | Architecture::S390x | Architecture::Other, _) => &[],
    }
}

fn x86_64(provider: Provider, kind: Instructions) -> &'static [&'static [&'static str]] {
    match kind {
        Instructions::AesGcm if provider == Provider::Ring => {
            &[&["VAES", "VPCLMULQDQ", "AVX2"], &["AES-NI", "PCLMULQDQ"]]
        }
        Instructions::AesGcm => &[&["VAES", "VPCLMULQDQ", "AVX-512"], &["AES-NI", "PCLMULQDQ"]],
        Instructions::Aes => &[&["AES-NI"]],
        Instructions::Sha => &[&["SHA-NI"]],
        Instructions::Sha512 | Instructions::None => &[],
    }
}

fn aarch64(kind: Instructions) -> &'static [&'static [&'static str]] {
    match kind {
        Instructions::AesGcm => &[&["ARMv8 AES", "ARMv8 PMULL"]],
        Instructions::Aes => &[&["ARMv8 AES"]],
        Instructions::Sha => &[&["ARMv8 SHA2"]],
        Instructions::Sha512 => &[&["ARMv8 SHA512"]],
        Instructions::None => &[],
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> BTreeSet<&'static str> {
    use std::arch::is_x86_feature_detected as has;
    let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
    let all = [
        ("AES-NI", has!("aes")),
        ("PCLMULQDQ", has!("pclmulqdq")),
        ("VAES", has!("vaes")),
        ("VPCLMULQDQ", has!("vpclmulqdq")),
        ("AVX2", has!("avx2")),
        ("AVX-512", avx512),
        ("SHA-NI", has!("sha")),
    ];
    all.into_iter().filter(|(_, found)| *found).map(|(name, _)| name).collect()
}

#[cfg(target_arch = "aarch64")]
fn detect() -> BTreeSet<&'static str> {
    use std::arch::is_aarch64_feature_detected as has;
    let all = [
        ("ARMv8 AES", has!("aes")),
        ("ARMv8 PMULL", has!("pmull")),
        ("ARMv8 SHA2", has!("sha2")),
        // The bit stands for the SHA-512 instructions as well.
        ("ARMv8 SHA512", has!("sha3")),
    ];
    all.into_iter().filter(|(_, found)| *found).map(|(name, _)| name).collect()
}

#[cfg(target_arch = "powerpc64")]
fn detect() -> BTreeSet<&'static str> {
    let (_, second) = rustix::param::linux_hwcap();
    power::found(second as u64)
}

#[cfg(target_arch = "s390x")]
fn detect() -> BTreeSet<&'static str> {
    let (first, _) = rustix::param::linux_hwcap();
    let described = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    system_z::found(first as u64, &described)
}

#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "powerpc64",
    target_arch = "s390x"
)))]
fn detect() -> BTreeSet<&'static str> {
    BTreeSet::new()
}

/// The instructions that a value of the variable hides. The value has two numbers: CPUID bits, or, behind `~`, bits to
/// clear. The first has CPUID 1's EDX and ECX, the second CPUID 7's EBX and ECX.
fn hidden(value: &str) -> BTreeSet<&'static str> {
    let (first, second) = value.split_once(':').map_or((value, None), |(a, b)| (a, Some(b)));
    let (first, second) = (cleared(first), second.map_or(0, cleared));
    let all = [
        ("AES-NI", first, 32 + 25),
        ("PCLMULQDQ", first, 32 + 1),
        ("AVX2", second, 5),
        ("AVX-512", second, 16),
        ("SHA-NI", second, 29),
        ("VAES", second, 32 + 9),
        ("VPCLMULQDQ", second, 32 + 10),
    ];
    all.into_iter().filter(|(_, word, bit)| word >> bit & 1 == 1).map(|(name, ..)| name).collect()
}

/// The bits of one word that are cleared: `~` names them, a word without a sign names those that stay.
fn cleared(text: &str) -> u64 {
    let text = text.trim();
    let (kind, digits) = match text.as_bytes().first() {
        Some(b'~' | b'|') => text.split_at(1),
        _ => ("", text),
    };
    let number = match digits.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16),
        None => digits.parse(),
    };
    match (kind, number) {
        ("~", Ok(number)) => number,
        ("", Ok(number)) => !number,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mac;
    use policy::{EspEncryption, KeyBits};

    #[test]
    fn nothing_is_accelerated_without_instructions_and_nothing_ever_by_the_portable_provider() {
        let all = ["AES-NI", "PCLMULQDQ", "VAES", "VPCLMULQDQ", "AVX2", "AVX-512", "SHA-NI"];
        let (bare, full) = (Cpu::with(&[]), Cpu::with(&all));
        assert!(!bare.accelerates());
        for function in Function::all() {
            assert!(full.instructions(Provider::Portable, function).is_empty());
            assert!(bare.instructions(Provider::AwsLc, function).is_empty());
        }
    }

    #[test]
    fn only_instructions_that_a_provider_has_code_for_accelerate() {
        let gcm = Function::Cipher(EspEncryption::AesGcm16(KeyBits::B256));
        let power = Cpu::of(Architecture::Ppc64le, &[power::VECTOR_CRYPTO]);
        assert_eq!(power.instructions(Provider::AwsLc, gcm), [power::VECTOR_CRYPTO]);
        assert!(power.instructions(Provider::Ring, gcm).is_empty());
        let sha = Function::Mac(mac::Algorithm::HmacSha2_256);
        assert!(power.instructions(Provider::AwsLc, sha).is_empty(), "AWS-LC has no code for it");
        assert!(power.accelerates());
        assert!(!Cpu::of(Architecture::Ppc64le, &[]).accelerates());
        let z = Cpu::of(Architecture::S390x, &[system_z::CPACF, system_z::KMA]);
        assert!(!z.accelerates(), "no provider has code for it");
        assert_eq!(z.unused().collect::<Vec<_>>(), [system_z::CPACF, system_z::KMA]);
    }

    #[test]
    fn the_best_instructions_that_are_there_are_taken() {
        let gcm = Function::Cipher(EspEncryption::AesGcm16(KeyBits::B256));
        let with = |instructions: &[&'static str]| Cpu::of(Architecture::X86_64, instructions);
        let old = with(&["AES-NI", "PCLMULQDQ"]);
        assert_eq!(old.instructions(Provider::AwsLc, gcm), ["AES-NI", "PCLMULQDQ"]);
        let half = with(&["AES-NI"]);
        assert!(half.instructions(Provider::AwsLc, gcm).is_empty());
        assert_eq!(
            half.instructions(
                Provider::AwsLc,
                Function::Cipher(EspEncryption::AesCbc(KeyBits::B128))
            ),
            ["AES-NI"]
        );
        let new = with(&["AES-NI", "PCLMULQDQ", "VAES", "VPCLMULQDQ", "AVX2"]);
        assert_eq!(new.instructions(Provider::AwsLc, gcm), ["AES-NI", "PCLMULQDQ"]);
        assert_eq!(new.instructions(Provider::Ring, gcm), ["VAES", "VPCLMULQDQ", "AVX2"]);
    }

    #[test]
    fn the_environment_hides_instructions() {
        let names = |value| hidden(value).into_iter().collect::<Vec<_>>();
        assert_eq!(names(HIDING_ALL), ["AES-NI", "PCLMULQDQ", "SHA-NI", "VAES", "VPCLMULQDQ"]);
        let everything = names("~0x200000200000000:~0x60000000000");
        assert_eq!(everything, ["AES-NI", "PCLMULQDQ", "VAES", "VPCLMULQDQ"]);
        assert_eq!(names("~0x0:~0x60000000000"), ["VAES", "VPCLMULQDQ"]);
        assert!(names("").is_empty() && names("nonsense:").is_empty());
        assert!(names("|0x200000200000000").is_empty());
        assert_eq!(names("0x0").len(), 2);
    }
}
