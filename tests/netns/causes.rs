//! The reason that keeps a tunnel down on a real host is named at once, and waiting for a tunnel can be left.

use crate::planted::{Planted, plants, unanswered};
use crate::site::{two, two_with};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use scenes::networks;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use testkit::gateway::{GIVES_UP, Gateway, PATIENT};
use testkit::policies::{changed, site};
use testkit::space::Space;
use testkit::{FILTERED, GATEWAYS, Need, test, until};

const LOCAL: &str = "this host does not have 192.0.2.1";
const ROUTE: &str = "this host has no route to 192.0.2.2";

pub fn trials() -> Vec<Trial> {
    vec![
        plants("a missing local address", GATEWAYS, missing_address),
        plants("a missing route", GATEWAYS, missing_route),
        plants("dropped messages are not told from a dead host", FILTERED, dropped),
        plants("a wrong preshared key on both ends", GATEWAYS, wrong_key),
        plants("a peer that stops", GATEWAYS, peer_stops),
        plants("a peer that is killed", GATEWAYS, peer_is_killed),
        plants("a peer that vanishes", FILTERED, peer_vanishes),
        test("a peer that is silent is told by every command", FILTERED, peer_is_silent),
        test("a peer that is killed, over IPv6", GATEWAYS, peer_is_killed_over_ipv6),
        test("waiting for a tunnel can be left", GATEWAYS, waiting),
        test("Ctrl-C leaves the negotiation to vpnd", &[Need::All(GATEWAYS)], interrupted),
    ]
}

/// A gateway that gives up only after minutes: an attempt of it that fails at once has not waited for answers.
fn patient(starts: bool) -> [Gateway; 2] {
    let [here, there] = site();
    let here = match starts {
        true => changed(&here, "IPSec_Flags_AutoStart=\"No\"", "IPSec_Flags_AutoStart=\"Yes\""),
        false => here,
    };
    Gateway::pair(&[here, there], [1, 2], PATIENT)
}

/// Checks that `activate`, the log, `why` and `status` say it, and that the tunnel comes up once `mend` has mended it.
fn is_named(planted: &Planted, lack: [&str; 4], spoil: &str, mend: &[&str]) {
    let [fault, kind, words, cure] = lack;
    for starts in [false, true] {
        let [mut left, mut right] = patient(starts);
        right.start();
        planted.now();
        left.space.ip(spoil);
        left.start();
        let told = match starts {
            false => {
                left.await_log(&["WARN", "tunnel site cannot come up", words]);
                left.ctl_fails(&["activate"], 1)
            }
            true => left.await_log(&["WARN", "site: failed", words]),
        };
        assert!(told.contains(words), "{told}");
        let failed = || {
            let why = left.json(&["why", "site", "--json"]);
            (why["failures"][0]["kind"] == kind).then_some(why)
        };
        let why = until("the failure", failed, || left.ctl_ok(&["why", "site"]));
        let message = why["failures"][0]["message"].as_str().expect("a text");
        assert!(message.contains(words), "{why}");
        assert!(why["failures"][0]["cure"].to_string().contains(cure), "{why}");
        planted.is_named(fault, &left, &["why", "site"]);
        let status = left.ctl_ok(&["status"]);
        assert!(
            status.contains("tunnel site cannot come up") && status.contains(words),
            "{status}"
        );
        for command in mend {
            left.space.ip(command);
        }
        if !starts {
            assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
        }
        left.await_list(&["site_lan"]);
        assert!(!left.ctl_ok(&["status"]).contains("cannot come up"), "it is mended");
    }
}

fn missing_address(planted: &Planted) {
    let cure = "ip address add 192.0.2.1/PREFIX dev";
    is_named(
        planted,
        ["this host lacks the local address", "no_local_address", LOCAL, cure],
        "address del 192.0.2.1/24 dev wire",
        &["address add 192.0.2.1/24 dev wire"],
    );
}

fn missing_route(planted: &Planted) {
    is_named(
        planted,
        ["this host has no route to the peer", "no_route", ROUTE, "ip route get 192.0.2.2"],
        "route del 192.0.2.0/24 dev wire",
        &["route add 192.0.2.0/24 dev wire src 192.0.2.1"],
    );
}

