//! Tunnels that go without this side's will, and come back or not: as the policy and the configuration have it, with
//! growing pauses, and without going round in circles.

use crate::{SETTLED, SOON, calm, ike_spis};
use ike::event::EventKind;
use ike::status::Next;
use ike::{Config, RestartAction};
use policy::{AhIntegrity, ChildProposal, KeyBits, Protection};
use sim::host::{Side, lifetime};
use sim::invariant::{assert_agreement, assert_clean_stop, assert_nothing_left, disagreements};
use sim::{Behaviour, Exchange, HostId, Nat, Site, World};
use std::net::IpAddr;
use std::time::Duration;

const ACTIONS: [RestartAction; 4] =
    [RestartAction::Policy, RestartAction::Restart, RestartAction::Trap, RestartAction::Clear];

fn auto_start(children: u8) -> Site {
    Site { auto_start: true, children, ..Site::default() }
}

/// A site of which only the left end starts anything by itself, up.
fn left_starts(site: &Site, config: Config) -> (World, HostId, HostId) {
    let mut world = World::new(1);
    let passive = Site { auto_start: false, on_demand: false, ..site.clone() };
    let right = world.add_host("right", site.right, passive.policy(Side::Right), config.clone());
    let left = world.add_host("left", site.left, site.policy(Side::Left), config);
    if !site.auto_start {
        world.connect(left, Site::TUNNEL);
    }
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, site);
    (world, left, right)
}

fn handshakes(world: &World, name: &str) -> usize {
    world.ladder().sent_by(name).filter(|l| l.is_request(Exchange::SaInit)).count()
}

fn is_up(world: &mut World, host: HostId, child: &str) -> bool {
    let status = world.status(host);
    status.iter().flat_map(|s| &s.children).any(|c| c.name == child && c.sa.is_some())
}

/// A packet of the left network, which may be lost.
fn send_one(world: &mut World, left: HostId, site: &Site) {
    let (l, r) = site.inner(0);
    let flow = world.start_flow(left, l, r, Duration::ZERO);
    world.run_for(SOON);
    world.stop_flow(flow);
}

