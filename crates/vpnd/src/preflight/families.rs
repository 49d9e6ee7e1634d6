//! Remarks about address families for which IPsec is switched off.

use crate::remark::Told;
use esp::families::{Families, Family};
use policy::Policy;

/// A remark for each family that is off, with the tunnels that need it.
pub(super) fn judge(policy: &Policy, families: Families) -> Vec<Told> {
    let off = Family::ALL.into_iter().filter(|family| !families.has(*family));
    off.map(|family| told(policy, families, family)).collect()
}

fn told(policy: &Policy, families: Families, family: Family) -> Told {
    let children = policy.tunnels.iter().flat_map(|tunnel| {
        tunnel.children.iter().filter(|child| {
            ike::families::off(families, tunnel, child).is_some_and(|off| off.family == family)
        })
    });
    let names: Vec<&str> = children.map(|child| &*child.name).collect();
    let effect = match names.as_slice() {
        [] => "no phase 2 tunnel needs it".to_owned(),
        [one] => format!("tunnel {one} stays down, and its traffic is blocked"),
        more => format!("{} phase 2 tunnels stay down, and their traffic is blocked", more.len()),
    };
    let text = format!("IPsec of {family} is off: {effect}");
    Told::of_tunnels(&names, text)
        .with_cure(format!("to switch it on: vpnctl family {} on", family.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_that_is_off_is_told_with_the_tunnels_that_need_it() {
        let text = include_str!("../../../../tests/policies/site/left.xml");
        let policy = policy::xml::read("left.xml", text).expect("the sample is valid").policy;
        let told = |families: Families| {
            let told = judge(&policy, families);
            told.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(told(Families::default()), [""; 0]);
        assert_eq!(
            told(Families { ipv4: false, ipv6: true }),
            [
                "IPsec of IPv4 is off: tunnel site_lan stays down, and its traffic is blocked; to switch it on: \
                 vpnctl family ipv4 on"
            ]
        );
        assert_eq!(
            told(Families { ipv4: true, ipv6: false }),
            [
                "IPsec of IPv6 is off: no phase 2 tunnel needs it; to switch it on: vpnctl family ipv6 on"
            ]
        );
    }
}
