//! A gateway that lets its peers name the traffic: the generic child policy.

use crate::{SETTLED, SOON, assert_nothing_lost, calm, failure, talk};
use ike::failure::FailureKind;
use policy::{
    AllowedTraffic, ChildTunnel, GenericChild, Identity, IkeTunnel, Mode, Policy, RangeKind,
    Selector,
};
use sim::host::Side;
use sim::invariant::assert_clean_stop;
use sim::{HostId, Site, World};
use std::sync::Arc;

const ANYTHING: AllowedTraffic =
    AllowedTraffic { ipv4: Some(RangeKind::Range), ipv6: Some(RangeKind::Range) };
const ADDRESSES: AllowedTraffic = AllowedTraffic { ipv4: Some(RangeKind::Address), ipv6: None };

/// The right gateway's policy: a generic one beside those of its child tunnels that are named.
fn generic(site: &Site, remote: AllowedTraffic, named: &[&str]) -> IkeTunnel {
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

fn world(site: &Site, right: Vec<IkeTunnel>) -> (World, HostId, HostId) {
    let mut world = World::new(1);
    world.encrypt();
    let left = world.add_host("left", site.left, site.policy(Side::Left), calm());
    let policy = Arc::new(Policy { tunnels: right.into_iter().map(Arc::new).collect() });
    let right = world.add_host("right", site.right, policy, calm());
    (world, left, right)
}

fn up(site: &Site, right: IkeTunnel) -> (World, HostId, HostId) {
    let (mut world, left, right) = world(site, vec![right]);
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    (world, left, right)
}

/// Names and remote traffic of the child tunnels that are up.
fn children(world: &mut World, host: HostId) -> Vec<(String, String)> {
    let status = world.status(host);
    let up = status.iter().flat_map(|s| &s.children).filter(|c| c.sa.is_some());
    let words = |selectors: &[Selector]| selectors.iter().map(Selector::to_string).collect();
    up.map(|c| (c.name.clone(), words(&c.remote))).collect()
}

fn rules(world: &mut World, host: HostId) -> usize {
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

    // What the peer gives up is no longer this side's concern; asked for again, it is again.
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
fn what_the_policy_names_goes_first() {
    let site = Site { children: 2, ..Site::default() };
    let (mut world, left, right) = up(&site, generic(&site, ANYTHING, &["net1"]));
    let names: Vec<_> = children(&mut world, right).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["net1".to_owned(), format!("{}:10.2.0.0/24=10.1.0.0/24", Site::TUNNEL)]);
    assert!(world.disconnect(left, Site::TUNNEL));
    world.run_for(SETTLED);
    assert_eq!(rules(&mut world, right), 1, "that of the policy stays");
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

/// An authenticated peer that asks for what belongs to another one gets nothing.
#[test]
fn the_traffic_of_another_peer_is_not_given_away() {
    let site = Site::default();
    let mut other = IkeTunnel::clone(&site.policy(Side::Right).tunnels[0]);
    other.name = "other".into();
    other.remote.identity = Identity::Fqdn("other.example.net".into());
    other.remote.address = Some([192, 0, 2, 99].into());
    let theirs = ChildTunnel { name: "other0".into(), ..(*other.children[0]).clone() };
    other.children = vec![Arc::new(theirs)];
    let (mut world, left, right) = world(&site, vec![other, generic(&site, ANYTHING, &[])]);
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_eq!(children(&mut world, right), []);
    assert_eq!(failure(&world, right, Site::TUNNEL), Some(FailureKind::TrafficClaimed));
    assert_eq!(rules(&mut world, right), 1, "that of the other peer");
}

/// A new policy without it takes what it gave.
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
