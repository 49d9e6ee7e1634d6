//! Worlds made at random: after any events, both ends of every tunnel come out in the same state.
//!
//! `SIM_SEEDS` says how many worlds, `SIM_FIRST` with which seed to begin; `SIM_SEED` names a single one. A failure
//! prints the seed, the steps (without those that it does not depend on), and the ladder of messages.

mod action;
mod plan;
mod verdict;

use crate::frozen::assert_same;
use crate::{SETTLED, assert_settled};
use action::{History, Step};
use ike::Config;
use policy::{AdditionalKe, Group, Mode, Pfs, Ppk, Secret};
use sim::certificates::Wallet;
use sim::chance::Chance;
use sim::{Conditions, HostId, Site, World};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The seeds to try; so many in a debug build.
fn seeds(debug: u64) -> std::ops::Range<u64> {
    if let Some(only) = number_from("SIM_SEED") {
        return only..only + 1;
    }
    let worlds =
        number_from("SIM_SEEDS").unwrap_or(if cfg!(debug_assertions) { debug } else { 10_000 });
    let first = number_from("SIM_FIRST").unwrap_or(0);
    first..first + worlds
}

#[test]
fn rekeys_of_both_kinds_from_both_sides_on_bad_links() {
    each_seed(seeds(200), |seed| crossing_rekeys(seed, Engines::Stay));
}

#[test]
fn the_ends_agree_in_the_end_whatever_happens() {
    each_seed(seeds(150), |seed| anything(seed, Engines::Stay));
}

#[test]
fn the_ends_agree_beside_additional_key_exchanges_reauthentication_and_families() {
    each_seed(seeds(150), |seed| anything_and_more(seed, Engines::Stay));
}

/// Each of these worlds once ended wrong. `delete.rs` and `collisions/child_create.rs` have the causes, message by
/// message.
#[test]
fn worlds_that_once_ended_wrong() {
    for seed in [283_147, 316_225] {
        drop(anything(seed, Engines::Stay));
    }
}

/// The plan and the steps of a seed.
fn script(seed: u64) -> (plan::Plan, Vec<Step>) {
    let mut chance = Chance::new(seed, u64::MAX);
    let plan = plan::Plan::draw(&mut chance);
    let steps = action::draw(&mut chance, &plan);
    (plan, steps)
}

fn anything(seed: u64, engines: Engines) -> World {
    let (plan, steps) = script(seed);
    happens(seed, plan, steps, engines)
}

/// The same world with what the worlds of [`anything`] do not have.
fn anything_and_more(seed: u64, engines: Engines) -> World {
    let (mut plan, mut steps) = script(seed);
    let mut chance = Chance::new(!seed, u64::MAX);
    plan.draw_more(&mut chance);
    action::draw_more(&mut chance, &plan, &mut steps);
    happens(seed, plan, steps, engines)
}

fn happens(seed: u64, plan: plan::Plan, steps: Vec<Step>, engines: Engines) -> World {
    let told = Told { plan: &plan, steps: &steps, seed };
    if let Ok(history) = play(seed, &plan, &steps, engines) {
        return history.world;
    }
    drop(told);
    let fewer = without_the_needless(seed, &plan, steps.clone(), engines);
    let _told = Told { plan: &plan, steps: &fewer, seed };
    match play(seed, &plan, &fewer, engines) {
        Ok(_) => unreachable!("the same history ends alike"),
        Err((_world, found)) => panic!("wrong in the end:\n  {}", found.join("\n  ")),
    }
}

/// Plays a history to its end.
#[expect(clippy::result_large_err, reason = "the failed world is what has the ladder")]
fn play(
    seed: u64,
    plan: &plan::Plan,
    steps: &[Step],
    engines: Engines,
) -> Result<History, (World, Vec<String>)> {
    let mut history = History::new(seed, plan.clone());
    engines.apply(&mut history.world, &history.hosts);
    for step in steps {
        if let Err(found) = history.step(step) {
            return Err((history.world, found));
        }
    }
    let found = verdict::judge(&mut history);
    if found.is_empty() { Ok(history) } else { Err((history.world, found)) }
}

/// Leaves out one step after the other as long as something is still wrong in the end.
fn without_the_needless(
    seed: u64,
    plan: &plan::Plan,
    mut steps: Vec<Step>,
    engines: Engines,
) -> Vec<Step> {
    let mut index = steps.len();
    while index > 0 {
        index -= 1;
        let left_out = steps.remove(index);
        if play(seed, plan, &steps, engines).is_ok() {
            steps.insert(index, left_out);
        }
    }
    steps
}

