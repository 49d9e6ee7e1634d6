//! The example that Linux' documentation of offload has: two SAs keyed by hand, TCP, `rfc4106(gcm(aes))`, a window of
//! 32, a card of either side that does the cryptography.

use crate::card;
use crate::guest::{Group, Kernel, scenario};
use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use testkit::Need;
use testkit::gateway::Gateway;
use testkit::policies;
use testkit::space::Space;
use testkit::traffic::Stream;
use testkit::until;

pub fn group() -> Group {
    Group {
        name: "example",
        kernel: Kernel::Built,
        scenarios: vec![
            scenario("printed commands make the same state elsewhere", NEEDS, printed),
            scenario("TCP flows by SAs of which a card has one", NEEDS, flows),
            scenario("TCP flows both ways by SAs that cards have", NEEDS, flows_both_ways),
            scenario("the commands of the document carry TCP both ways", NEEDS, typed),
            scenario("the remains of a crash are known among others' SAs", NEEDS, crash),
            scenario("SAs keyed by hand come and go while vpnd runs", NEEDS, at_run_time),
        ],
    }
}

const NEEDS: &[Need] = &[Need::Program("ip")];
const ENDS: [&str; 2] = ["14.0.0.52", "14.0.0.70"];
const KEY: &str = "0x44434241343332312423222114131211f4f3f2f1";

/// Both hosts of the example with their cards, and the cards' offload of the SA that receives; no daemon runs yet.
fn hosts(inbound: &str) -> [Gateway; 2] {
    let sites = policies::site();
    let hosts = [("left", 0), ("right", 1)].map(|(name, end)| {
        let host = Gateway::new(name, &sites[end], "", "dataplane = \"xfrm\"\n");
        configure(&host, end, inbound);
        host
    });
    card::connect((&hosts[0].space, &["14.0.0.52/24"]), (&hosts[1].space, &["14.0.0.70/24"]));
    hosts
}

/// The SAs of the example, whose key is the same in both directions.
fn configure(host: &Gateway, end: usize, inbound: &str) {
    let file = host.path("vpnd.toml");
    let mut text = fs::read_to_string(&file).expect("ours");
    text.push_str(&format!("sequences = {:?}\n", host.path("sequences")));
    for (direction, from, offload) in [("out", end, "crypto"), ("in", 1 - end, inbound)] {
        text.push_str(&format!(
            "[[sa]]\nname = \"eth4\"\ndirection = \"{direction}\"\nsource = \"{}\"\ndestination = \"{}\"\nspi = 0x07\n\
             reqid = 7\nmode = \"transport\"\nreplay_window = 32\naead = \"rfc4106(gcm(aes))\"\nkey = \"{KEY}\"\n\
             insecure_shared_key = true\noffload = \"{offload}\"\noffload_device = \"wire\"\n\
             selector = {{ source = \"14.0.0.0/24\", destination = \"14.0.0.0/24\", protocol = \"tcp\" }}\n",
            ENDS[from],
            ENDS[1 - from]
        ));
    }
    fs::write(&file, text).expect("writable");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
}

fn start_telling_keys(host: &mut Gateway) {
    let mut command = host.command();
    command.arg("--insecure-export-keys").arg(host.path("keys"));
    host.start_as(command);
}

fn printed() {
    let [mut left, right] = hosts("crypto");
    start_telling_keys(&mut left);
    let offload = left.ctl_ok(&["offload"]);
    assert!(offload.contains("wire"), "{offload}");
    let typed = left.ctl_ok(&["xfrm", "--keys"]);
    for words in ["spi 0x00000007 reqid 7 mode transport replay-window 32", KEY] {
        let in_states = typed.lines().filter(|line| line.contains(words)).count();
        assert!(in_states >= 1, "{words}: {typed}");
    }
    for direction in ["in", "out"] {
        let words = format!("offload dev wire dir {direction}");
        assert_eq!(typed.matches(&words).count(), 1, "{typed}");
    }
    for line in typed.lines() {
        // As a shell would, which takes the quotes away.
        right.space.sh(&line.replace('\'', ""));
    }
    // Octet for octet, in the same order. Sockets have policies of their own.
    for what in ["state", "policy list nosock"] {
        let [here, there] = [&left, &right].map(|host| host.space.ip(&format!("xfrm {what}")));
        assert_eq!(here, there, "{what}");
        assert!(here.contains("reqid 7 "), "{here}");
    }
    // The rest of what there is to know, but for when it was made and as which one.
    for what in ["state", "policy list nosock"] {
        let [here, there] =
            [&left, &right].map(|host| timeless(&host.space.ip(&format!("-s -d xfrm {what}"))));
        assert_eq!(here, there, "{what}");
        assert!(here.contains("soft "), "{here}");
    }
    left.stop();
    assert_eq!(left.space.ip("xfrm state"), "");
    assert_eq!(left.space.ip("xfrm policy list nosock"), "");
}

