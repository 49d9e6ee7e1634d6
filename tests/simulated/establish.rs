//! Bringing tunnels up.

use crate::{SETTLED, SOON, calm, ike_spis, up};
use policy::{AddressRange, Group, Mode, Pfs, PortRange, Selector};
use sim::host::{Side, child_name, ike_offer, network};
use sim::invariant::{assert_agreement, assert_clean_stop, disagreements};
use sim::{Exchange, HostId, Site, World};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

fn connects(site: &Site, from: Side) -> (World, HostId, HostId) {
    let (mut world, left, right) = World::of_site(1, site, &calm());
    let host = if from == Side::Left { left } else { right };
    world.connect(host, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, site);
    (world, left, right)
}

#[test]
fn either_side_starts_in_either_mode() {
    for mode in [Mode::Tunnel, Mode::Transport] {
        for from in [Side::Left, Side::Right] {
            let site = Site { mode, ..Site::default() };
            let (mut world, left, right) = connects(&site, from);
            assert_eq!(world.ladder().sent_by("left").count(), 2, "two messages from each end");
            assert_eq!(world.ladder().sent_by("right").count(), 2, "two messages from each end");
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn over_ipv6() {
    let address = |last| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
    let site = Site { left: address(1), right: address(2), ..Site::default() };
    let (mut world, left, right) = connects(&site, Side::Left);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn the_name_of_an_ike_tunnel_brings_all_and_that_of_a_child_only_itself() {
    let site = Site { children: 3, ..Site::default() };
    connects(&site, Side::Left);

    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.connect(left, "net1");
    world.run_for(SOON);
    let found = disagreements(&mut world, left, right, 1);
    assert!(found.is_empty(), "{found:?}");
    let (l, r) = site.inner(1);
    assert!(world.probe(left, l, r) && world.probe(right, r, l));
    for n in [0, 2] {
        let (l, r) = site.inner(n);
        assert!(!world.probe(left, l, r), "{} is not up", child_name(n));
    }

    // The others join the same IKE SA, from either side.
    world.connect(right, "net0");
    world.connect(left, "net2");
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    assert_eq!(
        world.ladder().sent_by("left").filter(|l| l.is_request(Exchange::SaInit)).count(),
        1
    );
}

#[test]
fn connecting_what_is_up_says_so_and_does_nothing() {
    let site = Site::default();
    let (mut world, left, right) = up(1, &site);
    let before = ike_spis(&mut world, left);
    for name in [Site::TUNNEL, "net0"] {
        for host in [left, right] {
            let up = world.command(host, "connect", |e, now| e.connect(now, name));
            assert_eq!(up, Ok(true));
        }
    }
    world.run_for(SOON);
    assert_eq!(ike_spis(&mut world, left), before);
    assert_eq!(world.ladder().sent_by("left").count(), 2);
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn both_ends_start_at_once() {
    for seed in 0..32 {
        let site = Site { auto_start: true, children: 2, ..Site::default() };
        let (mut world, left, right) = World::of_site(seed, &site, &calm());
        world.run_for(SETTLED);
        assert_agreement(&mut world, left, right, &site);
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn a_redundant_ike_sa_that_its_side_leaves_is_closed_by_the_other() {
    for seed in 0..16 {
        let site = Site { auto_start: true, children: 2, ..Site::default() };
        let (mut world, left, right) = World::of_site(seed, &site, &calm());
        // Deletes are held back: the side that should close its IKE SA seems to do nothing.
        let gates = [left, right].map(|h| world.hold(h, |l| l.is_request(Exchange::Informational)));
        world.run_for(SETTLED);
        gates.into_iter().for_each(|gate| world.discard(gate));
        world.run_for(SETTLED);
        assert_agreement(&mut world, left, right, &site);
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn the_first_packet_starts_a_tunnel_on_demand() {
    let site = Site { on_demand: true, ..Site::default() };
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.run_for(SOON);
    assert_eq!(world.ladder().rows(), [], "nobody speaks before there is a packet");
    let (l, r) = site.inner(0);
    let flow = world.start_flow(left, l, r, Duration::from_millis(20));
    world.run_for(SOON);
    world.stop_flow(flow);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
    let flow = world.flow(flow);
    assert_eq!(flow.in_the_clear, 0);
    assert_eq!(flow.missing(), flow.without_sa, "from the first SA on, everything arrives");
    assert!(!flow.arrived.is_empty());
}

#[test]
fn the_responder_narrows_to_what_both_have() {
    let site = Site::default();
    let wide = Selector::all_of(
        AddressRange::new(IpAddr::from([10, 1, 0, 0]), IpAddr::from([10, 1, 255, 255]))
            .expect("a range"),
    );
    let wide_left = Site { left_net: Some(vec![wide]), ..site.clone() };
    let mut world = World::new(1);
    let left = world.add_host("left", site.left, wide_left.policy(Side::Left), calm());
    let right = world.add_host("right", site.right, site.policy(Side::Right), calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
    let narrowed = vec![Selector::all_of(network([10, 1, 0, 0]))];
    assert_eq!(world.status(left)[0].children[0].local, narrowed);
    // Beyond what was agreed, the rule of the wide policy still forbids the clear.
    let outside = IpAddr::from([10, 1, 200, 1]);
    let flow = world.start_flow(left, outside, site.inner(0).1, Duration::ZERO);
    world.run_for(SOON);
    let flow = world.flow(flow);
    assert_eq!((flow.without_sa, flow.in_the_clear, flow.arrived.len()), (1, 0, 0));
}

#[test]
fn several_selectors_with_ports_are_agreed_as_they_are() {
    let part = |protocol, first, port| Selector {
        protocol,
        addresses: network(first),
        ports: PortRange::new(port, port).expect("one port"),
    };
    let net = vec![part(17, [10, 1, 0, 0], 40_000), part(6, [10, 7, 0, 0], 443)];
    let site = Site { left_net: Some(net.clone()), ..Site::default() };
    let (mut world, left, _) = connects(&site, Side::Right);
    let mut agreed = world.status(left)[0].children[0].local.clone();
    agreed.sort();
    let mut wanted = net;
    wanted.sort();
    assert_eq!(agreed, wanted);
}

#[test]
fn the_initiator_guesses_the_wrong_group_and_tries_again() {
    let offers = |groups: &[Group]| vec![ike_offer(groups)];
    let eager = Site { ike: offers(&[Group::Ecp256, Group::Curve25519]), ..Site::default() };
    let strict = Site { ike: offers(&[Group::Curve25519]), ..Site::default() };
    let mut world = World::new(1);
    let left = world.add_host("left", eager.left, eager.policy(Side::Left), calm());
    let right = world.add_host("right", eager.right, strict.policy(Side::Right), calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &strict);
    let inits: Vec<_> =
        world.ladder().sent_by("left").filter(|l| l.is_request(Exchange::SaInit)).collect();
    // RFC 7296 §2.7: the same SPI and message ID 0 again, with the group asked for.
    assert_eq!(inits.len(), 2);
    assert_eq!(inits[0].initiator_spi, inits[1].initiator_spi);
    assert_eq!(inits[1].message_id, 0);
}

#[test]
fn a_child_sa_guesses_the_wrong_group_and_tries_again() {
    let pfs = |offer: &[Group], accept: &[Group]| Pfs {
        offer: offer.to_vec(),
        accept: accept.to_vec(),
        accept_none: false,
        additional: Vec::new(),
    };
    let both = [Group::Ecp256, Group::Curve25519];
    let eager = Site { pfs: pfs(&both, &both), ..Site::default() };
    let strict = Site { pfs: pfs(&both[1..], &both[1..]), ..Site::default() };
    let mut world = World::new(1);
    let left = world.add_host("left", eager.left, eager.policy(Side::Left), calm());
    let right = world.add_host("right", eager.right, strict.policy(Side::Right), calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &strict);
    assert!(world.rekey(left, "net0"));
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &strict);
    let creations = world.ladder().sent_by("left").filter(|l| l.is_request(Exchange::CreateChild));
    assert_eq!(creations.count(), 2);
    assert_eq!(world.status(left)[0].children[0].sa.as_ref().map(|sa| sa.rekeys), Some(1));
}
