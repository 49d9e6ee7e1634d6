//! IPsec of one address family, switched off: policies block in the place of SAs, and nothing else changes.

use super::twin::{inbound, outbound, plane, rule};
use crate::spd::PolicyDirection;
use esp::families::{Families, Family};
use esp::plane::{DataPlane, FamilySwitching, InboundSa, OutboundSa, Rule, SaId, TrafficSelectors};
use policy::{AddressRange, Selector};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

fn net6(third: u16) -> Selector {
    let end = |low: u16| IpAddr::V6(Ipv6Addr::new(0xfd00, third, 0, 0, 0, 0, 0, low));
    Selector::all_of(AddressRange::new(end(0), end(0xffff)).expect("a range"))
}

/// Traffic of both families, by one pair of SAs.
fn both() -> TrafficSelectors {
    let TrafficSelectors { mut local, mut remote } = rule().selectors;
    local.push(net6(1));
    remote.push(net6(2));
    TrafficSelectors { local, remote }
}

fn off(family: Family) -> Families {
    Families::default().with(family, false)
}

#[test]
fn traffic_of_a_family_that_is_off_is_blocked_and_the_other_goes_on() {
    let (mut plane, twin) = plane();
    plane.add_rule(Rule { selectors: both(), ..rule() }).expect("the kernel can");
    let selectors = Arc::new(both());
    plane
        .add_inbound(InboundSa { selectors: Arc::clone(&selectors), ..inbound(1, 0x101) })
        .expect("the kernel can");
    plane.add_outbound(OutboundSa { selectors, ..outbound(2, 0x201, false) }).expect("it can");
    let policies = || {
        [PolicyDirection::Out, PolicyDirection::In, PolicyDirection::Forward]
            .map(|direction| twin.blocked(direction))
    };
    assert_eq!(policies(), [[false, false]; 3]);
    plane.set_families(off(Family::Ipv6)).expect("the kernel can");
    assert_eq!(policies(), [[false, true]; 3]);
    assert_eq!(twin.spis(), [0x101, 0x201], "the SAs stay");
    // A rekey meanwhile opens nothing.
    let selectors = Arc::new(both());
    plane.add_outbound(OutboundSa { selectors, ..outbound(4, 0x202, false) }).expect("it can");
    assert_eq!(policies(), [[false, true]; 3]);
    plane.set_families(off(Family::Ipv4)).expect("the kernel can");
    // The SAs are between addresses of IPv4.
    assert_eq!(policies(), [[true, true]; 3]);
    plane.set_families(Families::default()).expect("the kernel can");
    assert_eq!(policies(), [[false, false]; 3]);
    plane.remove(SaId(4));
    assert_eq!(policies(), [[false, false]; 3]);
}

#[test]
fn a_trap_asks_for_no_sa_while_its_family_is_off() {
    let (mut plane, twin) = plane();
    plane.set_families(off(Family::Ipv6)).expect("there is nothing yet");
    plane.add_rule(Rule { selectors: both(), trap: true, ..rule() }).expect("the kernel can");
    assert_eq!(twin.blocked(PolicyDirection::Out), [false, true]);
    plane.set_families(Families::default()).expect("the kernel can");
    assert_eq!(twin.blocked(PolicyDirection::Out), [false, false]);
}