/// The kernel has the SA that receives.
fn flows() {
    let mut hosts = hosts("off");
    hosts.iter_mut().for_each(Gateway::start);
    let [left, right] = &hosts;
    let ends = ENDS.map(|end| end.parse::<IpAddr>().expect("an address"));
    let stream = Stream::start((&left.space.0, ends[0]), (&right.space.0, ends[1]), 0);
    let stream = stream.expect("a connection");
    let enough = || (stream.received() > 300_000).then_some(());
    until("the stream flows", enough, || left.space.ip("-s xfrm state"));
    stream.finish().expect("every octet is right");
    let counters = card::counters();
    assert_eq!(counters.matches("dir=out type=crypto").count(), 2, "{counters}");
    assert!(!counters.contains("dir=in") && !counters.contains(" pkts=0 "), "{counters}");
    hosts.iter_mut().for_each(Gateway::stop);
}

/// Each end sends to the other at the same time, and nothing is lost.
fn streams_both_ways(spaces: [&Space; 2]) {
    let ends = ENDS.map(|end| end.parse::<IpAddr>().expect("an address"));
    // A device that is up before the other has nobody to send to.
    let before = spaces.map(dropped);
    let [left, right] = [(&spaces[0].0, ends[0]), (&spaces[1].0, ends[1])];
    let streams = [(left, right), (right, left)]
        .map(|(from, to)| Stream::start(from, to, 0).expect("a connection"));
    let enough = || streams.iter().all(|stream| stream.received() > 300_000).then_some(());
    until("the streams flow", enough, || spaces[0].ip("-s xfrm state"));
    for stream in streams {
        stream.finish().expect("every octet is right");
    }
    for space in spaces {
        let counts = space.run(|| fs::read_to_string("/proc/thread-self/net/xfrm_stat"));
        let counts = counts.expect("the kernel has XFRM");
        let lost: Vec<&str> = counts.lines().filter(|line| !line.ends_with("\t0")).collect();
        assert_eq!(lost, [""; 0]);
    }
    assert_eq!(spaces.map(dropped), before);
    let counters = card::counters();
    for direction in ["in", "out"] {
        assert_eq!(counters.matches(&format!("dir={direction} ")).count(), 2, "{counters}");
    }
    let idle = counters.contains(" pkts=0 ");
    assert!(!idle && !counters.contains("type=packet"), "{counters}");
    let faults = counters.lines().filter(|line| line.starts_with("sa "));
    for line in faults {
        assert!(line.contains(" bad=0 replay=0 "), "{line}");
    }
}

/// The packets that the card's device of a host has dropped, and its faults, in both directions.
fn dropped(space: &Space) -> Vec<u64> {
    let link = space.ip("-s -j link show wire");
    let link: serde_json::Value = serde_json::from_str(&link).expect("JSON");
    let counts = ["rx", "tx"].map(|way| &link[0]["stats64"][way]);
    let counts = counts.iter().flat_map(|way| [&way["dropped"], &way["errors"]]);
    counts.map(|count| count.as_u64().expect("a number")).collect()
}

fn flows_both_ways() {
    let mut hosts = hosts("crypto");
    hosts.iter_mut().for_each(Gateway::start);
    streams_both_ways(hosts.each_ref().map(|host| &host.space));
    hosts.iter_mut().for_each(Gateway::stop);
}

/// The two pairs of commands, of policies and of states, as an administrator types them at each end.
fn typed() {
    let spaces = ["left", "right"].map(Space::new);
    card::connect((&spaces[0], &["14.0.0.52/24"]), (&spaces[1], &["14.0.0.70/24"]));
    for (space, [here, there]) in spaces.iter().zip([ENDS, [ENDS[1], ENDS[0]]]) {
        for (direction, from, to) in [("out", here, there), ("in", there, here)] {
            space.sh(&format!(
                "ip xfrm policy add dir {direction} src {from}/24 dst {to}/24 proto tcp tmpl src {from} dst {to} proto esp \
                 spi 0x07 mode transport reqid 0x07"
            ));
        }
        for (direction, from, to) in [("out", here, there), ("in", there, here)] {
            space.sh(&format!(
                "ip xfrm state add proto esp src {from} dst {to} spi 0x07 mode transport reqid 0x07 replay-window 32 aead \
                 rfc4106(gcm(aes)) {KEY} 128 sel src {from}/24 dst {to}/24 proto tcp offload dev wire dir {direction}"
            ));
        }
    }
    streams_both_ways(spaces.each_ref());
}

