//! Two daemons whose packets the kernel protects, where more than addresses decides: XFRM interfaces and marks, IPv6,
//! and address translators on the way.

use crate::flush;
use crate::guest::{Group, Kernel, scenario};
use std::net::IpAddr;
use testkit::Need;
use testkit::gateway::{Gateway, PATIENT};
use testkit::policies::{self, changed};
use testkit::space::{Space, Watch};
use testkit::traffic::Stream;
use testkit::until;

pub fn group() -> Group {
    Group {
        name: "planes, bound",
        kernel: Kernel::Built,
        scenarios: vec![
            scenario("routes to an XFRM interface decide", NEEDS, interface),
            scenario("a mark decides", NEEDS, marked),
            scenario("marks tell two peers with equal traffic apart", NEEDS, || {
                equal(Apart::Marks)
            }),
            scenario("interfaces tell two peers with equal traffic apart", NEEDS, || {
                equal(Apart::Interfaces);
            }),
            scenario("networks of IPv6 behind gateways of IPv6", NEEDS, six),
            scenario("a translator takes another address", NEEDS, translated),
        ],
    }
}

const NEEDS: &[Need] = &[Need::Program("ip"), Need::Program("nft"), Need::Program("ping")];
/// The gateways of the sample for two sites on one wire, with these lines of the configuration, not started.
fn sites(policies: &[String; 2], lines: &str, outer: [&str; 2], inner: [&str; 2]) -> [Gateway; 2] {
    let [left, right] = [("left", 0), ("right", 1)].map(|(name, end)| {
        Gateway::new(name, &policies[end], PATIENT, &format!("dataplane = \"xfrm\"\n{lines}"))
    });
    Space::connect((&left.space, "wire", &[outer[0]]), (&right.space, "wire", &[outer[1]]));
    for (gateway, address) in [(&left, inner[0]), (&right, inner[1])] {
        gateway.space.ip(&format!("address add {address} dev lo"));
    }
    [left, right]
}

const OUTER: [&str; 2] = ["192.0.2.1/24", "192.0.2.2/24"];
const INNER: [&str; 2] = ["10.1.0.1/32", "10.2.0.1/32"];

fn start(gateways: &mut [Gateway; 2]) -> [Watch; 2] {
    gateways.iter_mut().for_each(Gateway::start);
    let watches = gateways.each_ref().map(|gateway| gateway.space.watch_leaving("wire"));
    assert_eq!(gateways[0].ctl_ok(&["activate"]), "site: up\n");
    watches
}

/// Both ways, also with new keys; nothing is lost or in the clear, and nothing stays in the kernel.
fn passes([left, right]: &[Gateway; 2], [here, there]: [&str; 2]) {
    for _ in 0..2 {
        left.space.pings(&format!("-I {here}"), 5, there).expect("echoes");
        right.space.pings(&format!("-I {there} -s 1300"), 5, here).expect("echoes");
        assert_eq!(left.ctl_ok(&["rekey", "site_lan"]), "site_lan: rekeyed\n");
    }
    for gateway in [left, right] {
        let losses = gateway.discards().into_iter().filter(|(why, _)| !why.starts_with("ike."));
        assert_eq!(losses.collect::<Vec<_>>(), [], "{}", gateway.name);
    }
}

fn stop(gateways: &mut [Gateway; 2], watches: [Watch; 2]) {
    for gateway in gateways {
        gateway.stop();
        assert_eq!(gateway.space.ip("xfrm state"), "");
        assert!(!gateway.space.ip("xfrm policy").contains("priority 19"));
    }
    watches.into_iter().for_each(|watch| _ = watch.nothing_in_the_clear());
}

/// Flushes the left one's policies under traffic. Returns how many packets the guard has dropped while they were
/// missing.
fn flush_often([left, right]: &[Gateway; 2]) -> u64 {
    let ends = [(&left.space.0, [10, 1, 0, 1]), (&right.space.0, [10, 2, 0, 1])];
    let [from, to] = ends.map(|(space, address)| (space, IpAddr::from(address)));
    let stream = Stream::start(from, to, 0).expect("a connection");
    flush::often(left, || {
        let enough = stream.received() + 100_000;
        let more = || (stream.received() > enough).then_some(());
        until("octets", more, || left.space.ip("-s xfrm state"));
    });
    stream.finish().expect("every octet is right");
    let dropped = flush::unnoticed(left, &[(&left.space, "-I 10.1.0.1 10.2.0.1")]);
    left.space.pings("-I 10.1.0.1", 5, "10.2.0.1").expect("echoes");
    dropped
}

