//! Engines that are frozen and thawed again while something is under way. The histories are those of engines that go on
//! as they are: message by message, event by event.

use frozen::{Frozen, Unthawable};
use ike::{Config, Engine, ThawError};
use policy::{AdditionalKe, Group, IkeProposal, KeyBits, Pfs, Policy};
use sim::host::{esp_offer, ike_offer, lifetime};
use sim::{Conditions, HostId, Recorder, Side, Site, World};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const END: Duration = Duration::from_secs(400);

/// The engines that are frozen and thawed after each happening.
#[derive(Clone, Copy, Debug)]
enum Who {
    None,
    Left,
    Right,
    Both,
}

impl Who {
    fn hosts(self, left: HostId, right: HostId) -> Vec<HostId> {
        match self {
            Self::None => vec![],
            Self::Left => vec![left],
            Self::Right => vec![right],
            Self::Both => vec![left, right],
        }
    }
}

/// What a scenario is made of.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    encrypts: bool,
    /// Messages that are lost, in 1,000.
    loss: u32,
    pfs: bool,
    /// Additional key exchanges follow each first one.
    additional: bool,
    children: u8,
}

/// A tunnel comes up, is rekeyed by both sides for minutes, loses its peer for a while, and ends. Returns the ladder,
/// and how often an engine was frozen.
fn history(seed: u64, scenario: Scenario, who: Who) -> (String, u32) {
    let Scenario { encrypts, loss, pfs, additional, children } = scenario;
    let group = Group::Curve25519;
    let methods =
        [Group::MlKem768, Group::Ecp256].map(|method| AdditionalKe::required(vec![method]));
    let additional = if additional { methods.to_vec() } else { Vec::new() };
    let ike = vec![IkeProposal { additional: additional.clone(), ..ike_offer(&[group]) }];
    let pfs = match pfs {
        true => Pfs { offer: vec![group], accept: vec![group], additional, ..Pfs::default() },
        false => Site::default().pfs,
    };
    let short = lifetime(Duration::from_secs(50));
    let site = Site {
        children,
        ike,
        pfs,
        esp: vec![esp_offer(KeyBits::B128, short)],
        lifetime: lifetime(Duration::from_secs(90)),
        ..Site::default()
    };
    let config = Config {
        retransmit_after: Duration::from_millis(300),
        liveness_interval: Some(5 * SECOND),
        ..Config::default()
    };
    let (mut world, left, right) = match encrypts {
        true => World::of_site_encrypting(seed, &site, &config),
        false => World::of_site(seed, &site, &config),
    };
    let hosts = who.hosts(left, right);
    let mut times = 0;
    let mut run = |world: &mut World, time: Duration| {
        let until = world.now() + time;
        while world.step(until) {
            times += hosts.iter().map(|host| u32::from(world.refreeze(*host))).sum::<u32>();
        }
    };
    for n in 0..children {
        world.connect(left, &sim::host::child_name(n));
    }
    run(&mut world, 2 * SECOND);
    world.set_conditions(Conditions { loss, ..Conditions::default() });
    run(&mut world, 100 * SECOND);
    world.rekey(right, Site::TUNNEL);
    world.rekey(left, &sim::host::child_name(0));
    run(&mut world, 100 * SECOND);
    world.disconnect(right, &sim::host::child_name(children - 1));
    run(&mut world, 30 * SECOND);
    world.connect(right, &sim::host::child_name(children - 1));
    run(&mut world, END - 232 * SECOND);
    world.set_conditions(Conditions::default());
    run(&mut world, 60 * SECOND);
    world.stop(left);
    run(&mut world, 60 * SECOND);
    (world.ladder().to_string(), times)
}

#[test]
fn a_history_is_the_same_whichever_engines_are_frozen_after_each_happening() {
    let plain = Scenario { encrypts: false, loss: 0, pfs: false, additional: false, children: 2 };
    for (seed, scenario) in [
        (1, plain),
        (2, Scenario { loss: 200, ..plain }),
        (3, Scenario { loss: 300, pfs: true, ..plain }),
        (4, Scenario { encrypts: true, pfs: true, ..plain }),
        (5, Scenario { loss: 100, children: 20, ..plain }),
        (6, Scenario { pfs: true, additional: true, ..plain }),
        (7, Scenario { loss: 200, pfs: true, additional: true, ..plain }),
    ] {
        let (expected, _) = history(seed, scenario, Who::None);
        for who in [Who::Left, Who::Right, Who::Both] {
            let (found, times) = history(seed, scenario, who);
            assert!(times > 100, "{scenario:?} has few happenings: {times}");
            assert_same(&expected, &found, &format!("{scenario:?}, frozen: {who:?}"));
        }
    }
}