/// Without the lines that tell when, and the numbers that the kernel counts policies by.
fn timeless(text: &str) -> String {
    let times = |line: &&str| !line.trim_start().starts_with("add ");
    let words = |line: &str| match line.split_once(" index ") {
        Some((before, after)) => {
            format!("{before}{}\n", after.trim_start_matches(char::is_numeric))
        }
        None => format!("{line}\n"),
    };
    text.lines().filter(times).map(words).collect()
}

fn crash() {
    let [mut left, right] = hosts("crypto");
    left.start();
    let ours = left.space.ip("xfrm state");
    let [other_state, other_policy] = [
        format!(
            "src 14.0.0.52 dst 14.0.0.70 proto esp spi 0x08 reqid 7 mode transport aead rfc4106(gcm(aes)) {KEY} 128"
        ),
        "src 14.0.0.52 dst 14.0.0.70 proto udp dir out tmpl src 14.0.0.52 dst 14.0.0.70 proto esp reqid 7 mode transport"
            .to_owned(),
    ];
    left.space.ip(&format!("xfrm state add {other_state}"));
    left.space.ip(&format!("xfrm policy add {other_policy}"));
    left.crash();
    assert_eq!(left.space.ip("xfrm state").matches("reqid 7 ").count(), 3);
    left.start();
    let found = left.space.ip("xfrm state");
    assert_eq!(found.matches("reqid 7 ").count(), 3, "{found}");
    assert_eq!(found.matches("spi 0x00000008 ").count(), 1, "{found}");
    // Its numbers go on, so that it is another.
    assert!(found.contains("oseq 0x1000000") && !ours.contains("oseq 0x1000000"), "{found}");
    assert!(!left.ctl_ok(&["xfrm"]).contains("0x00000008"));
    left.stop();
    let left_over = left.space.ip("xfrm state");
    assert_eq!(left_over.matches("reqid ").count(), 1, "{left_over}");
    assert!(left_over.contains("spi 0x00000008 "), "{left_over}");
    let policies = left.space.ip("xfrm policy list nosock");
    assert_eq!(policies.matches("dir ").count(), 1, "{policies}");
    drop(right);
}

/// The policies for the traffic of the example.
fn policies_of(host: &Gateway) -> String {
    let policies = host.space.ip("-o xfrm policy list nosock");
    policies.lines().filter(|line| line.contains("14.0.0.0/24")).collect::<Vec<_>>().join("\n")
}

/// The kernel has SAs and policies of a name from its addition to its removal, and no number twice.
fn at_run_time() {
    let mut hosts = hosts("off");
    let files = hosts.each_ref().map(|host| {
        let (whole, file) = (host.path("vpnd.toml"), host.path("sas.toml"));
        let text = fs::read_to_string(&whole).expect("ours");
        let (general, sas) = text.split_once("[[sa]]").expect("they come last");
        fs::write(&whole, general).expect("writable");
        fs::write(&file, format!("[[sa]]{sas}")).expect("writable");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
        file.to_str().expect("UTF-8").to_owned()
    });
    hosts.iter_mut().for_each(Gateway::start);
    let watches = hosts.each_ref().map(|host| host.space.watch_leaving("wire"));
    let ends = ENDS.map(|end| end.parse::<IpAddr>().expect("an address"));
    let mut sequences = Vec::new();
    for _ in 0..2 {
        for (host, file) in hosts.iter().zip(&files) {
            host.ctl_ok(&["sa", "add", file]);
        }
        let [left, right] = &hosts;
        let placed = left.ctl_ok(&["offload", "--sas"]);
        assert!(placed.contains("crypto"), "the offload of the table counts: {placed}");
        let stream = Stream::start((&left.space.0, ends[0]), (&right.space.0, ends[1]), 0);
        let stream = stream.expect("a connection");
        let enough = || (stream.received() > 30_000).then_some(());
        until("the stream flows", enough, || left.space.ip("-s xfrm state"));
        stream.finish().expect("every octet is right");
        let sas = left.json(&["sa", "list", "--json"]);
        let out = sas["sas"].as_array().expect("a list").iter().find(|sa| sa["direction"] == "out");
        sequences.push(out.and_then(|sa| sa["sequence"].as_u64()).expect("it sends"));
        for host in &hosts {
            host.ctl_ok(&["sa", "remove", "eth4", "--keep-blocked"]);
            assert_eq!(host.space.ip("xfrm state"), "");
            assert!(policies_of(host).contains("action block"), "{}", policies_of(host));
        }
    }
    assert!(sequences[1] > sequences[0], "{sequences:?}");
    for host in &mut hosts {
        let watched = host.ctl_ok(&["sa", "remove", "eth4"]);
        assert!(watched.contains("no SA was left; its traffic is neither"), "{watched}");
        assert_eq!(policies_of(host), "");
        host.stop();
    }
    watches.into_iter().for_each(|watch| _ = watch.nothing_in_the_clear());
}
