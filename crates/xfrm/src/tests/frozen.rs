//! A plane that another one goes on with, on a kernel in memory.

use super::twin::{Kept, Twin, inbound, outbound, plane, rule};
use super::*;
use crate::known::Known;
use crate::policies::RULES;
use esp::plane::{DataPlane, ManualKeying, Resynced};
use policy::{AddressRange, Selector};
use std::time::{Duration, Instant};

/// Everything that the kernel has.
fn everything(twin: &Twin) -> String {
    let tables = twin.tables();
    format!("{:?} {:?}", tables.states, tables.policies)
}

fn adopt(twin: &Twin, frozen: &FrozenXfrm, then: Instant) -> Result<Xfrm, PlaneError> {
    let kernel = Box::new(twin.clone());
    Xfrm::adopt_on(kernel, Config::default(), Known::default(), frozen.clone(), then)
}

fn other_rule(id: u32, third: u8) -> Rule {
    let range = AddressRange::new([10, third, 0, 0].into(), [10, third, 0, 255].into());
    let remote = vec![Selector::all_of(range.expect("a range"))];
    let selectors = esp::plane::TrafficSelectors { remote, ..rule().selectors };
    Rule { id: RuleId(id), tunnel: format!("to {third}"), selectors, trap: true }
}

/// A plane with rules of every kind, and SAs that receive, send and wait.
fn busy() -> (Xfrm, Twin) {
    let (mut plane, twin) = plane();
    plane.add_rule(rule()).expect("the kernel can");
    plane.add_rule(other_rule(4, 7)).expect("the kernel can");
    plane.leave_alone(other_rule(5, 8)).expect("the kernel can");
    plane.add_rule(other_rule(6, 9)).expect("the kernel can");
    plane.set_reqid(RuleId(6), 77).expect("it is free");
    for (id, spi) in [(1, 0x102), (2, 0x101)] {
        plane.add_inbound(inbound(id, spi)).expect("the kernel can");
    }
    for (id, spi, standby) in [(3, 0x201, false), (4, 0x202, false), (5, 0x203, true)] {
        plane.add_outbound(outbound(id, spi, standby)).expect("the kernel can");
    }
    // The first one is asked first again.
    plane.promote(SaId(3)).expect("it is there");
    let by_hand = InboundSa { rule: RuleId(6), ..inbound(6, 0x103) };
    plane.add_inbound(by_hand).expect("the kernel can");
    (plane, twin)
}

/// The SPIs that policies name for packets that leave.
fn used(twin: &Twin) -> Vec<u32> {
    let tables = twin.tables();
    let out = PolicyDirection::Out.number();
    let leaving = tables.policies.iter().filter(|(info, ..)| info.direction == out);
    let named = leaving.filter_map(|(_, template, ..)| Some(template.as_ref()?.id.spi));
    named.filter(|spi| *spi != 0).collect()
}

#[test]
fn a_successor_goes_on_with_everything_and_asks_the_kernel_for_nothing() {
    let (mut first, twin) = busy();
    let (before, now) = (everything(&twin), Instant::now());
    let frozen = first.freeze(now);
    // Any order would be refused.
    twin.tables().refuse_after = Some(0);
    let mut second = adopt(&twin, &frozen, now).expect("as it was");
    assert_eq!(second.freeze(now), frozen, "nothing is lost or made up");
    drop(first);
    assert_eq!(twin.tables().refuse_after, Some(0), "nothing was asked for");
    assert_eq!(everything(&twin), before);

    twin.tables().refuse_after = None;
    assert_eq!(second.thaw(), Ok(Resynced::default()));
    assert_eq!(everything(&twin), before);
    // It is the successor's now: SAs take turns, and all goes with the plane.
    assert_eq!(used(&twin), [0x201]);
    second.remove(SaId(3)).expect("it is there");
    second.promote(SaId(5)).expect("it is there");
    assert_eq!(used(&twin), [0x203]);
    second.remove(SaId(5)).expect("it is there");
    assert_eq!(used(&twin), [0x202]);
    // The next rule has another reqid than those before.
    second.add_rule(other_rule(9, 10)).expect("the kernel can");
    let reqids = second.freeze(now).rules.into_iter().map(|rule| rule.reqid);
    assert_eq!(reqids.collect::<BTreeSet<u32>>().len(), 5);
    second.thaw().expect("nothing is to be done");
    drop(second);
    assert!(twin.tables().states.is_empty() && twin.tables().policies.is_empty());
}