#[test]
fn a_child_that_the_peer_deletes_comes_back_if_it_starts_by_itself() {
    let site = auto_start(2);
    let (mut world, left, right) = left_starts(&site, calm());
    let before = ike_spis(&mut world, left);
    assert!(world.disconnect(right, "net1"));
    assert!(world.run_until(SOON, |w| !is_up(w, left, "net1")));
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    assert_eq!(ike_spis(&mut world, left), before, "the IKE SA and net0 had nothing to do with it");
    // Taken down on this side, it stays down.
    assert!(world.disconnect(left, "net1"));
    world.run_for(SETTLED);
    assert!(!is_up(&mut world, left, "net1"));
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_refused_deactivation_changes_nothing() {
    let site = Site { on_demand: false, ..Site::default() };
    let mut world = World::new(1);
    let left = world.add_host("left", site.left, site.policy(Side::Left), calm());
    let waits = |world: &mut World| world.status(left)[0].children[0].next.clone();
    let before = waits(&mut world);
    assert!(matches!(before, Some(Next::Command { deactivated: false })), "{before:?}");
    for name in [Site::TUNNEL, "net0"] {
        assert!(!world.disconnect(left, name), "it is not up");
        let after = waits(&mut world);
        assert!(matches!(after, Some(Next::Command { deactivated: false })), "{name}: {after:?}");
    }
}

#[test]
fn a_child_sa_that_the_peer_deletes_goes_as_the_close_action_says() {
    for whole in [true, false] {
        for action in ACTIONS {
            for starts in [true, false] {
                let site = Site { auto_start: starts, children: 2, ..Site::default() };
                let config = Config { close_action: action, ..calm() };
                let (mut world, left, right) = left_starts(&site, config);
                assert!(world.disconnect(right, if whole { Site::TUNNEL } else { "net0" }));
                world.run_for(SETTLED);
                let back = match action {
                    RestartAction::Policy => starts,
                    RestartAction::Restart => true,
                    RestartAction::Trap | RestartAction::Clear => false,
                };
                assert_eq!(is_up(&mut world, left, "net0"), back, "{action:?}, {starts}, {whole}");
                send_one(&mut world, left, &site);
                world.run_for(SETTLED);
                let back = back || action == RestartAction::Trap;
                assert_eq!(is_up(&mut world, left, "net0"), back, "{action:?} after a packet");
                let found = disagreements(
                    &mut world,
                    left,
                    right,
                    match (whole, back) {
                        (true, true) if action == RestartAction::Trap => 1,
                        (_, true) => 2,
                        (false, false) => 1,
                        (true, false) => 0,
                    },
                );
                assert!(found.is_empty() || (whole && !back), "{action:?}: {found:?}");
                assert_clean_stop(&mut world, left, right);
            }
        }
    }
}

#[test]
fn a_dead_peer_leaves_what_the_liveness_action_says() {
    for action in ACTIONS {
        for starts in [true, false] {
            let site = Site { auto_start: starts, children: 2, ..Site::default() };
            let config = Config { liveness_action: action, ..Config::default() };
            let (mut world, left, right) = left_starts(&site, config);
            world.cut(right);
            world.run_for(Duration::from_secs(600));
            for child in ["net0", "net1"] {
                assert!(!is_up(&mut world, left, child), "nobody answers");
            }
            world.restart(right);
            world.heal();
            world.run_for(SETTLED);
            let back = match action {
                RestartAction::Policy => starts,
                RestartAction::Restart => true,
                RestartAction::Trap | RestartAction::Clear => false,
            };
            assert_eq!(is_up(&mut world, left, "net0"), back, "{action:?}, {starts}");
            assert_eq!(is_up(&mut world, left, "net1"), back, "{action:?}, {starts}");
            if back {
                assert_agreement(&mut world, left, right, &site);
            }
            send_one(&mut world, left, &site);
            let back = back || action == RestartAction::Trap;
            assert_eq!(is_up(&mut world, left, "net0"), back, "{action:?} after a packet");
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn a_trap_returns_after_the_tunnel_is_gone() {
    let site = Site { on_demand: true, ..Site::default() };
    for dies in [true, false] {
        let (mut world, left, right) = left_starts(&site, Config::default());
        if dies {
            world.cut(right);
            world.run_for(Duration::from_secs(600));
            assert_nothing_left(&mut world, left);
            world.restart(right);
            world.heal();
        } else {
            assert!(world.disconnect(right, Site::TUNNEL));
            world.run_for(SOON);
        }
        assert_nothing_left(&mut world, left);
        send_one(&mut world, left, &site);
        assert_agreement(&mut world, left, right, &site);
    }
}

#[test]
fn either_order_of_start_ends_with_the_tunnel_up() {
    for later in [Side::Left, Side::Right] {
        let site = auto_start(2);
        let (mut world, left, right) = World::of_site(1, &site, &calm());
        let late = if later == Side::Left { left } else { right };
        world.cut(late);
        world.run_for(Duration::from_secs(1800));
        world.restart(late);
        world.heal();
        world.run_for(SETTLED);
        assert_agreement(&mut world, left, right, &site);
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn attempts_are_few_while_the_peer_is_away_and_it_is_found_soon_when_it_is_back() {
    let site = auto_start(1);
    let mut world = World::new(1);
    let left = world.add_host("left", site.left, site.policy(Side::Left), calm());
    let day = Duration::from_secs(86_400);
    world.run_for(day);
    // An attempt takes its time, and then come at most sixty seconds of pause.
    let sent = handshakes(&world, "left");
    assert!((6 * 800..=6 * 2400).contains(&sent), "{sent} requests in a day");
    let right = world.add_host("right", site.right, site.policy(Side::Right), calm());
    assert!(world.run_until(Duration::from_secs(120), |w| is_up(w, left, "net0")));
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_peer_that_deletes_whatever_comes_up_is_not_asked_without_end() {
    for whole in [true, false] {
        let site = auto_start(1);
        let (mut world, left, right) = left_starts(&site, calm());
        let name = if whole { Site::TUNNEL } else { "net0" };
        let hour = world.now() + Duration::from_secs(3600);
        while world.run_until(hour - world.now(), |w| is_up(w, right, "net0")) {
            world.disconnect(right, name);
            if world.now() >= hour {
                break;
            }
        }
        let up = world.count_events(left, |e| matches!(e, EventKind::Established { .. }));
        assert!((60..=300).contains(&up), "{up} times up in an hour");
        // A tunnel that has lasted comes back at once.
        world.run_for(SETTLED);
        assert!(world.disconnect(right, name));
        assert!(world.run_until(Duration::from_secs(3), |w| !is_up(w, right, "net0")));
        assert!(world.run_until(Duration::from_secs(3), |w| is_up(w, left, "net0")));
    }
}

#[test]
fn two_ends_that_both_bring_it_back_do_not_go_round_in_circles() {
    for seed in 0..16 {
        let site = auto_start(2);
        let config = Config {
            liveness_action: RestartAction::Restart,
            close_action: RestartAction::Restart,
            ..Config::default()
        };
        let (mut world, left, right) = World::of_site(seed, &site, &config);
        world.run_for(SETTLED);
        for cause in 0..4 {
            match cause {
                0 => world.restart(left),
                1 => world.restart(right),
                2 => {
                    world.cut(left);
                    world.run_for(Duration::from_secs(300));
                    world.heal();
                }
                // Only one end has noticed.
                _ => {
                    let gate = world.hold(right, |_| true);
                    world.run_for(Duration::from_secs(90));
                    world.discard(gate);
                }
            }
            world.run_for(SETTLED);
            assert_agreement(&mut world, left, right, &site);
            let before = handshakes(&world, "left") + handshakes(&world, "right");
            world.run_for(Duration::from_secs(3600));
            let after = handshakes(&world, "left") + handshakes(&world, "right");
            assert_eq!(before, after, "seed {seed}, cause {cause}: it is up, and stays as it is");
        }
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn packets_do_not_start_what_has_just_failed_without_pause() {
    let site = Site { on_demand: true, ..Site::default() };
    let other = Site { secret: "Tr0ub4dor&3".into(), ..site.clone() };
    let mut world = World::new(1);
    let left = world.add_host("left", site.left, site.policy(Side::Left), calm());
    let right = world.add_host("right", site.right, other.policy(Side::Right), calm());
    let asked = attempts_in_an_hour_of_packets(&mut world, left, &site);
    assert!((300..=900).contains(&asked), "{asked} attempts in an hour");
    world.restart(right);
    assert_nothing_left(&mut world, right);
}

/// The IKE SA ends between IKE_SA_INIT and IKE_AUTH there.
#[test]
fn packets_do_not_start_ah_behind_a_nat_without_pause() {
    let protection = Protection::Ah(AhIntegrity::AesGmac(KeyBits::B128));
    let lifetime = lifetime(Duration::from_secs(86_400));
    let offer = ChildProposal { name: "ah".to_owned(), protection, esn: false, lifetime };
    let site = Site {
        left: IpAddr::from([10, 0, 0, 5]),
        left_roams: true,
        on_demand: true,
        esp: vec![offer],
        ..Site::default()
    };
    let strict = Behaviour::AddressAndPortDependent;
    let nat = Nat::new(IpAddr::from([203, 0, 113, 1]), strict, strict, Duration::from_secs(60));
    let mut world = World::new(1);
    let left = world.add_host_behind(nat, "left", site.left, site.policy(Side::Left), calm());
    world.add_host("right", site.right, site.policy(Side::Right), calm());
    let asked = attempts_in_an_hour_of_packets(&mut world, left, &site);
    assert!((60..=900).contains(&asked), "{asked} attempts in an hour");
}

/// The recorder asks once; here one packet after the other asks.
fn attempts_in_an_hour_of_packets(world: &mut World, left: HostId, site: &Site) -> usize {
    let (l, r) = site.inner(0);
    world.run_for(SOON);
    let before = world.now();
    while world.now() - before < Duration::from_secs(3600) {
        world.command(left, "a packet", |e, now| {
            let rule = e.plane().rules().next().expect("a rule").id;
            let packet = esp::plane::PacketSummary {
                protocol: 17,
                source: (l, Some(1)),
                destination: (r, Some(1)),
            };
            e.handle_notice(now, esp::plane::Notice::Acquire { rule, packet });
        });
        world.run_for(Duration::from_secs(1));
    }
    handshakes(world, "left")
}

#[test]
fn the_packet_that_meets_a_trap_arrives_whoever_sends_it_and_whatever_was_before() {
    // With the real datapath, which keeps packets: from either side, at first and after the tunnel was lost.
    let site = Site { on_demand: true, ..Site::default() };
    for from_left in [true, false] {
        let (mut world, left, right) = World::of_site_encrypting(1, &site, &Config::default());
        let (l, r) = site.inner(0);
        let (host, other) = if from_left { (left, right) } else { (right, left) };
        let (source, destination) = if from_left { (l, r) } else { (r, l) };
        for before in ["nothing", "a Delete of the peer", "a dead peer", "its own Delete"] {
            match before {
                "nothing" => {}
                "a Delete of the peer" => assert!(world.disconnect(other, "net0")),
                "a dead peer" => {
                    world.cut(other);
                    world.run_for(Duration::from_secs(300));
                    world.restart(other);
                    world.heal();
                }
                _ => {
                    assert!(world.disconnect(host, Site::TUNNEL));
                    // The operator's word counts until it is taken back.
                    world.connect(host, Site::TUNNEL);
                    world.run_for(SOON);
                    world.restart(host);
                    world.run_for(SETTLED);
                }
            }
            world.run_for(SOON);
            let flow = world.start_flow(host, source, destination, Duration::from_millis(5));
            world.run_for(Duration::from_millis(100));
            world.stop_flow(flow);
            world.run_for(SOON);
            let flow = world.flow(flow);
            assert!(flow.offered > 10, "{before}");
            assert_eq!((flow.missing(), flow.in_the_clear), (0, 0), "after {before}");
        }
        assert_agreement(&mut world, left, right, &site);
    }
}

#[test]
fn a_packet_during_the_pause_after_a_failure_starts_the_tunnel_when_it_is_over() {
    let site = Site { on_demand: true, ..Site::default() };
    let (mut world, left, right) = World::of_site_encrypting(1, &site, &calm());
    world.cut(right);
    send_one(&mut world, left, &site);
    // The attempt has failed, and a pause begins in which one more packet comes.
    assert!(world.run_until(SETTLED, |w| w.host(left).engine.is_idle()));
    world.heal();
    let (l, r) = site.inner(0);
    let flow = world.start_flow(left, l, r, Duration::ZERO);
    world.run_for(Duration::from_secs(5));
    world.stop_flow(flow);
    assert_eq!(world.flow(flow).missing(), 0, "it was kept until the tunnel was there");
    assert_agreement(&mut world, left, right, &site);
}