/// Packets that are routed to the interface go into the tunnel, or nowhere while the tunnel is down.
fn interface() {
    let lines = "[tunnel.\"site_lan\"]\nif_id = 7\n";
    let mut gateways = sites(&policies::site(), lines, OUTER, INNER);
    for (gateway, [own, there]) in gateways.iter().zip([[1, 2], [2, 1]]) {
        gateway.space.ip("link add ipsec1 type xfrm dev wire if_id 7");
        gateway.space.ip("link set ipsec1 up");
        gateway.space.ip(&format!("route add 10.{there}.0.0/24 dev ipsec1 src 10.{own}.0.1"));
    }
    let watches = start(&mut gateways);
    passes(&gateways, ["10.1.0.1", "10.2.0.1"]);
    let [left, _] = &gateways;
    let commands = left.ctl_ok(&["xfrm"]);
    assert!(commands.lines().all(|line| line.contains(" if_id 0x7")), "{commands}");
    let passed = left.space.ip("-s -j link show ipsec1");
    let passed: serde_json::Value = serde_json::from_str(&passed).expect("JSON");
    for way in ["rx", "tx"] {
        let count = passed[0]["stats64"][way]["packets"].as_u64();
        assert!(count >= Some(20), "{way}: {passed}");
    }
    // Without a policy the interface itself drops: no guard is needed, and there is none.
    let errors = || {
        let link = left.space.ip("-s -j link show ipsec1");
        let link: serde_json::Value = serde_json::from_str(&link).expect("JSON");
        link[0]["stats64"]["tx"]["errors"].as_u64().unwrap_or_else(|| panic!("{link}"))
    };
    let errors_before = errors();
    assert_eq!(flush_often(&gateways), 0);
    assert!(errors() >= errors_before + 10, "{}", errors());
    left.ctl_ok(&["deactivate", "site"]);
    left.space.try_sh("ping -q -c 2 -i 0.01 -W 1 -I 10.1.0.1 10.2.0.1");
    stop(&mut gateways, watches);
}

/// Of the packets between two networks only those with the mark are the tunnel's.
fn marked() {
    let lines = "[tunnel.\"site_lan\"]\nmark = \"0x11/0xff\"\n";
    let mut gateways = sites(&policies::site(), lines, OUTER, INNER);
    for (gateway, [own, there]) in gateways.iter().zip([[1, 2], [2, 1]]) {
        let space = &gateway.space;
        // A connection does not learn what its packets have room for once they are marked.
        let route = format!("route add 10.{there}.0.0/24 via 192.0.2.{there} src 10.{own}.0.1");
        space.ip(&format!("{route} mtu 1300"));
        space.sh("nft add table ip choice");
        space.sh("nft add chain ip choice out { type route hook output priority 0 ; }");
        space.sh(&format!(
            "nft add rule ip choice out ip daddr 10.{there}.0.0/24 meta mark set 0x2011"
        ));
    }
    let watches = start(&mut gateways);
    passes(&gateways, ["10.1.0.1", "10.2.0.1"]);
    let commands = gateways[0].ctl_ok(&["xfrm"]);
    for (mark, of) in
        [(" output-mark 0x11 mask 0xff", "dst 192.0.2.1 "), (" mark 0x11 mask 0xff", "")]
    {
        assert!(commands.lines().any(|l| l.contains(mark) && l.contains(of)), "{mark}: {commands}");
    }
    let dropped = flush_often(&gateways);
    assert!(dropped >= 10, "{dropped}");
    stop(&mut gateways, watches);
}

/// The settings that tell two tunnels with equal traffic apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Apart {
    Marks,
    Interfaces,
}

