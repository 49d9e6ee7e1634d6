//! Lifetimes of seconds, for as long as `PEER_SECONDS` in the environment says: half a minute in the suite.

use super::pluto::Pluto;
use super::setup::{GCM_256, Setup};
use crate::peer::{World, endurance};
use std::time::Instant;
use testkit::until;

/// libreswan renews all keys every five seconds, and `vpnd` those of the Child SA by command in between: no packet is
/// lost. The other five seconds are for a machine that stalls: then libreswan must not find both timers overdue.
///
/// A rekey of the IKE SA that meets one of a Child SA is refused for the time being (RFC 7296 §2.25.1), and libreswan
/// does not repeat it, so that its IKE SA ends with its lifetime. So `vpnd` begins right after a rekey of the IKE SA.
pub fn lifetimes_of_ten_seconds() {
    let setup = Setup {
        lines: &["ikelifetime=10s", "salifetime=10s", "rekeymargin=5s", "rekeyfuzz=0%"],
        ..GCM_256
    };
    let mut world = setup.world();
    world.up(true);
    let end = Instant::now() + endurance();
    let mut commands = 0;
    world.under_traffic(|| {
        while Instant::now() < end {
            let [ike, _] = rekeys(&world);
            let next = || (rekeys(&world)[0] > ike).then_some(());
            until("a rekey of the IKE SA", next, || world.state());
            // It fails if it meets one by the peer that makes it needless.
            commands += u32::from(world.vpnd.ctl(&["rekey", "site_lan"]).status.success());
        }
    });
    let [ike, child] = rekeys(&world);
    println!("{ike} rekeys of the IKE SA, {child} of the Child SA, {commands} of them by command");
    assert!(commands > 1 && ike > 2 && child > 3, "{ike} {child} {commands}");
    world.vpnd.stop();
}

/// The rekeys so far, of the IKE SA and of the Child SA.
fn rekeys(world: &World<Pluto>) -> [u64; 2] {
    let status = world.vpnd.json(&["status", "site", "--json"]);
    let of = |sa: &serde_json::Value| sa["rekeys"].as_u64().unwrap_or(0);
    [of(&status["ike_sa"]), of(&status["children"][0]["child_sa"])]
}
