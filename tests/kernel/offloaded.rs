//! Daemons, one of which has a network card that offloads: their messages about it, and the traffic when the card has
//! no room, when it goes, and when others meddle with the kernel.

use crate::card;
use crate::carded::{World, says};
use crate::flow::{Flow, WINDOW};
use crate::flush;
use crate::guest::{Group, Kernel, Scenario, scenario};
use std::net::IpAddr;
use testkit::policies::{self, changed};
use testkit::{Need, until};

pub fn group() -> Group {
    let play = |name, play: fn()| -> Scenario { scenario(name, NEEDS, play) };
    Group {
        name: "daemon with a card",
        kernel: Kernel::Built,
        scenarios: vec![
            play("the card does the cryptography", || told("crypto")),
            play("the card does everything", || told("packet")),
            play("SAs and policies are flushed under traffic", || flushed("crypto")),
            play("the same of a card that does everything", || flushed("packet")),
            play("a tunnel more than the card has room for", full),
            play("a full card, and tunnels that are rekeyed under traffic", rekeyed),
            play("the card that does the cryptography is taken out under traffic", || {
                pulled("crypto")
            }),
            play("the card that does everything is taken out under traffic", || pulled("packet")),
        ],
    }
}

const NEEDS: &[Need] = &[Need::Program("ip"), Need::Program("insmod"), Need::Program("ping")];
/// Gateways with two tunnels.
fn world(offload: &str) -> World {
    World::new(&policies::site().map(|policy| doubled(&policy)), offload)
}

/// The sample's policy with another tunnel like its only one.
pub fn doubled(policy: &str) -> String {
    let from = policy.find("<IPSecTunnel").expect("the sample has one");
    let tunnel = &policy[from..policy.find("</AIX_VPN>").expect("it ends")];
    let second = changed(tunnel, "site_lan", "site_dmz").replace(".0.0\"", ".1.0\"");
    changed(policy, "</AIX_VPN>", &(second.replace(".0.255\"", ".1.255\"") + "</AIX_VPN>"))
}

fn told(offload: &str) {
    let world = world(offload);
    let watch = world.watch();
    world.up();
    world.passes();
    world.stream().finish().expect("every octet is right");
    let (by, shown, flag) = match offload {
        "packet" => (0, "card wire does everything", " offload packet dev wire dir in"),
        _ => (1, "kernel, cryptography by card wire", " offload dev wire dir in"),
    };
    let mut places = [0; 3];
    places[by] = 4;
    assert_eq!(world.places(), places);
    let status = world.left.ctl_ok(&["status"]);
    says(&status, &["plane xfrm", &format!("offload SAs in the kernel: {offload} 2 in, 2 out")]);
    assert!(!status.contains("not in wire"), "{status}");
    says(&world.left.ctl_ok(&["status", "site_lan"]), &[&format!("place {shown}")]);
    let table = world.left.ctl_ok(&["offload", "--sas"]);
    says(&table, &["DEVICE ESP-HW-OFFLOAD TX CHECKSUMS IN OUT ADDRESSES", "wire on - 2 2 1"]);
    let spis = world.left.child_sa("site_dmz");
    for (way, spi) in [("in", &spis["inbound_spi"]), ("out", &spis["outbound_spi"])] {
        let spi = spi.as_str().expect("an SPI");
        says(&table, &[&format!("site_dmz {way} {spi} {offload} wire")]);
    }
    let commands = world.left.ctl_ok(&["xfrm"]);
    assert_eq!(commands.matches(flag).count(), 2, "{commands}");
    assert_eq!(commands.matches("'0x<36 octets>' 128").count(), 4, "no key is shown: {commands}");
    let in_order = "nothing was missing in the kernel, and no SA has moved\n";
    assert_eq!(world.left.ctl_ok(&["resync"]), in_order);
    let counters = card::counters();
    let kind = format!(" type={offload} ");
    assert_eq!(counters.lines().filter(|line| line.contains(&kind)).count(), 4, "{counters}");
    assert!(!counters.contains(" pkts=0 "), "{counters}");
    world.nothing_refused();
    watch.into_iter().for_each(|watch| _ = watch.nothing_in_the_clear());
    world.stop();
}

/// State that others remove is put back where it was, and connections go on.
fn flushed(offload: &str) {
    let world = world(offload);
    let host = world.host();
    let watch = world.watch();
    world.up();
    let stream = world.stream();
    // The simulated card begins with the first number again when it is given an SA a second time.
    if offload == "crypto" {
        world.left.space.ip("xfrm state flush");
        world.goes_on(&stream);
        world.await_places([0, 4, 0]);
        world.left.await_log(&["another program has changed"]);
        world.left.await_log(&["put back what others have removed", "\"sas\":4", "\"moved\":0"]);
    }

    let (left, policies) = (&world.left, flush::policies(&world.left));
    flush::often(left, || {
        world.goes_on(&stream);
        // The kernel gives forwarded packets to a card that does everything without an Ethernet header. The simulated
        // card does not make one.
        if offload == "crypto" {
            host.pings("", 2, "10.2.0.1").expect("echoes");
        }
    });
    stream.finish().expect("every octet is right");
    let pings = [
        (&left.space, "-I 10.1.0.1 10.2.0.1"),
        (&left.space, "-I 10.1.1.1 10.2.1.1"),
        (&host, "10.2.0.1"),
    ];
    let dropped = flush::unnoticed(left, &pings);
    assert!(dropped >= 30, "{dropped}");
    world.passes();
    left.await_log(&["put back what others have removed", "\"sas\":0", "\"moved\":0"]);
    left.space.ip("xfrm policy delete src 10.1.1.0/24 dst 10.2.1.0/24 dir out");
    flush::await_policies(left, policies);
    world.passes();
    watch.into_iter().for_each(|watch| _ = watch.nothing_in_the_clear());
    let offload = world.left.json(&["offload", "--json"]);
    assert_eq!(offload["devices"][0]["fallbacks"], serde_json::json!([]), "{offload}");
    world.stop();
}

