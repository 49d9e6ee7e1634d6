//! Routes to the networks behind tunnels in the kernel, which are the administrator's.

use crate::guest::{Group, Kernel, scenario};
use testkit::gateway::Gateway;
use testkit::policies;
use testkit::space::Space;
use testkit::{Need, until};

pub fn group() -> Group {
    let missing = scenario("a missing route is told until it is there", PING, missing);
    Group { name: "routes", kernel: Kernel::Any, scenarios: vec![missing] }
}

const PING: &[Need] = &[Need::Program("ping")];

/// Two sites, of which one has no route to the other's network.
fn missing() {
    let policies = policies::site();
    let mut gateways = [("left", 0), ("right", 1)]
        .map(|(name, end)| Gateway::new(name, &policies[end], "", "dataplane = \"xfrm\"\n"));
    Space::connect(
        (&gateways[0].space, "wire", &["192.0.2.1/24"]),
        (&gateways[1].space, "wire", &["192.0.2.2/24"]),
    );
    gateways[0].space.ip("address add 10.1.0.1/32 dev lo");
    gateways[1].space.ip("address add 10.2.0.1/32 dev lo");
    gateways[1].space.ip("route add 10.1.0.0/24 dev wire src 10.2.0.1");
    gateways.iter_mut().for_each(Gateway::start);
    let [left, right] = &gateways;
    let unrouted = |gateway: &Gateway| gateway.json(&["status", "--json"])["unrouted"].clone();
    assert_eq!(unrouted(right).as_array().map(Vec::len), Some(0));
    let early = unrouted(left)[0]["command"].clone();
    assert_eq!(early, "ip route add 10.2.0.0/24 via ROUTER src 10.1.0.1");
    left.await_log(&["\"level\":\"WARN\"", "no route leads to 10.2.0.0/24"]);

    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    let told = unrouted(left);
    assert_eq!(told[0]["tunnel"], "site_lan", "{told}");
    let command = told[0]["command"].as_str().expect("text").to_owned();
    assert_eq!(command, "ip route add 10.2.0.0/24 dev wire src 10.1.0.1");
    let status = left.ctl_ok(&["status"]);
    assert!(status.contains("site_lan: no route leads to 10.2.0.0/24"), "{status}");

    left.space.sh(&command);
    let none = || unrouted(left).as_array().is_some_and(Vec::is_empty).then_some(());
    until("the route is seen", none, || left.ctl_ok(&["status"]));
    left.space.pings("", 3, "10.2.0.1").expect("echoes");
    left.space.ip("route del 10.2.0.0/24");
    let again = || (unrouted(left)[0]["command"] == command.as_str()).then_some(());
    until("its loss is seen", again, || left.ctl_ok(&["status"]));
    gateways.iter_mut().for_each(Gateway::stop);
}
