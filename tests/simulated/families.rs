//! IPsec of one address family, switched off and on: its tunnels go and come back, and nothing leaves in the clear.

use crate::{SETTLED, SOON, calm, failure};
use esp::families::{Families, Family};
use ike::failure::FailureKind;
use ike::status::{Next, State};
use ike::{CloseReason, CommandError, Config};
use policy::{AddressRange, ChildTunnel, Policy, Selector};
use sim::host::Side;
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::{HostId, Site, World};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const SIX: [IpAddr; 2] = [
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 7)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, 9)),
];

fn off(family: Family) -> Families {
    Families::default().with(family, false)
}

/// The second phase 2 tunnel of the site carries IPv6.
fn policy(site: &Site, side: Side) -> Arc<Policy> {
    let mut policy = Policy::clone(&site.policy(side));
    let tunnel = Arc::make_mut(&mut policy.tunnels[0]);
    let host = |address: IpAddr| vec![Selector::all_of(AddressRange::from(address))];
    let [left, right] = SIX;
    let (local, remote) = match side {
        Side::Left => (host(left), host(right)),
        Side::Right => (host(right), host(left)),
    };
    tunnel.children[1] = Arc::new(ChildTunnel { local, remote, ..(*tunnel.children[1]).clone() });
    Arc::new(policy)
}

/// Both gateways with the real datapath.
fn world(site: &Site, config: &Config) -> (World, HostId, HostId) {
    let mut world = World::new(1);
    world.encrypt();
    let left = world.add_host("left", site.left, policy(site, Side::Left), config.clone());
    let right = world.add_host("right", site.right, policy(site, Side::Right), calm());
    (world, left, right)
}

fn switch(world: &mut World, host: HostId, families: Families) {
    world
        .command(host, "families", |e, now| e.set_families(now, families))
        .expect("the datapath can");
}

fn states(world: &mut World, host: HostId) -> Vec<State> {
    world.status(host)[0].children.iter().map(|child| child.state).collect()
}

#[test]
fn one_family_goes_off_and_on_under_traffic_of_both() {
    let site = Site { children: 2, ..Site::default() };
    let (mut world, left, right) = world(&site, &calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_eq!(states(&mut world, left), [State::Established; 2]);
    let (l, r) = site.inner(0);
    let every = Duration::from_millis(10);
    let four = [world.start_flow(left, l, r, every), world.start_flow(right, r, l, every)];
    assert!(world.probe(left, SIX[0], SIX[1]));

    switch(&mut world, left, off(Family::Ipv6));
    let six = [
        world.start_flow(left, SIX[0], SIX[1], every),
        world.start_flow(right, SIX[1], SIX[0], every),
    ];
    world.run_for(SETTLED);
    assert_eq!(states(&mut world, left), [State::Established, State::Down]);
    assert_eq!(states(&mut world, right), [State::Established, State::Down]);
    for flow in six {
        world.stop_flow(flow);
        let flow = world.flow(flow);
        assert!(flow.offered > 1_000, "no packet was sent");
        assert_eq!((flow.arrived.len(), flow.in_the_clear), (0, 0));
    }
    let status = world.status(left).remove(0);
    assert_eq!(status.children[1].next, Some(Next::Family(Family::Ipv6)));
    let (why, _) = status.children[1].last_failure.clone().expect("the reason");
    assert_eq!(
        why.to_string(),
        "its address family is off: IPsec of IPv6 is switched off, and all of its traffic is IPv6"
    );
    assert_eq!(status.children[0].last_failure, None);
    // Neither side sets it up meanwhile.
    let refused = world.command(left, "connect", |e, now| e.connect(now, "net1"));
    assert!(matches!(refused, Err(CommandError::FamilyOff(name, _)) if name == "net1"));
    world.connect(right, "net1");
    world.run_for(SOON);
    assert_eq!(failure(&world, right, "net1"), Some(FailureKind::TsUnacceptable));

    switch(&mut world, left, Families::default());
    world.run_for(SOON);
    assert_eq!(states(&mut world, left), [State::Established; 2], "it comes back by itself");
    assert!(world.probe(left, SIX[0], SIX[1]) && world.probe(right, SIX[1], SIX[0]));
    four.iter().for_each(|&flow| world.stop_flow(flow));
    world.run_for(SOON);
    for flow in four.map(|flow| world.flow(flow)) {
        assert!(flow.offered > 1_000, "no packet was sent");
        assert_eq!((flow.missing(), flow.without_sa, flow.in_the_clear), (0, 0, 0));
    }
    assert_eq!(world.status(left)[0].children[1].last_failure, None);
    world.run_for(SETTLED);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_tunnel_between_addresses_of_the_family_goes_and_is_not_answered() {
    let site = Site {
        left: "2001:db8::1".parse().expect("an address"),
        right: "2001:db8::2".parse().expect("an address"),
        ..Site::default()
    };
    let (mut world, left, right) = World::of_site_encrypting(1, &site, &calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
    switch(&mut world, left, off(Family::Ipv6));
    let (l, r) = site.inner(0);
    assert!(!world.probe(left, l, r) && !world.probe(right, r, l), "at once");
    world.run_for(SETTLED);
    let status = world.status(left).remove(0);
    assert_eq!((status.state, states(&mut world, right)), (State::Down, vec![State::Down]));
    assert_eq!(status.ended.expect("it was up").reason, CloseReason::FamilyOff);
    assert_eq!(status.last_failure.expect("the reason").0.kind, FailureKind::FamilyOff);

    world.connect(right, Site::TUNNEL);
    world.run_for(SETTLED);
    assert_eq!(failure(&world, right, Site::TUNNEL), Some(FailureKind::NoAnswer));
    assert!(world.host(left).engine.discards()["family_off"] > 0);

    switch(&mut world, left, Families::default());
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_start_with_a_family_off_sets_up_the_other_only() {
    let site = Site { children: 2, auto_start: true, ..Site::default() };
    let config = Config { families: off(Family::Ipv6), ..calm() };
    let (mut world, left, right) = world(&site, &config);
    world.run_for(SETTLED);
    assert_eq!(states(&mut world, left), [State::Established, State::Down]);
    let (l, r) = site.inner(0);
    assert!(world.probe(left, l, r) && !world.probe(left, SIX[0], SIX[1]));
    assert_eq!(world.in_the_clear(), 0);
    switch(&mut world, left, Families::default());
    world.run_for(SETTLED);
    assert_eq!(states(&mut world, left), [State::Established; 2]);
    assert!(world.probe(left, SIX[0], SIX[1]));
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_tunnel_that_the_operator_took_down_stays_down() {
    let site = Site { children: 2, ..Site::default() };
    let (mut world, left, right) = world(&site, &calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert!(world.disconnect(left, "net1"));
    world.run_for(SOON);
    for families in [off(Family::Ipv6), Families::default()] {
        switch(&mut world, left, families);
        world.run_for(SETTLED);
        assert_eq!(states(&mut world, left), [State::Established, State::Down]);
    }
    assert_clean_stop(&mut world, left, right);
}