/// Two ladders are the same; otherwise the first rows that differ are shown.
fn assert_same(expected: &str, found: &str, of: &str) {
    let mut rows = expected.lines().zip(found.lines()).enumerate();
    if let Some((row, (expected, found))) = rows.find(|(_, (expected, found))| expected != found) {
        panic!("{of}: row {row} is\n{found}\nand without freezing\n{expected}");
    }
    assert_eq!(expected.lines().count(), found.lines().count(), "{of}: one ladder is longer");
}

/// The engine of the left gateway, at rest with two phase 2 tunnels.
fn at_rest() -> (World, HostId, Site) {
    let site = Site { children: 2, ..Site::default() };
    let (mut world, left, _) = World::of_site(51, &site, &Config::default());
    world.connect(left, Site::TUNNEL);
    world.connect(left, &sim::host::child_name(1));
    world.run_for(2 * SECOND);
    (world, left, site)
}

fn freeze(world: &World, host: HostId) -> Frozen {
    let mut outcome = Ok(());
    let frozen = Frozen::write(|to| outcome = world.host(host).engine.freeze(world.instant(), to));
    assert_eq!(outcome, Ok(()));
    frozen
}

fn thaw(
    octets: &[u8],
    policy: &Arc<Policy>,
    frozen_at: Instant,
) -> Result<Engine<Recorder>, ThawError> {
    let frozen = Frozen::of_octets(octets.to_vec())?;
    let (policy, plane) = (Arc::clone(policy), Recorder::default());
    let from = frozen.read("an engine")?;
    Engine::thaw(from, policy, Config::default(), plane, [7; 32], frozen_at)
}

#[test]
fn an_engine_is_not_frozen_while_an_ike_sa_is_set_up() {
    let (mut world, left, right) = World::of_site(1, &Site::default(), &Config::default());
    assert!(world.refreeze(left), "nothing is under way");
    world.connect(left, Site::TUNNEL);
    assert!(!world.refreeze(left), "it has begun an IKE SA");
    assert!(world.run_until(SECOND, |world| world.host(right).engine.inventory().half_open > 0));
    assert!(!world.refreeze(right), "it has a half-open IKE SA");
    world.run_for(SECOND);
    assert!(world.refreeze(left) && world.refreeze(right));
}

#[test]
fn another_policy_than_that_of_the_frozen_engine_is_refused() {
    let (world, left, site) = at_rest();
    let frozen = freeze(&world, left);
    let now = world.instant();
    assert!(thaw(frozen.octets(), &site.policy(Side::Left), now).is_ok());
    let other_traffic = site.policy(Side::Right);
    let refusal = Unthawable::Invalid { record: "a rule", field: 3 };
    let refused = thaw(frozen.octets(), &other_traffic, now).err();
    assert_eq!(refused, Some(ThawError::Frozen(refusal)));
    let without = Site { children: 1, ..site }.policy(Side::Left);
    let refusal = Unthawable::Invalid { record: "a rule", field: 2 };
    assert_eq!(thaw(frozen.octets(), &without, now).err(), Some(ThawError::Frozen(refusal)));
}

#[test]
fn a_frozen_engine_that_was_changed_is_refused_or_has_sound_tables() {
    let (mut world, left, site) = at_rest();
    let (policy, now) = (site.policy(Side::Left), world.instant());
    let whole = freeze(&world, left).octets().to_vec();
    let sound = world.host(left).engine.inventory();
    let mut thawed = 0;
    for at in 0..whole.len() {
        for bit in [0x01, 0x80] {
            let mut changed = whole.clone();
            changed[at] ^= bit;
            if let Ok(mut engine) = thaw(&changed, &policy, now) {
                thawed += 1;
                let found = engine.inventory();
                assert_eq!(found.child_sas, sound.child_sas, "octet {at}");
                let _ = engine.status(now);
            }
        }
    }
    assert!(thawed > 0, "keys and times may have any value");
    for len in 0..whole.len() {
        assert!(thaw(&whole[..len], &policy, now).is_err(), "{len} octets");
    }
    assert!(world.refreeze(left), "freezing has changed nothing");
}
