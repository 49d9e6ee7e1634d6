//! Addresses that change under tunnels that are up (RFC 4555).

use crate::{SETTLED, SOON, assert_nothing_lost, calm, ike_spis, talk, up};
use esp::plane::{Encapsulation, Notice};
use ike::{Config, Encap};
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::ladder::{Row, Subject};
use sim::link::{Content, Parcel};
use sim::{Behaviour, Exchange, HostId, Nat, Site, World};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const ELSEWHERE: [u8; 4] = [198, 51, 100, 7];
const THIRD: [u8; 4] = [198, 51, 100, 8];
const ATTACKER: [u8; 4] = [203, 0, 113, 66];

fn path(world: &mut World, host: HostId) -> (SocketAddr, SocketAddr) {
    let sa = world.status(host)[0].sa.clone().expect("an IKE SA is up");
    (sa.local, sa.remote)
}

/// Every SA of both planes is between these addresses, and the IKE SA, too.
fn assert_between(world: &mut World, left: (HostId, IpAddr), right: (HostId, IpAddr)) {
    for ((host, local), (_, remote)) in [(left, right), (right, left)] {
        let (l, r) = path(world, host);
        assert_eq!((l.ip(), r.ip()), (local, remote), "the IKE SA");
        let plane = world.plane(host);
        let paths = plane.inbound().map(|i| i.path);
        let paths: Vec<_> = paths.chain(plane.outbound().map(|o| o.path)).collect();
        for path in paths {
            assert_eq!((path.local.ip(), path.remote.ip()), (local, remote), "a Child SA");
        }
    }
}

fn informational(world: &World, name: &str) -> usize {
    world.ladder().sent_by(name).filter(|l| l.is_request(Exchange::Informational)).count()
}

