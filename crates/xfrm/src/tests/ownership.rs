//! SAs and policies of this plane in a kernel that others use as well, with a reqid that the operator has given.

use super::twin::{Twin, inbound, outbound, plane, rule};
use super::*;
use crate::leftovers;
use crate::ownership::Own;
use esp::plane::{DataPlane, InboundSa, ManualKeying, OutboundSa};

/// A pair keyed by hand that the kernel knows by this reqid.
fn by_hand(reqid: u32) -> (Xfrm, Twin) {
    let (mut plane, twin) = plane();
    plane.add_rule(rule()).expect("the kernel can");
    plane.set_reqid(rule().id, reqid).expect("it is free");
    let ids = [1, 2].map(|number| SaId(SaId::FIRST_MANUAL.0 + number));
    plane.add_inbound(InboundSa { id: ids[0], ..inbound(0, 7) }).expect("the kernel can");
    plane.add_outbound(OutboundSa { id: ids[1], ..outbound(0, 8, false) }).expect("the kernel can");
    (plane, twin)
}

fn spis(twin: &Twin) -> Vec<u32> {
    let own = Own::list(&mut twin.clone()).expect("it tells");
    own.states.iter().map(|state| state.user_sa_info.id.spi).collect()
}

#[test]
fn sas_with_a_reqid_of_the_operator_are_known_by_their_policies() {
    let (plane, twin) = by_hand(7);
    for (spi, direction) in
        [(7, PolicyDirection::In), (8, PolicyDirection::Out), (7, PolicyDirection::Forward)]
    {
        assert_eq!(twin.policy(direction), [Some(spi)]);
    }
    // Another program's SA of the same reqid, with a policy of its own.
    let mut other = twin.tables().states[&8].clone();
    other.user_sa_info.id.spi = 9;
    let mut policy = *twin.tables().policies.last().expect("there");
    (policy.0.priority, policy.0.selector.proto) = (100, 6);
    policy.1.as_mut().expect("it protects").id.spi = 9;
    twin.tables().states.insert(9, other);
    twin.tables().policies.push(policy);
    assert_eq!(spis(&twin), [7, 8]);

    // As if the process had been killed.
    std::mem::forget(plane);
    let stale = leftovers::take(&mut twin.clone()).expect("the kernel can");
    assert_eq!(twin.tables().states.keys().copied().collect::<Vec<_>>(), [9]);
    assert_eq!(stale.len(), 3, "policies go when those of the next run are there");
}

#[test]
fn sas_with_a_reqid_of_the_operator_move_with_their_policies() {
    let (mut plane, twin) = by_hand(7);
    let id = SaId(SaId::FIRST_MANUAL.0 + 1);
    let path = inbound(0, 7).path;
    let moved = Path { remote: ([192, 0, 2, 9], 4500).into(), ..path };
    plane.relocate(id, moved).expect("the kernel can");
    let tables = twin.tables();
    let guard =
        tables.policies.iter().find(|(info, ..)| info.direction == PolicyDirection::In.number());
    let template = guard.and_then(|(_, template, ..)| *template).expect("there");
    assert_eq!(template.saddr.to_ipv4().to_string(), "192.0.2.9");
}

#[test]
fn reqids_that_cannot_be_had_are_refused() {
    let (mut plane, _twin) = by_hand(7);
    for (reqid, why) in [(0, "by hand"), (0x7600_0001, "by hand"), (7, "those of branch have it")] {
        plane.add_rule(Rule { id: RuleId(9), ..rule() }).expect("the kernel can");
        let refused = plane.set_reqid(RuleId(9), reqid).expect_err("refused").to_string();
        assert!(refused.ends_with(why), "{refused}");
    }
    assert_eq!(plane.set_reqid(RuleId(10), 8), Err(PlaneError::NoSuchRule(RuleId(10))));
}
