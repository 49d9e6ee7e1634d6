//! Moments that a hostile peer, a stranger or bad luck could choose.

use crate::puppet::{Puppet, notify};
use crate::{SETTLED, SOON, calm, child_spi, failure, up};
use ike::Config;
use ike::failure::FailureKind;
use ike::negotiation::proposal::offer_ike;
use ike::wire::header::Header;
use ike::wire::message;
use ike::wire::payload::Payload;
use ike::wire::registry::{ExchangeType, GroupId, NotifyType};
use policy::{ChildTunnel, Endpoint, Group, Identity, IkeTunnel, Policy, Secret, Selector};
use sim::host::{Side, ike_offer, network};
use sim::invariant::{assert_agreement, assert_clean_stop, assert_nothing_left, disagreements};
use sim::link::{Content, Parcel};
use sim::{Exchange, HostId, Site, World};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

fn site(children: u8) -> Site {
    Site { children, ..Site::default() }
}

/// Holds back the answers of a host to CREATE_CHILD_SA.
fn hold_answers(world: &mut World, host: HostId) -> sim::Gate {
    world.hold(host, |l| l.is_response(Exchange::CreateChild))
}

fn replace(world: &mut World, host: HostId, policy: Arc<Policy>) {
    world
        .command(host, "replace policy", |e, now| e.replace_policy(now, policy))
        .expect("a valid policy");
}

