//! Exchanges of different kinds that cross each other (RFC 7296 §2.25).

use crate::{SETTLED, SOON, assert_nothing_lost, talk, up};
use ike::event::EventKind;
use sim::host::Side;
use sim::invariant::{assert_agreement, assert_clean_stop, assert_nothing_left};
use sim::{Exchange, Gate, HostId, Site, World};
use std::time::Duration;

/// Holds every request of both hosts.
fn hold_both(world: &mut World, left: HostId, right: HostId) -> [Gate; 2] {
    [left, right].map(|h| world.hold(h, |l| !l.response))
}

fn site() -> Site {
    Site { children: 2, ..Site::default() }
}

fn children_up(world: &mut World, host: HostId) -> Vec<String> {
    let status = world.status(host);
    let up = status.iter().flat_map(|s| &s.children).filter(|c| c.sa.is_some());
    up.map(|c| c.name.clone()).collect()
}

#[test]
fn a_child_rekey_crosses_an_ike_rekey() {
    for seed in 0..16 {
        for (l, r) in [("net0", Site::TUNNEL), (Site::TUNNEL, "net0")] {
            for left_first in [true, false] {
                let (mut world, left, right) = up(seed, &site());
                let flows = talk(&mut world, left, right, &site());
                let [a, b] = hold_both(&mut world, left, right);
                assert!(world.rekey(left, l) && world.rekey(right, r));
                let (first, second) = if left_first { (a, b) } else { (b, a) };
                world.release(first);
                world.run_for(Duration::from_millis(if seed % 2 == 0 { 0 } else { 50 }));
                world.release(second);
                world.run_for(Duration::from_secs(20));
                assert_nothing_lost(&mut world, flows);
                world.run_for(SETTLED);
                assert_agreement(&mut world, left, right, &site());
                assert_clean_stop(&mut world, left, right);
            }
        }
    }
}