/// The second tunnel is done in software, until there is room.
fn full() {
    let world = world("auto");
    let watch = world.watch();
    card::make_room_for(1);
    world.up();
    world.passes();
    assert_eq!(world.places(), [2, 0, 2]);
    says(
        &world.left.ctl_ok(&["status"]),
        &[
            "offload SAs in the kernel: packet 1 in, 1 out; software 1 in, 1 out",
            "2 SAs not in wire: the device has no room for another SA (site_dmz)",
        ],
    );
    let shown = "place kernel, not card wire: the device has no room for another SA";
    says(&world.left.ctl_ok(&["status", "site_dmz"]), &[shown]);
    says(
        &world.left.ctl_ok(&["offload"]),
        &[
            "wire on - 1 of 1 1 of 1 1",
            "packet wire 2 the device has no room for another SA",
            "crypto wire 2 the device has no room for another SA",
        ],
    );
    world.left.await_log(&["no packet offload: the device has no room for another SA"]);
    card::make_room_for(card::ROOM);
    let moved = "moved into a network card or out of one: 2 SAs\n";
    assert_eq!(world.left.ctl_ok(&["resync"]), moved);
    assert_eq!(world.places(), [4, 0, 0]);
    says(&world.left.ctl_ok(&["offload"]), &["wire on - 2 2 1"]);
    let status = world.left.ctl_ok(&["status"]);
    assert!(!status.contains("not in wire"), "{status}");
    world.passes();
    world.nothing_refused();
    watch.into_iter().for_each(|watch| _ = watch.nothing_in_the_clear());
    world.stop();
}

/// New SAs find no room beside the old ones, and go into the card when those are gone.
fn rekeyed() {
    let world = world("crypto");
    let watch = world.watch();
    card::make_room_for(2);
    world.up();
    assert_eq!(world.places(), [0, 4, 0]);
    let ends = [(&world.left.space.0, [10, 1, 0, 1]), (&world.right.space.0, [10, 2, 0, 1])];
    let [from, to] = ends.map(|(space, address)| (space, IpAddr::from(address)));
    let flow = Flow::start(from, to);
    let some = || {
        let enough = flow.echoed() + 20;
        until("echoes", || (flow.echoed() >= enough).then_some(()), || world.status());
    };
    for name in ["site_lan", "site_dmz", "site_lan"] {
        some();
        let before = world.left.child_sa(name);
        world.left.ctl_ok(&["rekey", name]);
        some();
        let back = || {
            let placed = world.left.child_sa(name);
            let new = placed["inbound_spi"] != before["inbound_spi"];
            (new && world.places() == [0, 4, 0]).then_some(())
        };
        until("the new SAs in the card", back, || world.status());
        let status = world.left.ctl_ok(&["status"]);
        assert!(!status.contains("not in wire"), "{status}");
    }
    some();
    let counts = flow.finish();
    // Of the first tunnel four SAs have moved. A datagram that arrives while the kernel has no SA is dropped: as a rule
    // one at most, and on a loaded host all that are on their way.
    assert!(
        counts.lost <= 4 * WINDOW as u64 && counts.unexpected == 0,
        "{counts:?} {}",
        world.status()
    );
    world.left.await_log(&["into a network card that has room again"]);
    says(
        &world.left.ctl_ok(&["offload"]),
        &["crypto wire 6 the device has no room for another SA"],
    );
    watch.into_iter().for_each(|watch| _ = watch.nothing_in_the_clear());
    world.stop();
}

/// All SAs go on in software, over another device.
fn pulled(offload: &str) {
    let world = world(offload);
    let watch = world.watch();
    world.up();
    let stream = world.stream();
    card::pull();
    world.goes_on(&stream);
    world.await_places([0, 0, 4]);
    world.passes();
    stream.finish().expect("every octet is right");
    says(
        &world.left.ctl_ok(&["status"]),
        &[
            "offload SAs in the kernel: software 2 in, 2 out",
            "4 SAs not in wire: the device has gone (site_dmz and one more tunnel)",
        ],
    );
    let counted = format!("{offload} wire 4 the device has gone");
    says(&world.left.ctl_ok(&["offload"]), &["wire gone - 0 0 0", &counted]);
    world.left.await_log(&["the device has gone; software instead"]);
    watch.into_iter().for_each(|watch| _ = watch.nothing_in_the_clear());
    world.stop();
}