#[test]
fn a_child_leaves_the_policy_while_the_peer_still_thinks_about_it() {
    for rekey in [true, false] {
        let (mut world, left, right) = World::of_site(1, &site(2), &calm());
        world.connect(left, if rekey { Site::TUNNEL } else { "net0" });
        world.run_for(SOON);
        let answers = hold_answers(&mut world, right);
        match rekey {
            true => assert!(world.rekey(left, "net1")),
            false => world.connect(left, "net1"),
        }
        world.run_for(Duration::from_millis(100));
        assert!(world.held(answers) > 0, "the answer is under way");
        replace(&mut world, left, site(1).policy(Side::Left));
        world.release(answers);
        world.run_for(SETTLED);
        let found = disagreements(&mut world, left, right, 1);
        assert!(found.is_empty(), "{found:?}");
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn a_tunnel_leaves_the_policy_while_the_peer_still_thinks_about_its_child() {
    for name in ["net0", Site::TUNNEL] {
        let (mut world, left, right) = up(1, &site(1));
        let answers = hold_answers(&mut world, right);
        assert!(world.rekey(left, name));
        world.run_for(Duration::from_millis(100));
        replace(&mut world, left, Arc::default());
        assert_eq!(world.plane(left).outbound().count(), 0);
        world.release(answers);
        world.run_for(SETTLED);
        for host in [left, right] {
            assert_nothing_left(&mut world, host);
        }
    }
}

#[test]
fn nothing_stays_behind_of_an_ike_sa_that_is_taken_down_while_it_is_rekeyed() {
    for from_left in [true, false] {
        let (mut world, left, right) = up(1, &site(1));
        let (asking, answering) = if from_left { (left, right) } else { (right, left) };
        let answers = hold_answers(&mut world, answering);
        assert!(world.rekey(asking, Site::TUNNEL));
        world.run_for(Duration::from_millis(100));
        assert!(world.disconnect(asking, Site::TUNNEL));
        world.release(answers);
        world.run_for(SETTLED);
        for host in [left, right] {
            assert_nothing_left(&mut world, host);
            assert_eq!(world.host(host).engine.inventory().ike_sas, 0);
        }
    }
}

#[test]
fn a_child_sa_taken_down_does_not_come_back_when_the_peer_has_time_again() {
    let (mut world, left, right) = World::of_site(1, &site(2), &calm());
    world.connect(left, "net1");
    world.run_for(SOON);
    // While its own rekey of the IKE SA is under way, the right end refuses for the time being.
    let request = world.hold(right, |l| l.is_request(Exchange::CreateChild));
    assert!(world.rekey(right, Site::TUNNEL));
    world.run_for(Duration::from_millis(100));
    world.connect(left, "net0");
    world.run_for(Duration::from_millis(100));
    assert!(world.disconnect(left, "net0"), "it waits to be tried again");
    world.release(request);
    world.run_for(SETTLED);
    let found = disagreements(&mut world, left, right, 1);
    assert!(found.is_empty(), "{found:?}");
    for host in [left, right] {
        let status = world.status(host);
        let net0 = status[0].children.iter().find(|c| c.name == "net0").expect("it is defined");
        assert!(net0.sa.is_none(), "the operator has taken it down");
    }
}

#[test]
fn one_of_two_child_sas_of_a_peer_goes_and_the_other_serves() {
    for seed in 0..6 {
        // The left end makes two Child SAs of what the right end knows as one tunnel.
        let twice = |policy: &Policy| {
            let mut tunnel = IkeTunnel::clone(&policy.tunnels[0]);
            let twin = ChildTunnel { name: "twin".into(), ..(*tunnel.children[0]).clone() };
            tunnel.children.push(Arc::new(twin));
            Arc::new(Policy { tunnels: vec![Arc::new(tunnel)] })
        };
        let site = site(1);
        let mut world = World::new(seed);
        let policy = twice(&site.policy(Side::Left));
        let left = world.add_host("left", site.left, policy, calm());
        let right = world.add_host("right", site.right, site.policy(Side::Right), calm());
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        assert_eq!(world.host(right).engine.inventory().child_sas, 2);
        let (gone, kept) = if seed % 2 == 0 { ("net0", "twin") } else { ("twin", "net0") };
        assert!(world.disconnect(left, gone));
        world.run_for(SETTLED);
        let peer = child_spi(&mut world, left, kept);
        let status = world.status(right);
        let sa = status[0].children[0].sa.as_ref().expect("the other one serves");
        assert_eq!(sa.outbound_spi.0, peer);
        // It is renewed when its time comes, as any that serves.
        assert!(world.rekey(right, "net0"));
        world.run_for(SOON);
        assert_ne!(child_spi(&mut world, left, kept), peer);
    }
}

#[test]
fn a_peer_that_makes_and_deletes_child_sas_does_not_fill_the_memory() {
    let (mut world, left, right) = up(1, &site(1));
    for _ in 0..120 {
        assert!(world.disconnect(left, "net0"));
        world.run_for(Duration::from_millis(20));
        world.connect(left, "net0");
        world.run_for(Duration::from_millis(20));
    }
    let spis = world.host(right).engine.inventory().spis;
    assert!(spis <= 40, "{spis} inbound SAs are kept of one tunnel");
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site(1));
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn our_own_request_sent_back_to_us_starts_nothing() {
    let site = site(1);
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.tap();
    world.cut(right);
    world.connect(left, Site::TUNNEL);
    let ours = world.take_tapped().remove(0);
    let (source, destination) = (ours.destination, ours.source);
    world.inject(Duration::from_millis(1), Parcel { source, destination, ..ours });
    world.run_for(Duration::from_millis(100));
    let inventory = world.host(left).engine.inventory();
    assert_eq!((inventory.ike_sas, inventory.half_open), (1, 0));
    world.heal();
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
}

/// The right end's policy with a second tunnel: under another name of its own and another key, to a peer at any
/// address.
fn with_second_tunnel(site: &Site) -> Arc<Policy> {
    let policy = site.policy(Side::Right);
    let mut tunnel = IkeTunnel::clone(&policy.tunnels[0]);
    tunnel.name = "second".into();
    tunnel.local.identity = Identity::Fqdn("other.example".into());
    tunnel.remote.address = None;
    tunnel.credential = policy::Credential::PresharedKey(Secret::new(b"another key".to_vec()));
    let side = |n| vec![Selector::all_of(network([10, n, 200, 0]))];
    let child = ChildTunnel {
        name: "second0".into(),
        local: side(2),
        remote: side(1),
        ..(*tunnel.children[0]).clone()
    };
    tunnel.children = vec![Arc::new(child)];
    Arc::new(Policy { tunnels: vec![Arc::clone(&policy.tunnels[0]), Arc::new(tunnel)] })
}

/// The policy of the peer of that second tunnel.
fn of_second_peer(site: &Site, address: IpAddr) -> Arc<Policy> {
    let right = with_second_tunnel(site);
    let tunnel = &right.tunnels[1];
    let child = &tunnel.children[0];
    let mirrored = ChildTunnel {
        local: child.remote.clone(),
        remote: child.local.clone(),
        ..ChildTunnel::clone(child)
    };
    let tunnel = IkeTunnel {
        local: Endpoint { address: Some(address), ..tunnel.remote.clone() },
        remote: tunnel.local.clone(),
        children: vec![Arc::new(mirrored)],
        ..IkeTunnel::clone(tunnel)
    };
    Arc::new(Policy { tunnels: vec![Arc::new(tunnel)] })
}

#[test]
fn first_contact_under_one_name_of_ours_ends_nothing_under_another() {
    let site = site(1);
    let mut world = World::new(1);
    let left = world.add_host("left", site.left, site.policy(Side::Left), calm());
    let right = world.add_host("right", site.right, with_second_tunnel(&site), calm());
    let address = IpAddr::from([192, 0, 2, 66]);
    let other = world.add_host("other", address, of_second_peer(&site, address), calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    let before = child_spi(&mut world, right, "net0");
    // It has the key of the second tunnel only, and claims the name that the first tunnel's peer has, too.
    world.connect(other, "second");
    world.run_for(SETTLED);
    child_spi(&mut world, right, "second0");
    assert_eq!(child_spi(&mut world, right, "net0"), before, "the first tunnel is untouched");
}

#[test]
fn one_datagram_of_a_stranger_does_not_become_megabytes() {
    let site = Site { left_roams: true, ..site(1) };
    let mut world = World::new(1);
    let right = world.add_host("right", site.right, site.policy(Side::Right), calm());
    // One proposal after the other of 255 transforms, whose types alternate.
    let transform = |last: bool, n: usize| {
        let more = if last { 0 } else { 3 };
        let (kind, id): (u8, u8) = if n.is_multiple_of(2) { (1, 28) } else { (2, 8) };
        [more, 0, 0, 8, kind, 0, 0, id]
    };
    let mut proposals = Vec::new();
    for number in 1..=30u8 {
        let more = if number == 30 { 0 } else { 2 };
        proposals.extend([more, 0, 0x08, 0x00, number, 1, 0, 255]);
        (0..255).for_each(|n| proposals.extend(transform(n == 254, n)));
    }
    let mut octets = vec![7; 8];
    octets.extend([0; 8]);
    octets.extend([33, 0x20, 34, 0x08, 0, 0, 0, 0, 0, 0, 0, 0]);
    let payload = |octets: &mut Vec<u8>, next: u8, body: &[u8]| {
        octets.extend([next, 0]);
        octets.extend((body.len() as u16 + 4).to_be_bytes());
        octets.extend(body);
    };
    payload(&mut octets, 34, &proposals);
    payload(&mut octets, 40, &[[0, 31, 0, 0].as_slice(), &[9; 32]].concat());
    payload(&mut octets, 0, &[5; 32]);
    let len = octets.len() as u32;
    octets[24..28].copy_from_slice(&len.to_be_bytes());
    let parcel = Parcel {
        source: SocketAddr::from(([198, 51, 100, 7], 500)),
        destination: SocketAddr::new(site.right, 500),
        content: Content::Ike(octets),
    };
    world.inject(Duration::from_millis(1), parcel);
    world.run_for(SOON);
    let told: usize = world.host(right).events.iter().map(|(_, e)| e.to_string().len()).sum();
    assert!(told < 4096, "{told} octets are told of it");
    let discards: u64 = world.host(right).engine.discards().values().sum();
    assert!(discards + told as u64 > 0, "it did arrive");
}

#[test]
fn one_address_does_not_take_every_place_of_strangers() {
    let site = Site { left_roams: true, ..site(1) };
    let config = Config { cookie_threshold: 4, half_open_limit: 64, ..calm() };
    let mut world = World::new(1);
    let right = world.add_host("right", site.right, site.policy(Side::Right), config);
    let address = IpAddr::from([198, 51, 100, 7]);
    let policy = Site { left: address, ..site.clone() }.policy(Side::Left);
    let flooder = world.add_host("flooder", address, policy, calm());
    world.drop_next(flooder, u32::MAX, |l| l.is_request(Exchange::Auth));
    for _ in 0..100 {
        world.connect(flooder, Site::TUNNEL);
        world.run_for(Duration::from_millis(60));
        world.restart(flooder);
    }
    assert!(world.host(right).engine.inventory().half_open < 64, "the flooder has every place");
    let left = world.add_host("left", site.left, site.policy(Side::Left), calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    child_spi(&mut world, left, "net0");
}

#[test]
fn many_addresses_do_not_keep_out_a_peer_that_the_policy_names() {
    // Each of them returns the cookie, and none of them ever authenticates. Beside the named peer, the policy has one
    // of any address.
    let site = site(1);
    let config = Config { cookie_threshold: 4, half_open_limit: 64, ..calm() };
    let mut world = World::new(1);
    let right = world.add_host("right", site.right, with_second_tunnel(&site), config);
    let flooders: Vec<HostId> = (1..=12)
        .map(|n| {
            let address = IpAddr::from([198, 51, 100, n]);
            let policy = of_second_peer(&site, address);
            world.add_host(&format!("flooder{n}"), address, policy, calm())
        })
        .collect();
    for flooder in &flooders {
        world.drop_next(*flooder, u32::MAX, |l| l.is_request(Exchange::Auth));
    }
    for _ in 0..12 {
        for flooder in &flooders {
            world.connect(*flooder, "second");
        }
        world.run_for(Duration::from_millis(60));
        flooders.iter().for_each(|f| world.restart(*f));
    }
    assert_eq!(world.host(right).engine.inventory().half_open, 49, "strangers have their places");
    let left = world.add_host("left", site.left, site.policy(Side::Left), calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    child_spi(&mut world, left, "net0");
    // The places of the strangers are free again when their time is over.
    world.run_for(SETTLED);
    assert_eq!(world.host(right).engine.inventory().half_open, 0);
}

#[test]
fn traffic_does_not_bring_back_what_the_operator_has_taken_down() {
    let site = Site { on_demand: true, ..site(1) };
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    let (l, r) = site.inner(0);
    let flow = world.start_flow(left, l, r, Duration::from_millis(100));
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
    assert!(world.disconnect(left, "net0"));
    world.run_for(SETTLED);
    world.stop_flow(flow);
    assert_eq!(world.plane(left).outbound().count(), 0, "it is down until the operator says so");
    world.connect(left, "net0");
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
}

/// The first of two phase 2 tunnels goes at every moment of the negotiation; the second one still comes up.
fn without_net0(auto_start: bool, drop: impl Fn(&mut World, HostId, &Site)) {
    let site = Site { auto_start, ..site(2) };
    for steps in 0..5 {
        let mut world = World::new(1);
        let right = Site { auto_start: false, ..site.clone() }.policy(Side::Right);
        let right = world.add_host("right", site.right, right, calm());
        let left = world.add_host("left", site.left, site.policy(Side::Left), calm());
        if !auto_start {
            world.connect(left, Site::TUNNEL);
        }
        (0..steps).for_each(|_| _ = world.step(SOON));
        drop(&mut world, left, &site);
        world.run_for(SETTLED);
        let status = world.status(left);
        let up = status[0].children.iter().filter(|c| c.sa.is_some()).map(|c| c.name.as_str());
        assert_eq!(up.collect::<Vec<_>>(), ["net1"], "after {steps} steps");
        assert_eq!(world.host(right).engine.inventory().child_sas, 1);
    }
}

#[test]
fn a_reload_loses_no_tunnel_that_waits_for_its_turn() {
    without_net0(true, |world, left, site| {
        let mut tunnel = IkeTunnel::clone(&site.policy(Side::Left).tunnels[0]);
        tunnel.children.remove(0);
        replace(world, left, Arc::new(Policy { tunnels: vec![Arc::new(tunnel)] }));
    });
}

#[test]
fn taking_down_one_tunnel_loses_no_other_that_waits_for_its_turn() {
    without_net0(false, |world, left, _| assert!(world.disconnect(left, "net0")));
}

#[test]
fn a_peer_that_begins_again_and_again_takes_no_more_and_more() {
    let mut puppet = Puppet::calling(&Site::default());
    for _ in 0..40 {
        puppet.call_anew();
        let payloads = puppet.auth_payloads();
        let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
        assert!(answer.iter().any(|p| matches!(p, Payload::Sa(_))), "{answer:?}");
        let sessions = puppet.world.host(puppet.left).engine.inventory().sessions;
        assert!(sessions <= 20, "{sessions}");
    }
}

/// The group of the IKE SA that is up.
fn group(world: &mut World, host: HostId) -> Option<Group> {
    Some(world.status(host)[0].sa.as_ref()?.suite?.group)
}

/// The left host's first IKE_SA_INIT request, taken off the wire.
fn first_request(world: &mut World, left: HostId) -> (Parcel, Header, Vec<Payload>) {
    let gate = world.hold(left, |l| l.is_request(Exchange::SaInit));
    world.connect(left, Site::TUNNEL);
    let request = world.take_first(gate).expect("the left host asks");
    world.discard(gate);
    let Content::Ike(octets) = &request.content else { panic!("not IKE") };
    let header = Header::parse(octets).expect("a message");
    let payloads = message::decode(&header, octets).expect("payloads");
    (request, header, payloads)
}

/// The answer of somebody else to that request: another group is wanted.
fn wants(request: &Parcel, header: &Header, group: GroupId) -> Parcel {
    let header = Header { response: true, from_initiator: false, ..*header };
    let wanted = notify(NotifyType::INVALID_KE_PAYLOAD, &group.0.to_be_bytes());
    let content = Content::Ike(message::encode(&header, &[wanted]));
    Parcel { source: request.destination, destination: request.source, content }
}

#[test]
fn an_attacker_does_not_choose_the_group() {
    let site = Site { ike: vec![ike_offer(&[Group::Ecp384, Group::Modp1024])], ..site(1) };
    // The genuine request is lost, or arrives, too.
    for lost in [true, false] {
        let (mut world, left, right) = World::of_site(1, &site, &calm());
        let (request, header, _) = first_request(&mut world, left);
        world.inject(
            Duration::from_millis(1),
            wants(&request, &header, GroupId::from(Group::Modp1024)),
        );
        if !lost {
            world.deliver(left, request);
        }
        world.run_for(SOON);
        assert_agreement(&mut world, left, right, &site);
        assert_eq!(group(&mut world, left), Some(Group::Ecp384), "lost: {lost}");
        world.run_for(SETTLED);
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn an_attacker_who_takes_a_group_out_of_the_offer_is_found_out() {
    let site = Site { ike: vec![ike_offer(&[Group::Ecp384, Group::Ecp256])], ..site(1) };
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    let (request, header, _) = first_request(&mut world, left);
    let gate = world.hold(left, |l| l.is_request(Exchange::SaInit));
    world.inject(Duration::ZERO, wants(&request, &header, GroupId::from(Group::Ecp256)));
    world.run_for(Duration::from_millis(1));
    // The second request is the last: it goes on with the weaker group alone.
    let mut second = world.take_first(gate).expect("the left host tries that group");
    let Content::Ike(octets) = &second.content else { panic!("not IKE") };
    let mut payloads = message::decode(&header, octets).expect("payloads");
    for payload in &mut payloads {
        if let Payload::Sa(offers) = payload {
            *offers = offer_ike(&[ike_offer(&[Group::Ecp256])], &[]);
        }
    }
    second.content = Content::Ike(message::encode(&header, &payloads));
    world.deliver(left, second);
    world.run_for(SOON);
    assert_eq!(failure(&world, right, Site::TUNNEL), Some(FailureKind::AuthenticationFailed));
    for host in [left, right] {
        assert_eq!(world.host(host).engine.inventory().established, 0);
    }
}

#[test]
fn the_responders_order_of_groups_decides() {
    let offering = |groups: &[Group]| Site { ike: vec![ike_offer(groups)], ..site(1) };
    let one = offering(&[Group::Ecp256, Group::Curve25519]);
    let other = offering(&[Group::Curve25519, Group::Ecp256]);
    let mut world = World::new(1);
    let left = world.add_host("left", one.left, one.policy(Side::Left), calm());
    let right = world.add_host("right", one.right, other.policy(Side::Right), calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &one);
    assert_eq!(group(&mut world, left), Some(Group::Curve25519));
    // A rekey is protected, and costs no round trip more: the group that was sent is taken.
    let requests = |world: &World, name| {
        world.ladder().sent_by(name).filter(|l| l.is_request(Exchange::CreateChild)).count()
    };
    for (host, name) in [(left, "left"), (right, "right")] {
        let before = requests(&world, name);
        assert!(world.rekey(host, Site::TUNNEL));
        world.run_for(SOON);
        assert_eq!(requests(&world, name), before + 1);
        assert_eq!(group(&mut world, host), Some(Group::Curve25519));
    }
    assert_clean_stop(&mut world, left, right);
}