/// A hub with two peers that have one network: both are reached, whichever side begins.
fn equal(apart: Apart) {
    let other = |end: usize| {
        let text = policies::SITE[end].replace("site", "other").replace("192.0.2.", "198.51.100.");
        changed(&text, "tests-replace-this-key-before-use", "the-key-of-the-other-peer-alone")
    };
    let settings = |child: &str, number: u32| match apart {
        Apart::Marks => format!("[tunnel.\"{child}\"]\nmark = \"{number}/0xff\"\n"),
        Apart::Interfaces => format!("[tunnel.\"{child}\"]\nif_id = {number}\n"),
    };
    let of_hub = policies::together(&[policies::SITE[0], &other(0)]);
    let lines = settings("site_lan", 1) + &settings("other_lan", 2);
    let gateway = |name, policy: &str, lines: &str| {
        Gateway::new(name, policy, PATIENT, &format!("dataplane = \"xfrm\"\n{lines}"))
    };
    let mut hub = gateway("hub", &of_hub, &lines);
    let mut peers = [gateway("one", policies::SITE[1], ""), gateway("two", &other(1), "")];
    let wires = [("wire1", "192.0.2"), ("wire2", "198.51.100")];
    hub.space.ip("address add 10.1.0.1/32 dev lo");
    if apart == Apart::Marks {
        hub.space.sh("nft add table ip choice");
        hub.space.sh("nft add chain ip choice out { type route hook output priority 0 ; }");
    }
    for (number, (peer, (wire, net))) in (1..).zip(peers.iter().zip(wires)) {
        let [own, theirs] = [1, 2].map(|host| format!("{net}.{host}/24"));
        Space::connect((&hub.space, wire, &[&own]), (&peer.space, "wire", &[&theirs]));
        let inner = format!("10.2.0.{number}");
        peer.space.ip(&format!("address add {inner}/32 dev lo"));
        peer.space.ip(&format!("route add 10.1.0.0/24 via {net}.1 src {inner}"));
        match apart {
            Apart::Marks => {
                hub.space.ip(&format!("route add {inner} via {net}.2 src 10.1.0.1"));
                hub.space.sh(&format!(
                    "nft add rule ip choice out ip daddr {inner} meta mark set {number}"
                ));
            }
            Apart::Interfaces => {
                hub.space
                    .ip(&format!("link add ipsec{number} type xfrm dev {wire} if_id {number}"));
                hub.space.ip(&format!("link set ipsec{number} up"));
                hub.space.ip(&format!("route add {inner} dev ipsec{number} src 10.1.0.1"));
            }
        }
    }
    hub.start();
    peers.iter_mut().for_each(Gateway::start);
    let watches = peers.each_ref().map(|peer| peer.space.watch_leaving("wire"));
    assert!(!hub.log().contains("never used"), "{}", hub.log());
    let passes = |hub: &Gateway| {
        for (number, (peer, child)) in (1..).zip(peers.iter().zip(["site_lan", "other_lan"])) {
            let inner = format!("10.2.0.{number}");
            let packets = || peer.child_sa(child)["packets_in"].as_u64().expect("a number");
            let before = packets();
            hub.space.pings("-I 10.1.0.1", 5, &inner).expect("echoes");
            assert_eq!(packets(), before + 5, "{child}");
            peer.space.pings(&format!("-I {inner} -s 1000"), 5, "10.1.0.1").expect("echoes");
            let why = hub.json(&["why", child, "--json"]);
            let findings = why["children"][0]["findings"].as_array().expect("a list");
            assert!(findings.iter().all(|finding| finding["kind"] != "shadowed"), "{why}");
        }
    };
    // The peers begin, the second one first.
    for (peer, ike) in peers.iter().zip(["site", "other"]).rev() {
        assert_eq!(peer.ctl_ok(&["activate"]), format!("{ike}: up\n"));
    }
    passes(&hub);
    let trace = hub.ctl_ok(&["trace", "icmp 10.1.0.1 10.2.0.1"]);
    for tunnel in ["  protected by tunnel site_lan", "or protected by tunnel other_lan"] {
        assert!(trace.contains(tunnel), "{trace}");
    }
    assert!(!trace.contains("not asked"), "{trace}");
    for child in ["site_lan", "other_lan"] {
        assert_eq!(hub.ctl_ok(&["rekey", child]), format!("{child}: rekeyed\n"));
    }
    passes(&hub);
    // The hub begins.
    for ike in ["site", "other"] {
        hub.ctl_ok(&["deactivate", ike]);
    }
    for ike in ["site", "other"] {
        assert_eq!(hub.ctl_ok(&["activate", ike]), format!("{ike}: up\n"));
    }
    passes(&hub);
    for gateway in peers.iter_mut().chain([&mut hub]) {
        gateway.stop();
        assert_eq!(gateway.space.ip("xfrm state"), "", "{}", gateway.name);
    }
    watches.into_iter().for_each(|watch| _ = watch.nothing_in_the_clear());
}