#[test]
fn a_predecessor_goes_on_after_a_successor_that_fails() {
    let (mut first, twin) = busy();
    let (before, now) = (everything(&twin), Instant::now());
    let frozen = first.freeze(now);
    drop(adopt(&twin, &frozen, now).expect("as it was"));
    assert_eq!(everything(&twin), before);
    assert_eq!(first.thaw(), Ok(Resynced::default()));
    drop(first);
    assert!(twin.tables().states.is_empty() && twin.tables().policies.is_empty());
}

#[test]
fn a_successor_puts_back_what_is_missing_and_removes_what_it_does_not_know() {
    let (mut first, twin) = busy();
    let now = Instant::now();
    let mut frozen = first.freeze(now);
    drop(first);
    let before = everything(&twin);
    // Others have removed an SA and a policy meanwhile.
    twin.tables().states.remove(&0x201).expect("it was there");
    let removed = {
        let mut tables = twin.tables();
        let names_it = |(_, template, ..): &Kept| template.is_some_and(|t| t.id.spi == 0x201);
        let place = tables.policies.iter().position(names_it).expect("it serves its rule");
        tables.policies.remove(place)
    };
    // The record lacks an SA and a rule that the kernel has.
    frozen.sas.retain(|sa| sa.id != SaId(5));
    frozen.rules.retain(|ruled| ruled.rule.id != RuleId(4));
    let mut second = adopt(&twin, &frozen, now).expect("lawful");
    let resynced = second.thaw().expect("the kernel can");
    assert_eq!((resynced.sas, resynced.policies), (1, 1));
    assert_eq!(twin.spis(), [0x101, 0x102, 0x103, 0x201, 0x202]);
    let is_there = |twin: &Twin| {
        let tables = twin.tables();
        tables.policies.iter().any(|(info, ..)| {
            (info.selector, info.direction) == (removed.0.selector, removed.0.direction)
        })
    };
    assert!(is_there(&twin));
    assert!(before.contains("10, 7, 0, 0") && !everything(&twin).contains("10, 7, 0, 0"));
}

#[test]
fn counters_numbers_and_ends_pass_over() {
    let (mut first, twin) = busy();
    let begun = Instant::now();
    twin.tables().states.get_mut(&0x201).expect("there").user_sa_info.lifetime_cur.packets = 5;
    first.usage(SaId(3)).expect("it is there");
    let now = begun + Duration::from_secs(60);
    let mut frozen = first.freeze(now);
    let sa = frozen.sas.iter_mut().find(|sa| sa.id == SaId(3)).expect("it was frozen");
    assert_eq!(sa.last.packets, 5);
    sa.last.unused_for = Some(Duration::from_secs(7));
    let mut second = adopt(&twin, &frozen, now).expect("lawful");
    twin.tables().states.remove(&0x201);
    let usage = second.usage(SaId(3)).expect("it is known");
    let expected = now.checked_sub(Duration::from_secs(7));
    assert_eq!((usage.packets, usage.last_used), (5, expected));
    // One that the kernel has ended is not put back.
    let sa = frozen.sas.iter_mut().find(|sa| sa.id == SaId(3)).expect("it was frozen");
    (sa.dying, sa.expired) = (true, true);
    let mut third = adopt(&twin, &frozen, now).expect("lawful");
    third.thaw().expect("the kernel can");
    assert!(!twin.spis().contains(&0x201));
}

#[test]
fn a_state_that_no_plane_can_have_is_refused() {
    let (mut first, twin) = busy();
    let now = Instant::now();
    let frozen = first.freeze(now);
    let changes: [&dyn Fn(&mut FrozenXfrm); 3] =
        [&|f| f.rules.push(f.rules[0].clone()), &|f| f.sas.push(f.sas[0].clone()), &|f| {
            f.rules[0].rule.id = RuleId(RULES)
        }];
    for (at, change) in changes.into_iter().enumerate() {
        let mut wrong = frozen.clone();
        change(&mut wrong);
        assert!(adopt(&twin, &wrong, now).is_err(), "{at}");
    }
}
