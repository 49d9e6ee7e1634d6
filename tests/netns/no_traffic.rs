//! The tunnel is up, and no traffic passes: each fault is planted between real gateways, `vpnctl why` or `vpnctl probe`
//! names it with its cure, and the cure works.
//!
//! The outputs are compared with the blocks of `docs/operate/troubleshooting.md` whose names begin with `host-`.

use crate::planted::{Planted, plants};
use libtest_mimic::Trial;
use scenes::guide::shown;
use scenes::narrow::{ESP, NARROW, Row};
use scenes::networks;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use testkit::gateway::{Gateway, PATIENT};
use testkit::policies::{changed, site, vendor};
use testkit::space::Space;
use testkit::{FILTERED, PINGED, test, until};

pub fn trials() -> Vec<Trial> {
    vec![
        plants("no traffic: forwarding is off", FILTERED, forwarding),
        plants("no traffic: the packet filter drops", FILTERED, packet_filter),
        plants("no traffic: a NAT rule changes the source", FILTERED, source_translation),
        plants("no traffic: ESP is dropped on the way", FILTERED, |planted| {
            dropped_on_the_way(planted, "never");
        }),
        plants("no traffic: ESP in UDP is dropped on the way", FILTERED, |planted| {
            dropped_on_the_way(planted, "always");
        }),
        test("no traffic: packets stop to come back", FILTERED, stops),
        plants("no traffic: an MTU black hole", FILTERED, black_hole),
        test(
            "no traffic: a filter judges packets that are sent together",
            FILTERED,
            judged_together,
        ),
        plants("no traffic: a narrow path of which a router tells", FILTERED, narrow_path),
        plants("no traffic: no network behind, and one on both sides", FILTERED, networks_behind),
        plants("no traffic: the peer has narrowed the selectors", PINGED, narrowed),
        test("no traffic: a strict reverse path filter", FILTERED, reverse_path),
        test("no traffic: packets for a tunnel that was never up", PINGED, never_up),
        test("no traffic: no host sends any", PINGED, unused),
    ]
}

const FAR: &str = "10.2.0.7";

/// Nothing is wrong with the gateways, and no packet comes to them: the route of the hosts is asked for.
fn unused() {
    let pair = Pair::up("");
    let advice = "does nothing pass? no packet has come here for site_lan6 since it is up: the hosts of fd01::/64";
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let why = || words(pair.gateways[0].ctl_ok(&["why", "site_lan6"]));
    assert!(why().contains(advice) && why().contains("need a route to fd02::/64"), "{}", why());
    assert_eq!(findings(&pair.gateways[0]), []);
    pair.is_in_order();
    let used = pair.gateways[0].ctl_ok(&["why", "site_lan"]);
    assert!(!used.contains("does nothing pass?"), "{used}");
}

/// Two gateways on one wire, each with a host behind, and a tunnel between the networks.
struct Pair {
    hosts: [Space; 2],
    gateways: [Gateway; 2],
}

impl Pair {
    fn up(esp: &str) -> Self {
        let gateway = |name, end| {
            let policy = networks::policy(end, false);
            Gateway::new(name, &policy, &format!("{PATIENT}\n"), esp)
        };
        let mut gateways = [gateway("left", 0), gateway("right", 1)];
        let hosts = networks::hosts([&gateways[0].space, &gateways[1].space]);
        let wire = [["192.0.2.1/24"], ["192.0.2.2/24"]];
        Space::connect(
            (&gateways[0].space, "wire", &wire[0]),
            (&gateways[1].space, "wire", &wire[1]),
        );
        gateways.iter_mut().for_each(Gateway::start);
        assert_eq!(gateways[0].ctl_ok(&["activate"]), "site: up\n");
        Self { hosts, gateways }
    }

    /// All is in order: nothing is told, and packets pass.
    fn is_in_order(&self) {
        self.hosts[0].pings("", 3, FAR).expect("echoes");
        for gateway in &self.gateways {
            assert_eq!(findings(gateway), [], "{}", gateway.ctl_ok(&["why", "site"]));
        }
    }
}

/// The findings about the tunnel `site_lan`: their kinds, and whether each is certain.
fn findings(gateway: &Gateway) -> Vec<(String, bool)> {
    of(&gateway.json(&["why", "site_lan", "--json"])["children"][0]["findings"])
}

fn of(findings: &Value) -> Vec<(String, bool)> {
    let found = findings.as_array().expect("a list").iter();
    let pair = |f: &Value| {
        let kind = f["kind"].as_str().expect("a kind").to_owned();
        (kind, f["certain"].as_bool().expect("yes or no"))
    };
    found.map(pair).collect()
}

