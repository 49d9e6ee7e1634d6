//! Reloads that may shut out ssh: the question on a terminal, and the filter of before that comes back.

use libtest_mimic::Trial;
use serde_json::Value;
use std::fs::{self, File};
use std::process::Command;
use testkit::gateway::Gateway;
use testkit::{FILTERED, Need, policies, test, until};

pub fn trials() -> Vec<Trial> {
    const ASKED: &[Need] = &[Need::All(FILTERED), Need::Program("script")];
    vec![
        test("a reload that may shut out ssh asks on a terminal", ASKED, question),
        test("a filter of a reload is undone unless it is confirmed", FILTERED, undone),
    ]
}

/// Drops every TCP packet, with the default and with a rule.
const SHUT: &str = "[filter]\nipv4 = \"deny\"\n\
                    [[filter.rule]]\naction = \"discard\"\nprotocol = \"tcp\"\n";

/// A gateway that runs without a filter, and whose configuration has one since.
fn shut() -> Gateway {
    let mut gateway = Gateway::new("left", policies::SITE[0], "", "");
    gateway.start();
    gateway.configure(SHUT);
    gateway
}

/// The default for IPv4, and the number of rules.
fn filter(gateway: &Gateway) -> (String, usize) {
    let filter = gateway.json(&["filter", "--json"]);
    let rules = filter["rules"].as_array().map_or(0, Vec::len);
    (filter["ipv4"].as_str().unwrap_or_default().to_owned(), rules)
}

fn open() -> (String, usize) {
    ("permit".to_owned(), 0)
}

fn closed() -> (String, usize) {
    ("deny".to_owned(), 1)
}

/// Reloads on a terminal, and types something. Returns `true` if the command succeeds, and the terminal's text.
fn typed(gateway: &Gateway, text: &str) -> (bool, String) {
    let (keyboard, socket) = (gateway.path("keyboard"), gateway.path("control.sock"));
    fs::write(&keyboard, text).expect("writable");
    let line = format!("{} --control {} reload", testkit::vpnctl(), socket.display());
    let output = Command::new("script")
        .args(["-q", "-e", "-c", &line, "/dev/null"])
        .stdin(File::open(&keyboard).expect("it was written"))
        .output()
        .expect("script is there");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn question() {
    let gateway = shut();
    let (succeeds, text) = typed(&gateway, "n\n");
    assert!(text.contains("may drop ssh to this host") && text.contains("--for 60s"), "{text}");
    assert!(text.contains("nothing was changed") && !succeeds, "{text}");
    assert_eq!(filter(&gateway), open());
    let (succeeds, text) = typed(&gateway, "y\n");
    assert!(text.contains("policy reloaded") && succeeds, "{text}");
    assert_eq!(filter(&gateway), closed());
    let (_, text) = typed(&gateway, "");
    assert!(text.contains("policy reloaded") && !text.contains("may drop ssh"), "{text}");
}

fn undone() {
    let gateway = shut();
    let dry = gateway.ctl(&["reload", "--dry-run"]);
    assert!(String::from_utf8_lossy(&dry.stderr).contains("may drop ssh"), "{dry:?}");
    let told = gateway.ctl(&["reload", "--for", "1s"]);
    let error = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(error.contains("comes back in 1s unless"), "{error}");
    let is_open = || (filter(&gateway) == open()).then_some(());
    gateway.await_log(&["WARN", "was not confirmed and is undone"]);
    until("the filter of before", is_open, || gateway.log());

    gateway.ctl_ok(&["reload", "--for", "1h"]);
    assert_eq!(filter(&gateway), closed());
    let left = |filter: Value| filter["undo_in_seconds"].as_u64();
    assert!(left(gateway.json(&["filter", "--json"])).is_some_and(|left| left > 3000));
    assert_eq!(left(gateway.json(&["filter", "--confirm", "--json"])), None);
    assert_eq!(filter(&gateway), closed());
}
