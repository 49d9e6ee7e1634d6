//! Facts that the commands tell without being asked: narrowed traffic, tunnels that are never used, and undone changes.

use crate::planted::{Planted, plants};
use crate::site::two;
use libtest_mimic::Trial;
use testkit::{FILTERED, GATEWAYS, PINGED, policies, test, until};

pub fn trials() -> Vec<Trial> {
    vec![
        test("less traffic than asked for is told", GATEWAYS, narrowed),
        plants("a tunnel that is never used is told", PINGED, never_used),
        test("commands without arguments do the likely thing", GATEWAYS, without_arguments),
        test("a deny that nobody confirms is undone", FILTERED, undone),
    ]
}

/// The left policy with all of 10.2.0.0/16 behind the right gateway, which has 10.2.0.0/24.
fn wide() -> String {
    policies::changed(policies::SITE[0], "\"10.2.0.255\"", "\"10.2.255.255\"")
}

fn narrowed() {
    let [mut left, mut right] = two();
    left.write_policy(&wide());
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    left.await_log(&["WARN", "agreed to less", "remote 10.2.0.0/24 (asked 10.2.0.0/16)"]);
    let told = "10.2.0.0/24 (asked 10.2.0.0/16)";
    for line in [&["list"][..], &["list", "--verbose"], &["status", "site"]] {
        let text = left.ctl_ok(line);
        assert!(text.contains(told), "{line:?}: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{line:?}: {text}");
    }
    let status = left.json(&["status", "site", "--json"]);
    assert_eq!(status["children"][0]["narrowed"]["by"], "answer", "{status}");
    assert!(left.ctl_ok(&["why"]).contains("site_lan"), "it is up with a finding");
    // The right gateway has all of its own, and grants less than it was asked for.
    assert!(right.ctl_ok(&["list"]).contains(told), "{}", right.ctl_ok(&["list"]));
    let status = right.json(&["status", "site", "--json"]);
    assert_eq!(status["children"][0]["narrowed"]["by"], "grant", "{status}");

    // A rekey to the same traffic is nothing new.
    left.ctl_ok(&["rekey", "site_lan"]);
    assert_eq!(left.log().matches("agreed to less").count(), 1);
    left.ctl_ok(&["deactivate", "site"]);
    assert_eq!(right.ctl_ok(&["activate"]), "site: up\n");
    left.await_log(&["WARN", "asked for less", "remote 10.2.0.0/24 (policy 10.2.0.0/16)"]);
    assert!(left.ctl_ok(&["list"]).contains("10.2.0.0/24 (policy 10.2.0.0/16)"));
}

/// A side's policy of the sites with a second phase 2 tunnel, `site_host`, behind or before the first, which covers it.
fn with_host(seen_from: usize, first: bool) -> String {
    let (sample, second) = (policies::SITE[seen_from], "IPSec_TunnelName=\"site_host\"");
    let from = sample.find("<IPSecTunnel").expect("one");
    let tunnel = &sample[from..sample.find("</AIX_VPN>").expect("an end")];
    let host = policies::changed(tunnel, "IPSec_TunnelName=\"site_lan\"", second);
    let host = policies::changed(&host, "\"10.2.0.255\"", "\"10.2.0.0\"");
    let both = if first { [&host, tunnel] } else { [tunnel, &host] };
    policies::changed(sample, tunnel, &both.concat())
}

