//! Two daemons, of which the kernel protects the packets of one or both.

use crate::guest::{Group, Kernel, scenario};
use crate::offloaded;
use std::collections::BTreeSet;
use std::net::IpAddr;
use testkit::gateway::{Gateway, PATIENT};
use testkit::policies::{self, changed};
use testkit::space::{Space, Watch};
use testkit::traffic::Stream;
use testkit::{Need, shows, until};

const PING: &[Need] = &[Need::Program("ping")];
pub fn group() -> Group {
    Group {
        name: "planes",
        kernel: Kernel::Any,
        scenarios: vec![
            scenario("both by the kernel, transport mode", PING, transport),
            scenario("both by the kernel, tunnel mode in UDP", PING, || tunnel("always")),
            scenario("both by the kernel, tunnel mode", PING, || tunnel("never")),
            scenario("one by the kernel and one in userspace", PING, mixed),
            scenario("side by side in one daemon", PING, side_by_side),
            scenario("rekeying under traffic loses nothing", PING, rekey),
            scenario("a packet asks for a tunnel", PING, acquire),
            scenario("volume expires an SA", &[], expiry),
            scenario("addresses change under a flow", &[], migration),
            scenario("after a crash nothing leaks, and the next start cleans up", PING, crash),
            scenario("a tunnel that the kernel does not take goes to userspace", PING, fallback),
            scenario("no log shows a key of an SA in the kernel", PING, no_key),
        ],
    }
}

/// The kernel of a host whose nftables have no tables for both address families at once.
pub fn packaged() -> Group {
    let play = || tunnel("never");
    let scenarios = vec![scenario("both by the kernel, tunnel mode, Linux 6.1", PING, play)];
    Group { name: "planes of a packaged kernel", kernel: Kernel::Packaged, scenarios }
}

const LEFT: [u8; 4] = [10, 1, 0, 1];
const RIGHT: [u8; 4] = [10, 2, 0, 1];

/// The gateways of the sample for two sites, with these planes and lines of their configurations; they are not started.
fn sites(policies: &[String; 2], planes: [&str; 2], esp: &str) -> [Gateway; 2] {
    let [left, right] = [("left", 0), ("right", 1)].map(|(name, end)| {
        let esp = format!("dataplane = \"{}\"\n{esp}", planes[end]);
        Gateway::new(name, &policies[end], PATIENT, &esp)
    });
    Space::connect(
        (&left.space, "wire", &["192.0.2.1/24"]),
        (&right.space, "wire", &["192.0.2.2/24"]),
    );
    left.space.ip("address add 10.1.0.1/32 dev lo");
    right.space.ip("address add 10.2.0.1/32 dev lo");
    // The kernel's ESP takes packets off whatever route they go.
    left.space.ip("route add 10.2.0.0/24 via 192.0.2.2 src 10.1.0.1");
    right.space.ip("route add 10.1.0.0/24 via 192.0.2.1 src 10.2.0.1");
    [left, right]
}

fn up(planes: [&str; 2], esp: &str) -> [Gateway; 2] {
    let [mut left, mut right] = sites(&policies::site(), planes, esp);
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    [left, right]
}

/// Watches what either gateway sends.
fn wire(gateways: &[Gateway; 2]) -> [Watch; 2] {
    gateways.each_ref().map(|gateway| gateway.space.watch_leaving("wire"))
}

fn nothing_in_the_clear(watches: [Watch; 2]) {
    for watch in watches {
        watch.nothing_in_the_clear();
    }
}

/// Nothing of the daemon is in the kernel.
fn is_clean(gateway: &Gateway) {
    assert_eq!(gateway.space.ip("xfrm state"), "");
    let policies = gateway.space.ip("xfrm policy");
    // Sockets have some of their own.
    assert!(!policies.contains("priority 19"), "{policies}");
}

fn stop(gateways: &mut [Gateway; 2]) {
    for gateway in gateways {
        gateway.stop();
        is_clean(gateway);
    }
}

fn packets(gateway: &Gateway, child: &str) -> [u64; 2] {
    let sa = gateway.child_sa(child);
    ["packets_in", "packets_out"].map(|field| sa[field].as_u64().unwrap_or_else(|| panic!("{sa}")))
}

