//! IPsec of one address family, switched off and on while traffic of both passes.

use libtest_mimic::Trial;
use scenes::networks::{hosts, policy};
use serde_json::Value;
use std::process::{Command, Stdio};
use testkit::gateway::{Gateway, PATIENT};
use testkit::space::Space;
use testkit::{PINGED, test, until};

pub fn trials() -> Vec<Trial> {
    vec![
        test(
            "IPsec of IPv6 goes off and on under traffic, and IPv4 goes on",
            PINGED,
            one_family_of_two,
        ),
        test("a tunnel over IPv6 goes with IPsec of IPv6", PINGED, outer_addresses),
    ]
}

const FOUR: [&str; 2] = ["10.1.0.7", "10.2.0.7"];
const SIX: [&str; 2] = ["fd01::7", "fd02::7"];

fn both(outer_v6: bool) -> ([Gateway; 2], [Space; 2]) {
    let gateway = |name, end| Gateway::new(name, &policy(end, outer_v6), PATIENT, "");
    let mut gateways = [gateway("left", 0), gateway("right", 1)];
    let hosts = hosts([&gateways[0].space, &gateways[1].space]);
    let wire = [["192.0.2.1/24", "2001:db8::1/64"], ["192.0.2.2/24", "2001:db8::2/64"]];
    Space::connect((&gateways[0].space, "wire", &wire[0]), (&gateways[1].space, "wire", &wire[1]));
    // Persistent settings are this test's own.
    for gateway in &gateways {
        let file = gateway.path("families.toml");
        gateway.configure(&format!("[families]\nfile = {:?}\n", file.display().to_string()));
    }
    gateways.iter_mut().for_each(Gateway::start);
    (gateways, hosts)
}

fn state(gateway: &Gateway, child: &str) -> Value {
    gateway.json(&["status", child, "--json"])["children"][0]["state"].clone()
}

fn is_silent(host: &Space, to: &str) {
    let (answered, text) = host.try_sh(&format!("ping -q -c 3 -i 0.05 -W 0.2 {to}"));
    assert!(!answered, "{to} answers: {text}");
}

fn dropped(gateway: &Gateway, counter: &str) -> u64 {
    gateway.discards().into_iter().find(|(name, _)| name == counter).map_or(0, |(_, n)| n)
}

fn one_family_of_two() {
    let ([mut left, right], hosts) = both(false);
    let watch = right.space.watch("wire");
    left.ctl_ok(&["activate"]);
    hosts[0].pings("", 3, FOUR[1]).expect("both tunnels are up");
    hosts[0].pings("", 3, SIX[1]).expect("both tunnels are up");

    // IPv4 passes all the time: every echo is answered.
    let steady = hosts[0].run(|| {
        let mut ping = Command::new("ping");
        ping.args(["-q", "-i", "0.02", "-c", "400", "-W", "60", FOUR[1]]);
        ping.stdout(Stdio::piped()).spawn().expect("ping is there")
    });
    let told = left.ctl_ok(&["family", "ipv6", "off"]);
    assert!(told.contains("ipv6") && told.contains("off"), "{told}");
    assert_eq!(state(&left, "site_lan6"), "down");
    until(
        "the peer has deleted it, too",
        || (state(&right, "site_lan6") == "down").then_some(()),
        || right.ctl_ok(&["list", "--all"]),
    );
    is_silent(&hosts[0], SIX[1]);
    is_silent(&hosts[1], SIX[0]);
    assert!(dropped(&left, "esp.outbound_family_off") >= 3);
    let why = left.ctl_ok(&["why", "site_lan6"]);
    assert!(why.contains("vpnctl family ipv6 on"), "{why}");
    for shown in [left.ctl_ok(&["status"]), left.ctl_ok(&["status", "site"])] {
        assert!(shown.contains("IPsec of IPv6 is"), "{shown}");
    }
    let refused = left.ctl_fails(&["activate", "site_lan6"], 1);
    assert!(refused.contains("vpnctl family ipv6 on"), "{refused}");
    let traced = left.ctl_ok(&["trace", "udp", "[fd01::7]:1", "[fd02::7]:2"]);
    assert!(traced.contains("IPsec of IPv6 is off"), "{traced}");
    assert_eq!(state(&left, "site_lan"), "established");

    left.ctl_ok(&["family", "ipv6", "on"]);
    until(
        "it comes back by itself",
        || (state(&left, "site_lan6") == "established").then_some(()),
        || left.ctl_ok(&["list", "--all"]),
    );
    hosts[0].pings("", 3, SIX[1]).expect("it is up again");
    let output = steady.wait_with_output().expect("it ends by itself");
    let statistics = String::from_utf8_lossy(&output.stdout);
    assert!(statistics.contains("400 packets transmitted, 400 received"), "{statistics}");

    // A restart forgets what was not to last, and keeps what was.
    left.ctl_ok(&["family", "ipv6", "off", "--persist"]);
    left.stop();
    left.start();
    left.ctl_ok(&["activate"]);
    hosts[0].pings("", 3, FOUR[1]).expect("IPv4 is up");
    is_silent(&hosts[0], SIX[1]);
    let families = left.json(&["family", "--json"]);
    assert_eq!(families["families"][1]["on"], false, "{families}");
    assert_eq!(families["families"][1]["persistent"], false, "{families}");
    left.ctl_ok(&["family", "ipv6", "default", "--persist"]);
    left.ctl_ok(&["activate", "site_lan6"]);
    hosts[0].pings("", 3, SIX[1]).expect("it is up again");
    watch.nothing_in_the_clear();
}

fn outer_addresses() {
    let ([left, right], hosts) = both(true);
    let watch = right.space.watch("wire");
    left.ctl_ok(&["activate"]);
    hosts[0].pings("", 3, FOUR[1]).expect("the tunnel is up");
    left.ctl_ok(&["family", "ipv6", "off"]);
    for child in ["site_lan", "site_lan6"] {
        assert_eq!(state(&left, child), "down");
    }
    is_silent(&hosts[0], FOUR[1]);
    is_silent(&hosts[1], FOUR[0]);
    let list = left.json(&["list", "--all", "--json"]);
    assert_eq!(list[0]["last_failure"]["kind"], "family_off", "{list}");
    left.ctl_ok(&["family", "ipv6", "on"]);
    until(
        "both come back",
        || {
            (["site_lan", "site_lan6"].iter().all(|c| state(&left, c) == "established"))
                .then_some(())
        },
        || left.ctl_ok(&["list", "--all"]),
    );
    hosts[0].pings("", 3, FOUR[1]).expect("the tunnel is up again");
    watch.nothing_in_the_clear();
}