/// The only finding, which has this kind; `status` names it, too.
fn only(gateway: &Gateway, kind: &str, certain: bool) -> Value {
    let text = gateway.ctl_ok(&["why", "site_lan"]);
    assert_eq!(findings(gateway), [(kind.to_owned(), certain)], "{text}");
    let status = gateway.ctl_ok(&["status", "site_lan"]);
    assert!(status.contains(kind) && status.contains("see vpnctl why site_lan"), "{status}");
    gateway.json(&["why", "site_lan", "--json"])["children"][0]["findings"][0].clone()
}

/// The part of a cure behind these words.
fn cure(finding: &Value, before: &str) -> String {
    let cures = finding["cure"].as_array().expect("a list").iter().filter_map(Value::as_str);
    let found = cures.into_iter().find_map(|cure| Some(cure.split_once(before)?.1.to_owned()));
    found.unwrap_or_else(|| panic!("no {before:?} in {finding}"))
}

/// Sets a value of the kernel, written as `sysctl -w` takes it.
fn apply(space: &Space, setting: &str) {
    let (name, value) = setting.split_once('=').expect("a value");
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    let value = value.to_owned();
    space.run(move || fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}")));
}

fn forwarding(planted: &Planted) {
    let pair = Pair::up("");
    let left = &pair.gateways[0];
    pair.is_in_order();
    planted.now();
    left.space.set("ipv4/ip_forward", "0");
    let (answered, _) = pair.hosts[0].try_sh(&format!("ping -q -c 1 -W 0.2 {FAR}"));
    assert!(!answered, "this host forwards nothing");
    let finding = only(left, "forwarding", true);
    planted.is_named("forwarding is off", left, &["why", "site_lan"]);
    shown("host-forwarding", &left.ctl_ok(&["why", "site_lan"]));
    apply(&left.space, &cure(&finding, "sysctl -w "));
    pair.is_in_order();
    // A setting of IPv6 concerns the tunnel for IPv6 alone.
    left.space.set("ipv6/conf/all/forwarding", "0");
    assert_eq!(findings(left), []);
    let six = left.json(&["why", "site_lan6", "--json"]);
    assert_eq!(of(&six["children"][0]["findings"]), [("forwarding".to_owned(), true)]);
}

fn packet_filter(planted: &Planted) {
    let pair = Pair::up("encap = \"never\"");
    let left = &pair.gateways[0];
    let nft = |line: &str| left.space.sh(&format!("nft {line}"));
    planted.now();
    nft("add table ip filter");
    nft("add chain ip filter FORWARD { type filter hook forward priority 0 ; policy drop ; }");
    let (answered, _) = pair.hosts[0].try_sh(&format!("ping -q -c 1 -W 0.2 {FAR}"));
    assert!(!answered, "the chain drops it");
    let finding = only(left, "firewall", true);
    let message = finding["message"].as_str().expect("text");
    assert!(message.contains("the policy of the chain ip filter FORWARD"), "{message}");
    let fault = "the packet filter of this host drops forwarded packets";
    planted.is_named(fault, left, &["why", "site_lan"]);
    shown("host-firewall", &left.ctl_ok(&["why", "site_lan"]));
    let_pass(left, &finding);
    pair.is_in_order();

    // Rules with conditions that leave a way are in order.
    nft("flush chain ip filter FORWARD");
    nft("add rule ip filter FORWARD ct state established,related accept");
    only(left, "firewall", true);
    nft("add rule ip filter FORWARD iifname lan accept");
    pair.is_in_order();

    planted.now();
    nft("add chain ip filter INPUT { type filter hook input priority 0 ; }");
    nft("add rule ip filter INPUT ip protocol esp counter drop");
    let finding = only(left, "firewall", true);
    let message = finding["message"].as_str().expect("text");
    assert!(message.contains("ESP (IP protocol 50) from the peer 192.0.2.2"), "{message}");
    planted.is_named("the packet filter of this host drops ESP", left, &["why", "site_lan"]);
    let_pass(left, &finding);
    pair.is_in_order();
}

