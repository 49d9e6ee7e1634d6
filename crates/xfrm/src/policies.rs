//! The ranks and names of the kernel's policies, and the message for one.

#![forbid(unsafe_code)]

use super::flow::{self, Flow};
use super::netlink::{Kernel, refusal};
use super::ownership::PRIORITIES;
use super::spd::{Change, Key, PolicyDirection};
use esp::plane::{PlaneError, RuleId, TrafficSelectors};
use policy::{Binding, PortRange, Selector};
use std::net::Ipv6Addr;

/// Of what always passes.
pub(super) const ALWAYS: u32 = *PRIORITIES.start();

/// Of the first rule's SAs and of what it lets in; of its traffic without an SA it is one more.
pub(crate) const RULES: u32 = ALWAYS + 16;

/// The priority of policies that use a rule's SAs.
pub(super) fn priority(rule: RuleId) -> Result<u32, PlaneError> {
    let priority = rule.0.checked_mul(2).and_then(|n| n.checked_add(RULES));
    priority.filter(|p| p < PRIORITIES.end()).ok_or_else(|| PlaneError::System {
        what: "ordering the rules in the kernel".to_owned(),
        why: "there have been too many; restart the daemon".to_owned(),
    })
}

/// The rule whose policy has a priority, and whether it stands for traffic without an SA.
pub(super) fn rule_of(priority: u32) -> Option<(RuleId, bool)> {
    let place = priority.checked_sub(RULES).filter(|_| PRIORITIES.contains(&priority))?;
    Some((RuleId(place / 2), place % 2 == 1))
}

pub(super) fn keys(
    flows: impl Iterator<Item = Flow>,
    binding: Binding,
    direction: PolicyDirection,
) -> Vec<Key> {
    flows.map(|flow| Key { direction, flow, binding }).collect()
}

/// The same with either value of a bit of the mark that nothing else looks at; together they cover all of it.
pub(super) fn halves(key: Key) -> Vec<Key> {
    const BIT: u32 = 1 << 31;
    let (value, mask) = key.binding.mark.unwrap_or_default();
    if mask & BIT != 0 {
        return Vec::new();
    }
    let halves = [0, BIT].map(|bit| {
        let binding = Binding { mark: Some((value | bit, mask | BIT)), ..key.binding };
        Key { binding, ..key }
    });
    halves.into()
}

/// Neighbour discovery cannot be protected: it finds the link addresses that protected packets need (RFC 4861).
pub(super) fn neighbour_discovery() -> Vec<Flow> {
    let every = Ipv6Addr::UNSPECIFIED.into();
    let last = Ipv6Addr::from_bits(u128::MAX).into();
    let addresses =
        policy::AddressRange::new(every, last).expect("the first comes before the last");
    let types =
        PortRange::new(133 << 8, (137 << 8) + 0xff).expect("the first comes before the last");
    let any = Selector { protocol: flow::ICMPV6, addresses, ports: types };
    let traffic = TrafficSelectors { local: vec![any], remote: vec![any] };
    Flow::leaving(&traffic).expect("few blocks")
}

pub(super) fn tell(kernel: &mut dyn Kernel, change: &Change) -> Result<(), PlaneError> {
    match kernel.order(change.message()) {
        Err(error) if error.is_absent() && matches!(change, Change::Delete(_)) => Ok(()),
        outcome => outcome.map_err(|e| refusal("changing a policy of the kernel".to_owned(), &e)),
    }
}