fn dropped(planted: &Planted) {
    let [mut left, mut right] = Gateway::pair(&site(), [1, 2], GIVES_UP);
    right.start();
    right.space.sh("nft add table inet wall");
    right.space.sh("nft add chain inet wall in { type filter hook input priority 0 ; }");
    planted.now();
    right.space.sh("nft add rule inet wall in udp dport 500 drop");
    left.start();
    left.ctl_ok(&["activate", "--no-wait"]);
    unanswered(&left, "IKE_SA_INIT was sent");
    planted.is_named("UDP 500 is dropped on the way", &left, &["why", "site"]);
    let told = left.ctl_fails(&["activate"], 1);
    assert!(told.contains("no answer") && !told.contains("answers:"), "{told}");
    let why = left.ctl_ok(&["why", "site"]);
    assert!(why.contains("let UDP 500, UDP 4500"), "{why}");
    // A packet filter that says so is named.
    right.space.sh("nft flush chain inet wall in");
    planted.now();
    right
        .space
        .sh("nft add rule inet wall in udp dport 500 reject with icmpx type admin-prohibited");
    left.ctl_ok(&["activate", "--no-wait"]);
    unanswered(&left, "forbids UDP 500");
    planted.is_named("a packet filter on the way refuses UDP 500", &left, &["why", "site"]);
    let told = left.ctl_fails(&["activate"], 1);
    assert!(told.contains("192.0.2.2 reports that a packet filter forbids UDP 500"), "{told}");
}

fn wrong_key(planted: &Planted) {
    for spoiled in 0..2 {
        let mut policies = site();
        policies[spoiled] = changed(&policies[spoiled], "replace-this-key", "another-key");
        let [mut left, mut right] = Gateway::pair(&policies, [1, 2], GIVES_UP);
        left.start();
        right.start();
        planted.now();
        left.ctl_fails(&["activate"], 1);
        let line =
            |text: &str| 1 + text.lines().position(|l| l.contains("<IKEPresharedKey")).expect("");
        let begins = "the preshared keys differ, on the side that begins";
        let sides = [
            (&left, "failures", "192.0.2.2", &policies[0], begins),
            (&right, "turned_away", "192.0.2.1", &policies[1], "the same, on the other side"),
        ];
        for (gateway, list, peer, policy, fault) in sides {
            let why = gateway.json(&["why", "site", "--json"]);
            let cure = why[list][0]["cure"][0].as_str().expect("a text");
            let (key, place) = (format!("{peer:?} ("), format!("policy.xml:{})", line(policy)));
            assert!(cure.contains(&key) && cure.contains(&place), "{why}");
            planted.is_named(fault, gateway, &["why", "site"]);
        }
    }
}

fn peer_stops(planted: &Planted) {
    let [mut left, mut right] = two();
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    let up = left.ctl_ok(&["why", "site"]);
    assert!(
        up.contains("established for") && up.contains(", since ") && up.contains(" UTC"),
        "{up}"
    );
    planted.now();
    right.stop();
    let down = || {
        let why = left.json(&["why", "site", "--json"]);
        (why["down"]["reason"] == "deleted by the peer").then_some(why)
    };
    let why = until("the end", down, || left.ctl_ok(&["why", "site"]));
    assert!(why["up_seconds"].is_null(), "{why}");
    let said = left.ctl_ok(&["why", "site"]);
    assert!(said.contains("down since ") && said.contains("deleted by the peer"), "{said}");
    assert!(!said.contains("down for"), "{said}");
    planted.is_named("the peer's daemon is stopped", &left, &["why", "site"]);
    right.start();
    left.ctl_ok(&["activate"]);
    left.ctl_ok(&["deactivate", "site"]);
    let said = left.ctl_ok(&["why", "site"]);
    assert!(said.contains("taken down with vpnctl deactivate"), "{said}");
}

/// Lines of `[ike]` with which an unanswered liveness check is soon sent again.
const WATCHFUL: &str = "liveness_interval = \"1s\"\n";

fn peer_is_killed(planted: &Planted) {
    let [mut left, mut right] = two_with(planted.timers(WATCHFUL));
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    assert!(left.json(&["why", "site", "--json"])["unanswered"].is_null());
    planted.now();
    right.crash();
    // The tunnel counts as up until the peer is given up.
    unanswered(&left, "nothing listens on UDP 4500");
    planted.is_named("the peer's daemon is killed", &left, &["why", "site"]);
    let why = left.ctl_ok(&["why"]);
    assert!(why.contains("start the IKE daemon on 192.0.2.2"), "{why}");
    right.start();
}

