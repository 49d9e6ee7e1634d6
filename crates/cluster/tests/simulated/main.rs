//! Nodes of a cluster around a simulated store, in virtual time.
//!
//! The world notes an error whenever two processes may seal for one service at the same time. A process that was killed still
//! may until its fence has passed, since its SAs may be in the kernel.
//!
//! `SIM_SEEDS` says how many random worlds are played, `SIM_FIRST` with which seed they begin; `SIM_SEED` names a single one.
#![forbid(unsafe_code)]

mod nemesis;
mod rules;
mod store;
mod world;

use cluster::Settings;
use cluster::store::{NodeId, ServiceId};
use nemesis::Plan;
use std::time::Duration;
use world::{End, World};

const S: ServiceId = ServiceId(1);
const PLAN: Plan = Plan { nodes: 3, services: 4, restores: false };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Three nodes with one service that one of them owns.
fn settled(seed: u64) -> (World, NodeId) {
    let mut world = World::new(seed, 3, 1);
    world.run_for(seconds(10));
    let owner = owner(&world);
    (world, owner)
}

fn owner(world: &World) -> NodeId {
    match world.open(S)[..] {
        [owner] => owner,
        ref open => panic!("{open:?} may seal:\n{}", world.log.join("\n")),
    }
}

fn assert_right(world: &World) {
    assert!(world.wrong.is_empty(), "{:#?}\n{}", world.wrong, world.log.join("\n"));
}

fn others(owner: NodeId) -> [NodeId; 2] {
    let all = [1, 2, 3].map(NodeId);
    let mut others = all.into_iter().filter(|node| *node != owner);
    [(); 2].map(|()| others.next().expect("two are left"))
}

#[test]
fn the_services_of_a_dead_node_are_taken_over() {
    for seed in 0..20 {
        let (mut world, first) = settled(seed);
        let died = world.now;
        world.kill(first);
        world.run_for(seconds(10));
        assert_ne!(owner(&world), first);
        let (taken, ..) = world.taken.last().expect("it was taken");
        // The lease, the pause between two looks at leases, hold with its margin, the rank, a few messages, slow ones.
        let most: Duration =
            [2000, 500, 1520, 200, 300, 2000].map(Duration::from_millis).into_iter().sum();
        assert!(Duration::from_micros(taken - died) < most, "{} µs", taken - died);
        assert_right(&world);
    }
}

#[test]
fn a_service_that_is_released_moves_without_a_wait() {
    let (mut world, first) = settled(1);
    world.set_willing(first, false);
    let released = world.now;
    world.run_for(seconds(3));
    assert_ne!(owner(&world), first);
    let (taken, ..) = world.taken.last().expect("it was taken");
    assert!(taken - released < 900_000, "{} µs", taken - released);
    assert_right(&world);
}

#[test]
fn tunnels_go_on_while_the_store_is_away_and_all_members_live() {
    for seed in 0..20 {
        let (mut world, first) = settled(seed);
        world.store_is_up = false;
        for _ in 0..1200 {
            world.run_for(Duration::from_millis(50));
            assert_eq!(owner(&world), first, "seed {seed}");
        }
        let now = world.now;
        world.store.elect(now);
        world.store_is_up = true;
        world.run_for(seconds(10));
        owner(&world);
        assert_right(&world);
    }
}

#[test]
fn an_owner_that_alone_is_cut_off_from_the_store_stops_before_another_begins() {
    for seed in 0..20 {
        let (mut world, first) = settled(seed);
        world.cut_both(End::Node(first), End::Store);
        world.run_for(seconds(12));
        assert_ne!(owner(&world), first, "seed {seed}");
        world.heal_all();
        world.run_for(seconds(5));
        owner(&world);
        assert_right(&world);
    }
}