fn source_translation(planted: &Planted) {
    let pair = Pair::up("");
    let left = &pair.gateways[0];
    let nft = |line: &str| left.space.sh(&format!("nft {line}"));
    planted.now();
    nft("add table ip nat");
    nft("add chain ip nat POSTROUTING { type nat hook postrouting priority 100 ; }");
    nft("add rule ip nat POSTROUTING oifname != lo snat to 192.0.2.1");
    let (answered, _) = pair.hosts[0].try_sh(&format!("ping -q -c 1 -W 0.2 {FAR}"));
    assert!(!answered, "its source is in no tunnel");
    let finding = only(left, "nat", true);
    let fault = "a NAT rule of this host changes the source of the packets";
    planted.is_named(fault, left, &["why", "site_lan"]);
    shown("host-nat", &left.ctl_ok(&["why", "site_lan"]));
    let cures = finding["cure"].as_array().expect("a list").iter().filter_map(Value::as_str);
    let exception = cures.filter_map(|c| c.strip_prefix("except the tunnel from it: ")).next();
    left.space.sh(exception.expect("a command"));
    // An echo with an identifier of its own is a flow of its own.
    pair.is_in_order();
}

/// Carries out the commands of a cure.
fn let_pass(gateway: &Gateway, finding: &Value) {
    let cures = finding["cure"].as_array().expect("a list").iter().filter_map(Value::as_str);
    let commands: Vec<&str> = cures.filter_map(|c| c.strip_prefix("let them pass: ")).collect();
    assert!(!commands.is_empty(), "{finding}");
    commands.iter().for_each(|command| drop(gateway.space.sh(command)));
}

fn dropped_on_the_way(planted: &Planted, encap: &str) {
    let mut row = Row::new(4, &format!("encap = {encap:?}"), ESP);
    row.start();
    let rule = match encap {
        "never" => "ip protocol esp drop",
        _ => "udp dport 4500 drop",
    };
    planted.now();
    row.router.sh("nft add table inet lossy");
    row.router.sh("nft add chain inet lossy way { type filter hook forward priority 0 ; }");
    row.router.sh(&format!("nft add rule inet lossy way {rule}"));
    row.hosts[0].try_sh(&format!("ping -q -c 9 -i 0.01 -W 0.1 {FAR}"));
    let left = &row.gateways[0];
    let lost = || (!findings(left).is_empty()).then_some(());
    until("a finding", lost, || left.ctl_ok(&["status", "site"]));
    let finding = only(left, "one_way", false);
    let text = left.ctl_ok(&["why", "site_lan"]);
    assert!(text.contains("nothing has ever come in"), "{text}");
    let fault = match encap {
        "never" => "ESP is dropped on the way",
        _ => "ESP in UDP is dropped on the way",
    };
    planted.is_named(fault, left, &["why", "site_lan"]);
    if encap == "never" {
        cure(&finding, "encap = \"always\" in [esp]");
        shown("host-one-way", &text);
    } else {
        cure(&finding, "let UDP 4500 pass");
    }
    let (reached, text) = left.ctl_inside(&["probe", "site_lan", "--to", FAR, "--count", "1"]);
    assert!(!reached && text.contains("see vpnctl why site_lan"), "{text}");
    row.router.sh("nft flush chain inet lossy way");
    row.hosts[0].pings("", 3, FAR).expect("echoes");
    assert_eq!(findings(left), []);
}

/// Packets have passed, and then none comes back.
fn stops() {
    let mut row = Row::new(4, "encap = \"never\"", ESP);
    row.start();
    row.hosts[0].pings("", 3, FAR).expect("echoes");
    let left = &row.gateways[0];
    assert_eq!(findings(left), []);
    row.router.sh("nft add table inet lossy");
    row.router.sh("nft add chain inet lossy way { type filter hook forward priority 0 ; }");
    row.router.sh("nft add rule inet lossy way iifname right ip protocol esp drop");
    let lost = || {
        row.hosts[0].try_sh(&format!("ping -q -c 1 -W 0.2 {FAR}"));
        (!findings(left).is_empty()).then_some(())
    };
    until("a finding", lost, || left.ctl_ok(&["status", "site"]));
    only(left, "one_way", false);
    let text = left.ctl_ok(&["why", "site_lan"]);
    assert!(text.contains("nothing has come in for"), "{text}");
    // The right gateway receives and answers: nothing is to be seen there.
    assert_eq!(findings(&row.gateways[1]), []);
}