/// At the level that shows most: keys that the kernel has now or has had.
fn no_key() {
    let [mut left, mut right] = sites(&policies::site(), ["xfrm"; 2], "");
    for gateway in [&mut left, &mut right] {
        gateway.configure("[log]\nlevel = \"trace\"\n");
        gateway.start();
    }
    left.ctl_ok(&["activate"]);
    let mut keys = BTreeSet::new();
    for name in ["site_lan", "site"] {
        left.space.echoes("", 5, "10.2.0.1").expect("echoes");
        let states = left.space.ip("xfrm state");
        let words = states.split_whitespace().filter_map(|word| word.strip_prefix("0x"));
        keys.extend(words.filter(|word| word.len() > 16).map(str::to_owned));
        left.ctl_ok(&["rekey", name]);
    }
    assert!(keys.len() >= 4, "both directions of two Child SAs: {keys:?}");
    for gateway in [&left, &right] {
        let log = gateway.log();
        assert!(log.contains("TRACE"), "{log}");
        for key in &keys {
            assert!(!shows(&log, key), "the log shows {key}");
        }
    }
    stop(&mut [left, right]);
}

fn transport() {
    let policies = policies::vendor();
    let mut gateways = [("left", 0), ("right", 1)].map(|(name, end)| {
        Gateway::new(name, &policies[end], PATIENT, "dataplane = \"xfrm\"\nencap = \"never\"\n")
    });
    Space::connect(
        (&gateways[0].space, "wire", &["192.0.2.10/24"]),
        (&gateways[1].space, "wire", &["192.0.2.20/24"]),
    );
    gateways.iter_mut().for_each(Gateway::start);
    let [left, _right] = &gateways;
    let watch = wire(&gateways);
    left.ctl_ok(&["activate"]);
    left.space.echoes("", 5, "192.0.2.20").expect("echoes");
    nothing_in_the_clear(watch);
    let states = left.space.ip("-s xfrm state");
    assert_eq!(states.matches("mode transport").count(), 2, "{states}");
    assert_eq!(states.matches("(bytes), 5(packets)").count(), 2, "{states}");
    let status = left.ctl_ok(&["status"]);
    assert!(status.contains("xfrm"), "{status}");
    stop(&mut gateways);
}

fn tunnel(encap: &str) {
    let mut gateways = up(["xfrm"; 2], &format!("encap = \"{encap}\"\n"));
    let [left, right] = &gateways;
    let watch = wire(&gateways);
    left.space.echoes("", 5, "10.2.0.1").expect("echoes");
    right.space.echoes("", 5, "10.1.0.1").expect("echoes");
    let states = left.space.ip("-s xfrm state");
    assert_eq!(states.matches("(bytes), 10(packets)").count(), 2, "{states}");
    let encapsulated = states.matches("encap type espinudp").count();
    assert_eq!(encapsulated, if encap == "always" { 2 } else { 0 }, "{states}");
    assert_eq!(packets(left, "site_lan"), [10, 10]);
    assert_eq!(by_kernel(left), [10, 10]);
    let trace_now = || left.json(&["trace", "--json", "tcp 10.1.0.1:1 10.2.0.1:2"]);
    let trace = trace_now();
    assert_eq!(trace["leaving"]["verdict"], "protected", "{trace}");
    let back = left.json(&["trace", "--json", "tcp 10.2.0.1:2 10.1.0.1:1"]);
    assert_eq!(back["arriving"]["verdict"], "protected", "{back}");
    let message = trace["leaving"]["message"].as_str().unwrap_or_default();
    let number = message.split("priority ").nth(1).and_then(|rest| rest.split(')').next());
    let priority = format!("priority {}", number.unwrap_or("?"));
    assert!(left.space.ip("xfrm policy").contains(&priority), "{message}");
    assert_eq!(of_userspace(left), [false; 3]);
    assert!(!left.ctl_ok(&["status"]).contains("userspace"));
    // Without the tunnel its traffic is dropped.
    left.ctl_ok(&["deactivate", "site"]);
    assert_eq!(trace_now()["leaving"]["verdict"], "dropped");
    let last = || {
        let policies = left.space.ip("-s xfrm policy list dst 10.2.0.0/24 dir out");
        assert_eq!(policies.matches("action block").count(), 1, "{policies}");
        policies.split_once(" use ").expect("a time").1.trim().to_owned()
    };
    assert_eq!(last(), "-", "nothing has come");
    let (_, told) = left.space.try_sh("ping -q -c 2 -i 0.01 -W 1 10.2.0.1");
    assert!(told.contains("Operation not permitted"), "{told}");
    assert_ne!(last(), "-", "the kernel keeps the time for each tunnel");
    assert_eq!(by_kernel(left), [10, 10], "what SAs have done outlives them");
    let dropped = left.json(&["counters", "--json"])["xfrm.XfrmOutPolBlock"].as_u64();
    assert!(dropped > Some(0), "{dropped:?}");
    let counters = left.ctl_ok(&["counters"]);
    assert!(counters.contains("DROPPED BY THE KERNEL"), "{counters}");
    nothing_in_the_clear(watch);
    stop(&mut gateways);
}