#[test]
fn deleting_a_child_crosses_its_rekey() {
    for seed in 0..8 {
        for left_first in [true, false] {
            let (mut world, left, right) = up(seed, &site());
            let [a, b] = hold_both(&mut world, left, right);
            assert!(world.disconnect(left, "net0") && world.rekey(right, "net0"));
            let (first, second) = if left_first { (a, b) } else { (b, a) };
            world.release(first);
            world.run_for(Duration::from_millis(if seed % 2 == 0 { 0 } else { 50 }));
            world.release(second);
            world.run_for(SETTLED);
            for host in [left, right] {
                assert_eq!(children_up(&mut world, host), ["net1"], "net0 was deleted");
            }
            assert!(world.rekey(right, "net1"), "the other is not harmed");
            world.run_for(SETTLED);
            assert_eq!(children_up(&mut world, left), ["net1"]);
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn deleting_a_child_crosses_an_ike_rekey() {
    for seed in 0..8 {
        for left_first in [true, false] {
            let (mut world, left, right) = up(seed, &site());
            let [a, b] = hold_both(&mut world, left, right);
            assert!(world.disconnect(left, "net0") && world.rekey(right, Site::TUNNEL));
            let (first, second) = if left_first { (a, b) } else { (b, a) };
            world.release(first);
            world.run_for(Duration::from_millis(if seed % 2 == 0 { 0 } else { 50 }));
            world.release(second);
            world.run_for(SETTLED);
            for host in [left, right] {
                assert_eq!(children_up(&mut world, host), ["net1"]);
            }
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn deleting_everything_crosses_rekeys_of_either_kind() {
    for seed in 0..8 {
        for name in ["net0", Site::TUNNEL] {
            for left_first in [true, false] {
                let (mut world, left, right) = up(seed, &site());
                let [a, b] = hold_both(&mut world, left, right);
                assert!(world.disconnect(left, Site::TUNNEL) && world.rekey(right, name));
                let (first, second) = if left_first { (a, b) } else { (b, a) };
                world.release(first);
                world.run_for(Duration::from_millis(if seed % 2 == 0 { 0 } else { 50 }));
                world.release(second);
                world.run_for(SETTLED);
                assert_nothing_left(&mut world, left);
                assert_nothing_left(&mut world, right);
                assert_clean_stop(&mut world, left, right);
            }
        }
    }
}

#[test]
fn creating_a_child_crosses_an_ike_rekey() {
    for seed in 0..8 {
        for left_first in [true, false] {
            let (mut world, left, right) = World::of_site(seed, &site(), &crate::calm());
            world.connect(left, "net0");
            world.run_for(SOON);
            let [a, b] = hold_both(&mut world, left, right);
            world.connect(left, "net1");
            assert!(world.rekey(right, Site::TUNNEL));
            let (first, second) = if left_first { (a, b) } else { (b, a) };
            world.release(first);
            world.run_for(Duration::from_millis(if seed % 2 == 0 { 0 } else { 50 }));
            world.release(second);
            world.run_for(SETTLED);
            assert_agreement(&mut world, left, right, &site());
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn both_sides_create_the_same_child_at_once() {
    for seed in 0..16 {
        let (mut world, left, right) = World::of_site(seed, &site(), &crate::calm());
        world.connect(left, "net0");
        world.run_for(SOON);
        let gates = [left, right].map(|h| world.hold(h, |l| l.is_request(Exchange::CreateChild)));
        world.connect(left, "net1");
        world.connect(right, "net1");
        gates.into_iter().for_each(|g| world.release(g));
        world.run_for(SETTLED);
        assert_agreement(&mut world, left, right, &site());
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn both_sides_start_different_children_at_once() {
    // One of the two IKE SAs goes; the other takes over what only the first was for.
    for seed in 0..8 {
        for (l, r) in [("net0", "net1"), (Site::TUNNEL, "net1"), ("net0", Site::TUNNEL)] {
            let (mut world, left, right) = World::of_site(seed, &site(), &crate::calm());
            world.connect(left, l);
            world.connect(right, r);
            world.run_for(SETTLED);
            assert_agreement(&mut world, left, right, &site());
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn an_attempt_fails_while_the_peer_has_come_through() {
    let starts = Site { auto_start: true, ..site() };
    let mut world = World::new(1);
    let left = world.add_host("left", site().left, site().policy(Side::Left), crate::calm());
    let right = world.add_host("right", starts.right, starts.policy(Side::Right), crate::calm());
    world.drop_next(right, u32::MAX, |l| l.is_request(Exchange::SaInit));
    world.connect(left, "net0");
    world.run_for(SETTLED);
    // The right end's own attempts have come to nothing; its other phase 2 tunnels come up in the left end's IKE SA.
    assert_agreement(&mut world, left, right, &site());
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_child_sa_that_starts_by_itself_comes_back_though_its_deletion_met_a_rekey() {
    // The left end starts net0 and net1 by itself, the right end takes net0 down while a rekey of it is under way.
    let starts = Site { auto_start: true, ..site() };
    for by_left in [true, false] {
        for steps in 0..8 {
            let mut world = World::new(1);
            let config = crate::calm();
            let right =
                world.add_host("right", site().right, site().policy(Side::Right), config.clone());
            let left = world.add_host("left", starts.left, starts.policy(Side::Left), config);
            world.run_for(SOON);
            assert_agreement(&mut world, left, right, &site());
            assert!(world.rekey(if by_left { left } else { right }, "net0"));
            let until = world.now() + SOON;
            (0..steps).for_each(|_| _ = world.step(until));
            assert!(world.disconnect(right, "net0"));
            world.run_for(SETTLED);
            assert_agreement(&mut world, left, right, &site());
            let closed = world.count_events(left, |e| matches!(e, EventKind::Closed { .. }));
            assert_eq!(closed, 1, "the operator is told once that it went");
            assert_clean_stop(&mut world, left, right);
        }
    }
}
