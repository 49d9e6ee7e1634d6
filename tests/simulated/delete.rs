//! Deleting (RFC 7296 §1.4.1, §2.25).

use crate::{SETTLED, SOON, child_spi, up};
use ike::event::EventKind;
use ike::status::State;
use sim::invariant::{assert_agreement, assert_clean_stop, assert_nothing_left, disagreements};
use sim::{Exchange, Site, World};

fn site() -> Site {
    Site { children: 2, ..Site::default() }
}

#[test]
fn a_child_alone_and_then_everything() {
    for from_left in [true, false] {
        let (mut world, left, right) = up(1, &site());
        let host = if from_left { left } else { right };
        assert!(world.disconnect(host, "net0"));
        world.run_for(SETTLED);
        let found = disagreements(&mut world, left, right, 1);
        assert!(found.is_empty(), "{found:?}");
        let (l, r) = site().inner(0);
        let flow = world.start_flow(left, l, r, std::time::Duration::ZERO);
        world.run_for(SOON);
        assert_eq!((world.flow(flow).without_sa, world.flow(flow).in_the_clear), (1, 0));

        assert!(world.disconnect(host, Site::TUNNEL));
        world.run_for(SETTLED);
        for host in [left, right] {
            assert_nothing_left(&mut world, host);
            let closed = world.count_events(host, |e| matches!(e, EventKind::Closed { .. }));
            assert!(closed >= 2, "the operator is told of net0 and of the rest");
        }
        assert!(!world.disconnect(host, Site::TUNNEL), "nothing is up any more");
        world.connect(right, Site::TUNNEL);
        world.run_for(SOON);
        assert_agreement(&mut world, left, right, &site());
    }
}

#[test]
fn everything_while_a_child_is_being_deleted() {
    let (mut world, left, right) = up(1, &site());
    assert!(world.disconnect(left, "net0") && world.disconnect(right, Site::TUNNEL));
    world.run_for(SETTLED);
    assert_nothing_left(&mut world, left);
    assert_nothing_left(&mut world, right);
}

#[test]
fn while_it_is_still_being_negotiated() {
    for steps in 0..12 {
        let (mut world, left, right) = World::of_site(1, &site(), &crate::calm());
        world.connect(left, Site::TUNNEL);
        (0..steps).for_each(|_| _ = world.step(SOON));
        assert!(world.disconnect(left, Site::TUNNEL), "it is at least being negotiated");
        world.run_for(std::time::Duration::from_secs(600));
        assert_nothing_left(&mut world, left);
        assert_nothing_left(&mut world, right);
    }
}

#[test]
fn a_stopped_host_takes_leave_and_answers_no_more() {
    let (mut world, left, right) = up(1, &site());
    world.stop(left);
    assert!(!world.host(left).engine.is_idle(), "it waits for the peer's answer");
    world.run_for(SETTLED);
    assert!(world.host(left).engine.is_idle());
    assert_nothing_left(&mut world, right);
    world.connect(right, Site::TUNNEL);
    world.run_for(SETTLED);
    assert_nothing_left(&mut world, left);
    assert_nothing_left(&mut world, right);
}

#[test]
fn stopping_ends_even_if_the_peer_is_gone() {
    let (mut world, left, right) = up(1, &site());
    world.cut(right);
    world.stop(left);
    assert_eq!(world.plane(left).outbound().count(), 0, "nothing is sent into the void");
    assert!(world.run_until(SETTLED, |w| w.host(left).engine.is_idle()));
    assert_eq!(world.host(left).engine.deadline(), None);
}

#[test]
fn a_child_whose_exchange_of_this_side_is_under_way() {
    for rekey in [true, false] {
        for steps in 1..6 {
            let (mut world, left, right) = World::of_site(1, &site(), &crate::calm());
            world.connect(left, if rekey { Site::TUNNEL } else { "net1" });
            world.run_for(SOON);
            match rekey {
                true => assert!(world.rekey(left, "net0")),
                false => world.connect(left, "net0"),
            }
            let until = world.now() + SOON;
            (0..steps).for_each(|_| _ = world.step(until));
            assert!(world.disconnect(left, "net0"), "it is up, or being set up");
            world.run_for(SETTLED);
            let found = disagreements(&mut world, left, right, 1);
            assert!(found.is_empty(), "{found:?}");
            for host in [left, right] {
                let status = world.status(host);
                let up = status[0].children.iter().find(|c| c.sa.is_some()).expect("one is up");
                assert_eq!(up.name, "net1");
            }
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn a_child_that_is_wanted_again_before_its_deletion_could_be_sent() {
    let (mut world, left, right) = up(1, &site());
    let before = child_spi(&mut world, left, "net1");
    let gate = world.hold(left, |_| true);
    // The exchange for net0 keeps that for net1 waiting.
    assert!(world.disconnect(left, "net0") && world.disconnect(left, "net1"));
    world.connect(left, "net1");
    world.release(gate);
    world.run_for(SETTLED);
    let found = disagreements(&mut world, left, right, 1);
    assert!(found.is_empty(), "{found:?}");
    assert_ne!(child_spi(&mut world, left, "net1"), before);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_child_that_is_wanted_again_while_the_one_that_its_rekey_replaced_is_being_deleted() {
    for rekeyed_here in [true, false] {
        for name in [Site::TUNNEL, "net0"] {
            let (mut world, left, right) = up(1, &site());
            let before = child_spi(&mut world, left, "net0");
            let (rekeying, other) = if rekeyed_here { (left, right) } else { (right, left) };
            // The Delete of the old Child SA is under way until its answer is let through.
            let gate = world.hold(other, |l| l.exchange == Exchange::Informational);
            assert!(world.rekey(rekeying, "net0"));
            let rekeyed = |w: &mut World| w.count_events(rekeying, is_rekeyed) == 1;
            assert!(world.run_until(SOON, rekeyed));
            let after = child_spi(&mut world, left, "net0");
            assert_ne!(after, before);

            assert!(world.disconnect(left, "net0"));
            let state = world.status(left)[0].children[0].state;
            assert_eq!(state, State::Down, "no Child SA serves net0 any more");
            assert!(!world.disconnect(left, "net0"), "it is not up any more");
            world.connect(left, name);
            world.release(gate);
            world.run_for(SETTLED);
            let found = disagreements(&mut world, left, right, 2);
            assert!(found.is_empty(), "{name}: {found:?}");
            assert_ne!(child_spi(&mut world, left, "net0"), after);
            assert_clean_stop(&mut world, left, right);
        }
    }
}

fn is_rekeyed(event: &EventKind) -> bool {
    matches!(event, EventKind::Rekeyed { .. })
}