/// Packets that the kernel has encrypted and decrypted, as the daemon has it.
fn by_kernel(gateway: &Gateway) -> [u64; 2] {
    let stats = gateway.json(&["crypto", "stats", "--json"]);
    let rows = stats["rows"].as_array().unwrap_or_else(|| panic!("{stats}"));
    ["encrypt", "decrypt"].map(|operation| {
        let row = rows.iter().find(|row| row["user"] == "esp" && row["operation"] == operation);
        let done = row.and_then(|row| row["kernel"]["operations"].as_u64());
        done.unwrap_or_else(|| panic!("{stats}"))
    })
}

fn mixed() {
    for planes in [["xfrm", "userspace"], ["userspace", "xfrm"]] {
        for encap in ["always", "never"] {
            let mut gateways = up(planes, &format!("encap = \"{encap}\"\n"));
            let [left, right] = &gateways;
            left.space.echoes("", 5, "10.2.0.1").expect("echoes");
            right.space.echoes("-s 1300", 5, "10.1.0.1").expect("echoes");
            for gateway in [left, right] {
                assert_eq!(packets(gateway, "site_lan"), [10, 10]);
            }
            assert_eq!(left.ctl_ok(&["rekey", "site_lan"]), "site_lan: rekeyed\n");
            right.space.pings("", 5, "10.1.0.1").expect("echoes");
            stop(&mut gateways);
        }
    }
}

