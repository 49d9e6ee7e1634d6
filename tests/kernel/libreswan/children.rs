//! Two Child SAs of one IKE SA.

use super::pluto::{NAME, Pluto, SECOND};
use super::scenes::ike_spi;
use super::setup::{GCM_256, OTHER, Setup};
use crate::peer::{Peer, World};
use testkit::until;

/// The phase 2 tunnels of the policy, each with libreswan's connection.
const TUNNELS: [(&str, &str); 2] = [("site_lan", NAME), ("site_dmz", SECOND)];

/// Either side renews each of them on its own, and the IKE SA with both. Then libreswan ends one of them, and the other
/// one stays.
pub fn two(by_vpnd: bool) {
    let mut world = Setup { second: true, ..GCM_256 }.world();
    let second = |world: &World<Pluto>| {
        let echoes = world.vpnd.space.pings(&format!("-I {}", OTHER[0]), 2, OTHER[1]);
        assert!(echoes.is_ok(), "{echoes:?} {}", world.state());
    };
    world.up(by_vpnd);
    let ike = ike_spi(&world);
    match by_vpnd {
        true => drop(world.vpnd.ctl_ok(&["activate", "site_dmz"])),
        false => drop(world.peer.whack(&["--name", SECOND, "--initiate"])),
    }
    world.vpnd.await_list(&["site_dmz", "site_lan"]);
    world.peer.await_children(2);
    assert_eq!(ike_spi(&world), ike, "one IKE SA has both");
    world.under_traffic(|| {
        second(&world);
        renew_each(&world);
        second(&world);
        world.vpnd.ctl_ok(&["rekey", "site"]);
        world.peer.rekey_ike();
        second(&world);
        renew_each(&world);
        second(&world);
        world.peer.whack(&["--name", SECOND, "--terminate"]);
        world.vpnd.await_list(&["site_lan"]);
        world.peer.await_one();
    });
    world.nothing_refused();
    world.vpnd.stop();
}

/// Each side renews each of the two.
fn renew_each(world: &World<Pluto>) {
    for (tunnel, connection) in TUNNELS {
        let rekeys = || world.vpnd.child_sa(tunnel)["rekeys"].as_u64().expect("a number");
        let before = rekeys();
        world.vpnd.ctl_ok(&["rekey", tunnel]);
        world.peer.await_children(2);
        world.peer.whack(&["--name", connection, "--rekey-child"]);
        let renewed = || (rekeys() == before + 2).then_some(());
        until("a rekey by libreswan", renewed, || world.state());
        world.peer.await_children(2);
    }
}
