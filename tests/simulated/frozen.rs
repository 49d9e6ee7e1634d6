//! Engines that are frozen and thawed again while something is under way. The histories are those of engines that go on
//! as they are: message by message, event by event.

use crate::{assert_nothing_lost, calm, certificates, talk};
use frozen::{Frozen, Unthawable};
use ike::wire::header::Header;
use ike::wire::registry::ExchangeType;
use ike::{Config, Engine, NotDrained, ThawError};
use policy::{AdditionalKe, Group, IkeProposal, KeyBits, KeyKind, Pfs, Policy, Ppk, Secret};
use sim::certificates::{Authority, Wallet};
use sim::host::{esp_offer, ike_offer, lifetime};
use sim::invariant::assert_agreement;
use sim::link::Content;
use sim::{Conditions, HostId, Recorder, Side, Site, World};
use std::collections::BTreeMap;
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

/// The parts of a scenario.
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

/// A tunnel comes up, is rekeyed by both sides for minutes, loses its peer for a while, and ends. Returns the ladder.
fn history(seed: u64, scenario: Scenario, who: Who) -> String {
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
    hosts.into_iter().for_each(|host| world.refreeze_always(host));
    for n in 0..children {
        world.connect(left, &sim::host::child_name(n));
    }
    world.run_for(2 * SECOND);
    world.set_conditions(Conditions { loss, ..Conditions::default() });
    world.run_for(100 * SECOND);
    world.rekey(right, Site::TUNNEL);
    world.rekey(left, &sim::host::child_name(0));
    world.run_for(100 * SECOND);
    world.disconnect(right, &sim::host::child_name(children - 1));
    world.run_for(30 * SECOND);
    world.connect(right, &sim::host::child_name(children - 1));
    world.run_for(END - 232 * SECOND);
    world.set_conditions(Conditions::default());
    world.run_for(60 * SECOND);
    world.stop(left);
    world.run_for(60 * SECOND);
    world.ladder().to_string()
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
        let expected = history(seed, scenario, Who::None);
        for who in [Who::Left, Who::Right, Who::Both] {
            let found = history(seed, scenario, who);
            assert_same(&expected, &found, &format!("{scenario:?}, frozen: {who:?}"));
        }
    }
}

#[test]
fn no_packet_is_lost_or_comes_twice_while_engines_and_datapaths_are_replaced() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site_encrypting(1, &site, &calm());
    [left, right].into_iter().for_each(|host| world.refreeze_always(host));
    world.connect(left, Site::TUNNEL);
    world.run_for(SECOND);
    let flows = talk(&mut world, left, right, &site);
    for (host, name) in [(left, "net0"), (right, "net0"), (left, Site::TUNNEL)] {
        assert!(world.rekey(host, name), "{name} is up");
        world.run_for(SECOND);
    }
    assert_nothing_lost(&mut world, flows);
}

/// RFC 5282 §4: an AEAD is broken by one IV that comes twice.
#[test]
fn no_iv_comes_twice_with_a_key() {
    let site = Site::default();
    assert!(site.ike.iter().all(|p| p.integrity.is_empty()), "AEAD");
    let config = Config { liveness_interval: Some(SECOND), ..Config::default() };
    let (mut world, left, right) = World::of_site(1, &site, &config);
    [left, right].into_iter().for_each(|host| world.refreeze_always(host));
    world.tap();
    world.set_conditions(Conditions { loss: 100, ..Conditions::default() });
    world.connect(left, Site::TUNNEL);
    world.run_for(60 * SECOND);
    let mut datagrams: BTreeMap<_, Vec<u8>> = BTreeMap::new();
    for parcel in world.take_tapped() {
        let Content::Ike(octets) = parcel.content else { continue };
        let header = Header::parse(&octets).expect("an engine's message has a header");
        if header.exchange == ExchangeType::IKE_SA_INIT {
            continue;
        }
        // Behind the headers of the message and of SK.
        let iv: [u8; 8] = octets[32..40].try_into().expect("it has 8 octets");
        let key = (header.initiator_spi.0, header.from_initiator);
        let before = datagrams.entry((key, iv)).or_insert_with(|| octets.clone());
        assert_eq!(*before, octets, "another message has this IV: {iv:x?}");
    }
    assert!(datagrams.len() > 50, "{} messages were protected", datagrams.len());
}

/// Two ladders are the same; otherwise the first rows that differ are shown.
pub fn assert_same(expected: &str, found: &str, of: &str) {
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
    Engine::thaw(from, policy, Arc::default(), Config::default(), plane, [7; 32], frozen_at)
}

