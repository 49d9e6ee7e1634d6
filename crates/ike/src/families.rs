//! Tunnels of an address family for which IPsec is switched off.
//!
//! A tunnel is of such a family if it runs between addresses of the family, or if all of its traffic is of the family.

use crate::failure::facts::FamilyOff;
use crate::status::PastFailure;
use esp::families::{Families, Family};
use policy::{ChildTunnel, IkeTunnel};
use std::time::Duration;

/// The reason why a phase 2 tunnel may not be up; `None`: it may.
pub fn off(families: Families, tunnel: &IkeTunnel, child: &ChildTunnel) -> Option<FamilyOff> {
    between_off(families, tunnel).or_else(|| traffic_off(families, child))
}

/// The same for the addresses of a tunnel, as far as the policy names them.
pub(crate) fn between_off(families: Families, tunnel: &IkeTunnel) -> Option<FamilyOff> {
    let addresses = [tunnel.remote.address, tunnel.local.address].into_iter().flatten();
    let off = addresses.map(Family::of).find(|family| !families.has(*family))?;
    Some(FamilyOff { family: off, of_traffic: false })
}

/// The same for the traffic of a phase 2 tunnel.
pub(crate) fn traffic_off(families: Families, child: &ChildTunnel) -> Option<FamilyOff> {
    // Traffic has both ends in one family.
    let mut of_traffic = Family::ALL.into_iter().filter(|family| {
        [&child.local, &child.remote]
            .iter()
            .all(|side| side.iter().any(|s| Family::of(s.addresses.start()) == *family))
    });
    match of_traffic.clone().any(|family| families.has(family)) {
        true => None,
        false => of_traffic.next().map(|family| FamilyOff { family, of_traffic: true }),
    }
}

/// The failure of a tunnel that is off, which lasts.
pub(crate) fn present(off: FamilyOff) -> PastFailure {
    PastFailure {
        failure: off.into(),
        ago: Duration::ZERO,
        times: 1,
        peer: None,
        overcome: false,
        overcome_ago: None,
        outdated_ago: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{AddressRange, Selector};
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    const FOUR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const SIX: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

    fn child(addresses: &[IpAddr]) -> ChildTunnel {
        let host = |a: &IpAddr| Selector::all_of(AddressRange::new(*a, *a).expect("one address"));
        let selectors: Vec<Selector> = addresses.iter().map(host).collect();
        let any = AddressRange::new(FOUR, FOUR).expect("one address");
        let child = ChildTunnel::new("net", any, any);
        ChildTunnel { local: selectors.clone(), remote: selectors, ..child }
    }

    #[test]
    fn traffic_of_both_families_is_off_only_with_both() {
        let without = |family| Families::default().with(family, false);
        let reason = |families, addresses: &[IpAddr]| {
            traffic_off(families, &child(addresses)).map(|off| off.family)
        };
        for (family, address) in [(Family::Ipv4, FOUR), (Family::Ipv6, SIX)] {
            assert_eq!(reason(Families::default(), &[address]), None);
            assert_eq!(reason(without(family), &[address]), Some(family));
            assert_eq!(reason(without(family), &[FOUR, SIX]), None);
        }
        assert_eq!(reason(without(Family::Ipv4), &[SIX]), None);
        let none = Families { ipv4: false, ipv6: false };
        assert_eq!(reason(none, &[FOUR, SIX]), Some(Family::Ipv4));
    }
}