/// Probes from the left gateway.
fn probe(left: &Gateway) -> Value {
    // On a busy host, answers may be late.
    let arguments = ["--to", FAR, "--count", "2", "--timeout", "20", "--json"];
    let (_, text) = left.ctl_inside(&[&["probe", "site_lan"], &arguments[..]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn black_hole(planted: &Planted) {
    let mut row = Row::new(4, "", ESP);
    row.router.sh("nft add table inet silent");
    row.router.sh("nft add chain inet silent out { type filter hook output priority 0 ; }");
    row.router.sh("nft add rule inet silent out meta l4proto { icmp, icmpv6 } drop");
    row.start();
    planted.now();
    let (passed, text) = row.gateways[0].ctl_inside(&["probe", "site_lan", "--to", FAR]);
    assert!(!passed, "{text}");
    planted.is_said(
        "a network on the way carries less, and no router says so",
        "vpnctl probe site_lan",
        &text,
    );
    shown("host-black-hole", &text);
    let probed = probe(&row.gateways[0]);
    assert_eq!(of(&probed["findings"]), [("mtu_black_hole".to_owned(), true)], "{probed}");
    let hint = row.gateways[0].ctl_ok(&["why", "site_lan"]);
    assert!(hint.contains("do large packets vanish? vpnctl probe site_lan"), "{hint}");
    upload(&row);
    let setting = cure(&probed["findings"][0], "outer_mtu = ");
    let outer: u64 = setting.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    assert!(outer <= NARROW, "{probed}");
    for gateway in &mut row.gateways {
        gateway.stop();
        gateway.configure(&format!("outer_mtu = {outer}\n"));
    }
    row.start();
    // A size whose packets are late counts as lost.
    let cured =
        || probe(&row.gateways[0])["findings"].as_array().is_some_and(Vec::is_empty).then_some(());
    until("a probe without a finding", cured, || probe(&row.gateways[0]).to_string());
}

/// The peer's packet filter drops by length, and packets that are sent together come to it as one long packet.
fn judged_together() {
    let pair = Pair::up("encap = \"always\"\n");
    let right = &pair.gateways[1].space;
    right.sh("nft add table inet short");
    right.sh("nft add chain inet short in { type filter hook prerouting priority 0 ; }");
    right.sh(&format!("nft add rule inet short in udp dport 4500 meta length > {NARROW} drop"));
    let probed = probe(&pair.gateways[0]);
    assert_eq!(of(&probed["findings"]), [("mtu_black_hole".to_owned(), true)], "{probed}");
    let inside = probed["path_mtu"].as_u64().expect("a number");
    let overhead =
        probed["outer_mtu"].as_u64().expect("one") - probed["inner_mtu"].as_u64().expect("one");
    // The padding of ESP makes some lengths equal.
    assert!((NARROW - 15..=NARROW).contains(&(inside + overhead)), "{probed}");
}

/// An upload gets no further than its first full packet. The probe is advised before firewalls are blamed.
fn upload(row: &Row) {
    let listener = row.hosts[1].run(|| TcpListener::bind((FAR, 0))).expect("an address");
    let to = listener.local_addr().expect("bound");
    let mut upload = row.hosts[0].run(move || TcpStream::connect(to)).expect("small packets pass");
    upload.set_nonblocking(true).expect("a socket takes it");
    while upload.write(&[0; 8192]).is_ok() {}
    let left = &row.gateways[0];
    let stuck = || (!findings(left).is_empty()).then_some(());
    until("a finding", stuck, || left.ctl_ok(&["status", "site"]));
    let finding = only(left, "one_way", false);
    let advice = finding["cure"][0].as_str().expect("text");
    assert!(advice.ends_with("large ones are lost: vpnctl probe site_lan"), "{finding}");
}

fn narrow_path(planted: &Planted) {
    let mut row = Row::new(4, "", ESP);
    row.start();
    planted.now();
    let learned = || {
        let probed = probe(&row.gateways[0]);
        (probed["outer_mtu_learned"] == true).then_some(probed)
    };
    let probed = until("the router's word", learned, String::new);
    assert_eq!(of(&probed["findings"]), [], "{probed}");
    assert_eq!(probed["outer_mtu"], NARROW, "{probed}");
    assert!(probed["round_trip_ms"]["least"].as_f64() > Some(0.0), "{probed}");
    let (passed, text) = row.gateways[0].ctl_inside(&["probe", "site", "--timeout", "20"]);
    assert!(passed, "{text}");
    assert!(text.contains("10.1.0.1 to 10.2.0.1"), "the gateway there answers: {text}");
    let fault = "a network on the way carries less, and a router says so";
    planted.is_said(fault, "vpnctl probe site", &text);
}

fn networks_behind(planted: &Planted) {
    let [mut left, mut right] = Gateway::pair(&site(), [1, 2], PATIENT);
    right.space.ip("address add 10.2.0.1/32 dev lo");
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    left.space.set("ipv4/ip_forward", "1");
    only(&left, "no_route_behind", true);
    shown("host-no-route", &left.ctl_ok(&["why", "site_lan"]));
    let (sent, text) = left.ctl_inside(&["probe", "site_lan"]);
    assert!(!sent && text.contains("no address within 10.1.0.0/24"), "{text}");
    assert_eq!(findings(&right), [], "that host alone is meant");

    // Behind the default route may be anything.
    left.space.ip("route add default via 192.0.2.9");
    only(&left, "no_route_behind", false);
    let behind = Space::new("behind");
    Space::connect((&left.space, "lan", &["10.1.0.1/24"]), (&behind, "lan", &["10.1.0.7/24"]));
    assert_eq!(findings(&left), []);
    left.space.pings("-I 10.1.0.1", 3, "10.2.0.1").expect("echoes");

    let neighbour = Space::new("neighbour");
    let ends = [["10.2.0.77/24"], ["10.2.0.78/24"]];
    planted.now();
    Space::connect((&left.space, "twice", &ends[0]), (&neighbour, "twice", &ends[1]));
    let finding = only(&left, "duplicate_subnet", false);
    let message = finding["message"].as_str().expect("text");
    assert!(message.contains("10.2.0.77 (twice)"), "{message}");
    planted.is_named("the same network is on both sides", &left, &["why", "site_lan"]);
    shown("host-duplicate", &left.ctl_ok(&["why", "site_lan"]));
}

fn narrowed(planted: &Planted) {
    let [here, there] = site();
    let wide = changed(&here, "10.2.0.255", "10.2.255.255");
    let [mut left, mut right] = Gateway::pair(&[wide, there], [1, 2], PATIENT);
    left.space.ip("address add 10.1.0.1/32 dev lo");
    right.space.ip("address add 10.2.0.1/32 dev lo");
    left.start();
    right.start();
    planted.now();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    let finding = only(&left, "narrowed", false);
    let message = finding["message"].as_str().expect("text");
    for words in ["remote traffic 10.2.0.0/24", "the policy names 10.2.0.0/16"] {
        assert!(message.contains(words), "{message}");
    }
    planted.is_named("the peer narrows the selectors", &left, &["why", "site_lan"]);
    shown("host-narrowed", &left.ctl_ok(&["why", "site_lan"]));
    assert_eq!(findings(&right), []);
}

/// In transport mode, the peer's own address is the remote traffic: the way back to it is the tunnel.
fn reverse_path() {
    let [mut left, mut right] = Gateway::pair(&vendor(), [10, 20], PATIENT);
    left.start();
    right.start();
    left.ctl_ok(&["activate"]);
    left.space.pings("", 3, "192.0.2.20").expect("echoes");
    let found = || of(&left.json(&["why", "LP2", "--json"])["children"][0]["findings"]);
    assert_eq!(found(), []);
    left.space.set("ipv4/conf/all/rp_filter", "1");
    left.space.set("ipv4/conf/wire/rp_filter", "1");
    let (answered, _) = left.space.try_sh("ping -q -c 1 -W 0.2 192.0.2.20");
    assert!(!answered, "the filter drops the answer");
    assert!(found().contains(&("rp_filter".to_owned(), true)), "{:?}", found());
    let finding = left.json(&["why", "LP2", "--json"])["children"][0]["findings"][0].clone();
    apply(&left.space, &cure(&finding, "sysctl -w "));
    left.space.pings("", 3, "192.0.2.20").expect("echoes");
    assert_eq!(found(), []);

    // Between networks, a strict filter drops nothing.
    let pair = Pair::up("");
    for gateway in &pair.gateways {
        for device in ["all", "wire", "lan", "vpn0"] {
            let path = format!("ipv4/conf/{device}/rp_filter");
            gateway.space.set(&path, "1");
        }
    }
    pair.is_in_order();
}

fn never_up() {
    let [mut left, _right] = Gateway::pair(&site(), [1, 2], PATIENT);
    left.space.ip("address add 10.1.0.1/32 dev lo");
    left.start();
    let (answered, _) = left.space.try_sh("ping -q -c 3 -i 0.01 -W 0.1 -I 10.1.0.1 10.2.0.1");
    assert!(!answered, "nobody is there");
    let discards = left.discards();
    let unserved = discards.iter().find(|(reason, _)| reason == "esp.no_sa");
    assert_eq!(unserved, Some(&("esp.no_sa".to_owned(), 3)), "{discards:?}");
    let text = left.ctl_ok(&["counters"]);
    let line = text.lines().find(|line| line.contains("site_lan")).unwrap_or_default();
    assert!(line.starts_with("3 ") && line.contains("no SA served it"), "{text}");
}