fn rekey() {
    let mut gateways = up(["xfrm"; 2], "encap = \"always\"\n");
    let [left, right] = &gateways;
    // Each lost one is missing in the end.
    let ping = left.space.run(|| {
        std::process::Command::new("ping")
            .args(["-q", "-c", "500", "-i", "0.005", "10.2.0.1"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("ping is there")
    });
    for _ in 0..3 {
        assert_eq!(left.ctl_ok(&["rekey", "site_lan"]), "site_lan: rekeyed\n");
        assert_eq!(right.ctl_ok(&["rekey", "site_lan"]), "site_lan: rekeyed\n");
        assert_eq!(right.ctl_ok(&["rekey", "site"]), "site: rekeyed\n");
    }
    let output = ping.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("500 received"), "{text}\n{}", left.space.sh("cat /proc/net/xfrm_stat"));
    stop(&mut gateways);
}

fn acquire() {
    let [left_policy, right_policy] = policies::site();
    let demand = changed(&left_policy, "OnDemand=\"No\"", "OnDemand=\"Yes\"");
    let mut gateways = sites(&[demand, right_policy], ["xfrm"; 2], "");
    gateways.iter_mut().for_each(Gateway::start);
    let [left, _] = &gateways;
    let watch = wire(&gateways);
    left.space.pings("", 2, "10.2.0.1").expect("the tunnel comes up");
    nothing_in_the_clear(watch);
    left.await_list(&["site_lan"]);
    stop(&mut gateways);
}

fn stream(left: &Gateway, right: &Gateway) -> Stream {
    let ends = [(&left.space.0, IpAddr::from(LEFT)), (&right.space.0, IpAddr::from(RIGHT))];
    let stream = Stream::start(ends[0], ends[1], 0).expect("a connection");
    goes_on(&stream);
    stream
}

fn goes_on(stream: &Stream) {
    let before = stream.received();
    let more = || (stream.received() > before + 300_000).then_some(());
    until("the stream goes on", more, || format!("{before} then {}", stream.received()));
}

fn expiry() {
    let policies = policies::site().map(|policy| limited(&policy));
    let mut gateways = sites(&policies, ["xfrm"; 2], "");
    gateways.iter_mut().for_each(Gateway::start);
    let [left, right] = &gateways;
    // Linux tells a socket that nothing of a super-packet was sent if the SA ends in the middle of it.
    for gateway in &gateways {
        gateway.space.ip("link set wire gso_max_segs 1");
    }
    left.ctl_ok(&["activate"]);
    let first = left.child_sa("site_lan")["outbound_spi"].clone();
    let stream = stream(left, right);
    let renewed = || (left.child_sa("site_lan")["outbound_spi"] != first).then_some(());
    until("a rekey for its volume", renewed, || left.space.ip("-s xfrm state"));
    goes_on(&stream);
    stream.finish().expect("every octet is right");
    stop(&mut gateways);
}

/// The policy with SAs that last for two megabytes.
fn limited(policy: &str) -> String {
    let changes = [
        ("ESP_KeyRefreshKB=\"0\"", "ESP_KeyRefreshKB=\"2048\""),
        ("UseLifeSize=\"No\"", "UseLifeSize=\"Yes\""),
    ];
    changes.iter().fold(policy.to_owned(), |text, (from, to)| changed(&text, from, to))
}

fn migration() {
    let mut gateways = up(["xfrm"; 2], "");
    let [left, right] = &gateways;
    let watch = wire(&gateways);
    let stream = stream(left, right);
    let before = packets(left, "site_lan")[1];
    left.space.ip("address del 192.0.2.1/24 dev wire");
    left.space.ip("address add 192.0.2.9/24 dev wire");
    // The kernel takes routes of a lost address away.
    left.space.try_sh("ip route replace 10.2.0.0/24 via 192.0.2.2 src 10.1.0.1");
    right.space.ip("route replace 10.1.0.0/24 via 192.0.2.9 src 10.2.0.1");
    goes_on(&stream);
    let states = left.space.ip("xfrm state");
    assert!(states.contains("192.0.2.9") && !states.contains("192.0.2.1 "), "{states}");
    assert!(packets(left, "site_lan")[1] > before, "it counts on");
    stream.finish().expect("every octet is right");
    nothing_in_the_clear(watch);
    stop(&mut gateways);
}

fn crash() {
    let mut gateways = up(["xfrm"; 2], "encap = \"never\"\n");
    let watch = wire(&gateways);
    gateways[0].space.pings("", 2, "10.2.0.1").expect("echoes");
    gateways[0].crash();
    // The other side has lost nothing yet: its SAs in the kernel go on.
    gateways[0].space.pings("", 2, "10.2.0.1").expect("echoes");
    // Without a word, or its words would meet a closed port.
    gateways[1].crash();
    gateways[0].space.try_sh("ping -q -c 2 -i 0.01 -W 1 10.2.0.1");
    gateways[0].start();
    assert_eq!(gateways[0].space.ip("xfrm state"), "");
    gateways[0].space.try_sh("ping -q -c 2 -i 0.01 -W 1 10.2.0.1");
    nothing_in_the_clear(watch);
    gateways[1].start();
    gateways[0].ctl_ok(&["activate"]);
    gateways[0].space.pings("", 2, "10.2.0.1").expect("echoes");
    stop(&mut gateways);
}

/// Of two tunnels between the same gateways one is the kernel's, without UDP: raw sockets get copies of its packets,
/// which are none of the userspace plane's business.
fn side_by_side() {
    let policies = policies::site().map(|policy| offloaded::doubled(&policy));
    let lines = "encap = \"never\"\n[tunnel.\"site_dmz\"]\ndataplane = \"userspace\"\n";
    let mut gateways = sites(&policies, ["xfrm"; 2], lines);
    for (gateway, own, there) in [(&gateways[0], 1, 2), (&gateways[1], 2, 1)] {
        gateway.space.ip(&format!("address add 10.{own}.1.1/32 dev lo"));
        gateway.space.ip(&format!("route add 10.{there}.1.0/24 via 192.0.2.{there}"));
    }
    gateways.iter_mut().for_each(Gateway::start);
    let watch = wire(&gateways);
    let [left, right] = &gateways;
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    for _ in 0..2 {
        left.space.echoes("-I 10.1.0.1", 10, "10.2.0.1").expect("echoes");
        left.space.echoes("-I 10.1.1.1", 10, "10.2.1.1").expect("echoes");
        right.space.echoes("-I 10.2.1.1", 10, "10.1.1.1").expect("echoes");
        assert_eq!(left.ctl_ok(&["rekey", "site_dmz"]), "site_dmz: rekeyed\n");
    }
    assert_eq!(by_kernel(left), [20, 20]);
    for gateway in [left, right] {
        // The kernel looks for SAs of the other plane's packets, too, and counts that it has none.
        let discards = gateway.discards().into_iter();
        let others = discards.filter(|(why, _)| why != "xfrm.XfrmInNoStates");
        assert_eq!(others.collect::<Vec<_>>(), [], "{}", gateway.name);
    }
    nothing_in_the_clear(watch);
    stop(&mut gateways);
}

/// Whether the host has the userspace plane's device, its routing rules, and its sockets of ESP or AH without UDP.
fn of_userspace(gateway: &Gateway) -> [bool; 3] {
    let has = |command: &str, what: &str| gateway.space.try_sh(command).1.contains(what);
    // The protocol of a raw socket stands where other sockets have their port: 50 or 51.
    let raw = |protocol| has("cat /proc/net/raw /proc/net/raw6", protocol);
    [has("ip link", "vpn0"), has("ip rule", "4500"), raw(":0032 ") || raw(":0033 ")]
}

/// A range with so many prefixes, to one with as many, takes too many policies: a side with the choice `auto` has the
/// tunnel in userspace, and says why.
fn fallback() {
    let ragged = |policy: String| {
        let policy =
            changed(&policy, "From_IPAddr=\"10.1.0.0\" To_IPAddr=\"10.1.0.255\"", RAGGED[0]);
        changed(&policy, "From_IPAddr=\"10.2.0.0\" To_IPAddr=\"10.2.0.255\"", RAGGED[1])
    };
    let mut gateways = sites(&policies::site().map(ragged), ["auto", "userspace"], "");
    gateways.iter_mut().for_each(Gateway::start);
    let watch = wire(&gateways);
    assert_eq!(gateways[0].ctl_ok(&["activate"]), "site: up\n");
    gateways[0].space.pings("", 2, "10.2.0.1").expect("echoes");
    nothing_in_the_clear(watch);
    let status = gateways[0].json(&["status", "--json"]);
    assert_eq!(status["planes"][0]["kind"], "xfrm", "{status}");
    let told = &status["fallbacks"][0];
    assert_eq!(told["tunnel"], "site_lan", "{status}");
    assert!(told["reason"].to_string().contains("use prefixes"), "{status}");
    let [left, right] = &gateways;
    assert!(left.ctl_ok(&["status"]).contains("site_lan is in userspace: "));
    let shown = of_userspace(left);
    assert_eq!(shown, [true; 3]);

    // With the last tunnel of userspace goes what the host has of it, and comes back with the next.
    let plain = policies::site();
    let ragged = plain.clone().map(ragged);
    for (policies, of_left) in [(&plain, [false; 3]), (&ragged, shown)] {
        for (gateway, policy) in [left, right].into_iter().zip(policies) {
            gateway.write_policy(policy);
            gateway.ctl_ok(&["reload"]);
        }
        assert_eq!(of_userspace(left), of_left);
        left.ctl(&["activate"]);
        left.await_list(&["site_lan"]);
        let watch = wire(&gateways);
        left.space.pings("", 2, "10.2.0.1").expect("echoes");
        nothing_in_the_clear(watch);
        let workers = left.json(&["workers", "--json"]);
        let threads = workers["threads"].as_array().unwrap_or_else(|| panic!("{workers}"));
        assert_eq!(!threads.is_empty(), of_left[0], "{workers}");
    }
    stop(&mut gateways);
}

const RAGGED: [&str; 2] = [
    "From_IPAddr=\"10.1.0.1\" To_IPAddr=\"10.1.127.254\"",
    "From_IPAddr=\"10.2.0.1\" To_IPAddr=\"10.2.127.254\"",
];
