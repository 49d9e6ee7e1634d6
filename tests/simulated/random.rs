//! Worlds made at random: whatever is lost, repeated, reordered and crosses, both ends come out in the same state, and no
//! packet of the traffic is lost.
//!
//! `SIM_SEEDS` says how many worlds, `SIM_FIRST` with which seed to begin.

use crate::{SETTLED, assert_settled};
use ike::Config;
use policy::{Group, Mode, Pfs};
use sim::chance::Chance;
use sim::{Conditions, HostId, Site, World};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn rekeys_of_both_kinds_from_both_sides_on_bad_links() {
    let worlds =
        number_from("SIM_SEEDS").unwrap_or(if cfg!(debug_assertions) { 300 } else { 10_000 });
    let first = number_from("SIM_FIRST").unwrap_or(0);
    each_seed(first..first + worlds, crossing_rekeys);
}

#[test]
fn the_same_seed_makes_the_same_history() {
    for seed in 0..10 {
        let [one, two] = [0, 1].map(|_| crossing_rekeys(seed).ladder().clone());
        assert!(one == two, "seed {seed} made two histories:\n{one}\n{two}");
    }
}

/// Runs a world per seed, on as many threads as there are processors.
fn each_seed(seeds: std::ops::Range<u64>, world: impl Fn(u64) -> World + Sync) {
    let next = AtomicU64::new(seeds.start);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    drop(world(seed));
                }
            });
        }
    });
}

fn random_site(chance: &mut Chance) -> Site {
    let groups = vec![Group::Curve25519];
    let with_pfs = Pfs { offer: groups.clone(), accept: groups, accept_none: false };
    let mode = if chance.happens(250) { Mode::Transport } else { Mode::Tunnel };
    let children = if mode == Mode::Transport { 1 } else { 1 + chance.below(3) as u8 };
    let pfs = if chance.happens(250) { with_pfs } else { Site::default().pfs };
    Site { mode, children, pfs, ..Site::default() }
}

fn crossing_rekeys(seed: u64) -> World {
    let mut chance = Chance::new(seed, u64::MAX);
    let site = random_site(&mut chance);
    let config = Config {
        retransmit_after: Duration::from_millis(200),
        liveness_interval: None,
        ..Config::default()
    };
    let (mut world, left, right) = World::of_site(seed, &site, &config);
    let hosts = [left, right];
    let any_host = |chance: &mut Chance| hosts[chance.below(2) as usize];

    // The handshake suffers, too, but not for so long that anyone gives up.
    let permille = chance.below(301) as u32;
    world.set_conditions(Conditions::bad(permille));
    world.connect(any_host(&mut chance), Site::TUNNEL);
    world.run_for(Duration::from_secs(2));
    world.heal();
    assert!(world.run_until(SETTLED, |w| hosts.iter().all(|&h| is_up(w, h))), "it comes up");

    world.set_conditions(Conditions::bad(permille));
    let (l, r) = site.inner(0);
    let every = Duration::from_millis(25);
    let flows = [world.start_flow(left, l, r, every), world.start_flow(right, r, l, every)];
    for _ in 0..2 + chance.below(6) {
        let host = any_host(&mut chance);
        match chance.below(3) {
            0 => world.rekey(host, Site::TUNNEL),
            _ => world.rekey(host, &format!("net{}", chance.below(u64::from(site.children)))),
        };
        let pause = Duration::from_millis([0, 0, 5, 40, 100, 400][chance.below(6) as usize]);
        world.run_for(pause);
    }
    world.run_for(Duration::from_secs(2));
    world.heal();
    world.run_for(Duration::from_secs(10));
    assert_settled(&mut world, left, right, &site, flows);
    world
}

fn is_up(world: &mut World, host: HostId) -> bool {
    world.status(host)[0].children.iter().all(|c| c.sa.is_some())
}
