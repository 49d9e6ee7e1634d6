//! Daemons, one of which has a network card that offloads: what they tell of it, and what becomes of traffic when the card
//! has no room, when it goes, and when others meddle with the kernel.

use crate::card;
use crate::flush;
use crate::guest::{Group, Kernel, Scenario, scenario};
use crate::harness::gateway::Gateway;
use crate::harness::policies::{self, changed};
use crate::harness::space::{Space, Watch};
use crate::harness::{Need, until};
use cli::demo::traffic::Stream;
use std::net::IpAddr;

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
            play("the card that does the cryptography is taken out under traffic", || {
                pulled("crypto")
            }),
            play("the card that does everything is taken out under traffic", || pulled("packet")),
        ],
    }
}

const NEEDS: &[Need] = &[Need::Program("ip"), Need::Program("insmod"), Need::Program("ping")];
const QUICK: &str = "retransmit_after = \"300ms\"\nretransmissions = 6\n";

/// Two gateways and a router between them. The left one has a card, and a second way past it; its addresses are no
/// device's, so that they outlive the card.
struct World {
    left: Gateway,
    right: Gateway,
    router: Space,
}

impl World {
    fn new(offload: &str) -> Self {
        let kernel = "dataplane = \"xfrm\"\nencap = \"never\"\n";
        let [of_left, of_right] = policies::site().map(|policy| doubled(&policy));
        let left =
            Gateway::new("left", &of_left, QUICK, &format!("{kernel}offload = \"{offload}\"\n"));
        let right = Gateway::new("right", &of_right, QUICK, kernel);
        let router = Space::new("router");
        router.set("ipv4/ip_forward", "1");
        card::connect((&left.space, &["198.51.100.1/30"]), (&router, &["198.51.100.2/30"]));
        Space::connect(
            (&left.space, "spare", &["198.51.100.5/30"]),
            (&router, "spare", &["198.51.100.6/30"]),
        );
        Space::connect(
            (&router, "right", &["198.51.100.9/30"]),
            (&right.space, "wire", &["198.51.100.10/30"]),
        );
        for (space, number) in [(&left.space, 1), (&right.space, 2)] {
            space.ip(&format!("address add 192.0.2.{number}/32 dev lo"));
            space.ip(&format!("address add 10.{number}.0.1/32 dev lo"));
            space.ip(&format!("address add 10.{number}.1.1/32 dev lo"));
        }
        for (via, metric) in [("198.51.100.2", 10), ("198.51.100.6", 20)] {
            left.space.ip(&format!("route add 192.0.2.2 via {via} src 192.0.2.1 metric {metric}"));
            for net in [0, 1] {
                left.space.ip(&format!(
                    "route add 10.2.{net}.0/24 via {via} src 10.1.{net}.1 metric {metric}"
                ));
            }
        }
        for (via, metric) in [("198.51.100.1", 10), ("198.51.100.5", 20)] {
            router.ip(&format!("route add 192.0.2.1 via {via} metric {metric}"));
        }
        router.ip("route add 192.0.2.2 via 198.51.100.10");
        right.space.ip("route add 192.0.2.1 via 198.51.100.9 src 192.0.2.2");
        for net in [0, 1] {
            right.space.ip(&format!("route add 10.1.{net}.0/24 via 198.51.100.9 src 10.2.{net}.1"));
        }
        let mut world = Self { left, right, router };
        world.left.start();
        world.right.start();
        world
    }

    fn up(&self) {
        assert_eq!(self.left.ctl_ok(&["activate"]), "site: up\n");
    }

    /// A host behind the left gateway, in the network of the first tunnel.
    fn host(&self) -> Space {
        let host = Space::new("host");
        Space::connect(
            (&host, "wire", &["10.1.0.9/24"]),
            (&self.left.space, "lan", &["10.1.0.254/24"]),
        );
        host.ip("route add default via 10.1.0.254");
        self.left.space.set("ipv4/ip_forward", "1");
        host
    }

    /// What both tunnels carry.
    fn passes(&self) {
        for there in ["10.2.0.1", "10.2.1.1"] {
            self.left.space.pings("", 5, there).expect("echoes");
        }
    }

    /// Watches both ways between the left gateway and the router.
    fn watch(&self) -> [Watch; 2] {
        ["wire", "spare"].map(|device| self.router.watch(device))
    }

