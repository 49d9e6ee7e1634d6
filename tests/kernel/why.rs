//! A tunnel whose packets the kernel protects is up, and no traffic passes: `vpnctl why` or `vpnctl probe` says the
//! same as for the userspace plane, which the table of faults in `docs/operate/troubleshooting.md` has, and the cure
//! works.

use crate::guest::{Group, Kernel, scenario};
use scenes::guide;
use scenes::narrow::{ESP, Row};
use testkit::gateway::Gateway;
use testkit::policies;
use testkit::space::Space;
use testkit::{FILTERED, until};

pub fn group() -> Group {
    Group {
        name: "why",
        kernel: Kernel::Built,
        scenarios: vec![
            scenario("forwarding is off", FILTERED, forwarding),
            scenario("the packet filter drops", FILTERED, packet_filter),
            scenario("ESP is dropped on the way", FILTERED, dropped_on_the_way),
            scenario("an MTU black hole", FILTERED, black_hole),
            scenario("the peer is killed", &[], killed),
        ],
    }
}

const FAR: &str = "10.2.0.7";

/// Host, gateway, router, gateway, host; the kernels of the gateways protect the packets.
fn up() -> Row {
    let mut row = row();
    row.start();
    row.hosts[0].pings("", 3, FAR).expect("echoes");
    assert_eq!(kinds(&row.gateways[0]), [""; 0]);
    row
}

fn row() -> Row {
    let row = Row::new(4, "dataplane = \"xfrm\"\nencap = \"never\"", ESP);
    for (end, gateway) in row.gateways.iter().enumerate() {
        let via = end + 1;
        let network = 2 - end;
        gateway.space.ip(&format!("route add 10.{network}.0.0/24 via 198.51.100.{via}"));
        gateway.space.ip(&format!("-6 route add fd0{network}::/64 via fd0f::{via}"));
    }
    row
}

/// The kinds of the findings about the tunnel.
fn kinds(gateway: &Gateway) -> Vec<String> {
    let why = gateway.json(&["why", "site_lan", "--json"]);
    let findings = why["children"][0]["findings"].as_array().expect("a list").iter();
    findings.filter_map(|finding| finding["kind"].as_str().map(str::to_owned)).collect()
}

/// `why` of the left gateway has the words of the table.
fn is_named(row: &Row, fault: &str, kind: &str) {
    let left = &row.gateways[0];
    let found = || (kinds(left) == [kind]).then_some(());
    until("the finding", found, || left.ctl_ok(&["why", "site_lan"]));
    guide::fault(fault).is_said_by(&left.ctl_ok(&["why", "site_lan"]));
}

fn is_in_order(row: &Row) {
    row.hosts[0].pings("", 3, FAR).expect("echoes");
    assert_eq!(kinds(&row.gateways[0]), [""; 0]);
}

fn forwarding() {
    let row = up();
    row.gateways[0].space.set("ipv4/ip_forward", "0");
    is_named(&row, "forwarding is off", "forwarding");
    row.gateways[0].space.set("ipv4/ip_forward", "1");
    is_in_order(&row);
}

fn packet_filter() {
    let row = up();
    let left = &row.gateways[0].space;
    left.sh("nft add table ip filter");
    left.sh(
        "nft add chain ip filter FORWARD { type filter hook forward priority 0 ; policy drop ; }",
    );
    is_named(&row, "the packet filter of this host drops forwarded packets", "firewall");
    left.sh("nft delete table ip filter");
    is_in_order(&row);
}

fn dropped_on_the_way() {
    let mut row = row();
    row.start();
    row.router.sh("nft add table inet lossy");
    row.router.sh("nft add chain inet lossy way { type filter hook forward priority 0 ; }");
    row.router.sh("nft add rule inet lossy way ip protocol esp drop");
    row.hosts[0].try_sh(&format!("ping -q -c 9 -i 0.01 -W 0.1 {FAR}"));
    is_named(&row, "ESP is dropped on the way", "one_way");
    row.router.sh("nft flush chain inet lossy way");
    is_in_order(&row);
}

fn black_hole() {
    let mut row = row();
    row.router.sh("nft add table inet silent");
    row.router.sh("nft add chain inet silent out { type filter hook output priority 0 ; }");
    row.router.sh("nft add rule inet silent out meta l4proto { icmp, icmpv6 } drop");
    row.start();
    let probe =
        || row.gateways[0].ctl_inside(&["probe", "site_lan", "--to", FAR, "--timeout", "20"]);
    let (passed, text) = probe();
    assert!(!passed, "{text}");
    // The cause is the same; outer_mtu has no effect on the kernel.
    let words = guide::fault("a network on the way carries less, and no router says so");
    guide::Row { cure: "ip route change NETWORK via ROUTER mtu".to_owned(), ..words }
        .is_said_by(&text);
    let mtu = text.split("via ROUTER mtu ").nth(1).and_then(|rest| rest.split(',').next());
    let mtu: u32 = mtu.and_then(|mtu| mtu.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    for (end, gateway) in row.gateways.iter().enumerate() {
        let (network, via) = (2 - end, end + 1);
        let route = format!("route change 10.{network}.0.0/24 via 198.51.100.{via} mtu {mtu}");
        gateway.space.ip(&route);
    }
    let cured = || probe().0.then_some(());
    until("a probe without a finding", cured, || probe().1);
}

fn killed() {
    let policies = policies::site();
    let ike = "liveness_interval = \"1s\"\n";
    let [mut left, mut right] = [("left", 0), ("right", 1)]
        .map(|(name, end)| Gateway::new(name, &policies[end], ike, "dataplane = \"xfrm\"\n"));
    Space::connect(
        (&left.space, "wire", &["192.0.2.1/24"]),
        (&right.space, "wire", &["192.0.2.2/24"]),
    );
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    right.crash();
    let why = || left.ctl_ok(&["why", "site"]);
    let heard = || why().contains("nothing listens on UDP 4500").then_some(());
    until("the message of the peer's host", heard, why);
    guide::fault("the peer's daemon is killed").is_said_by(&why());
}
