//! Real engines in a simulated world (crate `sim`): every scenario ends with a check that both ends are in the same
//! state. A failing one prints its seed and the ladder of messages.
#![forbid(unsafe_code)]

mod additional;
mod admission;
mod apart;
mod attack;
mod authentication_header;
mod causes;
mod certificates;
mod childless;
mod collisions;
mod conformance;
mod constraints;
mod crossing;
mod datapath;
mod delete;
mod der;
mod dropped;
mod establish;
mod exchange_steps;
mod failure;
mod families;
mod forgery;
mod fragmentation;
mod frozen;
mod generic;
mod handover;
mod hostile;
mod key_log;
mod lifetime;
mod liveness;
mod many;
mod mirrored;
mod mobility;
mod narrowing;
mod nat;
mod neighbours;
mod ocsp;
mod odd;
mod ppk;
mod preparation;
#[cfg(feature = "aws-lc")]
mod providers;
mod puppet;
mod random;
mod reauthentication;
mod reconnect;
mod rekey_child;
mod rekey_ike;
mod reordering;
mod replace;
mod reported;
mod restarts;
mod resumption;
mod retransmission;
mod roaming;
mod suites;
mod unprotected;

use ike::Config;
use ike::failure::FailureKind;
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::traffic::FlowId;
use sim::{HostId, Site, World};
use std::time::Duration;

/// More than any exchange takes on a good link.
const SOON: Duration = Duration::from_secs(2);

/// More than everything takes that follows from one command: retransmissions, retries, the linger time.
const SETTLED: Duration = Duration::from_secs(300);

/// The defaults, but nobody asks whether the peer lives.
fn calm() -> Config {
    Config { liveness_interval: None, ..Config::default() }
}

/// A site with everything up, started from the left.
fn up(seed: u64, site: &Site) -> (World, HostId, HostId) {
    let (mut world, left, right) = World::of_site(seed, site, &calm());
    world.connect(left, Site::TUNNEL);
    // If both sides start, redundant SAs linger.
    world.run_for(if site.auto_start { SOON + calm().linger } else { SOON });
    assert_agreement(&mut world, left, right, site);
    (world, left, right)
}

/// Flows in both directions of phase 2 tunnel `net0`, a packet each every ten milliseconds.
fn talk(world: &mut World, left: HostId, right: HostId, site: &Site) -> [FlowId; 2] {
    let (l, r) = site.inner(0);
    let every = Duration::from_millis(10);
    [world.start_flow(left, l, r, every), world.start_flow(right, r, l, every)]
}

/// Ends flows of which nothing may be lost, and checks that both ends agree once all has settled, and end cleanly.
fn assert_settled(world: &mut World, left: HostId, right: HostId, site: &Site, flows: [FlowId; 2]) {
    assert_nothing_lost(world, flows);
    world.run_for(SETTLED);
    assert_agreement(world, left, right, site);
    assert_clean_stop(world, left, right);
}

/// Ends flows and checks that every packet arrived once, none was refused, and none could be read on the way.
fn assert_nothing_lost(world: &mut World, flows: [FlowId; 2]) {
    assert_all_arrived(world, flows);
    for id in flows {
        assert_eq!(world.flow(id).in_the_clear, 0, "packets would have left in the clear");
    }
}

/// Ends flows and checks that every packet arrived once and none was refused.
fn assert_all_arrived(world: &mut World, flows: [FlowId; 2]) {
    flows.iter().for_each(|&f| world.stop_flow(f));
    world.run_for(SOON);
    for id in flows {
        let flow = world.flow(id);
        assert!(flow.offered > 0, "no packet was sent");
        assert_eq!(flow.without_sa, 0, "of {} packets some met no SA", flow.offered);
        assert!(flow.refused.is_empty(), "packets were refused: {:?}", flow.refused);
        assert_eq!(flow.missing(), 0, "of {} packets some did not arrive", flow.offered);
        assert!(flow.arrived.values().all(|&n| n == 1), "a packet arrived twice");
    }
}

/// The last failure of a tunnel, where there is one.
fn failure(world: &World, host: HostId, tunnel: &str) -> Option<FailureKind> {
    world.host(host).engine.last_failure(tunnel).map(|f| f.kind)
}

/// SPIs of the IKE SA of a host that has just one.
fn ike_spis(world: &mut World, host: HostId) -> (u64, u64) {
    let status = world.status(host);
    let sa = status.iter().find_map(|s| s.sa.as_ref()).expect("an IKE SA is up");
    (sa.initiator_spi.0, sa.responder_spi.0)
}

/// Inbound SPI of a phase 2 tunnel that is up.
fn child_spi(world: &mut World, host: HostId, name: &str) -> u32 {
    let status = world.status(host);
    let mut children = status.iter().flat_map(|s| &s.children).filter(|c| c.name == name);
    let sa = children.find_map(|c| c.sa.as_ref()).expect("the Child SA is up");
    sa.inbound_spi.0
}
