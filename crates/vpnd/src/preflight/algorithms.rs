//! Remarks about a policy's algorithms on this machine.

use crate::remark::Told;
use ::crypto::{CryptoProviders, Function, Suite};
use policy::{AhIntegrity, ChildTunnel, KeyBits, Policy, Protection};
use std::collections::BTreeMap;

/// The number of tunnels that a remark names.
const NAMED: usize = 3;

/// A remark for each suite that the policy prefers although this CPU does it without instructions made for it, and for
/// each that the chosen provider lacks.
pub(super) fn judge(policy: &Policy, facility: &CryptoProviders) -> Vec<Told> {
    let mut remarks: BTreeMap<SuiteRemark, Vec<&str>> = BTreeMap::new();
    let children = policy.tunnels.iter().flat_map(|tunnel| &tunnel.children);
    for child in children {
        let mut suites = child.proposals.iter().filter_map(|p| Suite::of(p.protection));
        for suite in suites.clone() {
            let wanted = facility.choice().wanted(suite);
            if !wanted.supports(suite) {
                let text = format!("the crypto provider {wanted} has no {suite}: aws-lc does it");
                let remark = SuiteRemark { text, cure: None };
                remarks.entry(remark).or_default().push(&child.name);
            }
        }
        if let Some(remark) = suites.next().and_then(|first| slow(first, child, facility)) {
            remarks.entry(remark).or_default().push(&child.name);
        }
    }
    by_remark(remarks)
}

/// A remark about a suite, which several tunnels may share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SuiteRemark {
    pub text: String,
    pub cure: Option<String>,
}

/// Each remark once, with the tunnels that share it.
pub(super) fn by_remark(remarks: BTreeMap<SuiteRemark, Vec<&str>>) -> Vec<Told> {
    let told = remarks.into_iter().map(|(SuiteRemark { text, cure }, tunnels)| Told {
        cure,
        ..Told::of_tunnels(&tunnels, format!("{}: {text}", named(&tunnels)))
    });
    told.collect()
}

/// A remark, if the first suite of a tunnel is slow on this machine and a faster one could take its place.
fn slow(first: Suite, child: &ChildTunnel, facility: &CryptoProviders) -> Option<SuiteRemark> {
    let function = in_software(first, facility)?;
    let mut suites = child.proposals.iter().filter_map(|p| Suite::of(p.protection));
    let offered = suites.find(|suite| in_software(*suite, facility).is_none());
    let like = Some(accelerated_like(first));
    let like = like.filter(|suite| in_software(*suite, facility).is_none());
    let cure = match offered.or(like) {
        Some(suite) if offered.is_some() => format!("put {suite}, which is not, first"),
        Some(suite) => format!("{suite} is not: use it if the peer has it"),
        // Without any such instructions, this is the fastest that hides.
        None if hides(first) && first != Suite::ChaCha20Poly1305 => {
            format!("{} needs none: use it if the peer has it", Suite::ChaCha20Poly1305)
        }
        None => return None,
    };
    let text = format!("{function} is done in software, as this CPU has no instructions for it");
    Some(SuiteRemark { text, cure: Some(cure) })
}

/// The first function of a suite that the CPU has no instructions for.
fn in_software(suite: Suite, facility: &CryptoProviders) -> Option<Function> {
    // The CPU's abilities count here: whether they are to be used is said once, and not for each tunnel.
    let provider = facility.choice().provider(suite);
    suite.functions().find(|function| facility.cpu().instructions(provider, *function).is_empty())
}

/// The suite of equal strength with AES-GCM.
fn accelerated_like(suite: Suite) -> Suite {
    match suite.protection() {
        Protection::Ah(_) => Suite::Ah(AhIntegrity::AesGmac(KeyBits::B256)),
        Protection::Esp { encryption, .. } if !encryption.hides() => Suite::AesGmac(KeyBits::B256),
        Protection::Esp { encryption, .. } => {
            Suite::AesGcm16(encryption.row().key_length.unwrap_or(KeyBits::B256))
        }
    }
}