#[test]
fn an_engine_is_not_frozen_while_outputs_wait() {
    let (mut world, left, _) = World::of_site(1, &Site::default(), &Config::default());
    world.command(left, "connect, and freeze before anything is sent", |engine, now| {
        engine.connect(now, Site::TUNNEL).expect("the policy has the tunnel");
        let mut outcome = Ok(());
        let frozen = Frozen::write(|to| outcome = engine.freeze(now, to));
        assert_eq!(outcome, Err(NotDrained));
        assert_eq!(frozen.octets(), Frozen::write(|_| {}).octets(), "nothing is written");
    });
}

/// An engine as its operator sees it.
fn seen(world: &mut World, host: HostId) -> String {
    let status = world.status(host);
    let engine = &world.host(host).engine;
    format!("{status:#?}\n{:?}\n{:?}", engine.discards(), engine.exchange_durations())
}

#[test]
fn an_operator_sees_the_same_of_a_successor() {
    let site = Site { children: 2, ..Site::default() };
    let other = Site { secret: "another one".into(), ..site.clone() };
    let mut world = World::new(1);
    let config = Config { liveness_interval: Some(SECOND), ..Config::default() };
    let left = world.add_host("left", site.left, site.policy(Side::Left), config.clone());
    let right = world.add_host("right", site.right, other.policy(Side::Right), config);
    let same = |world: &mut World| {
        for host in [left, right] {
            let before = seen(world, host);
            world.refreeze(host);
            assert_same(&before, &seen(world, host), &world.host(host).name.clone());
        }
    };
    world.connect(left, Site::TUNNEL);
    world.run_for(5 * SECOND);
    assert!(seen(&mut world, left).contains("authentication failed"), "of left");
    assert!(
        seen(&mut world, right).contains("authentication failed"),
        "of right, about a stranger"
    );
    same(&mut world);
    world.replace_policy(right, site.policy(Side::Right));
    world.connect(left, Site::TUNNEL);
    world.run_for(20 * SECOND);
    let text = seen(&mut world, left);
    assert!(text.contains("Established"), "{text}");
    same(&mut world);
}

/// The policy loses the tunnel while its IKE_AUTH is on the way. The proof of the peer can then not be checked any more.
#[test]
fn a_successor_closes_a_session_whose_tunnel_is_gone() {
    let [expected, found] = [false, true].map(|refreezes| {
        let (mut world, left, right) = World::of_site(1, &Site::default(), &Config::default());
        if refreezes {
            world.refreeze_always(left);
        }
        world.connect(left, Site::TUNNEL);
        world.run_for(Duration::from_millis(25));
        world.replace_policy(left, Arc::default());
        world.run_for(5 * SECOND);
        let held = [left, right].map(|host| world.host(host).engine.inventory());
        assert_eq!(held.map(|held| (held.ike_sas, held.child_sas)), [(0, 0); 2]);
        world.ladder().to_string()
    });
    assert!(found.contains("INFORMATIONAL"), "it is deleted:\n{found}");
    assert_same(&expected, &found, "a session that closes");
}

/// A tunnel comes up with certificates, and perhaps a PPK in the proofs. Each job of one gateway waits for a while, in
/// which its engine is frozen and thawed, or not. Returns the ladder, and the number of jobs.
fn history_of_work(
    worker: Side,
    ppk: Option<Ppk>,
    ppk_is_shared: bool,
    refreezes: bool,
) -> (String, u32) {
    let root = Authority::root("root", KeyKind::Ed25519);
    let site = Site { ppk, ..certificates::site() };
    let config = Config { ppk_before_auth: false, ..calm() };
    let (mut world, left, right) = World::of_site(1, &site, &config);
    for (host, name, has_ppk) in [(left, "left", true), (right, "right", ppk_is_shared)] {
        let ppk = ("a".to_owned(), Secret::new(vec![1; 32]));
        let ppks = Some(ppk).filter(|_| has_ppk).into_iter().collect();
        let wallet = Wallet { ppks, ..certificates::side(&root, KeyKind::Ed25519, name) };
        world.trust(host, wallet.trust());
    }
    let worker = if worker == Side::Left { left } else { right };
    world.hold_jobs(worker);
    world.connect(left, Site::TUNNEL);
    let mut jobs = 0;
    loop {
        world.run_for(SECOND);
        if refreezes {
            world.refreeze(worker);
        }
        if !world.release_first_job(worker) {
            break;
        }
        jobs += 1;
    }
    assert_agreement(&mut world, left, right, &site);
    (world.ladder().to_string(), jobs)
}

