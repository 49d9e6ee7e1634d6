//! A gateway that lets its peers name the traffic: the generic child policy.

use crate::{SETTLED, SOON, assert_nothing_lost, calm, failure, talk};
use ike::failure::FailureKind;
use policy::{
    AddressRange, AllowedTraffic, Binding, ChildTunnel, GenericChild, Identity, IkeTunnel, Mode,
    Policy, RangeKind, Selector,
};
use sim::host::Side;
use sim::invariant::assert_clean_stop;
use sim::{HostId, Site, World};
use std::sync::Arc;

pub const ANYTHING: AllowedTraffic =
    AllowedTraffic { ipv4: Some(RangeKind::Range), ipv6: Some(RangeKind::Range) };
const ADDRESSES: AllowedTraffic = AllowedTraffic { ipv4: Some(RangeKind::Address), ipv6: None };

/// The right gateway's policy: a generic one beside those of its phase 2 tunnels that are named.
pub fn generic(site: &Site, remote: AllowedTraffic, named: &[&str]) -> IkeTunnel {
    let tunnel = IkeTunnel::clone(&site.policy(Side::Right).tunnels[0]);
    let child: &ChildTunnel = &tunnel.children[0];
    let generic = GenericChild {
        name: "_defIPSprot_any".into(),
        mode: child.mode,
        local: ANYTHING,
        remote,
        proposals: child.proposals.clone(),
        pfs: child.pfs.clone(),
    };
    let is_named = |child: &&Arc<ChildTunnel>| named.contains(&child.name.as_str());
    let children = tunnel.children.iter().filter(is_named).cloned().collect();
    IkeTunnel { children, generic: Some(Arc::new(generic)), ..tunnel }
}

pub fn world(site: &Site, right: Vec<IkeTunnel>) -> (World, HostId, HostId) {
    between(site, Policy::clone(&site.policy(Side::Left)), right)
}

fn between(site: &Site, left: Policy, right: Vec<IkeTunnel>) -> (World, HostId, HostId) {
    let mut world = World::new(1);
    world.encrypt();
    let left = world.add_host("left", site.left, Arc::new(left), calm());
    let policy = Arc::new(Policy { tunnels: right.into_iter().map(Arc::new).collect() });
    let right = world.add_host("right", site.right, policy, calm());
    (world, left, right)
}

pub fn up(site: &Site, right: IkeTunnel) -> (World, HostId, HostId) {
    let (mut world, left, right) = world(site, vec![right]);
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    (world, left, right)
}

/// Names and remote traffic of the phase 2 tunnels that are up.
pub fn children(world: &mut World, host: HostId) -> Vec<(String, String)> {
    let status = world.status(host);
    let up = status.iter().flat_map(|s| &s.children).filter(|c| c.sa.is_some());
    let words = |selectors: &[Selector]| selectors.iter().map(Selector::to_string).collect();
    up.map(|c| (c.name.clone(), words(&c.remote))).collect()
}

pub fn rules(world: &mut World, host: HostId) -> usize {
    world.plane(host).rules().count()
}

#[test]
fn the_peer_names_the_traffic() {
    let site = Site { children: 2, ..Site::default() };
    let (mut world, left, right) = up(&site, generic(&site, ANYTHING, &[]));
    let named = |n: u8| {
        let (local, remote) = (format!("10.2.{n}.0/24"), format!("10.1.{n}.0/24"));
        (format!("{}:{local}={remote}", Site::TUNNEL), remote)
    };
    assert_eq!(children(&mut world, right), [named(0), named(1)]);
    let flows = talk(&mut world, left, right, &site);
    for what in ["net0", Site::TUNNEL, "net1", "net0"] {
        assert!(world.rekey(left, what));
        world.run_for(SETTLED / 10);
    }
    assert!(world.rekey(right, Site::TUNNEL));
    world.run_for(SETTLED / 10);
    assert_nothing_lost(&mut world, flows);
    assert_eq!(rules(&mut world, right), 2);

    // Traffic that the peer gives up has no rule on this side; when the peer asks for it again, it has one.
    assert!(world.disconnect(left, "net0"));
    world.run_for(SETTLED);
    assert_eq!(children(&mut world, right), [named(1)]);
    assert_eq!(rules(&mut world, right), 1);
    world.connect(left, "net0");
    world.run_for(SETTLED);
    assert_eq!(children(&mut world, right).len(), 2);
    let flows = talk(&mut world, left, right, &site);
    world.run_for(SETTLED / 10);
    assert_nothing_lost(&mut world, flows);

    assert_clean_stop(&mut world, left, right);
    assert_eq!(rules(&mut world, right), 0);
}

