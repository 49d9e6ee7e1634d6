//! A gateway with many peers, without a wire in between: every tunnel comes up, is rekeyed and goes, and strangers in
//! great numbers cost neither memory nor anybody's tunnel. `benches/handshake` does the same with 20,000 tunnels.

use crate::calm;
use esp::datapath::Datapath;
use ike::Datagram;
use ike::Inventory;
use ike::Output;
use ike::event::EventKind;
use ike::{Config, Engine};
use sim::fleet::{End, Fleet, KnownBy, Plan};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Tunnels of the fleet.
const TUNNELS: u32 = 300;

/// Spoofed requests; 100,000 where the optimiser makes that a matter of seconds.
const STRANGERS: u32 = if cfg!(debug_assertions) { 10_000 } else { 100_000 };

/// All events at the spokes of one kind.
fn count(told: &[ike::Event], kind: impl Fn(&EventKind) -> bool) -> usize {
    told.iter().filter(|e| e.child.is_some() && kind(&e.kind)).count()
}

fn connect_all(fleet: &mut Fleet, now: Instant) -> usize {
    let mut up = 0;
    for n in 0..TUNNELS {
        fleet.spokes.connect(now, &Plan::tunnel(n)).expect("a tunnel of the policy");
        up += count(&fleet.settle(now), |k| matches!(k, EventKind::Established { .. }));
    }
    up
}

fn holds(engine: &Engine<Datapath>, tunnels: usize) {
    let Inventory { ike_sas, child_sas, half_open, delivered_spis, delivered_sas, .. } =
        engine.inventory();
    assert_eq!(
        (ike_sas, child_sas, half_open, delivered_spis, delivered_sas),
        (tunnels, tunnels, 0, tunnels, 2 * tunnels)
    );
}

/// Lets time pass until neither engine waits for anything before then.
fn pass(fleet: &mut Fleet, now: &mut Instant, time: Duration) {
    let end = *now + time;
    loop {
        fleet.settle(*now);
        let next = [fleet.hub.deadline(), fleet.spokes.deadline()];
        let Some(at) = next.into_iter().flatten().map(|d| d.at).min().filter(|at| *at <= end)
        else {
            break;
        };
        *now = at.max(*now);
        fleet.hub.handle_timeout(*now);
        fleet.spokes.handle_timeout(*now);
    }
    *now = end;
}

#[test]
fn every_tunnel_of_many_comes_up_is_rekeyed_and_goes() {
    for known_by in [KnownBy::Address, KnownBy::Identity] {
        #[expect(clippy::disallowed_methods, reason = "a first instant")]
        let mut now = Instant::now();
        let mut fleet = Fleet::new(&Plan { known_by, ..Plan::of(TUNNELS) }, &calm(), now);
        assert_eq!(connect_all(&mut fleet, now), TUNNELS as usize);
        holds(&fleet.hub, TUNNELS as usize);
        for n in 0..TUNNELS {
            for name in [Plan::child(n), Plan::tunnel(n)] {
                fleet.spokes.rekey(now, &name).expect("it is up");
                fleet.settle(now);
            }
        }
        pass(&mut fleet, &mut now, Duration::from_secs(10));
        holds(&fleet.hub, TUNNELS as usize);
        holds(&fleet.spokes, TUNNELS as usize);
        let status = fleet.hub.status(now);
        assert!(status.iter().all(|t| t.sa.as_ref().is_some_and(|sa| sa.rekeys == 1)));
        for n in 0..TUNNELS {
            fleet.spokes.disconnect(now, &Plan::tunnel(n)).expect("it is up");
        }
        pass(&mut fleet, &mut now, Duration::from_secs(60));
        holds(&fleet.hub, 0);
        holds(&fleet.spokes, 0);
        assert!(fleet.hub.is_idle() && fleet.spokes.is_idle());
        assert_eq!(fleet.hub.deadline(), None);
    }
}

#[test]
fn every_peer_of_many_shows_that_it_lives() {
    #[expect(clippy::disallowed_methods, reason = "a first instant")]
    let mut now = Instant::now();
    let config = Config { liveness_interval: Some(Duration::from_secs(30)), ..calm() };
    let mut fleet = Fleet::new(&Plan::of(TUNNELS), &config, now);
    connect_all(&mut fleet, now);
    pass(&mut fleet, &mut now, Duration::from_secs(300));
    holds(&fleet.hub, TUNNELS as usize);
    holds(&fleet.spokes, TUNNELS as usize);
}

/// A request that a peer would begin with, from an address and with an SPI of a stranger.
fn spoofed(n: u32, request: &[u8]) -> (SocketAddr, Vec<u8>) {
    let address = Ipv4Addr::from_bits(u32::from_be_bytes([11, 0, 0, 0]) + n);
    let mut octets = request.to_vec();
    octets[..8].copy_from_slice(&(u64::from(n) + 1).to_be_bytes());
    (SocketAddr::new(address.into(), 500), octets)
}

#[test]
fn a_flood_costs_no_memory_and_nobody_a_tunnel() {
    #[expect(clippy::disallowed_methods, reason = "a first instant")]
    let mut now = Instant::now();
    let config = Config { liveness_interval: Some(Duration::from_secs(30)), ..Config::default() };
    let mut fleet = Fleet::new(&Plan::of(2), &config, now);
    fleet.spokes.connect(now, &Plan::tunnel(0)).expect("a tunnel of the policy");
    fleet.settle(now);
    holds(&fleet.hub, 1);
    fleet.spokes.connect(now, &Plan::tunnel(1)).expect("a tunnel of the policy");
    let friend = fleet.collect(End::Spokes, &mut Vec::new()).remove(0);
    let hub: IpAddr = friend.remote.ip();
    let mut most = 0;
    for n in 0..STRANGERS {
        let (remote, octets) = spoofed(n, &friend.octets);
        let datagram = Datagram { local: SocketAddr::new(hub, 500), remote, octets: &octets };
        fleet.hub.handle_datagram(now, datagram);
        most = most.max(fleet.hub.inventory().half_open);
        // The answers go nowhere: nobody is there.
        while !matches!(fleet.hub.poll(), Output::Wait(_)) {}
        now += Duration::from_micros(100);
        if n == STRANGERS / 2 {
            // In the middle of it a friend whose first request waited knocks, and the tunnel that is up is asked for
            // life.
            fleet.deliver(now, End::Hub, &vec![friend.clone()]);
            assert_eq!(
                count(&fleet.settle(now), |k| matches!(k, EventKind::Established { .. })),
                1,
                "the friend got in at once"
            );
            pass(&mut fleet, &mut now, Duration::from_secs(40));
        }
    }
    assert!(most <= config.half_open_limit, "{most} half-open IKE SAs");
    assert!(most <= config.cookie_threshold, "without a cookie nobody takes more places: {most}");
    pass(&mut fleet, &mut now, Duration::from_secs(120));
    holds(&fleet.hub, 2);
    holds(&fleet.spokes, 2);
}
