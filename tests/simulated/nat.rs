//! Gateways behind NATs (RFC 7296 §2.23, RFC 3948, RFC 4787).

use crate::puppet::{Puppet, notify};
use crate::{SETTLED, SOON, assert_nothing_lost, assert_settled, calm, ike_spis, talk};
use esp::plane::Encapsulation;
use ike::wire::registry::{ExchangeType, NotifyType};
use ike::{Config, Encap};
use policy::Mode;
use sim::host::Side;
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::ladder::{Row, Subject};
use sim::{Behaviour, HostId, Nat, Site, World};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const BEHAVIOURS: [Behaviour; 3] = [
    Behaviour::EndpointIndependent,
    Behaviour::AddressDependent,
    Behaviour::AddressAndPortDependent,
];

fn roaming() -> Site {
    Site { left: IpAddr::from([10, 0, 0, 5]), left_roams: true, ..Site::default() }
}

/// The left host behind a NAT, everything up.
fn up_behind(mapping: Behaviour, filtering: Behaviour, config: &Config) -> (World, HostId, HostId) {
    let site = roaming();
    let mut world = World::new(1);
    let nat = Nat::new(IpAddr::from([203, 0, 113, 1]), mapping, filtering, Duration::from_secs(60));
    let policy = site.policy(Side::Left);
    let left = world.add_host_behind(nat, "left", site.left, policy, config.clone());
    let right = world.add_host("right", site.right, site.policy(Side::Right), config.clone());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
    (world, left, right)
}

fn encapsulation(world: &mut World, host: HostId) -> Option<Encapsulation> {
    world.status(host)[0].children[0].sa.as_ref().map(|sa| sa.encapsulation)
}

