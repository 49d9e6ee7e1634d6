//! What keeps a tunnel down on a real host is named at once, and waiting for a tunnel can be left.

use crate::harness::gateway::{GIVES_UP, Gateway, PATIENT};
use crate::harness::policies::{changed, site};
use crate::harness::{FILTERED, GATEWAYS, Need, test, until};
use crate::site::two;
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

const LOCAL: &str = "this host does not have 192.0.2.1";
const ROUTE: &str = "this host has no route to 192.0.2.2";

pub fn trials() -> Vec<Trial> {
    vec![
        test("a missing local address", GATEWAYS, missing_address),
        test("a missing route", GATEWAYS, missing_route),
        test("dropped messages are not told from a dead host", FILTERED, dropped),
        test("a wrong preshared key on both ends", GATEWAYS, wrong_key),
        test("a peer that stops", GATEWAYS, peer_stops),
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
fn is_named(lack: (&str, &str, &str), spoil: &str, mend: &[&str]) {
    let (kind, words, cure) = lack;
    for starts in [false, true] {
        let [mut left, mut right] = patient(starts);
        right.start();
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

fn missing_address() {
    is_named(
        ("no_local_address", LOCAL, "ip address add 192.0.2.1/PREFIX dev"),
        "address del 192.0.2.1/24 dev wire",
        &["address add 192.0.2.1/24 dev wire"],
    );
}

fn missing_route() {
    is_named(
        ("no_route", ROUTE, "ip route get 192.0.2.2"),
        "route del 192.0.2.0/24 dev wire",
        &["route add 192.0.2.0/24 dev wire src 192.0.2.1"],
    );
}

fn dropped() {
    let [mut left, mut right] = Gateway::pair(&site(), [1, 2], GIVES_UP);
    right.start();
    right.space.sh("nft add table inet wall");
    right.space.sh("nft add chain inet wall in { type filter hook input priority 0 ; }");
    right.space.sh("nft add rule inet wall in udp dport 500 drop");
    left.start();
    let told = left.ctl_fails(&["activate"], 1);
    assert!(told.contains("no answer") && !told.contains("answers:"), "{told}");
    let why = left.ctl_ok(&["why", "site"]);
    assert!(why.contains("let UDP 500, UDP 4500"), "{why}");
    // A packet filter that says so is named.
    right.space.sh("nft flush chain inet wall in");
    right
        .space
        .sh("nft add rule inet wall in udp dport 500 reject with icmpx type admin-prohibited");
    let told = left.ctl_fails(&["activate"], 1);
    assert!(told.contains("192.0.2.2 reports that a packet filter forbids UDP 500"), "{told}");
}

fn wrong_key() {
    let [mut left, mut right] = Gateway::pair(&site(), [1, 2], GIVES_UP);
    let other = changed(&site()[1], "replace-this-key", "another-key");
    right.write_policy(&other);
    left.start();
    right.start();
    left.ctl_fails(&["activate"], 1);
    let line =
        |text: &str| 1 + text.lines().position(|l| l.contains("<IKEPresharedKey")).expect("");
    let sides = [
        (&left, "failures", "192.0.2.2", line(&site()[0])),
        (&right, "turned_away", "192.0.2.1", line(&other)),
    ];
    for (gateway, list, peer, line) in sides {
        let why = gateway.json(&["why", "site", "--json"]);
        let cure = why[list][0]["cure"][0].as_str().expect("a text");
        let place = format!("IKEPresharedKey \"{peer}\" (");
        assert!(cure.contains(&place) && cure.contains(&format!("policy.xml:{line})")), "{why}");
    }
}

fn peer_stops() {
    let [mut left, mut right] = two();
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    let up = left.ctl_ok(&["why", "site"]);
    assert!(
        up.contains("established for") && up.contains(", since ") && up.contains(" UTC"),
        "{up}"
    );
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
    right.start();
    left.ctl_ok(&["activate"]);
    left.ctl_ok(&["deactivate", "site"]);
    let said = left.ctl_ok(&["why", "site"]);
    assert!(said.contains("taken down with vpnctl deactivate"), "{said}");
}

fn waiting() {
    let [mut left, mut right] = two();
    left.start();
    let told = left.ctl_fails(&["activate", "site", "--timeout", "2"], 4);
    assert!(told.contains("vpnd goes on trying (vpnctl why site"), "{told}");
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
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_vpnctl"))
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
    assert!(rest.contains("interrupted; vpnd goes on trying (vpnctl why site"), "{rest}");
    right.start();
    left.await_list(&["site_lan"]);
}
