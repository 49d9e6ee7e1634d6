//! Changes of a policy with which network cards could offload more. The order of the proposals decides which suite is taken
//! (RFC 7296 §2.7), so that only a change of the policy can prefer a suite that the cards support.

use crate::crypto::remarks::named;
use ::crypto::Suite;
use esp::plane::Encapsulation;
use policy::{ChildTunnel, KeyBits, Policy};
use std::collections::BTreeMap;
use vpn::PlaneSettings;
use vpn::planes::Choice;
use xfrm::placement::{Need, Wanted};

/// A remark for each suite that tunnels prefer whose SAs cards are to have, although no card knows it.
pub fn of(policy: &Policy, planes: &PlaneSettings) -> Vec<String> {
    let mut remarks: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let children = policy.tunnels.iter().flat_map(|tunnel| &tunnel.children);
    let wanted = |child: &&ChildTunnel| {
        planes.choice_of(&child.name) != Choice::Userspace
            && planes.offload.choice_of(&child.name).wanted != Wanted::Off
    };
    for child in children.map(|child| &**child).filter(wanted) {
        if let Some(remark) = remark(child) {
            remarks.entry(remark).or_default().push(&child.name);
        }
    }
    remarks.into_iter().map(|(remark, tunnels)| format!("{}: {remark}", named(&tunnels))).collect()
}

fn remark(child: &ChildTunnel) -> Option<String> {
    let known = |suite: &Suite| {
        let encapsulation = Encapsulation::Native;
        Need { suite: *suite, encapsulation }.obstacle().is_none()
    };
    let mut suites = child.proposals.iter().filter_map(|p| Suite::of(p.protection));
    let first = suites.next().filter(|first| !known(first))?;
    let cure = match suites.find(known) {
        Some(better) => format!("put {better}, which they do, first in the policy's proposals"),
        None => {
            format!("they do {}: put it first if the peer has it", like(first))
        }
    };
    Some(format!("no network card does {first}, so that offload is not to be had; {cure}"))
}

/// The suite of equal strength that cards support.
fn like(suite: Suite) -> Suite {
    match suite {
        Suite::AesCbcMac(bits, _) => Suite::AesGcm16(bits),
        _ => Suite::AesGcm16(KeyBits::B256),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{AhIntegrity, ChildProposal, EspEncryption, Integrity, Protection};
    use std::sync::Arc;
    use vpn::OffloadSettings;
    use xfrm::placement;

    fn advice(protections: &[Protection], choice: Choice, wanted: Wanted) -> Vec<String> {
        let sample = include_str!("../../../tests/policies/site/left.xml");
        let mut policy = policy::xml::read("left.xml", sample).expect("the sample is valid").policy;
        let tunnel = Arc::make_mut(&mut policy.tunnels[0]);
        let proposals = &mut Arc::make_mut(&mut tunnel.children[0]).proposals;
        let template = proposals[0].clone();
        let with =
            |protection: &Protection| ChildProposal { protection: *protection, ..template.clone() };
        *proposals = protections.iter().map(with).collect();
        let device = None;
        let choice_of_card = placement::Choice { wanted, device };
        let offload = OffloadSettings { choice: choice_of_card, ..OffloadSettings::default() };
        of(&policy, &PlaneSettings { choice, offload, ..PlaneSettings::default() })
    }

    #[test]
    fn what_no_card_does_is_not_to_stand_first() {
        let gcm =
            Protection::Esp { encryption: EspEncryption::AesGcm16(KeyBits::B128), integrity: None };
        let cbc = Protection::Esp {
            encryption: EspEncryption::AesCbc(KeyBits::B256),
            integrity: Some(Integrity::HmacSha2_256_128),
        };
        let ah = Protection::Ah(AhIntegrity::Mac(Integrity::HmacSha2_256_128));
        let told = |protections: &[Protection]| advice(protections, Choice::Auto, Wanted::Auto);
        assert!(told(&[gcm, cbc]).is_empty());
        let why = "so that offload is not to be had;";
        let name = "AES-CBC-256/HMAC-SHA2-256-128";
        assert_eq!(
            told(&[cbc, ah, gcm]),
            [format!(
                "site_lan: no network card does {name}, {why} put AES-GCM-16-128, which they do, first in the policy's proposals"
            )]
        );
        assert_eq!(
            told(&[cbc]),
            [format!(
                "site_lan: no network card does {name}, {why} they do AES-GCM-16-256: put it first if the peer has it"
            )]
        );
        assert!(told(&[ah])[0].contains("AES-GCM-16-256"));
        // Where nothing is wanted of cards nothing is amiss.
        assert!(advice(&[cbc], Choice::Userspace, Wanted::Auto).is_empty());
        assert!(advice(&[cbc], Choice::Xfrm, Wanted::Off).is_empty());
    }
}
