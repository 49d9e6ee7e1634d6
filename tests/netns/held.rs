//! A held guard without a service manager: the processes that put it back, the last good guard, and the programs that
//! it keeps from being uninstalled.

use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use testkit::gateway::{Gateway, PATIENT};
use testkit::policies::{SITE, changed};
use testkit::{FILTERED, GuardWatch, test, until};

pub fn trials() -> Vec<Trial> {
    vec![
        test("a held guard that others remove is put back", FILTERED, put_back),
        test("a second watch changes nothing", FILTERED, second_watch),
        test("a release ends a watch that puts the guard back", FILTERED, released),
        test("the last good guard is in force if the policy cannot be read", FILTERED, last_good),
        test("nothing is uninstalled while the guard is held", FILTERED, uninstalled),
        test("traffic that the kernel cannot express is refused at load", FILTERED, inexpressible),
    ]
}

const TABLE: &str = "inet vpn_guard_vpn0";

/// Everything that a `vpnd` prints, which ends with this status.
fn ends(gateway: &Gateway, arguments: &[&str], status: i32) -> String {
    let output = gateway.vpnd(arguments);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
    text
}

/// The guard's table as nft lists it; `None`: there is none.
fn table(gateway: &Gateway) -> Option<String> {
    let (there, text) = gateway.space.try_sh(&format!("nft list table {TABLE}"));
    there.then_some(text)
}

/// Waits until the guard's table has a text.
fn await_table(watch: &GuardWatch, gateway: &Gateway, text: &str) {
    let there = || table(gateway).filter(|table| table.contains(text));
    until(&format!("{text:?} in the table"), there, || watch.log());
}

/// The last rule that a whole table has.
const WHOLE: &str = "hook postrouting priority 300";
const PUT_BACK: &str = "it is put back";

fn put_back() {
    let mut left = Gateway::new("left", SITE[0], PATIENT, "");
    let mut watch = GuardWatch::start(&left);
    await_table(&watch, &left, WHOLE);
    let delete = format!("delete table {TABLE}");
    let flush_chain = format!("flush chain {TABLE} before_translation");
    for (place, line) in ["flush ruleset", &delete, &flush_chain].into_iter().enumerate() {
        left.space.sh(&format!("nft {line}"));
        watch.await_log(PUT_BACK, place + 1);
        await_table(&watch, &left, "oifname \"vpn0\" accept");
    }

    // While a daemon runs, it puts back its guard itself.
    left.start();
    let gone = || (!left.space.try_sh("nft list table inet vpn_watch_vpn0").0).then_some(());
    until("the watch leaves it to the daemon", gone, || watch.log());
    let before = watch.count(PUT_BACK);
    let put_back = |left: &Gateway| left.log().matches("put back after others").count();
    left.space.sh("nft flush ruleset");
    until("the daemon to put it back", || (put_back(&left) > 0).then_some(()), || left.log());
    await_table(&watch, &left, WHOLE);
    assert_eq!(watch.count(PUT_BACK), before, "{}", watch.log());
    // One that cannot leaves it to the watch with its end.
    left.signal(Signal::SIGSTOP);
    left.space.sh("nft flush ruleset");
    left.crash();
    watch.await_log(PUT_BACK, before + 1);
    await_table(&watch, &left, WHOLE);

    // The guard that the daemon had put in force last is put back.
    left.start();
    left.write_policy(&changed(SITE[0], "10.2.0.255", "10.2.1.255"));
    left.ctl_ok(&["reload"]);
    left.stop();
    left.write_policy("nonsense");
    left.space.sh("nft flush ruleset");
    await_table(&watch, &left, "255.255.254.0");
    // So is the guard of another call of the command.
    let other = left.path("other.xml").display().to_string();
    fs::write(&other, changed(SITE[0], "10.2.0.255", "10.2.3.255")).expect("writable");
    ends(&left, &["guard", "--policy", &other], 0);
    left.space.sh("nft flush ruleset");
    await_table(&watch, &left, "255.255.252.0");

    // A signal leaves the guard, and a release ends the watch.
    watch.signal(Signal::SIGTERM);
    assert!(watch.wait().success());
    assert!(table(&left).is_some());
    let mut watch = GuardWatch::start(&left);
    let told = ends(&left, &["release"], 0);
    assert!(told.starts_with("released: "), "{told}");
    assert!(watch.wait().success(), "{}", watch.log());
    assert!(table(&left).is_none());
}

fn second_watch() {
    let left = Gateway::new("left", SITE[0], PATIENT, "");
    let mut watch = GuardWatch::start(&left);
    await_table(&watch, &left, WHOLE);
    let before = table(&left);
    let other = left.path("other.xml").display().to_string();
    fs::write(&other, changed(SITE[0], "10.2.0.255", "10.2.3.255")).expect("writable");
    let told = ends(&left, &["guard", "--watch", "--policy", &other], 1);
    assert!(told.contains("another vpnd guard --watch has it"), "{told}");
    assert_eq!(table(&left), before);
    ends(&left, &["release"], 0);
    assert!(watch.wait().success(), "{}", watch.log());
}