#[test]
fn both_sides_may_agree_on_another_port() {
    let every = Behaviour::EndpointIndependent;
    let config = Config { natt_port: 4600, ..calm() };
    let (mut world, left, right) = up_behind(every, every, &config);
    let sa = world.status(left)[0].sa.clone().expect("up");
    assert_eq!((sa.local.port(), sa.remote.port()), (4600, 4600));
    let sa = world.status(right)[0].sa.clone().expect("up");
    assert_eq!(sa.local.port(), 4600);
    for host in [left, right] {
        assert_eq!(encapsulation(&mut world, host), Some(Encapsulation::Udp));
    }
    let flows = talk(&mut world, left, right, &roaming());
    world.run_for(SOON);
    assert_nothing_lost(&mut world, flows);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn a_gateway_without_port_500_begins_on_4500() {
    let every = Behaviour::EndpointIndependent;
    for behind_nat in [false, true] {
        let ports = |world: &mut World, host| {
            let sa = world.status(host)[0].sa.clone().expect("up");
            (sa.local.port(), sa.remote.port())
        };
        // Nothing but the beginning leads to port 4500 without a NAT.
        let config = Config { mobike: false, encap: Encap::Never, ..calm() };
        let own = Config { begin_on_natt_port: true, ..config.clone() };
        let site = if behind_nat { roaming() } else { Site::default() };
        let mut world = World::new(1);
        let policy = site.policy(Side::Left);
        let left = match behind_nat {
            true => {
                let address = IpAddr::from([203, 0, 113, 1]);
                let nat = Nat::new(address, every, every, Duration::from_secs(60));
                world.add_host_behind(nat, "left", site.left, policy, own)
            }
            false => world.add_host("left", site.left, policy, own),
        };
        let right = world.add_host("right", site.right, site.policy(Side::Right), config);
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        assert_agreement(&mut world, left, right, &site);
        assert_eq!(ports(&mut world, left), (4500, 4500));
        assert_eq!(ports(&mut world, right).0, 4500);
        let flows = talk(&mut world, left, right, &site);
        let begun = world.command(left, "reauthenticate", |engine, now| {
            engine.reauthenticate(now, Site::TUNNEL)
        });
        assert!(begun.is_ok());
        world.run_for(SETTLED);
        assert_nothing_lost(&mut world, flows);
        assert_eq!(ports(&mut world, left), (4500, 4500));
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn the_nat_is_seen_and_ports_float() {
    for mapping in BEHAVIOURS {
        for filtering in BEHAVIOURS {
            let (mut world, left, right) = up_behind(mapping, filtering, &calm());
            let sa = world.status(left)[0].sa.clone().expect("up");
            assert!(sa.nat_local && !sa.nat_remote);
            assert_eq!((sa.local.port(), sa.remote.port()), (4500, 4500));
            let sa = world.status(right)[0].sa.clone().expect("up");
            assert!(sa.nat_remote && !sa.nat_local);
            assert_eq!(sa.local.port(), 4500);
            assert_eq!(sa.remote.ip(), IpAddr::from([203, 0, 113, 1]));
            for host in [left, right] {
                assert_eq!(encapsulation(&mut world, host), Some(Encapsulation::Udp));
            }
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn either_side_begins_a_reauthentication() {
    for mapping in BEHAVIOURS {
        for filtering in BEHAVIOURS {
            for behind_it in [true, false] {
                for mobike in [true, false] {
                    let config = Config { mobike, ..calm() };
                    let (mut world, left, right) = up_behind(mapping, filtering, &config);
                    let before = ike_spis(&mut world, left);
                    let flows = talk(&mut world, left, right, &roaming());
                    let host = if behind_it { left } else { right };
                    let begun = world.command(host, "reauthenticate", |e, now| {
                        e.reauthenticate(now, Site::TUNNEL)
                    });
                    begun.expect("it is up");
                    world.run_for(SETTLED);
                    assert_ne!(ike_spis(&mut world, left), before);
                    assert_settled(&mut world, left, right, &roaming(), flows);
                }
            }
        }
    }
}

#[test]
fn rekeys_of_both_kinds_from_both_sides_stay_in_udp() {
    let strict = Behaviour::AddressAndPortDependent;
    let (mut world, left, right) = up_behind(strict, strict, &calm());
    let flows = talk(&mut world, left, right, &roaming());
    for name in ["net0", Site::TUNNEL] {
        for host in [left, right] {
            assert!(world.rekey(host, name));
            world.run_for(Duration::from_secs(20));
            assert_eq!(encapsulation(&mut world, host), Some(Encapsulation::Udp));
        }
    }
    assert_nothing_lost(&mut world, flows);
    assert_agreement(&mut world, left, right, &roaming());
}

#[test]
fn keepalives_keep_the_mapping() {
    let strict = Behaviour::AddressAndPortDependent;
    let (mut world, left, right) = up_behind(strict, strict, &calm());
    world.run_for(Duration::from_secs(3600));
    let (l, r) = roaming().inner(0);
    assert!(world.probe(right, r, l), "a packet from outside still gets in after an idle hour");
    let keepalives = |name: &str| {
        let sent = |row: &&Row| match row {
            Row::Message { from, subject, .. } => from == name && *subject == Subject::Keepalive,
            Row::Note { .. } => false,
        };
        world.ladder().rows().iter().filter(sent).count()
    };
    let sent = keepalives("left");
    assert!((170..=185).contains(&sent), "one per 20 s, not {sent} in an hour");
    assert_eq!(keepalives("right"), 0, "only the side behind the NAT sends them");
    assert_agreement(&mut world, left, right, &roaming());
}

#[test]
fn traffic_makes_keepalives_needless() {
    let strict = Behaviour::AddressAndPortDependent;
    let (mut world, left, _) = up_behind(strict, strict, &calm());
    let (l, r) = roaming().inner(0);
    let flow = world.start_flow(left, l, r, Duration::from_secs(1));
    world.run_for(Duration::from_secs(600));
    world.stop_flow(flow);
    let keepalive = |row: &&Row| matches!(row, Row::Message { subject: Subject::Keepalive, .. });
    // RFC 3948 §4: only if nothing else was sent.
    assert_eq!(world.ladder().rows().iter().filter(keepalive).count(), 0);
}

#[test]
fn a_rebooted_nat_is_followed_by_traffic() {
    let strict = Behaviour::AddressAndPortDependent;
    let (mut world, left, right) = up_behind(strict, strict, &calm());
    let before = world.status(right)[0].sa.clone().expect("up").remote;
    world.nat(left).reboot();
    let (l, r) = roaming().inner(0);
    assert!(!world.probe(right, r, l), "the reboot cuts the way back");
    assert!(world.probe(left, l, r), "ESP from inside opens a new mapping");
    world.run_for(Duration::from_millis(50));
    assert!(
        world.probe(right, r, l),
        "the answer takes it once the peer has shown that it is there"
    );
    world.run_for(SETTLED);
    let after = world.status(right)[0].sa.clone().expect("up").remote;
    assert_ne!(before, after);
    assert!(world.rekey(right, "net0"), "IKE takes it, too");
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &roaming());
}

#[test]
fn a_rebooted_nat_is_followed_by_liveness() {
    let strict = Behaviour::AddressAndPortDependent;
    let (mut world, left, right) = up_behind(strict, strict, &Config::default());
    world.run_for(SOON);
    world.nat(left).reboot();
    world.run_for(SETTLED);
    let (l, r) = roaming().inner(0);
    assert!(world.probe(right, r, l), "without a packet from inside");
    assert_agreement(&mut world, left, right, &roaming());
}

#[test]
fn without_a_nat_esp_goes_in_udp_only_where_that_is_asked_for() {
    // RFC 4555 §3.3: with MOBIKE the port is 4500 from the start.
    for (encap, mobike, expected, port) in [
        (Encap::Never, false, Encapsulation::Native, 500),
        (Encap::Never, true, Encapsulation::Native, 4500),
        (Encap::Always, true, Encapsulation::Udp, 4500),
    ] {
        let site = Site::default();
        let config = Config { encap, mobike, ..calm() };
        let (mut world, left, right) = World::of_site(1, &site, &config);
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        for host in [left, right] {
            assert_eq!(encapsulation(&mut world, host), Some(expected));
            let paths: Vec<_> = world.plane(host).outbound().map(|s| s.path).collect();
            assert!(paths.iter().all(|p| p.encapsulation == expected), "{paths:?}");
            assert!(paths.iter().all(|p| p.remote.port() == port), "{paths:?}");
        }
        // With a NAT only pretended, the ends need not agree on who is behind it.
        let (l, r) = site.inner(0);
        assert!(world.probe(left, l, r) && world.probe(right, r, l));
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn transport_mode_through_a_nat_counts_the_addresses_that_are_seen() {
    // RFC 7296 §2.23.1: each side knows the other by the address that it sees.
    let outside = IpAddr::from([203, 0, 113, 1]);
    let inside = Site { mode: Mode::Transport, ..roaming() };
    let seen = Site { left: outside, ..inside.clone() };
    for from_auth in [true, false] {
        let mut world = World::new(1);
        let free = Behaviour::EndpointIndependent;
        let nat = Nat::new(outside, free, free, Duration::from_secs(60));
        let policy = inside.policy(Side::Left);
        let left = world.add_host_behind(nat, "left", inside.left, policy, calm());
        let right = world.add_host("right", seen.right, seen.policy(Side::Right), calm());
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        if !from_auth {
            assert!(world.rekey(right, "net0") && world.rekey(left, "net0"));
            world.run_for(SETTLED);
        }
        for (host, site, side) in [(left, &inside, Side::Left), (right, &seen, Side::Right)] {
            let child = &site.policy(side).tunnels[0].children[0];
            let agreed = &world.status(host)[0].children[0];
            assert!(agreed.sa.is_some());
            assert_eq!((&agreed.local, &agreed.remote), (&child.local, &child.remote));
        }
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn a_packet_starts_transport_mode_where_addresses_are_replaced() {
    // The request names the packet's selectors in addition to those of the policy: both ends must keep the same of them.
    let site = Site { mode: policy::Mode::Transport, on_demand: true, ..Site::default() };
    let config = Config { encap: Encap::Always, ..calm() };
    let (mut world, left, right) = World::of_site(1, &site, &config);
    let (l, r) = site.inner(0);
    world.probe(left, l, r);
    world.run_for(SOON);
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}

#[test]
fn both_ends_are_behind_nats_and_one_of_those_forwards_the_ports() {
    let strict = Behaviour::AddressAndPortDependent;
    let (behind, outside) = (IpAddr::from([10, 9, 0, 2]), IpAddr::from([198, 51, 100, 2]));
    for mobike in [true, false] {
        let config = Config { mobike, ..Config::default() };
        let mut world = World::new(1);
        let here = Site { right: outside, ..roaming() };
        let nat = Nat::new(IpAddr::from([203, 0, 113, 1]), strict, strict, Duration::from_secs(60));
        let policy = here.policy(Side::Left);
        let left = world.add_host_behind(nat, "left", here.left, policy, config.clone());
        let there = Site { right: behind, ..roaming() };
        let mut nat = Nat::new(outside, strict, strict, Duration::from_secs(60));
        for port in [500, 4500] {
            nat.forward(port, SocketAddr::new(behind, port));
        }
        let policy = there.policy(Side::Right);
        let right = world.add_host_behind(nat, "right", behind, policy, config.clone());
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        assert_agreement(&mut world, left, right, &here);
        for (host, remote) in [(left, outside), (right, IpAddr::from([203, 0, 113, 1]))] {
            let sa = world.status(host)[0].sa.clone().expect("up");
            assert!(sa.nat_local && sa.nat_remote);
            assert_eq!((sa.local.port(), sa.remote.ip()), (4500, remote));
            assert_eq!(encapsulation(&mut world, host), Some(Encapsulation::Udp));
        }
        let flows = talk(&mut world, left, right, &here);
        for name in ["net0", Site::TUNNEL] {
            for host in [left, right] {
                assert!(world.rekey(host, name));
                world.run_for(Duration::from_secs(20));
            }
        }
        assert_nothing_lost(&mut world, flows);
        // RFC 7296 §2.23: a host behind a NAT follows no change of the peer's address; with MOBIKE it is told.
        if mobike {
            world.nat(left).reboot();
            world.run_for(SETTLED);
        }
        assert_agreement(&mut world, left, right, &here);
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn a_peer_may_begin_on_port_4500() {
    for nat in [true, false] {
        let mut puppet = Puppet::new(&Site { left_roams: true, ..Site::default() }, calm());
        puppet.port = 4500;
        if nat {
            let detection =
                [NotifyType::NAT_DETECTION_SOURCE_IP, NotifyType::NAT_DETECTION_DESTINATION_IP];
            puppet.introduction = detection.map(|kind| notify(kind, &[0; 20])).into();
        }
        puppet.call();
        let auth = puppet.auth_payloads();
        puppet.request(ExchangeType::IKE_AUTH, &auth);
        puppet.request(ExchangeType::INFORMATIONAL, &[]);
        let (world, left) = (&mut puppet.world, puppet.left);
        let sa = world.status(left)[0].sa.clone().expect("up");
        assert_eq!((sa.local.port(), sa.remote.port()), (4500, 4500));
        assert_eq!((sa.nat_local, sa.nat_remote), (nat, nat));
        let expected = if nat { Encapsulation::Udp } else { Encapsulation::Native };
        assert_eq!(encapsulation(world, left), Some(expected));
        let path = world.plane(left).outbound().next().expect("a Child SA is up").path;
        assert_eq!((path.local.port(), path.remote.port()), (4500, 4500));
        assert!(world.rekey(left, "net0"));
        puppet.wait();
        let asked = puppet.world.take_tapped();
        let ports = |p: &sim::link::Parcel| (p.source.port(), p.destination.port());
        assert!(!asked.is_empty() && asked.iter().all(|p| ports(p) == (4500, 4500)));
    }
}
