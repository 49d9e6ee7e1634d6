//! Rekeying Child SAs (RFC 7296 §2.8, §2.8.1, §2.25.1).

use crate::{SETTLED, SOON, assert_nothing_lost, assert_settled, child_spi, talk, up};
use policy::{Group, Mode, Pfs};
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::recorder::Change;
use sim::{Conditions, Exchange, Gate, HostId, Site, World};
use std::collections::BTreeSet;
use std::time::Duration;

fn with_pfs() -> Site {
    let groups = vec![Group::Curve25519];
    let pfs =
        Pfs { offer: groups.clone(), accept: groups, accept_none: false, additional: Vec::new() };
    Site { pfs, ..Site::default() }
}

fn hold_requests(world: &mut World, host: HostId) -> Gate {
    world.hold(host, |l| l.is_request(Exchange::CreateChild))
}

fn rekeys(world: &mut World, host: HostId) -> u64 {
    world.status(host)[0].children[0].sa.as_ref().map_or(0, |sa| sa.rekeys)
}

/// SPIs of the inbound SAs a plane was given since its journal had this length.
fn inbound_since(world: &mut World, host: HostId, start: usize) -> Vec<u32> {
    let added = |change: &Change| match change {
        Change::Inbound(_, spi) => Some(spi.0),
        _ => None,
    };
    world.plane(host).journal()[start..].iter().filter_map(added).collect()
}