#[test]
fn a_child_that_the_policy_names_goes_first() {
    let site = Site { children: 2, ..Site::default() };
    let (mut world, left, right) = up(&site, generic(&site, ANYTHING, &["net1"]));
    let names: Vec<_> = children(&mut world, right).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["net1".to_owned(), format!("{}:10.2.0.0/24=10.1.0.0/24", Site::TUNNEL)]);
    assert!(world.disconnect(left, Site::TUNNEL));
    world.run_for(SETTLED);
    assert_eq!(rules(&mut world, right), 1, "that of the policy stays");
}

#[test]
fn a_child_alone_has_the_status_that_it_has_among_all() {
    let site = Site { children: 2, ..Site::default() };
    // One child of the policy, and one that the peer has asked for.
    let (mut world, _, right) = up(&site, generic(&site, ANYTHING, &["net1"]));
    let all = world.status(right);
    let asked_for = |child: &ike::status::ChildStatus| (child.name != "net1") == child.is_asked_for;
    assert!(all.iter().flat_map(|ike| &ike.children).all(asked_for), "{all:?}");
    let [tunnel] = &all[..] else { panic!("{all:?}") };
    assert_eq!(tunnel.children.len(), 2);
    for child in &tunnel.children {
        let alone = world.status_of(right, &child.name).expect("it is there");
        assert_eq!(alone.name, tunnel.name);
        let told: Vec<_> = alone.children.iter().map(|child| format!("{child:?}")).collect();
        assert_eq!(told, [format!("{child:?}")]);
    }
    let whole = world.status_of(right, Site::TUNNEL).expect("it is there");
    assert_eq!(format!("{whole:?}"), format!("{tunnel:?}"));
    assert!(world.status_of(right, "nobody").is_none());
}

#[test]
fn other_kinds_of_traffic_are_refused() {
    let site = Site::default();
    let (mut world, left, right) = up(&site, generic(&site, ADDRESSES, &[]));
    assert_eq!(children(&mut world, right), []);
    assert_eq!(failure(&world, left, "net0"), Some(FailureKind::TsUnacceptable));
    assert_eq!(rules(&mut world, right), 0);
}

#[test]
fn transport_mode_is_for_the_gateways_themselves() {
    let site = Site { mode: Mode::Transport, ..Site::default() };
    let (mut world, left, right) = up(&site, generic(&site, ADDRESSES, &[]));
    let [(_, remote)] = &children(&mut world, right)[..] else { panic!("one Child SA") };
    assert_eq!(*remote, site.left.to_string());
    let flows = talk(&mut world, left, right, &site);
    world.run_for(SETTLED / 10);
    assert_nothing_lost(&mut world, flows);

    // The same policy for a peer that wants to reach a network behind this side.
    let networks = Site::default();
    let transport = generic(&site, ANYTHING, &[]);
    let (mut world, left, right) = up(&networks, transport);
    assert_eq!(children(&mut world, right), []);
    assert_eq!(failure(&world, left, "net0"), Some(FailureKind::TsUnacceptable));
}

/// An authenticated peer that asks for what belongs to another one gets nothing, and no part of it.
#[test]
fn the_traffic_of_another_peer_is_not_given_away() {
    for net in [("10.1.0.0", "10.1.0.255"), ("10.1.0.0", "10.1.255.255"), ("10.1.0.9", "10.2.0.0")]
    {
        let mut other = IkeTunnel::clone(&Site::default().policy(Side::Right).tunnels[0]);
        other.name = "other".into();
        other.remote.identity = Identity::Fqdn("other.example.net".into());
        other.remote.address = Some([192, 0, 2, 99].into());
        let theirs = ChildTunnel { name: "other0".into(), ..(*other.children[0]).clone() };
        other.children = vec![Arc::new(theirs)];
        let site = Site { left_net: Some(ranges(&[net])), ..Site::default() };
        let (mut world, left, right) = world(&site, vec![other, generic(&site, ANYTHING, &[])]);
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        assert_eq!(children(&mut world, right), []);
        assert_eq!(failure(&world, right, Site::TUNNEL), Some(FailureKind::TrafficClaimed));
        assert_eq!(rules(&mut world, right), 1, "that of the other peer");
    }
}