/// Tells what happened where a history ends in a panic.
struct Told<'a> {
    seed: u64,
    plan: &'a plan::Plan,
    steps: &'a [Step],
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let lines = &self.plan.lines;
            let plan = plan::Plan { lines: Vec::new(), ..self.plan.clone() };
            eprintln!("\nseed {}: {plan:?}", self.seed);
            lines.iter().for_each(|line| eprintln!("  {line:?}"));
            for Step { action, pause } in self.steps {
                eprintln!("  {action:?}, then {pause:?}");
            }
        }
    }
}

#[test]
fn the_same_seed_makes_the_same_history() {
    for world in [crossing_rekeys, anything, anything_and_more] {
        for seed in 0..10 {
            let [one, two] = [0, 1].map(|_| world(seed, Engines::Stay).ladder().clone());
            assert!(one == two, "seed {seed} made two histories:\n{one}\n{two}");
        }
    }
}

/// The engines of a world's gateways.
#[derive(Clone, Copy)]
enum Engines {
    /// They go on as they are.
    Stay,
    /// Each is frozen and thawed after each happening.
    Refreeze,
}

impl Engines {
    fn apply(self, world: &mut World, hosts: &[HostId]) {
        match self {
            Self::Stay => {}
            Self::Refreeze => hosts.iter().for_each(|host| world.refreeze_always(*host)),
        }
    }
}

#[test]
fn the_history_is_the_same_whichever_engine_goes_on() {
    each_seed(seeds(12), |seed| {
        for world in [crossing_rekeys, anything, anything_and_more] {
            let expected = world(seed, Engines::Stay).ladder().to_string();
            let refrozen = world(seed, Engines::Refreeze);
            assert_same(&expected, &refrozen.ladder().to_string(), &format!("seed {seed}"));
        }
        World::new(seed)
    });
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

/// None, or one or two additional key exchanges; a responder may be free to leave them out.
fn random_additional(chance: &mut Chance) -> Vec<AdditionalKe> {
    if !chance.happens(250) {
        return Vec::new();
    }
    let optional = chance.happens(250);
    let methods = [Group::MlKem512, Group::Ecp256];
    let count = 1 + chance.below(2) as usize;
    let exchange = |method| AdditionalKe { methods: vec![method], optional };
    methods.into_iter().take(count).map(exchange).collect()
}

/// None, or a postquantum preshared key; `true` if both sides have it, which they need not if it is optional.
fn random_ppk(chance: &mut Chance) -> (Option<Ppk>, bool) {
    if !chance.happens(250) {
        return (None, false);
    }
    let optional = chance.happens(500);
    let ids = vec!["k".to_owned()];
    let ppk = if optional { Ppk::optional(ids) } else { Ppk::required(ids) };
    (Some(ppk), !optional || chance.happens(500))
}

fn random_site(chance: &mut Chance) -> Site {
    let groups = vec![Group::Curve25519];
    let additional = random_additional(chance);
    let with_pfs = Pfs { offer: groups.clone(), accept: groups, accept_none: false, additional };
    let mode = if chance.happens(250) { Mode::Transport } else { Mode::Tunnel };
    let children = if mode == Mode::Transport { 1 } else { 1 + chance.below(3) as u8 };
    let pfs = if chance.happens(250) { with_pfs } else { Site::default().pfs };
    let mut site = Site { mode, children, pfs, ..Site::default() };
    site.ike[0].additional = random_additional(chance);
    site
}

fn crossing_rekeys(seed: u64, engines: Engines) -> World {
    let mut chance = Chance::new(seed, u64::MAX);
    let (ppk, both_have) = random_ppk(&mut chance);
    let site = Site { ppk, ..random_site(&mut chance) };
    let config = Config {
        retransmit_after: Duration::from_millis(200),
        liveness_interval: None,
        ppk_before_auth: chance.happens(500),
        ..Config::default()
    };
    let (mut world, left, right) = World::of_site(seed, &site, &config);
    let hosts = [left, right];
    engines.apply(&mut world, &hosts);
    let ppks = BTreeMap::from([("k".to_owned(), Secret::new(vec![7; 32]))]);
    let wallet = Wallet { ppks, ..Wallet::default() };
    world.trust(left, wallet.trust());
    if both_have {
        world.trust(right, wallet.trust());
    }
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