fn released() {
    let left = Gateway::new("left", SITE[0], PATIENT, "");
    for _ in 0..10 {
        let mut watch = GuardWatch::start(&left);
        await_table(&watch, &left, WHOLE);
        // It is about to put the guard back when the release comes.
        left.space.sh("nft flush ruleset");
        ends(&left, &["release"], 0);
        assert!(watch.wait().success(), "{}", watch.log());
        assert!(table(&left).is_none(), "{}", watch.log());
    }
}

fn last_good() {
    let mut left = Gateway::new("left", SITE[0], PATIENT, "");
    let policy = left.path("policy.xml").display().to_string();
    let guard = ["guard", "--policy", &*policy];
    let file = left.path("state/guard.vpn0");
    left.configure(
        "[[filter.rule]]\naction = \"bypass\"\nprotocol = \"tcp\"\nlocal_port = 22\nremote = \"10.2.0.9\"\n",
    );
    left.write_policy("nonsense");
    let told = ends(&left, &guard, 78);
    assert!(told.contains("NOTHING IS GUARDED") && told.contains("guard.vpn0"), "{told}");
    assert!(table(&left).is_none());

    left.write_policy(SITE[0]);
    ends(&left, &guard, 0);
    assert_eq!(fs::metadata(&file).expect("it is written").permissions().mode() & 0o777, 0o600);
    ends(&left, &["release"], 0);
    assert!(table(&left).is_none());
    left.write_policy("nonsense");
    let told = ends(&left, &guard, 4);
    assert!(
        told.contains("policy.xml") && told.contains("the last good guard is put in"),
        "{told}"
    );
    let shown = table(&left).expect("it is in force");
    assert!(shown.contains("10.2.0.0") && shown.contains("10.2.0.9"), "{shown}");
    ends(&left, &["release"], 0);

    // A guard that a daemon puts in force is the last one, too: at its start, and by a reload.
    left.write_policy(&changed(SITE[0], "10.2.0.255", "10.2.3.255"));
    left.start();
    let kept = || fs::read_to_string(&file).expect("readable");
    assert!(kept().contains("10.2.0.0-10.2.3.255"), "{}", kept());
    left.write_policy(&changed(SITE[0], "10.2.0.255", "10.2.1.255"));
    left.ctl_ok(&["reload"]);
    assert!(kept().contains("10.2.0.0-10.2.1.255"), "{}", kept());
    let text = fs::read_to_string(left.path("vpnd.toml")).expect("readable");
    fs::write(left.path("vpnd.toml"), text.replace("10.2.0.9", "10.2.0.8")).expect("writable");
    left.ctl_ok(&["reload"]);
    assert!(kept().contains("10.2.0.8-10.2.0.8"), "{}", kept());
    // A refused reload changes nothing.
    left.write_policy("nonsense");
    left.ctl_fails(&["reload"], 1);
    assert!(kept().contains("10.2.0.0-10.2.1.255"), "{}", kept());
    left.stop();
    assert!(table(&left).is_none());
    ends(&left, &guard, 4);
    let shown = table(&left).expect("it is in force");
    assert!(shown.contains("255.255.254.0") && shown.contains("10.2.0.8"), "{shown}");

    // A part of a file is none.
    ends(&left, &["release"], 0);
    let part = kept();
    fs::write(&file, &part[..part.len() - 5]).expect("writable");
    let told = ends(&left, &guard, 78);
    assert!(told.contains("NOTHING IS GUARDED"), "{told}");
    assert!(table(&left).is_none());
}

fn inexpressible() {
    let wide = changed(SITE[0], "10.1.0.255", "10.1.255.254").replace("10.2.0.255", "10.2.255.254");
    let wide = changed(&wide.replace("10.2.0.0", "10.2.0.1"), "10.1.0.0", "10.1.0.1");
    let mut left = Gateway::new("left", &wide, PATIENT, "dataplane = \"xfrm\"\n");
    let file = left.path("policy.xml").display().to_string();
    let line = wide.lines().position(|line| line.contains("<IPSecTunnel ")).expect("it is there");
    let place = format!("{file}:{}: error: phase 2 tunnel site_lan: ", line + 1);
    let told = ends(&left, &["check", &file], 1);
    assert!(told.contains(&place) && told.contains("dataplane = \"auto\""), "{told}");
    assert!(!left.try_start());
    assert!(left.log().contains(&place), "{}", left.log());
    assert!(table(&left).is_none(), "it has not begun");
}

fn uninstalled() {
    let left = Gateway::new("left", SITE[0], PATIENT, "");
    let policy = left.path("policy.xml").display().to_string();
    let uninstall = ["uninstall", "--prefix", "/nonexistent"];
    ends(&left, &["guard", "--policy", &policy], 0);
    let told = ends(&left, &uninstall, 1);
    assert!(told.contains("nothing is removed") && told.contains("vpnd release"), "{told}");
    ends(&left, &["release"], 0);
    let told = ends(&left, &uninstall, 1);
    assert!(told.contains("/nonexistent/share/vpnd/installed does not exist"), "{told}");
}