    /// A connection through the first tunnel.
    fn stream(&self) -> Stream {
        let ends = [(&self.left.space.0, [10, 1, 0, 1]), (&self.right.space.0, [10, 2, 0, 1])];
        let [from, to] = ends.map(|(space, address)| (space, IpAddr::from(address)));
        let stream = Stream::start(from, to, 0).expect("a connection");
        self.goes_on(&stream);
        stream
    }

    fn goes_on(&self, stream: &Stream) {
        let enough = stream.received() + 200_000;
        let more = || (stream.received() > enough).then_some(());
        until("octets", more, || {
            format!("{}\n{}", self.status(), self.left.space.ip("-s xfrm state"))
        });
    }

    /// How many SAs are done by the card as a whole, in their cryptography, and by the kernel alone.
    fn places(&self) -> [usize; 3] {
        let offload = self.left.json(&["offload", "--json"]);
        let sas = offload["sas"].as_array().unwrap_or_else(|| panic!("{offload}"));
        ["packet", "crypto", "software"]
            .map(|place| sas.iter().filter(|sa| sa["place"] == place).count())
    }

    fn await_places(&self, places: [usize; 3]) {
        until(&format!("{places:?}"), || (self.places() == places).then_some(()), || self.status());
    }

    fn status(&self) -> String {
        self.left.ctl_ok(&["status"]) + &self.left.ctl_ok(&["offload", "--sas"])
    }

    /// Nothing but what the tunnels carry was dropped, by nobody.
    fn nothing_refused(&self) {
        assert_eq!(self.left.discards(), [], "{}", self.status());
    }

    fn stop(mut self) {
        self.left.stop();
        self.right.stop();
        assert_eq!(self.left.space.ip("xfrm state"), "");
        assert!(!self.left.space.ip("xfrm policy").contains("priority 19"));
        assert_eq!(self.left.space.sh("nft list tables"), "");
    }
}

/// Holds what a command printed against lines that it must have, each with its words in this order.
fn says(text: &str, lines: &[&str]) {
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let fits = |line: &str| line.split_whitespace().collect::<Vec<_>>() == words;
        assert!(text.lines().any(fits), "no line {line:?} in\n{text}");
    }
}

/// The sample's policy with another tunnel like its only one.
fn doubled(policy: &str) -> String {
    let from = policy.find("<IPSecTunnel").expect("the sample has one");
    let tunnel = &policy[from..policy.find("</AIX_VPN>").expect("it ends")];
    let second = changed(tunnel, "site_lan", "site_dmz").replace(".0.0\"", ".1.0\"");
    changed(policy, "</AIX_VPN>", &(second.replace(".0.255\"", ".1.255\"") + "</AIX_VPN>"))
}

fn told(offload: &str) {
    let world = World::new(offload);
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
    says(&table, &["DEVICE ESP-HW-OFFLOAD TX CHECKSUMS IN OUT", "wire on - 2 2"]);
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

/// What others remove is put back where it was, and connections go on.
fn flushed(offload: &str) {
    let world = World::new(offload);
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
        // What is forwarded is given to a card that does everything without an Ethernet header, which the simulated one
        // does not make.
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
    let world = World::new("auto");
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
            "wire on - 1 of 1 1 of 1",
            "packet wire 2 the device has no room for another SA",
            "crypto wire 2 the device has no room for another SA",
        ],
    );
    world.left.await_log(&["no packet offload: the device has no room for another SA"]);
    card::make_room_for(card::ROOM);
    let moved = "moved into a network card or out of one: 2 SAs\n";
    assert_eq!(world.left.ctl_ok(&["resync"]), moved);
    assert_eq!(world.places(), [4, 0, 0]);
    says(&world.left.ctl_ok(&["offload"]), &["wire on - 2 2"]);
    let status = world.left.ctl_ok(&["status"]);
    assert!(!status.contains("not in wire"), "{status}");
    world.passes();
    world.nothing_refused();
    watch.into_iter().for_each(|watch| _ = watch.nothing_in_the_clear());
    world.stop();
}

/// All SAs go on in software, over another device.
fn pulled(offload: &str) {
    let world = World::new(offload);
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
    says(&world.left.ctl_ok(&["offload"]), &["wire gone - 0 0", &counted]);
    world.left.await_log(&["the device has gone; software instead"]);
    watch.into_iter().for_each(|watch| _ = watch.nothing_in_the_clear());
    world.stop();
}
