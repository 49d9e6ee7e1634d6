//! Both sides renew everything again and again, each a little later than the other: requests cross at every point of an
//! exchange, on links of every length.

use crate::{SETTLED, SOON, assert_settled, calm, talk};
use policy::{Group, Pfs};
use sim::{Conditions, Site, World};
use std::time::Duration;

/// Between the rekey of the IKE SA and that of the Child SA.
const APART: Duration = Duration::from_millis(150);

/// More seeds than the suite takes.
fn seeds() -> u64 {
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|n| n.parse().ok());
    seeds.map_or(40, |n: u64| n.clamp(40, 4_000))
}

fn site() -> Site {
    let groups = vec![Group::Curve25519];
    Site {
        pfs: Pfs {
            offer: groups.clone(),
            accept: groups,
            accept_none: false,
            additional: Vec::new(),
        },
        ..Site::default()
    }
}

#[test]
fn rekeys_of_both_kinds_by_both_sides_a_moment_apart() {
    let site = site();
    for seed in 0..seeds() {
        let (mut world, left, right) = World::of_site_encrypting(seed, &site, &calm());
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        let flows = talk(&mut world, left, right, &site);
        // From a fraction of the pause to several times as much, there and back.
        let millis = 1 + seed * 37 % 240;
        let delay = Duration::from_millis(millis)..Duration::from_millis(millis + seed % 3 * 20);
        world.set_conditions(Conditions { delay, ..Conditions::default() });
        let between = Duration::from_millis(seed * 53 % 200);
        for round in 0..8 {
            let (first, second) = if round % 2 == 0 { (left, right) } else { (right, left) };
            world.rekey(first, Site::TUNNEL);
            world.run_for(between);
            world.rekey(second, Site::TUNNEL);
            world.run_for(APART.saturating_sub(between));
            world.rekey(first, "net0");
            world.run_for(between);
            world.rekey(second, "net0");
            world.run_for(Duration::from_millis(400 + round * 300));
        }
        world.set_conditions(Conditions::default());
        world.run_for(SETTLED / 10);
        assert_settled(&mut world, left, right, &site, flows);
    }
}