/// A peer that names its traffic could receive packets of the other peer that miss the interface, or forge its packets.
#[test]
fn the_traffic_of_a_tunnel_with_an_interface_of_its_own_is_not_given_away_either() {
    for if_id in [Some(7), None] {
        let mut other = IkeTunnel::clone(&Site::default().policy(Side::Right).tunnels[0]);
        other.name = "other".into();
        other.remote.identity = Identity::Fqdn("other.example.net".into());
        other.remote.address = Some([192, 0, 2, 99].into());
        let all = ranges(&[("0.0.0.0", "255.255.255.255")]);
        let routed = ChildTunnel {
            name: "routed".into(),
            local: all.clone(),
            remote: all,
            ..(*other.children[0]).clone()
        };
        other.children = vec![Arc::new(routed)];
        let site = Site::default();
        let (mut world, left, right) = world(&site, vec![other, generic(&site, ANYTHING, &[])]);
        let binding = Binding { if_id, ..Binding::default() };
        world.plane(right).bind([("routed".to_owned(), binding)].into_iter().collect());
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        assert_eq!(children(&mut world, right).len(), 0, "{if_id:?}");
        let claimed = Some(FailureKind::TrafficClaimed);
        assert_eq!(failure(&world, right, Site::TUNNEL), claimed);
    }
}

fn ranges(ranges: &[(&str, &str)]) -> Vec<Selector> {
    let address = |text: &str| text.parse().expect("an address");
    let range = |(first, last): &(&str, &str)| AddressRange::new(address(first), address(last));
    ranges.iter().map(|ends| Selector::all_of(range(ends).expect("in order"))).collect()
}

/// An authenticated peer does not draw the traffic of the world by naming it, in one piece or in several.
#[test]
fn a_peer_does_not_name_more_than_it_can_have() {
    const LAST: &str = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    const MIDDLE: &str = "7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let nets: [(&[(&str, &str)], bool); 9] = [
        (&[("0.0.0.0", "255.255.255.255")], false),
        (&[("0.0.0.0", "127.255.255.255"), ("128.0.0.0", "255.255.255.255")], false),
        (&[("0.0.0.1", "255.255.255.254")], false),
        (&[("10.0.0.0", "11.0.0.0")], false),
        (&[("10.0.0.0", "10.255.255.255"), ("12.0.0.0", "12.0.0.0")], false),
        (&[("10.0.0.0", "10.255.255.255")], true),
        (&[("::", LAST)], false),
        (&[("::", MIDDLE)], false),
        (&[("fd00:1::", "fd00:1:ffff:ffff:ffff:ffff:ffff:ffff")], true),
    ];
    for (net, granted) in nets {
        let site = Site { left_net: Some(ranges(net)), ..Site::default() };
        let tunnel = generic(&site, ANYTHING, &[]);
        // Either side of the traffic: the peer's own selectors, and its selectors for our side.
        for ours in [false, true] {
            let mut policy = Policy::clone(&site.policy(Side::Left));
            let child = Arc::make_mut(&mut Arc::make_mut(&mut policy.tunnels[0]).children[0]);
            if ours {
                std::mem::swap(&mut child.local, &mut child.remote);
            }
            // Both sides of one family.
            if net[0].0.contains(':') {
                let other = if ours { &mut child.local } else { &mut child.remote };
                *other = ranges(&[("fd00:2::", "fd00:2::ffff")]);
            }
            let (mut world, left, right) = between(&site, policy, vec![tunnel.clone()]);
            world.connect(left, Site::TUNNEL);
            world.run_for(SOON);
            let expected = usize::from(granted);
            assert_eq!(children(&mut world, right).len(), expected, "{net:?}, ours: {ours}");
            assert_eq!(rules(&mut world, right), expected, "{net:?}, ours: {ours}");
            if !granted {
                let kinds = [failure(&world, left, "net0"), failure(&world, right, Site::TUNNEL)];
                assert_eq!(kinds, [Some(FailureKind::TsUnacceptable); 2], "{net:?}");
            }
        }
    }
    // The policy may name it.
    let site =
        Site { left_net: Some(ranges(&[("0.0.0.0", "255.255.255.255")])), ..Site::default() };
    let (mut world, _, right) = up(&site, generic(&site, ANYTHING, &["net0"]));
    assert_eq!(children(&mut world, right).len(), 1);
}