/// The tunnel counts as up, and its packets are lost: each command tells the silence, and no firewall is blamed.
fn peer_is_silent() {
    let [mut left, mut right] = two_with("liveness_interval = \"1s\"\nretransmissions = 12\n");
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    left.space.echoes("-I 10.1.0.1", 1, "10.2.0.1").expect("an answer");
    cut(&right);
    unanswered(&left, "INFORMATIONAL was sent");
    for command in [&["list"][..], &["list", "--verbose"], &["status", "site"], &["why", "site"]] {
        let text = left.ctl_ok(command).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(" of 13 times, no answer for "), "{command:?}: {text}");
        assert!(text.contains("; given up at "), "{command:?}: {text}");
    }
    let is_lost = || {
        left.space.try_sh("ping -q -c 1 -W 0.2 -I 10.1.0.1 10.2.0.1");
        let status = left.json(&["status", "site", "--json"]);
        let sa = &status["children"][0]["child_sa"];
        let [inbound, outbound] = ["idle_in_seconds", "idle_out_seconds"].map(|d| sa[d].as_u64());
        (inbound >= outbound.map(|idle| idle + 11)).then_some(())
    };
    until("packets in one direction only", is_lost, || left.ctl_ok(&["status", "site"]));
    let why = left.json(&["why", "site", "--json"]);
    assert!(!why["unanswered"].is_null(), "{why}");
    assert_eq!(why["children"][0]["findings"], serde_json::json!([]), "{why}");
}

fn peer_is_killed_over_ipv6() {
    let [mut left, mut right] = [("left", 0), ("right", 1)]
        .map(|(name, end)| Gateway::new(name, &networks::policy(end, true), WATCHFUL, ""));
    Space::connect(
        (&left.space, "wire", &["2001:db8::1/64"]),
        (&right.space, "wire", &["2001:db8::2/64"]),
    );
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    right.crash();
    unanswered(&left, "2001:db8::2 answers: nothing listens on UDP 4500");
}

/// Nothing reaches the daemon of this gateway any more, and nothing of it arrives.
fn cut(gateway: &Gateway) {
    gateway.space.sh("nft add table inet wall");
    for hook in ["input", "output"] {
        let chain = format!("inet wall {hook}");
        gateway
            .space
            .sh(&format!("nft add chain {chain} {{ type filter hook {hook} priority 0 ; }}"));
        gateway.space.sh(&format!("nft add rule {chain} meta l4proto {{ udp, esp }} drop"));
    }
}

fn peer_vanishes(planted: &Planted) {
    let [mut left, mut right] = two_with(planted.timers(WATCHFUL));
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    planted.now();
    cut(&right);
    unanswered(&left, "INFORMATIONAL was sent");
    planted.is_named("the peer's host is gone", &left, &["why", "site"]);
    right.space.sh("nft delete table inet wall");
    let answered = || left.json(&["why", "site", "--json"])["unanswered"].is_null().then_some(());
    until("an answer", answered, || left.ctl_ok(&["why", "site"]));
}

fn waiting() {
    let [mut left, mut right] = two();
    left.start();
    let told = left.ctl_fails(&["activate", "site", "--timeout", "2"], 4);
    assert!(
        told.contains("vpnd goes on trying\n  to see how far it is: vpnctl why site\n"),
        "{told}"
    );
    assert!(told.contains("site: IKE_SA_INIT sent ") && told.contains(" of 9 times"), "{told}");
    // The progress is kept apart from the result.
    let output = left.ctl(&["activate", "site", "--no-wait"]);
    assert_eq!(output.stdout, b"site: negotiating\n");
    right.start();
    left.await_list(&["site_lan"]);
    assert_eq!(left.ctl_ok(&["activate", "site", "--no-wait"]), "site: up\n");
    assert_eq!(left.ctl_ok(&["deactivate", "site", "--no-wait"]), "site: closing\n");
    left.await_list(&[]);
    let error = left.ctl_fails(&["deactivate", "site", "--no-wait"], 1);
    assert!(error.contains("not up"), "{error}");
}

fn interrupted() {
    let [mut left, mut right] = two();
    left.start();
    let mut waiting = Command::new(testkit::vpnctl())
        .arg("--control")
        .arg(left.path("control.sock"))
        .args(["activate", "site"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("vpnctl is built");
    let mut errors = BufReader::new(waiting.stderr.take().expect("it is piped"));
    let mut first = String::new();
    errors.read_line(&mut first).expect("text");
    assert!(first.starts_with("site: IKE_SA_INIT sent "), "{first}");
    let process = Pid::from_raw(i32::try_from(waiting.id()).expect("a process"));
    kill(process, Signal::SIGINT).expect("ours");
    assert_eq!(waiting.wait().expect("a child of ours").code(), Some(130));
    let mut rest = String::new();
    errors.read_to_string(&mut rest).expect("text");
    assert!(rest.contains("interrupted; vpnd goes on trying\n"), "{rest}");
    assert!(rest.ends_with("\n  to end it: vpnctl deactivate site\n"), "{rest}");
    right.start();
    left.await_list(&["site_lan"]);
}
