//! Address translators of the kernel in between: several clients behind one, and one at each end.

use libtest_mimic::Trial;
use std::collections::BTreeSet;
use testkit::gateway::{Gateway, PATIENT};
use testkit::space::Space;
use testkit::{FILTERED, policies, test};

pub fn trials() -> Vec<Trial> {
    vec![
        test("several clients behind one translator", FILTERED, several),
        test("translators at both ends", FILTERED, both_ends),
    ]
}

/// A host behind the gateway.
const HOST: &str = "10.1.0.1";

/// A client, and a host behind it.
struct Client {
    gateway: Gateway,
    name: &'static str,
    host: String,
}

/// A translator: packets from inside leave with its address and ports of its choice.
fn translator(address: &str, outside: (&Space, &str)) -> Space {
    let nat = Space::new("nat");
    nat.set("ipv4/ip_forward", "1");
    Space::connect((&nat, "out", &[&format!("{address}/24")]), (outside.0, "wire", &[outside.1]));
    nat.sh("nft add table ip nat");
    nat.sh("nft add chain ip nat post { type nat hook postrouting priority 100 ; }");
    nat.sh("nft add rule ip nat post oifname out masquerade");
    nat
}

/// Puts a gateway behind a translator, in a network of its own.
fn behind(nat: &Space, device: &'static str, gateway: &Gateway, number: usize) {
    let [router, own] = [1, 2].map(|host| format!("172.16.{number}.{host}"));
    Space::connect(
        (nat, device, &[&format!("{router}/24")]),
        (&gateway.space, "wire", &[&format!("{own}/24")]),
    );
    gateway.space.ip(&format!("route add default via {router}"));
}

impl Client {
    fn new(policy: &str, name: &'static str, host: String) -> Self {
        let gateway = Gateway::new(name, policy, PATIENT, "");
        gateway.space.ip(&format!("address add {host}/32 dev lo"));
        Self { gateway, name, host }
    }

    /// Packets go both ways, and none is lost.
    fn passes(&self, hub: &Gateway) {
        let there = self.gateway.space.pings(&format!("-I {}", self.host), 3, HOST);
        there.unwrap_or_else(|text| panic!("{} to the gateway: {text}", self.name));
        let back = hub.space.pings(&format!("-I {HOST}"), 3, &self.host);
        back.unwrap_or_else(|text| panic!("the gateway to {}: {text}", self.name));
    }

    fn child(&self) -> String {
        format!("{}_lan", self.name)
    }
}

/// The IKE SA that a gateway has with a client.
fn ike_sa(gateway: &Gateway, name: &str) -> serde_json::Value {
    gateway.json(&["status", name, "--json"])["ike_sa"].clone()
}

fn several() {
    let devices = [("one", "in1"), ("two", "in2"), ("three", "in3")];
    let sides = devices.iter().zip(1..).map(|((name, _), number)| {
        let own = format!("172.16.{number}.2");
        policies::guest(name, &format!("10.{}.0.", number + 1), &own, ["192.0.2.1"; 2])
    });
    let (of_hub, of_clients): (Vec<String>, Vec<String>) =
        sides.map(|[hub, own]| (hub, own)).unzip();
    let of_hub: Vec<&str> = of_hub.iter().map(String::as_str).collect();
    let mut hub = Gateway::new("hub", &policies::together(&of_hub), PATIENT, "");
    hub.space.ip(&format!("address add {HOST}/32 dev lo"));
    let nat = translator("192.0.2.254", (&hub.space, "192.0.2.1/24"));
    let watch = hub.space.watch("wire");
    hub.start();
    let mut clients = Vec::new();
    for (((name, device), policy), number) in devices.into_iter().zip(&of_clients).zip(1..) {
        let mut client = Client::new(policy, name, format!("10.{}.0.1", number + 1));
        behind(&nat, device, &client.gateway, number);
        client.gateway.start();
        client.gateway.ctl_ok(&["activate", name]);
        clients.push(client);
    }
    let mut paths = BTreeSet::new();
    for client in &clients {
        client.passes(&hub);
        let sa = ike_sa(&hub, client.name);
        assert!(sa["nat_remote"] == true && sa["nat_local"] == false, "{sa}");
        let remote = sa["remote"].as_str().expect("a socket address").to_owned();
        assert!(remote.starts_with("192.0.2.254:"), "{remote}");
        assert!(paths.insert(remote), "two clients on one port: {paths:?}");
    }
    // Each is told from the others by its ports and SPIs alone.
    let [one, two, three] = &clients[..] else { panic!("three clients") };
    hub.ctl_ok(&["rekey", &one.child()]);
    hub.ctl_ok(&["rekey", two.name]);
    three.gateway.ctl_ok(&["rekey", three.name]);
    three.gateway.ctl_ok(&["rekey", &three.child()]);
    clients.iter().for_each(|client| client.passes(&hub));
    one.gateway.ctl_ok(&["deactivate", one.name]);
    hub.await_list(&[&three.child(), &two.child()]);
    [two, three].into_iter().for_each(|client| client.passes(&hub));
    watch.nothing_in_the_clear();
}

fn both_ends() {
    let [of_hub, of_client] =
        policies::guest("guest", "10.2.0.", "172.16.1.2", ["172.16.2.2", "192.0.2.2"]);
    let mut hub = Gateway::new("hub", &of_hub, PATIENT, "");
    hub.space.ip(&format!("address add {HOST}/32 dev lo"));
    let mut client = Client::new(&of_client, "guest", "10.2.0.1".into());
    let far = Space::new("nat");
    far.set("ipv4/ip_forward", "1");
    let near = translator("192.0.2.1", (&far, "192.0.2.2/24"));
    behind(&near, "in1", &client.gateway, 1);
    behind(&far, "in2", &hub, 2);
    // The far one leads the ports of IKE inside, under numbers of its own to the outside.
    far.sh("nft add table ip nat");
    far.sh("nft add chain ip nat pre { type nat hook prerouting priority -100 ; }");
    far.sh("nft add rule ip nat pre iifname wire udp dport { 500, 4500 } dnat to 172.16.2.2");
    let watch = far.watch("wire");
    hub.start();
    client.gateway.start();
    client.gateway.ctl_ok(&["activate", "guest"]);
    client.passes(&hub);
    for gateway in [&hub, &client.gateway] {
        let sa = ike_sa(gateway, "guest");
        assert!(sa["nat_remote"] == true && sa["nat_local"] == true, "{}: {sa}", gateway.name);
    }
    hub.ctl_ok(&["rekey", "guest"]);
    client.gateway.ctl_ok(&["rekey", "guest_lan"]);
    client.passes(&hub);
    client.gateway.ctl_ok(&["deactivate", "guest"]);
    hub.await_list(&[]);
    watch.nothing_in_the_clear();
}