fn six() {
    let protocol = "<IPSecESPProtocol ESP_Encryption=\"ESP_AES256_GCM_16\" ESP_Authentication=\"NONE\" \
                    ESP_EncapsulationMode=\"Tunnel\" ESP_ExtendedSeqNum=\"1\" ESP_KeyRefreshKB=\"0\" \
                    ESP_KeyRefreshMinutes=\"60\"/>";
    let policies = [0, 1].map(|end| {
        let text = policies::site_with(end, true, false, protocol);
        let text = changed(&text, "IPV4_Address_Range", "IPV6_Address_Range");
        let text = changed(&text, "\"10.1.0.0\" To_IPAddr=\"10.1.0.255\"", NETS[0]);
        changed(&text, "\"10.2.0.0\" To_IPAddr=\"10.2.0.255\"", NETS[1])
    });
    for encap in ["always", "never"] {
        let lines = format!("encap = \"{encap}\"\n");
        let outer = ["2001:db8::1/64", "2001:db8::2/64"];
        let mut gateways = sites(&policies, &lines, outer, ["fd01::1/128", "fd02::1/128"]);
        for (gateway, [own, there]) in gateways.iter().zip([[1, 2], [2, 1]]) {
            let route = format!("-6 route add fd0{there}::/64 via 2001:db8::{there}");
            gateway.space.ip(&format!("{route} src fd0{own}::1"));
        }
        let watches = start(&mut gateways);
        passes(&gateways, ["fd01::1", "fd02::1"]);
        stop(&mut gateways, watches);
    }
}

const NETS: [&str; 2] = [
    "\"fd01::\" To_IPAddr=\"fd01::ffff:ffff:ffff:ffff\"",
    "\"fd02::\" To_IPAddr=\"fd02::ffff:ffff:ffff:ffff\"",
];

/// The kernel tells of a peer whose packets come from elsewhere, and packets for the peer go there.
fn translated() {
    let [of_hub, of_guest] =
        policies::guest("guest", "10.2.0.", "172.16.1.2", ["192.0.2.1", "192.0.2.1"]);
    let ike = format!("{PATIENT}mobike = false\n");
    let gateway = |name, policy: &str| Gateway::new(name, policy, &ike, "dataplane = \"xfrm\"\n");
    let mut gateways = [gateway("hub", &of_hub), gateway("guest", &of_guest)];
    let [hub, guest] = &gateways;
    let nat = Space::new("nat");
    nat.set("ipv4/ip_forward", "1");
    Space::connect((&nat, "out", &["192.0.2.254/24"]), (&hub.space, "wire", &["192.0.2.1/24"]));
    Space::connect((&nat, "in", &["172.16.1.1/24"]), (&guest.space, "wire", &["172.16.1.2/24"]));
    nat.sh("nft add table ip nat");
    nat.sh("nft add chain ip nat post { type nat hook postrouting priority 100 ; }");
    nat.sh("nft add rule ip nat post oifname out masquerade");
    for (gateway, [own, there], router) in
        [(hub, [1, 2], "192.0.2.254"), (guest, [2, 1], "172.16.1.1")]
    {
        gateway.space.ip(&format!("address add 10.{own}.0.1/32 dev lo"));
        gateway.space.ip(&format!("route add default via {router}"));
        gateway.space.ip(&format!("route add 10.{there}.0.0/24 via {router} src 10.{own}.0.1"));
    }
    gateways.iter_mut().for_each(Gateway::start);
    let [hub, guest] = &gateways;
    let watches = gateways.each_ref().map(|gateway| gateway.space.watch_leaving("wire"));
    assert_eq!(guest.ctl_ok(&["activate"]), "guest: up\n");
    guest.space.pings("", 3, "10.1.0.1").expect("echoes");
    let peer = || {
        let sa = hub.json(&["status", "guest", "--json"])["ike_sa"].clone();
        let remote = sa["remote"].as_str().unwrap_or_else(|| panic!("{sa}"));
        remote.rsplit_once(':').map(|(address, _)| address.to_owned()).expect("and a port")
    };
    assert_eq!(peer(), "192.0.2.254");
    // With the address go the mappings that led to it.
    nat.ip("address add 192.0.2.253/24 dev out");
    nat.ip("address del 192.0.2.254/24 dev out");
    nat.ip("address replace 192.0.2.253/24 dev out");
    // The guest's packets come from there, and answers follow them.
    guest.space.pings("", 3, "10.1.0.1").expect("echoes");
    hub.space.pings("", 3, "10.2.0.1").expect("echoes");
    let states = || hub.space.ip("xfrm state");
    let moved = || {
        let there = "192.0.2.253".parse::<IpAddr>().expect("an address");
        let out = format!("src 192.0.2.1 dst {there}");
        (states().contains(&out) && !states().contains("192.0.2.254")).then_some(())
    };
    until("the SAs to move", moved, states);
    until("IKE to follow", || (peer() == "192.0.2.253").then_some(()), peer);
    hub.await_log(&["\"event\":\"moved\"", "192.0.2.253"]);
    assert_eq!(hub.ctl_ok(&["rekey", "guest_lan"]), "guest_lan: rekeyed\n");
    hub.space.pings("", 3, "10.2.0.1").expect("echoes");
    stop(&mut gateways, watches);
}