#[test]
fn either_side_rekeys_without_losing_a_packet() {
    for mode in [Mode::Tunnel, Mode::Transport] {
        for site in [Site { mode, ..Site::default() }, Site { mode, ..with_pfs() }] {
            let (mut world, left, right) = up(1, &site);
            let flows = talk(&mut world, left, right, &site);
            for (n, host) in [left, right, left].into_iter().enumerate() {
                let before = child_spi(&mut world, left, "net0");
                assert!(world.rekey(host, "net0"));
                world.run_for(Duration::from_secs(20));
                assert_ne!(child_spi(&mut world, left, "net0"), before);
                assert_eq!(rekeys(&mut world, left), n as u64 + 1);
                assert_eq!(rekeys(&mut world, right), n as u64 + 1);
            }
            assert_nothing_lost(&mut world, flows);
            // Packets that were on their way when the old SA was deleted are counted, too.
            world.run_for(SETTLED);
            let mut counts = |host| {
                let status = world.status(host);
                status[0].children[0].sa.as_ref().map(|sa| (sa.packets_out, sa.packets_in))
            };
            let [l, r] = [left, right].map(|host| counts(host).expect("it is up"));
            assert_eq!((l.0, r.0), (r.1, l.1), "protected here and accepted there");
            assert_agreement(&mut world, left, right, &site);
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn a_rekey_asked_for_right_after_the_peers_own_is_done_when_the_peer_is_ready() {
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    let sent = |world: &mut World, host| {
        world.status(host)[0].children[0].sa.as_ref().map_or(0, |sa| sa.packets_out)
    };
    let before = [left, right].map(|host| sent(&mut world, host));
    let flows = talk(&mut world, left, right, &site);
    let gate = world.hold(left, |l| l.is_request(Exchange::Informational));
    assert!(world.rekey(left, "net0"));
    assert!(world.run_until(SOON, |world| rekeys(world, right) == 1));
    // The old SA still sends when its successor is there.
    world.run_for(Duration::from_secs(1));
    assert!(world.rekey(right, "net0"));
    world.release(gate);
    world.run_for(Duration::from_secs(20));
    assert_eq!([left, right].map(|host| rekeys(&mut world, host)), [2, 2]);
    assert_nothing_lost(&mut world, flows);
    for ((host, flow), before) in [left, right].into_iter().zip(flows).zip(before) {
        let passed = sent(&mut world, host) - before;
        assert_eq!(passed, world.flow(flow).offered, "over all rekeys");
    }
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn every_message_of_a_rekey_may_be_lost() {
    for message in 0..4 {
        for times in [1, 3] {
            let site = with_pfs();
            let (mut world, left, right) = up(1, &site);
            let flows = talk(&mut world, left, right, &site);
            let (from, exchange) = match message {
                0 => (left, Exchange::CreateChild),
                1 => (right, Exchange::CreateChild),
                2 => (left, Exchange::Informational),
                _ => (right, Exchange::Informational),
            };
            world.drop_next(from, times, move |l| l.exchange == exchange);
            assert!(world.rekey(left, "net0"));
            world.run_for(Duration::from_secs(60));
            assert_eq!(rekeys(&mut world, right), 1);
            assert_nothing_lost(&mut world, flows);
            assert_agreement(&mut world, left, right, &site);
        }
    }
}

#[test]
fn a_repeated_command_rekeys_once() {
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    for _ in 0..5 {
        world.rekey(left, "net0");
    }
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    assert_eq!(rekeys(&mut world, left), 1);
}

/// Both requests under way at once, each arriving before any answer. Returns whether the left one's SA survived.
fn simultaneous(seed: u64, site: &Site, answers: impl Fn(&mut World, HostId, HostId)) -> bool {
    let (mut world, left, right) = up(seed, site);
    let flows = talk(&mut world, left, right, site);
    let start = world.plane(left).journal().len();
    let gates = [left, right].map(|h| hold_requests(&mut world, h));
    assert!(world.rekey(left, "net0") && world.rekey(right, "net0"));
    gates.iter().for_each(|&g| assert_eq!(world.held(g), 1, "a rekey asks at once"));
    answers(&mut world, left, right);
    gates.iter().for_each(|&g| world.release(g));
    world.run_for(Duration::from_secs(20));
    assert_nothing_lost(&mut world, flows);
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, site);
    // The left plane got the SA the right host asked for when answering, and its own with the answer.
    let made = inbound_since(&mut world, left, start);
    assert_eq!(made.len(), 2, "each side made one SA");
    let survivor = child_spi(&mut world, left, "net0");
    let left_won = survivor == made[1];
    assert!(left_won || survivor == made[0]);
    // RFC 7296 §2.8.1: each side deletes one SA, the winner the old and the loser the redundant one.
    for name in ["left", "right"] {
        let deletes =
            world.ladder().sent_by(name).filter(|l| l.is_request(Exchange::Informational));
        assert_eq!(deletes.count(), 1, "{name} deletes one SA");
    }
    assert_clean_stop(&mut world, left, right);
    left_won
}

#[test]
fn both_sides_at_once_with_either_nonce_the_lowest() {
    for site in [Site::default(), with_pfs()] {
        let outcomes: BTreeSet<bool> =
            (0..24).map(|seed| simultaneous(seed, &site, |_, _, _| {})).collect();
        assert_eq!(outcomes.len(), 2, "the seeds bring both outcomes");
    }
}

#[test]
fn both_sides_at_once_and_one_answer_is_late() {
    for late_side in [0, 1] {
        let outcomes: BTreeSet<bool> = (0..24)
            .map(|seed| {
                simultaneous(seed, &Site::default(), |world, left, right| {
                    let late = [left, right][late_side];
                    world.drop_next(late, 2, |l| l.is_response(Exchange::CreateChild));
                })
            })
            .collect();
        assert_eq!(outcomes.len(), 2, "the seeds bring both outcomes");
    }
}

#[test]
fn the_answerer_rekeys_what_it_has_just_made() {
    // The asking side does not know the SA yet; it must not say that there is none.
    for seed in 0..8 {
        let site = Site { children: 2, ..Site::default() };
        let (mut world, left, right) = World::of_site(seed, &site, &crate::calm());
        world.connect(left, "net0");
        world.run_for(SOON);
        let flows = talk(&mut world, left, right, &site);
        for name in ["net0", "net1"] {
            let gate = world.hold(right, |l| l.is_response(Exchange::CreateChild));
            match name {
                "net0" => assert!(world.rekey(left, name)),
                _ => world.connect(left, name),
            }
            assert!(world.run_until(SOON, |w| w.held(gate) > 0));
            assert!(world.rekey(right, name));
            world.run_for(Duration::from_millis(100));
            world.release(gate);
            world.run_for(Duration::from_secs(20));
        }
        assert_settled(&mut world, left, right, &site, flows);
    }
}

#[test]
fn the_winner_rekeys_again_before_the_loser_knows() {
    for seed in 0..16 {
        let site = Site::default();
        let (mut world, left, right) = up(seed, &site);
        let flows = talk(&mut world, left, right, &site);
        let gates = [left, right].map(|h| hold_requests(&mut world, h));
        assert!(world.rekey(left, "net0") && world.rekey(right, "net0"));
        let answer = world.hold(right, |l| l.is_response(Exchange::CreateChild));
        gates.iter().for_each(|&g| world.release(g));
        world.run_for(Duration::from_millis(100));
        assert_eq!(world.held(answer), 1);
        world.rekey(right, "net0");
        world.run_for(Duration::from_millis(500));
        world.release(answer);
        world.run_for(Duration::from_secs(20));
        assert_settled(&mut world, left, right, &site, flows);
    }
}

#[test]
fn several_child_sas_from_both_sides_at_once() {
    for seed in 0..16 {
        let site = Site { children: 4, ..with_pfs() };
        let (mut world, left, right) = up(seed, &site);
        let flows = talk(&mut world, left, right, &site);
        world.set_conditions(Conditions::bad(50));
        for n in 0..4 {
            world.rekey(left, &format!("net{n}"));
            world.rekey(right, &format!("net{}", 3 - n));
        }
        world.run_for(Duration::from_secs(10));
        world.heal();
        world.run_for(Duration::from_secs(20));
        assert_settled(&mut world, left, right, &site, flows);
    }
}