fn hides(suite: Suite) -> bool {
    suite.protection().hides()
}

/// The first tunnels of several.
fn named(tunnels: &[&str]) -> String {
    let shown = tunnels[..tunnels.len().min(NAMED)].join(", ");
    match tunnels.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::crypto::{Choice, Cpu, Provider};
    use std::sync::Arc;

    fn remarks(protections: &[&str], cpu: &[&'static str], choice: Choice) -> Vec<String> {
        let sample = include_str!("../../../../tests/policies/site/left.xml");
        let loaded = policy::xml::read("left.xml", sample).expect("the sample is valid");
        let mut policy = loaded.policy;
        let tunnel = Arc::make_mut(&mut policy.tunnels[0]);
        let proposals = &mut Arc::make_mut(&mut tunnel.children[0]).proposals;
        let template = proposals[0].clone();
        *proposals = protections
            .iter()
            .map(|name| {
                let protection = match *name {
                    "gcm" => encryption(policy::EspEncryption::AesGcm16(KeyBits::B192), None),
                    "chacha" => encryption(policy::EspEncryption::ChaCha20Poly1305, None),
                    "cbc" => encryption(
                        policy::EspEncryption::AesCbc(KeyBits::B128),
                        Some(policy::Integrity::HmacSha2_512_256),
                    ),
                    _ => policy::Protection::Ah(AhIntegrity::Mac(policy::Integrity::HmacMd5_96)),
                };
                policy::ChildProposal { protection, ..template.clone() }
            })
            .collect();
        let told = judge(&policy, &CryptoProviders::on(Cpu::with(cpu), choice));
        told.iter().map(ToString::to_string).collect()
    }

    fn encryption(
        encryption: policy::EspEncryption,
        integrity: Option<policy::Integrity>,
    ) -> policy::Protection {
        policy::Protection::Esp { encryption, integrity }
    }

    const FULL: &[&str] = &["AES-NI", "PCLMULQDQ", "SHA-NI", "ARMv8 AES", "ARMv8 PMULL"];

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[test]
    fn an_algorithm_in_software_is_told_with_a_better_one() {
        let told = |protections: &[&str]| remarks(protections, FULL, Choice::default());
        assert!(told(&["gcm"]).is_empty() && told(&["gcm", "chacha"]).is_empty());
        let why = "is done in software, as this CPU has no instructions for it;";
        assert_eq!(
            told(&["chacha", "gcm"]),
            [format!("site_lan: ChaCha20-Poly1305 {why} put AES-GCM-16-192, which is not, first")]
        );
        assert_eq!(
            told(&["cbc"]),
            [format!(
                "site_lan: HMAC-SHA2-512 {why} AES-GCM-16-128 is not: use it if the peer has it"
            )]
        );
        assert_eq!(
            told(&["ah"]),
            [format!("site_lan: HMAC-MD5 {why} AH/AES-GMAC-256 is not: use it if the peer has it")]
        );
    }

    #[test]
    fn without_instructions_there_is_one_that_needs_none() {
        let told = |protections: &[&str]| remarks(protections, &[], Choice::default());
        assert!(told(&["chacha"]).is_empty() && told(&["ah"]).is_empty());
        let told = told(&["gcm"]);
        assert!(told.len() == 1 && told[0].contains("CHACHA20-POLY1305 needs none"), "{told:?}");
    }

    #[test]
    fn a_provider_that_lacks_a_suite_is_told() {
        let told = remarks(&["gcm"], FULL, Choice::of(Provider::Ring));
        let remark = "site_lan: the crypto provider ring has no AES-GCM-16-192: aws-lc does it";
        assert!(told.contains(&remark.to_owned()), "{told:?}");
    }

    #[test]
    fn many_tunnels_are_counted() {
        assert_eq!(named(&["a", "b", "c"]), "a, b, c");
        assert_eq!(named(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
    }
}
