//! Instructions of this CPU that are made for cryptography, and which of them a provider takes for what.

use crate::function::Function;
use crate::mac;
use crate::provider::Provider;
use std::collections::BTreeSet;

/// The cryptographic instructions of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    found: BTreeSet<&'static str>,
    /// The instructions that AWS-LC finds: an environment variable can hide some from it.
    found_by_aws_lc: BTreeSet<&'static str>,
}

/// The environment variable that hides instructions from AWS-LC, as from OpenSSL.
pub const HIDING: &str = "OPENSSL_ia32cap";

impl Cpu {
    /// Looks at this CPU and at the environment.
    pub fn detect() -> Self {
        let found = detect();
        let hidden = std::env::var(HIDING).map(|value| hidden(&value)).unwrap_or_default();
        let found_by_aws_lc = &found - &hidden;
        Self { found, found_by_aws_lc }
    }

    /// A CPU with these instructions.
    pub fn with(instructions: &[&'static str]) -> Self {
        let found: BTreeSet<_> = instructions.iter().copied().collect();
        Self { found_by_aws_lc: found.clone(), found }
    }

    /// The names of all its instructions.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.found.iter().copied()
    }

    /// The instructions that are hidden from AWS-LC.
    pub fn hidden(&self) -> impl Iterator<Item = &'static str> {
        self.found.difference(&self.found_by_aws_lc).copied()
    }

    /// The instructions with which a provider does a function here; none: it is software, if with general vector
    /// instructions.
    pub fn instructions(&self, provider: Provider, function: Function) -> Vec<&'static str> {
        let found = match provider {
            Provider::AwsLc => &self.found_by_aws_lc,
            Provider::Ring => &self.found,
            Provider::Portable => return Vec::new(),
        };
        candidates(provider, function)
            .iter()
            .find(|set| set.iter().all(|instruction| found.contains(instruction)))
            .map(|set| set.to_vec())
            .unwrap_or_default()
    }

    /// Returns `true` if it accelerates any cipher at all.
    pub fn accelerates(&self) -> bool {
        Function::all().any(|f| !self.instructions(Provider::AwsLc, f).is_empty())
    }
}

/// Sets of instructions, the best first, as the providers' sources choose them (AWS-LC's gcm.c, aes.c and sha, ring's
/// aes_gcm.rs).
#[cfg(target_arch = "x86_64")]
fn candidates(provider: Provider, function: Function) -> &'static [&'static [&'static str]] {
    match function {
        Function::AesGcm(_) | Function::AesGmac(_) if provider == Provider::Ring => {
            &[&["VAES", "VPCLMULQDQ", "AVX2"], &["AES-NI", "PCLMULQDQ"]]
        }
        Function::AesGcm(_) | Function::AesGmac(_) => {
            &[&["VAES", "VPCLMULQDQ", "AVX-512"], &["AES-NI", "PCLMULQDQ"]]
        }
        Function::AesCbc(_) | Function::Mac(mac::Algorithm::AesXcbc | mac::Algorithm::AesCmac) => {
            &[&["AES-NI"]]
        }
        Function::Mac(mac::Algorithm::HmacSha1 | mac::Algorithm::HmacSha2_256) => &[&["SHA-NI"]],
        Function::ChaCha20Poly1305
        | Function::DesCbc(_)
        | Function::Mac(
            mac::Algorithm::HmacMd5 | mac::Algorithm::HmacSha2_384 | mac::Algorithm::HmacSha2_512,
        ) => &[],
    }
}

#[cfg(target_arch = "aarch64")]
fn candidates(_: Provider, function: Function) -> &'static [&'static [&'static str]] {
    match function {
        Function::AesGcm(_) | Function::AesGmac(_) => &[&["ARMv8 AES", "ARMv8 PMULL"]],
        Function::AesCbc(_) | Function::Mac(mac::Algorithm::AesXcbc | mac::Algorithm::AesCmac) => {
            &[&["ARMv8 AES"]]
        }
        Function::Mac(mac::Algorithm::HmacSha1 | mac::Algorithm::HmacSha2_256) => {
            &[&["ARMv8 SHA2"]]
        }
        Function::Mac(mac::Algorithm::HmacSha2_384 | mac::Algorithm::HmacSha2_512) => {
            &[&["ARMv8 SHA512"]]
        }
        Function::ChaCha20Poly1305
        | Function::DesCbc(_)
        | Function::Mac(mac::Algorithm::HmacMd5) => &[],
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn candidates(_: Provider, _: Function) -> &'static [&'static [&'static str]] {
    &[]
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

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> BTreeSet<&'static str> {
    BTreeSet::new()
}

/// The instructions that a value of the variable hides. The value has two numbers: CPUID bits, or, behind `~`, bits to
/// clear. The first has CPUID 1's EDX and ECX, the second CPUID 7's EBX and ECX.
fn hidden(value: &str) -> BTreeSet<&'static str> {
    let (first, second) = value.split_once(':').map_or((value, None), |(a, b)| (a, Some(b)));
    let cleared = |text: &str| -> u64 {
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
    };
    let (first, second) = (cleared(first), second.map_or(0, cleared));
    let bit = |word: u64, bit: u32| word >> bit & 1 == 1;
    let all = [
        ("AES-NI", bit(first, 32 + 25)),
        ("PCLMULQDQ", bit(first, 32 + 1)),
        ("AVX2", bit(second, 5)),
        ("AVX-512", bit(second, 16)),
        ("SHA-NI", bit(second, 29)),
        ("VAES", bit(second, 32 + 9)),
        ("VPCLMULQDQ", bit(second, 32 + 10)),
    ];
    all.into_iter().filter(|(_, hidden)| *hidden).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::KeyBits;

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

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_best_instructions_that_are_there_are_taken() {
        let gcm = Function::AesGcm(KeyBits::B256);
        let old = Cpu::with(&["AES-NI", "PCLMULQDQ"]);
        assert_eq!(old.instructions(Provider::AwsLc, gcm), ["AES-NI", "PCLMULQDQ"]);
        let half = Cpu::with(&["AES-NI"]);
        assert!(half.instructions(Provider::AwsLc, gcm).is_empty());
        assert_eq!(half.instructions(Provider::AwsLc, Function::AesCbc(KeyBits::B128)), ["AES-NI"]);
        let new = Cpu::with(&["AES-NI", "PCLMULQDQ", "VAES", "VPCLMULQDQ", "AVX2"]);
        assert_eq!(new.instructions(Provider::AwsLc, gcm), ["AES-NI", "PCLMULQDQ"]);
        assert_eq!(new.instructions(Provider::Ring, gcm), ["VAES", "VPCLMULQDQ", "AVX2"]);
    }

    #[test]
    fn the_environment_hides_instructions() {
        let names = |value| hidden(value).into_iter().collect::<Vec<_>>();
        let everything = names("~0x200000200000000:~0x60000000000");
        assert_eq!(everything, ["AES-NI", "PCLMULQDQ", "VAES", "VPCLMULQDQ"]);
        assert_eq!(names("~0x0:~0x60000000000"), ["VAES", "VPCLMULQDQ"]);
        assert!(names("").is_empty() && names("nonsense:").is_empty());
        assert!(names("|0x200000200000000").is_empty());
        assert_eq!(names("0x0").len(), 2);
    }
}