#[test]
fn an_idle_initiator_roams() {
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    let before = ike_spis(&mut world, left);
    for address in [ELSEWHERE, THIRD, [192, 0, 2, 1]] {
        world.readdress(left, &[address.into()]);
        world.run_for(SOON);
        assert_between(&mut world, (left, address.into()), (right, site.right));
        assert_agreement(&mut world, left, right, &site);
    }
    assert_eq!(ike_spis(&mut world, left), before, "it is the same IKE SA");
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_host_with_very_many_addresses_tells_a_few() {
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    let before = informational(&world, "left");
    let many = (0..200).map(|n| [198, 51, 100, n].into());
    world.readdress(left, &std::iter::once(site.left).chain(many).collect::<Vec<_>>());
    world.run_for(SETTLED);
    assert!(informational(&world, "left") > before, "the peer is told");
    assert_agreement(&mut world, left, right, &site);
    assert!(world.disconnect(left, Site::TUNNEL));
    world.run_for(SETTLED);
    world.connect(left, Site::TUNNEL);
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn only_what_was_on_the_dead_path_is_lost() {
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    let flows = talk(&mut world, left, right, &site);
    world.run_for(SOON);
    world.readdress(left, &[ELSEWHERE.into()]);
    world.run_for(SOON);
    flows.iter().for_each(|&f| world.stop_flow(f));
    world.run_for(SOON);
    assert_eq!(world.flow(flows[0]).missing(), 0, "what the roaming side sends takes the new path");
    // A packet each 10 ms for three trips of 10 ms: the one under way, the update, the check and its answer.
    let lost = world.flow(flows[1]).missing();
    assert!((1..=6).contains(&lost), "{lost} lost on the way to the old address");
    for flow in flows {
        assert_eq!((world.flow(flow).without_sa, world.flow(flow).in_the_clear), (0, 0));
    }
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn nothing_is_lost_where_the_old_address_stays_for_a_while() {
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    let flows = talk(&mut world, left, right, &site);
    world.run_for(SOON);
    world.readdress(left, &[site.left, ELSEWHERE.into()]);
    world.run_for(SOON);
    assert_between(&mut world, (left, site.left), (right, site.right));
    // The policy names the first: as long as it is there, a better route changes nothing.
    world.readdress(left, &[ELSEWHERE.into(), site.left]);
    world.run_for(SOON);
    assert_between(&mut world, (left, site.left), (right, site.right));
    assert_nothing_lost(&mut world, flows);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn the_responder_roams_and_the_initiator_follows() {
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    let flows = talk(&mut world, left, right, &site);
    world.run_for(SOON);
    world.readdress(right, &[ELSEWHERE.into()]);
    world.run_for(SOON);
    assert_between(&mut world, (left, site.left), (right, ELSEWHERE.into()));
    flows.iter().for_each(|&f| world.stop_flow(f));
    world.run_for(SOON);
    assert!(world.flow(flows[0]).missing() <= 8, "{} lost", world.flow(flows[0]).missing());
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn while_rekeys_of_either_side_are_under_way() {
    for seed in 0..4 {
        for (by_left, name) in
            [(true, "net0"), (true, Site::TUNNEL), (false, "net0"), (false, Site::TUNNEL)]
        {
            for answered in [true, false] {
                let site = Site { children: 2, ..Site::default() };
                let (mut world, left, right) = up(seed, &site);
                let (by, other) = if by_left { (left, right) } else { (right, left) };
                // Either the request or its answer is lost with the old address.
                match answered {
                    true => world.drop_next(other, 1, |l| l.is_response(Exchange::CreateChild)),
                    false => world.drop_next(by, 1, |l| l.is_request(Exchange::CreateChild)),
                }
                assert!(world.rekey(by, name));
                world.run_for(Duration::from_millis(15));
                world.readdress(left, &[ELSEWHERE.into()]);
                world.run_for(SETTLED);
                assert_between(&mut world, (left, ELSEWHERE.into()), (right, site.right));
                assert_agreement(&mut world, left, right, &site);
                assert_clean_stop(&mut world, left, right);
            }
        }
    }
}

#[test]
fn messages_of_both_ends_are_lost() {
    for seed in 0..24 {
        let site = Site::default();
        let (mut world, left, right) = up(seed, &site);
        let before = ike_spis(&mut world, left);
        world.set_conditions(sim::Conditions::bad(400));
        for address in [ELSEWHERE, THIRD, ELSEWHERE] {
            world.readdress(left, &[address.into()]);
            let pause = [5, 40, 1500][seed as usize % 3];
            world.run_for(Duration::from_millis(pause));
        }
        world.run_for(Duration::from_secs(4));
        world.heal();
        world.run_for(SETTLED);
        assert_between(&mut world, (left, ELSEWHERE.into()), (right, site.right));
        assert_eq!(ike_spis(&mut world, left), before, "it is the same IKE SA");
        assert_agreement(&mut world, left, right, &site);
    }
}

#[test]
fn both_sides_roam_at_once() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.readdress(right, &[site.right, THIRD.into()]);
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    world.readdress(left, &[ELSEWHERE.into()]);
    world.readdress(right, &[THIRD.into()]);
    world.run_for(SETTLED);
    assert_between(&mut world, (left, ELSEWHERE.into()), (right, THIRD.into()));
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_path_that_goes_silent_is_left_before_the_peer_is_given_up() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &Config::default());
    world.readdress(right, &[site.right, THIRD.into()]);
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    let before = ike_spis(&mut world, left);
    world.set_dead(site.right, true);
    world.run_for(Duration::from_secs(60));
    assert_between(&mut world, (left, site.left), (right, THIRD.into()));
    assert_agreement(&mut world, left, right, &site);
    // The other link of this side.
    world.readdress(left, &[site.left, ELSEWHERE.into()]);
    world.run_for(SOON);
    world.set_dead(site.left, true);
    world.run_for(Duration::from_secs(60));
    assert_between(&mut world, (left, ELSEWHERE.into()), (right, THIRD.into()));
    assert_eq!(ike_spis(&mut world, left), before, "it is the same IKE SA");
    // News of addresses alone are no reason to return to the path that was silent.
    world.readdress(left, &[site.left, ELSEWHERE.into(), [198, 51, 100, 9].into()]);
    world.run_for(SOON);
    assert_between(&mut world, (left, ELSEWHERE.into()), (right, THIRD.into()));
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn without_the_protocol_nobody_moves() {
    for off in [0, 1] {
        let site = Site::default();
        let mut world = World::new(1);
        let config = |n| Config { mobike: n != off, ..calm() };
        let left = world.add_host("left", site.left, site.policy(sim::host::Side::Left), config(0));
        let right =
            world.add_host("right", site.right, site.policy(sim::host::Side::Right), config(1));
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        world.readdress(left, &[ELSEWHERE.into()]);
        world.run_for(SOON);
        assert_eq!(informational(&world, "left") + informational(&world, "right"), 0);
        assert_eq!(path(&mut world, right).1.ip(), site.left);
    }
}

/// The left side has roamed, its update is on the wire, and this is it.
fn captured_update(world: &mut World, left: HostId) -> Parcel {
    world.tap();
    world.take_tapped();
    let gate = world.hold(left, |l| l.is_request(Exchange::Informational));
    world.readdress(left, &[ELSEWHERE.into()]);
    let update = world.take_tapped().pop().expect("the update is sent");
    world.discard(gate);
    update
}

#[test]
fn a_copy_of_the_update_from_elsewhere_draws_nothing_there() {
    // The attacker's copy arrives first; then the attacker is silent, or sends on to the victim what it gets.
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    let update = captured_update(&mut world, left);
    let copy = Parcel { source: SocketAddr::new(ATTACKER.into(), 4500), ..update };
    world.inject(Duration::ZERO, copy);
    world.run_for(Duration::from_millis(50));
    let (l, r) = site.inner(0);
    assert!(!world.probe(right, r, l));
    let to_attacker = world
        .plane(right)
        .outbound()
        .filter(|o| o.path.remote.ip() == IpAddr::from(ATTACKER))
        .count();
    assert_eq!(to_attacker, 0, "no Child SA moves before the address is checked");
    world.run_for(SETTLED);
    assert_between(&mut world, (left, ELSEWHERE.into()), (right, site.right));
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_forged_update_and_a_reflected_check_change_nothing() {
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    let update = captured_update(&mut world, left);
    let Content::Ike(octets) = &update.content else { panic!("an IKE message") };
    let mut forged = octets.clone();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let source = SocketAddr::new(ATTACKER.into(), 4500);
    world
        .inject(Duration::ZERO, Parcel { source, content: Content::Ike(forged), ..update.clone() });
    world.run_for(Duration::from_millis(20));
    assert_eq!(path(&mut world, right).1.ip(), site.left);
    // The check is sent back to where it came from instead of being answered.
    let check = world.hold(right, |l| l.is_request(Exchange::Informational));
    world.inject(Duration::ZERO, Parcel { source, ..update });
    world.take_tapped();
    world.run_for(Duration::from_millis(20));
    let sent =
        world.take_tapped().into_iter().filter(|p| p.destination.ip() == IpAddr::from(ATTACKER));
    for parcel in sent.collect::<Vec<_>>() {
        let back = Parcel { source: parcel.destination, destination: parcel.source, ..parcel };
        world.inject(Duration::ZERO, back);
    }
    world.run_for(Duration::from_millis(20));
    let moved = world.plane(right).outbound().any(|o| o.path.remote.ip() == IpAddr::from(ATTACKER));
    assert!(!moved, "a reflected check proves nothing");
    world.release(check);
    world.run_for(SETTLED);
    assert_between(&mut world, (left, ELSEWHERE.into()), (right, site.right));
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_copy_of_a_sign_of_life_from_elsewhere_moves_nobody() {
    let site = Site { left_roams: true, left: [10, 0, 0, 5].into(), ..Site::default() };
    let (mut world, left, right) = behind_a_nat(&site, &Config::default());
    world.tap();
    world.run_for(Duration::from_secs(40));
    let question = |p: &&Parcel| p.source.ip() == IpAddr::from([203, 0, 113, 1]);
    let question = world.take_tapped().iter().rfind(question).cloned().expect("somebody asks");
    let before = path(&mut world, right);
    world.inject(
        Duration::ZERO,
        Parcel { source: SocketAddr::new(ATTACKER.into(), 99), ..question },
    );
    world.run_for(SOON);
    // RFC 4555 §3.8
    assert_eq!(path(&mut world, right), before);
    assert_clean_stop(&mut world, left, right);
}

/// A copy of the peer's ESP packet comes to a host from another place, before the packet itself.
fn copied_from(world: &mut World, host: HostId, source: SocketAddr) {
    let sa = world.plane(host).inbound().next().expect("a Child SA is up").id;
    let notice = Notice::PeerMoved { sa, remote: source };
    world.command(host, "a copy of a packet comes", |e, now| e.handle_notice(now, notice));
}

/// A host sends to a place.
fn sends_to(world: &mut World, host: HostId, place: SocketAddr) -> bool {
    world.plane(host).outbound().any(|o| o.path.remote == place)
}

#[test]
fn a_copy_of_an_esp_packet_from_elsewhere_draws_nothing_there() {
    // RFC 4555 §3.7: from another address, and from another port of the same address.
    for source in [SocketAddr::from((ATTACKER, 99)), SocketAddr::from(([203, 0, 113, 1], 99))] {
        let site = Site { left_roams: true, left: [10, 0, 0, 5].into(), ..Site::default() };
        let (mut world, left, right) = behind_a_nat(&site, &calm());
        let before = path(&mut world, right);
        for _ in 0..3 {
            copied_from(&mut world, right, source);
            for _ in 0..100 {
                assert!(!sends_to(&mut world, right, source), "ESP goes to {source}");
                world.run_for(Duration::from_millis(100));
            }
        }
        world.run_for(SETTLED);
        assert_eq!(path(&mut world, right), before);
        assert_agreement(&mut world, left, right, &site);
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn the_initiator_checks_where_an_esp_packet_came_from() {
    let (behind, outside) = (IpAddr::from([10, 9, 0, 2]), IpAddr::from([203, 0, 113, 1]));
    for source in [SocketAddr::from((ATTACKER, 99)), SocketAddr::new(outside, 99)] {
        let here = Site { right: outside, ..Site::default() };
        let there = Site { right: behind, ..Site::default() };
        let mut world = World::new(1);
        let policy = here.policy(sim::host::Side::Left);
        let left = world.add_host("left", here.left, policy, calm());
        let mut nat = nat(1);
        for port in [500, 4500] {
            nat.forward(port, SocketAddr::new(behind, port));
        }
        let policy = there.policy(sim::host::Side::Right);
        let right = world.add_host_behind(nat, "right", behind, policy, calm());
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        let before = path(&mut world, left);
        copied_from(&mut world, left, source);
        for _ in 0..100 {
            assert!(!sends_to(&mut world, left, source), "ESP goes to {source}");
            world.run_for(Duration::from_millis(100));
        }
        world.run_for(SETTLED);
        assert_eq!(path(&mut world, left), before);
        assert_agreement(&mut world, left, right, &here);
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn a_check_of_addresses_can_be_switched_off() {
    let site = Site { left_roams: true, left: [10, 0, 0, 5].into(), ..Site::default() };
    let config = Config { return_routability: false, ..calm() };
    let (mut world, _, right) = behind_a_nat(&site, &config);
    let source = SocketAddr::from(([203, 0, 113, 1], 99));
    copied_from(&mut world, right, source);
    assert!(sends_to(&mut world, right, source));
}

fn nat(last: u8) -> Nat {
    let strict = Behaviour::AddressAndPortDependent;
    Nat::new([203, 0, 113, last].into(), strict, strict, Duration::from_secs(60))
}

fn behind_a_nat(site: &Site, config: &Config) -> (World, HostId, HostId) {
    let mut world = World::new(1);
    let policy = site.policy(sim::host::Side::Left);
    let left = world.add_host_behind(nat(1), "left", site.left, policy, config.clone());
    let policy = site.policy(sim::host::Side::Right);
    let right = world.add_host("right", site.right, policy, config.clone());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    (world, left, right)
}

#[test]
fn a_nat_appears_and_disappears() {
    for encap in [Encap::Auto, Encap::Never] {
        let site = Site::default();
        let config = Config { encap, ..calm() };
        let (mut world, left, right) = World::of_site(1, &site, &config);
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        let native = encap == Encap::Never;
        let expected = |natted: bool| match native && !natted {
            true => Encapsulation::Native,
            false => Encapsulation::Udp,
        };
        for (n, natted) in (1..).zip([true, false, true, false]) {
            world.put_behind(left, natted.then(|| nat(n)));
            let address: IpAddr = if natted { [10, 0, 0, 5].into() } else { ELSEWHERE.into() };
            world.readdress(left, &[address]);
            world.run_for(SOON);
            for host in [left, right] {
                let status = world.status(host);
                let sa = status[0].sa.as_ref().expect("it is up");
                assert_eq!(
                    (sa.nat_local, sa.nat_remote),
                    (natted && host == left, natted && host == right)
                );
                let child = status[0].children[0].sa.as_ref().expect("it is up");
                assert_eq!(child.encapsulation, expected(natted), "{encap:?}, NAT: {natted}");
            }
            assert_agreement(&mut world, left, right, &site);
        }
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn a_rebooted_nat_is_noticed_by_the_side_behind_it() {
    let site = Site { left_roams: true, left: [10, 0, 0, 5].into(), ..Site::default() };
    let (mut world, left, right) = behind_a_nat(&site, &Config::default());
    for _ in 0..2 {
        world.nat(left).reboot();
        let before = path(&mut world, right).1;
        world.run_for(Duration::from_secs(50));
        assert_ne!(path(&mut world, right).1, before);
        let (l, r) = site.inner(0);
        assert!(world.probe(right, r, l));
        // After a rekey the hashes cannot be compared any more.
        assert!(world.rekey(left, Site::TUNNEL));
        world.run_for(SOON);
    }
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn an_idle_hour_behind_a_nat_needs_no_update() {
    let site = Site { left_roams: true, left: [10, 0, 0, 5].into(), ..Site::default() };
    let (mut world, left, right) = behind_a_nat(&site, &Config::default());
    let moved = |row: &&Row| matches!(row, Row::Message { subject: Subject::Ike(_), from, .. } if from == "right");
    world.run_for(Duration::from_secs(3600));
    // Each question of either side has one answer; nothing is checked, nothing told.
    let from_right = world.ladder().rows().iter().filter(moved).count();
    assert!(from_right <= 250, "{from_right} messages of the right side");
    assert_agreement(&mut world, left, right, &site);
}