#[test]
fn work_with_certificates_is_handed_out_once_more() {
    let optional = || Some(Ppk::optional(vec!["a".to_owned()]));
    for (ppk, ppk_is_shared, of_left) in
        [(None, false, 2), (optional(), true, 3), (optional(), false, 3)]
    {
        for (worker, expected_jobs) in [(Side::Left, of_left), (Side::Right, 1)] {
            let [(expected, jobs), (found, again)] = [false, true]
                .map(|refreezes| history_of_work(worker, ppk.clone(), ppk_is_shared, refreezes));
            assert_eq!((jobs, again), (expected_jobs, expected_jobs), "{worker:?} {ppk:?}");
            assert_same(&expected, &found, &format!("{worker:?}, {ppk:?}, {ppk_is_shared}"));
        }
    }
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

/// A moment in the life of an engine.
struct Moment {
    world: World,
    host: HostId,
    policy: Arc<Policy>,
}

/// An engine at rest, with an attempt at each of its stages, with a half-open IKE SA, and with an additional key exchange
/// of a rekey under way on either side.
fn moments() -> Vec<(&'static str, Moment)> {
    let additional = vec![AdditionalKe::required(vec![Group::MlKem768])];
    let group = Group::Curve25519;
    let ike = IkeProposal { additional: additional.clone(), ..ike_offer(&[group]) };
    let pfs = Pfs { offer: vec![group], accept: vec![group], additional, ..Pfs::default() };
    let site = Site { children: 2, ike: vec![ike], pfs, ..Site::default() };
    let at = |side: Side, millis: u64, rekeyed: Option<&str>| {
        let (mut world, left, right) = World::of_site(51, &site, &Config::default());
        world.connect(left, Site::TUNNEL);
        world.connect(left, &sim::host::child_name(1));
        if let Some(name) = rekeyed {
            world.run_for(2 * SECOND);
            assert!(world.rekey(left, name), "{name} is up");
        }
        world.run_for(Duration::from_millis(millis));
        Moment {
            world,
            host: if side == Side::Left { left } else { right },
            policy: site.policy(side),
        }
    };
    vec![
        ("at_rest", at(Side::Left, 2000, None)),
        ("init", at(Side::Left, 0, None)),
        ("intermediate", at(Side::Left, 25, None)),
        ("auth", at(Side::Left, 45, None)),
        ("half_open", at(Side::Right, 15, None)),
        ("rekey_of_child", at(Side::Left, 25, Some("net0"))),
        ("rekey_of_ike", at(Side::Left, 25, Some(Site::TUNNEL))),
        ("rekey_of_child_by_peer", at(Side::Right, 15, Some("net0"))),
        ("rekey_of_ike_by_peer", at(Side::Right, 15, Some(Site::TUNNEL))),
    ]
}

/// The files are what the first version that freezes engines has written. They are never written again.
#[test]
fn engines_of_the_first_version_are_thawed() {
    let recorded: [(&str, &[u8]); 9] = [
        ("at_rest", include_bytes!("frozen/1/at_rest.frozen")),
        ("init", include_bytes!("frozen/1/init.frozen")),
        ("intermediate", include_bytes!("frozen/1/intermediate.frozen")),
        ("auth", include_bytes!("frozen/1/auth.frozen")),
        ("half_open", include_bytes!("frozen/1/half_open.frozen")),
        ("rekey_of_child", include_bytes!("frozen/1/rekey_of_child.frozen")),
        ("rekey_of_ike", include_bytes!("frozen/1/rekey_of_ike.frozen")),
        ("rekey_of_child_by_peer", include_bytes!("frozen/1/rekey_of_child_by_peer.frozen")),
        ("rekey_of_ike_by_peer", include_bytes!("frozen/1/rekey_of_ike_by_peer.frozen")),
    ];
    for ((name, Moment { mut world, host, policy }), (file, octets)) in
        moments().into_iter().zip(recorded)
    {
        let now = world.instant();
        let mut engine = thaw(octets, &policy, now).expect("each version reads those before it");
        assert_eq!(engine.inventory(), world.host(host).engine.inventory(), "{name}: {file}");
        let states = [engine.status(now), world.status(host)].map(|status| {
            let states = status.into_iter().map(|tunnel| {
                let children = tunnel.children.into_iter();
                let children = children.map(|child| (child.name, child.state, child.sa.is_some()));
                (tunnel.name, tunnel.state, children.collect::<Vec<_>>())
            });
            states.collect::<Vec<_>>()
        });
        assert_eq!(states[0], states[1], "{name}: {file}");
    }
}

#[test]
fn a_frozen_engine_that_was_changed_is_refused_or_has_sound_tables() {
    for (name, Moment { mut world, host, policy }) in moments() {
        let now = world.instant();
        let whole = freeze(&world, host).octets().to_vec();
        let sound = world.host(host).engine.inventory();
        let mut thawed = 0;
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= if at % 2 == 0 { 0x01 } else { 0x80 };
            if let Ok(mut engine) = thaw(&changed, &policy, now) {
                thawed += 1;
                let found = engine.inventory();
                assert_eq!(found.child_sas, sound.child_sas, "{name}: octet {at}");
                let _ = engine.status(now);
            }
        }
        assert!(thawed > 0, "keys and times may have any value");
        for len in 0..whole.len() {
            assert!(thaw(&whole[..len], &policy, now).is_err(), "{name}: {len} octets");
        }
        world.refreeze(host);
    }
}