fn never_used(planted: &Planted) {
    let [mut left, mut right] = two();
    let text = with_host(0, false);
    left.write_policy(&text);
    right.write_policy(&with_host(1, false));
    planted.now();
    let line = 1 + text.lines().position(|line| line.contains("\"site_lan\"")).expect("there");
    let told = format!("site_host is never used: covered by site_lan, line {line}");
    let policy = left.path("policy.xml");
    let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_vpnd"));
    check.args(["check", "policy.xml"]).current_dir(policy.parent().expect("a directory"));
    let check = check.output().expect("vpnd is built");
    let warned = String::from_utf8(check.stderr).expect("text");
    assert!(check.status.success() && warned.contains(&told), "{warned}");
    let fault = "an earlier tunnel of the policy covers a later one";
    planted.is_said(fault, "vpnd check policy.xml > /dev/null", &warned);
    left.start();
    left.await_log(&["WARN", &told]);
    let reloaded = left.ctl(&["reload"]);
    let reloaded = String::from_utf8([reloaded.stdout, reloaded.stderr].concat()).expect("text");
    assert!(reloaded.contains(&told), "{reloaded}");
    right.start();
    left.ctl_ok(&["activate"]);
    left.await_list(&["site_host", "site_lan"]);
    planted.is_named("the same, with the tunnel up", &left, &["why", "site_host"]);
    let why = left.json(&["why", "site", "--json"]);
    let shadowed = why["children"].as_array().expect("two").iter().filter(|child| {
        child["findings"].as_array().expect("a list").iter().any(|f| f["kind"] == "shadowed")
    });
    assert_eq!(shadowed.count(), 1, "{why}");
    // The cure: the narrow one first, and a reload.
    left.write_policy(&with_host(0, true));
    let reloaded = left.ctl(&["reload"]);
    let reloaded = String::from_utf8([reloaded.stdout, reloaded.stderr].concat()).expect("text");
    assert!(!reloaded.contains("never used"), "{reloaded}");
    let why = left.json(&["why", "site_host", "--json"]);
    assert_eq!(why["children"][0]["findings"], serde_json::json!([]), "{why}");
    right.space.ip("address add 10.2.0.0/32 dev lo");
    left.space.echoes("-I 10.1.0.1", 1, "10.2.0.0").expect("an answer");
    let status = left.json(&["status", "site_host", "--json"]);
    assert_eq!(status["children"][0]["child_sa"]["packets_out"], 1, "{status}");
}

fn without_arguments() {
    let [mut left, mut right] = two();
    left.start();
    right.start();
    let why = left.ctl_ok(&["why"]);
    assert!(
        why.contains("site  phase 1, down") && why.contains("site_lan  phase 2, down"),
        "{why}"
    );
    assert_eq!(left.json(&["why", "--json"])[0]["name"], "site");
    left.ctl_ok(&["activate"]);
    assert!(left.ctl_ok(&["why"]).starts_with("all tunnels are up (if packets do not pass: "));
    assert_eq!(left.json(&["why", "--json"]), serde_json::json!([]));
    assert!(left.ctl_ok(&["log"]).starts_with("log level: "));
    left.ctl_ok(&["log", "info,ike=debug"]);
    assert!(left.ctl_ok(&["log"]).starts_with("log level: info,ike=debug\n"));
    let trace = left.ctl_ok(&["trace", "icmp", "10.1.0.1", "10.2.0.1"]);
    assert!(trace.contains("site_lan"), "{trace}");
    let typed = left.ctl_ok(&["trace", "icmp", "10.1.0.1", "10.2.0.1", "echo-request"]);
    assert_eq!(trace, typed);
}

fn undone() {
    let [mut left, _] = two();
    left.start();
    // A busy host may have undone it before the answer.
    left.ctl_ok(&["filter", "--ipv4", "deny", "--for", "1s"]);
    left.await_log(&["WARN", "was not confirmed and is undone: IPv4 permit, IPv6 permit"]);
    let is_open = || (left.json(&["filter", "--json"])["ipv4"] == "permit").then_some(());
    until("an open filter", is_open, String::new);

    let told = left.ctl_ok(&["filter", "--ipv4", "deny", "--for", "1h"]);
    assert!(told.contains("vpnctl filter --confirm"), "{told}");
    let filter = left.json(&["filter", "--confirm", "--json"]);
    assert_eq!(filter["ipv4"], "deny", "{filter}");
    assert!(filter["undo_in_seconds"].is_null(), "{filter}");
    left.await_log(&["the change of the filter is confirmed"]);
    // Nobody can be asked here: the command warns and goes on.
    let asked = left.ctl(&["filter", "--ipv6", "deny"]);
    let warned = String::from_utf8(asked.stderr).expect("text");
    assert!(asked.status.success() && warned.contains("ssh"), "{warned}");
    assert!(left.ctl(&["filter", "--ipv6", "deny", "--yes"]).stderr.is_empty());
}
