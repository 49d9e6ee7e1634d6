//! Changes of a policy with which network cards could offload more. The order of the proposals decides which suite is
//! taken (RFC 7296 §2.7), so that only a change of the policy can prefer a suite that the cards support.

use super::algorithms::{SuiteRemark, by_remark};
use crate::remark::Told;
use ::crypto::Suite;
use esp::plane::Encapsulation;
use policy::{ChildTunnel, KeyBits, Policy};
use std::collections::BTreeMap;
use vpn::PlaneSettings;
use vpn::planes::Choice;
use xfrm::placement::{self, Need, Wanted};

/// The drivers of this host's cards with ESP offload.
pub(super) fn drivers() -> Vec<String> {
    let devices = xfrm::nic::devices().unwrap_or_default();
    let cards = devices
        .into_iter()
        .filter(|device| device.features.iter().any(|f| f.name == "esp-hw-offload"));
    cards.filter_map(|card| card.driver).collect()
}

/// A remark for each suite that tunnels prefer whose SAs cards are to have, although no card knows it, or none of those
/// with these drivers.
pub(super) fn judge(policy: &Policy, planes: &PlaneSettings, drivers: &[String]) -> Vec<Told> {
    let mut remarks: BTreeMap<SuiteRemark, Vec<&str>> = BTreeMap::new();
    let children = policy.tunnels.iter().flat_map(|tunnel| &tunnel.children);
    let wanted = children.filter(|child| {
        planes.choice_of(&child.name) != Choice::Userspace
            && planes.offload.choice_of(&child.name).wanted != Wanted::Off
    });
    for child in wanted {
        if let Some(remark) = remark(child, drivers) {
            remarks.entry(remark).or_default().push(&child.name);
        }
    }
    by_remark(remarks)
}

fn remark(child: &ChildTunnel, drivers: &[String]) -> Option<SuiteRemark> {
    let mut suites = child.proposals.iter().filter_map(|p| Suite::of(p.protection));
    let first = suites.next().filter(|first| !is_taken(*first, drivers))?;
    let whose = if is_known(first) { "of this host " } else { "" };
    let cure = match suites.find(|suite| is_taken(*suite, drivers)) {
        Some(better) => format!("put {better}, which they do, first in the policy's proposals"),
        None => {
            let mut alike = [like(first), Suite::AesGcm16(KeyBits::B128)].into_iter();
            let like = alike.find(|suite| is_taken(*suite, drivers))?;
            format!("they do {like}: put it first if the peer has it")
        }
    };
    let text = format!("no network card {whose}does {first}, so offload is not possible");
    Some(SuiteRemark { text, cure: Some(cure) })
}

fn is_known(suite: Suite) -> bool {
    Need { suite, encapsulation: Encapsulation::Native }.obstacle().is_none()
}

fn is_taken(suite: Suite, drivers: &[String]) -> bool {
    // A driver that is not known may take anything.
    let all_refuse = drivers
        .iter()
        .all(|driver| placement::suites(driver).is_some_and(|known| !known.contains(&suite)));
    is_known(suite) && (drivers.is_empty() || !all_refuse)
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

    fn advice(
        protections: &[Protection],
        choice: Choice,
        wanted: Wanted,
        drivers: &[&str],
    ) -> Vec<String> {
        let sample = include_str!("../../../../tests/policies/site/left.xml");
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
        let drivers: Vec<String> = drivers.iter().map(ToString::to_string).collect();
        let planes = PlaneSettings { choice, offload, ..PlaneSettings::default() };
        judge(&policy, &planes, &drivers).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_suite_that_no_card_of_this_host_does_is_not_to_stand_first() {
        let gcm =
            |bits| Protection::Esp { encryption: EspEncryption::AesGcm16(bits), integrity: None };
        let (short, long) = (gcm(KeyBits::B128), gcm(KeyBits::B256));
        let told = |drivers: &[&str], protections: &[Protection]| {
            advice(protections, Choice::Auto, Wanted::Auto, drivers)
        };
        let why = "site_lan: no network card of this host does AES-GCM-16-256, so offload is not possible;";
        assert_eq!(
            told(&["ixgbe"], &[long, short]),
            [format!("{why} put AES-GCM-16-128, which they do, first in the policy's proposals")]
        );
        assert_eq!(
            told(&["ixgbe", "ixgbevf"], &[long]),
            [format!("{why} they do AES-GCM-16-128: put it first if the peer has it")]
        );
        assert!(told(&["ixgbe"], &[short, long]).is_empty());
        assert!(told(&["ixgbe", "mlx5_core"], &[long]).is_empty(), "one of them does");
        assert!(told(&["ixgbe", "unheard_of"], &[long]).is_empty(), "one of them may");
    }

    #[test]
    fn a_first_proposal_that_no_card_does_is_advised_against() {
        let gcm =
            Protection::Esp { encryption: EspEncryption::AesGcm16(KeyBits::B128), integrity: None };
        let cbc = Protection::Esp {
            encryption: EspEncryption::AesCbc(KeyBits::B256),
            integrity: Some(Integrity::HmacSha2_256_128),
        };
        let ah = Protection::Ah(AhIntegrity::Mac(Integrity::HmacSha2_256_128));
        let told =
            |protections: &[Protection]| advice(protections, Choice::Auto, Wanted::Auto, &[]);
        assert!(told(&[gcm, cbc]).is_empty());
        let why = "so offload is not possible;";
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
        // Without a wish for offload there is no remark.
        assert!(advice(&[cbc], Choice::Userspace, Wanted::Auto, &[]).is_empty());
        assert!(advice(&[cbc], Choice::Xfrm, Wanted::Off, &[]).is_empty());
    }
}