/// Many requests, each of which could be granted, do not add up to the world.
#[test]
fn the_addresses_of_all_requests_are_counted() {
    let site = Site { children: 4, ..Site::default() };
    let mut policy = Policy::clone(&site.policy(Side::Left));
    let tunnel = Arc::make_mut(&mut policy.tunnels[0]);
    for (child, first) in tunnel.children.iter_mut().zip([20, 20, 21, 22]) {
        let (start, end) = (format!("{first}.0.0.0"), format!("{first}.127.255.255"));
        Arc::make_mut(child).local = ranges(&[(&start, &end)]);
    }
    let (mut world, left, right) = between(&site, policy, vec![generic(&site, ANYTHING, &[])]);
    for child in ["net0", "net1", "net2", "net3"] {
        world.connect(left, child);
        world.run_for(SETTLED);
    }
    let nets = |world: &mut World| -> Vec<String> {
        children(world, right).into_iter().map(|(_, net)| net).collect()
    };
    // The same addresses, to two networks of ours, count once.
    assert_eq!(nets(&mut world), ["20.0.0.0/9", "20.0.0.0/9", "21.0.0.0/9"]);
    assert_eq!(failure(&world, left, "net3"), Some(FailureKind::TsUnacceptable));
    // Those that are given up may be asked for again.
    assert!(world.disconnect(left, "net2"));
    world.run_for(SETTLED);
    world.connect(left, "net3");
    world.run_for(SETTLED);
    assert_eq!(nets(&mut world), ["20.0.0.0/9", "20.0.0.0/9", "22.0.0.0/9"]);
}

/// No other peer takes the traffic that one peer has asked for: neither all of it, nor a part, nor more.
#[test]
fn peers_do_not_ask_for_each_others_traffic() {
    for theirs in [
        ("10.1.0.0", "10.1.0.255"),
        ("10.1.0.0", "10.1.255.255"),
        ("10.1.0.200", "10.1.1.200"),
        ("10.1.0.7", "10.1.0.7"),
        ("10.1.1.0", "10.1.1.255"),
    ] {
        let site = Site::default();
        let other = Site {
            left: [192, 0, 2, 3].into(),
            left_id: Identity::Fqdn("other.example".into()),
            left_net: Some(ranges(&[theirs])),
            ..Site::default()
        };
        let second = IkeTunnel { name: "other".into(), ..generic(&other, ANYTHING, &[]) };
        let (mut world, left, right) = world(&site, vec![generic(&site, ANYTHING, &[]), second]);
        let thief = world.add_host("other", other.left, other.policy(Side::Left), calm());
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        world.connect(thief, Site::TUNNEL);
        world.run_for(SOON);
        let up: Vec<String> = children(&mut world, right).into_iter().map(|(_, net)| net).collect();
        if theirs.0 == "10.1.1.0" {
            assert_eq!(up, ["10.1.0.0/24", "10.1.1.0/24"], "it stands beside it");
        } else {
            assert_eq!(up, ["10.1.0.0/24"], "{theirs:?}");
            assert_eq!(failure(&world, right, "other"), Some(FailureKind::TrafficClaimed));
        }
        // The first one goes on.
        let flows = talk(&mut world, left, right, &site);
        assert!(world.rekey(left, "net0"));
        world.run_for(SETTLED / 10);
        assert_nothing_lost(&mut world, flows);
    }
}

/// A new policy without it removes the SAs and rules that it gave.
#[test]
fn a_generic_policy_that_goes_takes_its_traffic_along() {
    let site = Site::default();
    let (mut world, _, right) = up(&site, generic(&site, ANYTHING, &[]));
    assert_eq!(children(&mut world, right).len(), 1);
    let tunnel = IkeTunnel { generic: None, ..generic(&site, ANYTHING, &[]) };
    world.replace_policy(right, Arc::new(Policy { tunnels: vec![Arc::new(tunnel)] }));
    world.run_for(SETTLED);
    assert_eq!(children(&mut world, right), []);
    assert_eq!(rules(&mut world, right), 0);
}