#[test]
fn an_owner_stops_if_it_cannot_tell_whether_another_begins() {
    let (mut world, first) = settled(3);
    world.kill(others(first)[0]);
    world.run_for(seconds(1));
    world.store_is_up = false;
    world.run_for(seconds(4));
    assert!(world.open(S).is_empty());
    world.store_is_up = true;
    world.run_for(seconds(10));
    owner(&world);
    assert_right(&world);
}

#[test]
fn a_node_that_was_stopped_does_not_seal_when_it_goes_on() {
    for seed in 0..20 {
        let (mut world, first) = settled(seed);
        world.stop(first, 10_000_000);
        world.run_for(Duration::from_millis(9999));
        let second = owner(&world);
        assert_ne!(second, first);
        world.run_for(seconds(5));
        assert_eq!(owner(&world), second);
        assert_right(&world);
    }
}

#[test]
fn a_node_that_the_owner_does_not_know_claims_nothing() {
    let (mut world, first) = settled(5);
    world.late = 0;
    for node in [1, 2, 3].map(NodeId) {
        world.cut_both(End::Node(node), End::Store);
    }
    // It has the store, and is not asked to waive.
    world.store.join(NodeId(4));
    world.add(NodeId(4), Settings::default());
    for _ in 0..400 {
        world.run_for(Duration::from_millis(50));
        assert_eq!(owner(&world), first);
    }
    world.heal_all();
    world.run_for(seconds(5));
    world.set_willing(NodeId(1), false);
    world.set_willing(NodeId(2), false);
    world.set_willing(NodeId(3), false);
    world.run_for(seconds(5));
    assert_eq!(owner(&world), NodeId(4));
    assert_right(&world);
}

#[test]
fn random_worlds_have_one_owner_at_a_time() {
    let plan = |seed: u64| Plan { nodes: 2 + (seed % 3) as u16, ..PLAN };
    random(plan);
}

#[test]
fn random_worlds_with_a_store_from_a_backup_have_one_owner_at_a_time() {
    random(|_| Plan { restores: true, ..PLAN });
}

/// The check sees what it is there for: a node that waits less than the others hold is found.
#[test]
fn a_node_that_does_not_wait_long_enough_is_found() {
    let hasty = Settings {
        hold: Duration::from_millis(900),
        away_after: Duration::from_millis(400),
        ..Settings::default()
    };
    let found = (0..50).filter(|seed| {
        let (mut world, first) = settled(*seed);
        others(first).into_iter().for_each(|node| {
            world.kill(node);
            world.add(node, hasty);
        });
        world.run_for(seconds(3));
        let lease = world.below(8);
        for _ in 0..4 {
            world.cut_both(End::Node(first), End::Store);
            world.store.revoke_some(lease);
            world.run_for(seconds(4));
            world.heal_all();
            world.run_for(seconds(4));
        }
        !world.wrong.is_empty()
    });
    assert!(found.count() > 0);
}

/// The margins are for clocks that differ by two percent, and not for more.
#[test]
fn a_clock_with_a_very_wrong_rate_is_found() {
    let found = (0..50).filter(|seed| {
        let (mut world, first) = settled(*seed);
        world.set_rate(first, -300_000);
        for node in others(first) {
            world.set_willing(node, false);
        }
        world.run_for(seconds(12));
        for node in others(first) {
            world.set_willing(node, true);
        }
        world.cut_both(End::Node(first), End::Store);
        for lease in 0..16 {
            world.store.revoke_some(lease);
        }
        world.run_for(seconds(6));
        !world.wrong.is_empty()
    });
    assert!(found.count() > 0);
}

fn random(plan: impl Fn(u64) -> Plan) {
    let from = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match from("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = from("SIM_FIRST").unwrap_or(0);
            let count =
                from("SIM_SEEDS").unwrap_or(if cfg!(debug_assertions) { 300 } else { 5000 });
            first..first + count
        }
    };
    for seed in seeds {
        let world = nemesis::play(seed, plan(seed));
        let log = || world.log.join("\n");
        assert!(world.wrong.is_empty(), "seed {seed}: {:#?}\n{}", world.wrong, log());
    }
}
