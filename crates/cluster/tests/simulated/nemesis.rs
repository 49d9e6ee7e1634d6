//! Bad days at random: processes are stopped and killed, links are cut in either direction, the store goes away, loses leases,
//! and is restored from a backup; nodes join and leave.

use crate::store::Store;
use crate::world::{End, World};
use cluster::Settings;
use cluster::store::{NodeId, ServiceId};
use std::time::Duration;

/// The time for which a random world is disturbed.
const DAY: Duration = Duration::from_secs(60);

/// The time until all is well again at the latest: leases end, an owner that is cut off has passed its fence, and the store
/// has looked for ended leases.
const REST: Duration = Duration::from_secs(25);

/// The course of one random world.
#[derive(Clone, Copy)]
pub struct Plan {
    pub nodes: u16,
    pub services: u32,
    /// The store may be restored from a backup.
    pub restores: bool,
}

/// Plays a random world. Returns it with all that was wrong.
pub fn play(seed: u64, plan: Plan) -> World {
    let mut world = World::new(seed, plan.nodes, plan.services);
    let (mut newest, mut backup) = (plan.nodes, None);
    let end = world.now + DAY.as_micros() as u64;
    while world.now < end {
        let pause = world.below(1_500_000);
        world.run_for(Duration::from_micros(pause));
        disturb(&mut world, plan, &mut newest, &mut backup);
    }
    heal(&mut world);
    world.run_for(REST);
    rest(&mut world, plan);
    world
}

fn disturb(world: &mut World, plan: Plan, newest: &mut u16, backup: &mut Option<Store>) {
    let node = NodeId(1 + u16::try_from(world.below(u64::from(*newest))).expect("small"));
    let other = NodeId(1 + u16::try_from(world.below(u64::from(*newest))).expect("small"));
    let service =
        ServiceId(1 + u32::try_from(world.below(u64::from(plan.services))).expect("small"));
    match world.below(18) {
        0 | 1 => {
            let micros = world.below(4_000_000);
            world.stop(node, micros);
        }
        2 => world.stop(node, 10_000_000),
        3 => world.kill(node),
        4 | 5 => world.start(node),
        6 | 7 => world.cut_both(End::Node(node), End::Store),
        8 => match world.below(2) {
            0 => world.cut(End::Node(node), End::Store),
            _ => world.cut(End::Store, End::Node(node)),
        },
        9 => world.cut_both(End::Node(node), End::Node(other)),
        10 | 11 => world.heal_all(),
        12 => {
            let choice = world.below(1 << 32);
            world.note("a lease ends early".to_owned());
            world.store.revoke_some(choice);
        }
        13 => {
            world.note("the store is away".to_owned());
            world.store_is_up = false;
        }
        14 => {
            world.note("the store is there".to_owned());
            let now = world.now;
            world.store.elect(now);
            world.store_is_up = true;
        }
        15 => match backup.take() {
            None => *backup = Some(world.store.clone()),
            Some(old) if plan.restores => {
                world.store_is_up = false;
                // No backup is restored faster.
                world.run_for(Settings::default().restore + Duration::from_millis(100));
                world.restore(old);
                world.store_is_up = true;
            }
            Some(_) => {}
        },
        16 => match world.below(4) {
            0 if *newest < plan.nodes + 2 => {
                *newest += 1;
                world.note(format!("node {newest} joins"));
                world.store.join(NodeId(*newest));
                world.add(NodeId(*newest), Settings::default());
            }
            // A backup would make it a member again, which the others do not ask.
            1 if *newest > plan.nodes && !plan.restores => {
                world.note(format!("node {newest} is removed"));
                world.store.remove(NodeId(*newest));
            }
            2 => world.set_willing(node, false),
            _ => world.set_willing(node, true),
        },
        _ => {
            world.hint(node);
            world.release(other, service);
        }
    }
}

fn heal(world: &mut World) {
    world.heal_all();
    world.store_is_up = true;
    for node in world.nodes() {
        world.resume(node);
        world.start(node);
        world.set_willing(node, true);
    }
}

/// Checks what holds at rest: each service has exactly one owner, which may seal.
fn rest(world: &mut World, plan: Plan) {
    for service in (1..=plan.services).map(ServiceId) {
        let open = world.open(service);
        if open.len() != 1 {
            world.wrong.push(format!("{service} is served by {open:?} at rest"));
        }
    }
}
