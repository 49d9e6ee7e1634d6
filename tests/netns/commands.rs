//! `vpnctl` and `vpnd check`, as people and programs rely on them.

use crate::site::two;
use crate::wireshark::{keys_of, start_exporting};
use libtest_mimic::Trial;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{Permissions, copy, create_dir_all, read_to_string, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use testkit::gateway::Gateway;
use testkit::policies::changed;
use testkit::{GATEWAYS, Need, policies, shows, test};

pub fn trials() -> Vec<Trial> {
    vec![
        test("vpnctl from an empty list to a stopped daemon", GATEWAYS, vpnctl),
        test("the control socket refuses another user", ANOTHER, another_user),
        test("no log shows a key", GATEWAYS, no_key),
        test("no log shows a PPK", GATEWAYS, no_ppk),
        test("JSON has the fields that the document says", GATEWAYS, fields_are_documented),
        test("vpnd check tells good from bad", &[], vpnd_check),
    ]
}

fn vpnctl() {
    let [mut left, mut right] = two();
    left.start();
    right.start();
    let empty = left.ctl(&["list"]);
    assert_eq!(empty.stdout, b"PHASE  NUMBER  TUNNEL  STATE  LOCAL  REMOTE  UP  REKEY  IN  OUT\n");
    let hint = String::from_utf8(empty.stderr).expect("text");
    assert!(hint.contains("No tunnel is up.") && hint.contains("vpnctl activate"), "{hint}");
    assert_eq!(left.ctl_ok(&["list", "--json"]), "[]\n");
    let mode = |path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(left.path("control.sock")), 0o600);

    for command in ["activate", "deactivate", "status", "rekey"] {
        let error = left.ctl_fails(&[command, "sitee"], 1);
        assert!(
            error.contains("no tunnel \"sitee\" in the policy; did you mean \"site\"?"),
            "{error}"
        );
    }
    let error = left.ctl_fails(&["rekey", "site"], 1);
    assert!(error.contains("site") && error.contains("not up"), "{error}");

    assert!(!left.log().contains("\"level\":\"DEBUG\""));
    assert_eq!(left.ctl_ok(&["log", "debug"]), "log level: debug\n");
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    left.await_log(&["\"level\":\"DEBUG\"", "sending IKE_SA_INIT request 0 with SA, KE"]);
    left.await_log(&["\"level\":\"DEBUG\"", "received IKE_AUTH response 1 with IDR, AUTH"]);
    let error = left.ctl_fails(&["log", "loud"], 1);
    assert!(error.contains("loud") && error.contains("debug"), "{error}");

    let list = left.ctl_ok(&["list"]);
    for line in [
        "1      1       site      established  192.0.2.1    192.0.2.2    ",
        "2      1       site_lan  established  10.1.0.0/24  10.2.0.0/24  ",
    ] {
        assert!(list.contains(line), "{list}");
    }
    let verbose = left.ctl_ok(&["list", "--verbose"]);
    assert!(verbose.contains("\n  Security Policy      site_p1\n"), "{verbose}");
    assert!(verbose.contains("\n  Encap Mode           ESP_tunnel in UDP\n"), "{verbose}");
    let counters = left.ctl_ok(&["counters"]);
    assert!(!counters.is_empty());

    let mut second = left.command();
    second.args(["--log-format", "human"]);
    let mut human = Command::new(env!("CARGO_BIN_EXE_vpnd"));
    human.args(["start", "--config", "none", "--policy"]).arg(left.path("policy.xml"));
    human.arg("--control").arg(left.path("control.sock"));
    let refused = left.space.run(move || human.output()).expect("vpnd is built");
    assert_eq!(refused.status.code(), Some(1));
    let error = String::from_utf8(refused.stderr).expect("text");
    assert!(error.contains("another vpnd is listening on") && error.contains("stop"), "{error}");

    assert_eq!(
        left.ctl_ok(&["stop"]),
        "vpnd has stopped; the traffic of its tunnels is no longer blocked, and takes the host's other routes\n"
    );
    assert!(left.wait().success());
    let error = left.ctl_fails(&["list"], 3);
    assert!(error.contains("no vpnd is listening on") && error.contains("vpnd start"), "{error}");
    right.await_list(&[]);
}

const ANOTHER: &[Need] = &[Need::All(GATEWAYS), Need::Program("setpriv")];

/// The files' permissions refuse another user, and so does the daemon if somebody has changed them.
fn another_user() {
    let [mut left, _right] = two();
    left.start();
    let of_all = |name: &str, mode| {
        set_permissions(left.path(name), Permissions::from_mode(mode)).expect("ours");
    };
    copy(testkit::vpnctl(), left.path("vpnctl")).expect("writable");
    of_all("vpnctl", 0o755);
    let socket = left.path("control.sock");
    let list = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(left.path("vpnctl")).arg("--control").arg(&socket).arg("list");
        let output = left.space.run(move || command.output()).expect("setpriv is there");
        assert!(output.stdout.is_empty(), "{output:?}");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    of_all("", 0o711);
    let (code, said) = list();
    assert!(code == Some(3) && said.contains("ermission"), "{code:?} {said}");
    of_all("control.sock", 0o666);
    assert_ne!(list().0, Some(0));
    left.await_log(&["WARN", "refused a control connection of another user", "65534"]);
    left.ctl_ok(&["list"]);
}

/// Neither a preshared key nor a key of an SA, at the level that shows most.
fn no_key() {
    let [mut left, mut right] = two();
    for gateway in [&mut left, &mut right] {
        gateway.configure("[log]\nlevel = \"trace\"\n");
        start_exporting(gateway);
    }
    left.ctl_ok(&["activate"]);
    left.ctl_ok(&["rekey", "site"]);
    left.ctl_ok(&["rekey", "site_lan"]);
    left.ctl_fails(&["activate", "nobody"], 1);
    left.await_log(&["\"level\":\"TRACE\""]);
    let mut secrets = vec!["replace-this-key".to_owned()];
    for table in [vpnd::wireshark::IKE_TABLE, vpnd::wireshark::ESP_TABLE] {
        let text = read_to_string(left.path("keys").join(table)).expect("it was written");
        secrets.extend(keys_of(&text).into_iter().map(str::to_owned));
    }
    assert!(secrets.len() > 8, "keys of two IKE SAs and two Child SAs: {secrets:?}");
    for gateway in [&left, &right] {
        let log = gateway.log();
        for secret in &secrets {
            assert!(!shows(&log, secret), "the log shows {secret}");
        }
    }
}

/// Nor a postquantum preshared key: one that both sides have, and one that differs.
fn no_ppk() {
    const BOTH: &str = "a11ce5a11ce5a11ce5a11ce5a11ce5a11ce5a11ce5a11ce5a11ce5a11ce5a11c";
    const DIFFERS: [&str; 2] = [
        "b0bb1eb0bb1eb0bb1eb0bb1eb0bb1eb0bb1eb0bb1eb0bb1eb0bb1eb0bb1eb0bb",
        "ca5cadeca5cadeca5cadeca5cadeca5cadeca5cadeca5cadeca5cadeca5cadec",
    ];
    let [mut left, mut right] = two();
    for (gateway, differs) in [&mut left, &mut right].into_iter().zip(DIFFERS) {
        let directory = gateway.path("certificates");
        gateway.configure(&format!(
            "[certificates]\ndirectory = {directory:?}\n[log]\nlevel = \"trace\"\n"
        ));
        create_dir_all(directory.join("ppk")).expect("writable");
        for (name, key) in [("both", BOTH), ("differs", differs)] {
            let file = directory.join("ppk").join(name);
            write(&file, format!("0x{key}\n")).expect("writable");
            set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
        }
        gateway.write_policy(&with_ppk(
            &read_to_string(gateway.path("policy.xml")).expect("there"),
            "both",
        ));
        gateway.start();
    }
    left.ctl_ok(&["activate"]);
    left.ctl_ok(&["rekey", "site"]);
    left.ctl_ok(&["rekey", "site_lan"]);
    assert!(left.ctl_ok(&["status", "site"]).contains("quantum-safe"));
    left.ctl_ok(&["deactivate", "site"]);
    for gateway in [&left, &right] {
        let policy = read_to_string(gateway.path("policy.xml")).expect("there");
        gateway.write_policy(&changed(&policy, "vpn:PPK=\"both\"", "vpn:PPK=\"differs\""));
        gateway.ctl_ok(&["reload"]);
    }
    left.ctl_fails(&["activate"], 1);
    assert!(left.ctl(&["why", "site"]).stdout.windows(7).any(|text| text == b"differs"));
    for gateway in [&left, &right] {
        let log = gateway.log();
        assert!(log.contains("TRACE"), "{log}");
        for secret in [BOTH].iter().chain(&DIFFERS) {
            assert!(!shows(&log, secret), "the log shows {secret}");
        }
    }
}

/// A policy whose tunnel has a postquantum preshared key.
fn with_ppk(policy: &str, name: &str) -> String {
    let policy = changed(policy, "<AIX_VPN ", "<AIX_VPN xmlns:vpn=\"urn:vpnd:policy\" ");
    let tunnel = "<IKETunnel IKE_TunnelName=\"site\"";
    changed(&policy, tunnel, &format!("{tunnel} vpn:PPK=\"{name}\""))
}

/// The names in the first column of the table whose head says `title`.
fn documented(title: &str) -> BTreeSet<String> {
    let text = include_str!("../../docs/reference/control.md");
    let (_, table) = text.split_once(&format!("| {title} | |\n")).expect("the document has it");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let first = rows.filter_map(|row| row.split('|').nth(1));
    let names = first.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned));
    names.collect()
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().expect("an object").keys().cloned().collect()
}

fn fields_are_documented() {
    let [mut left, mut right] = two();
    left.start();
    let check = |gateway: &Gateway, up: bool| {
        let status = gateway.json(&["status", "site", "--json"]);
        assert_eq!(keys(&status), documented("field"), "{status}");
        let child = &status["children"][0];
        assert_eq!(keys(child), documented("field of a child"), "{status}");
        assert_eq!(child["child_sa"].is_object(), up, "{status}");
        if up {
            assert_eq!(keys(&status["ike_sa"]), documented("field of `ike_sa`"));
            assert_eq!(keys(&child["child_sa"]), documented("field of `child_sa`"));
            assert_eq!(gateway.json(&["list", "--json"])[0]["name"], "site");
        }
        status
    };
    // An activation fails at once if the peer has another key.
    let sample = &policies::SITE[1];
    right.write_policy(&policies::changed(sample, "replace-this-key", "another-key"));
    right.start();
    left.ctl_fails(&["activate"], 1);
    let failed = check(&left, false);
    let failure = BTreeSet::from(["kind", "message", "seconds_ago"].map(str::to_owned));
    assert_eq!(keys(&failed["children"][0]["last_failure"]), failure);
    right.write_policy(sample);
    right.ctl_ok(&["reload"]);
    left.ctl_ok(&["activate"]);
    check(&left, true);
    check(&right, true);
    let overview = left.json(&["status", "--json"]);
    assert_eq!(keys(&overview), documented("field of the overview"));
    assert_eq!(keys(&overview["filter"]), documented("field of the filter"));
    let set = left.ctl_ok(&["workers", "set", "schedule=pipeline", "workers=2"]);
    assert!(set.starts_with("schedule pipeline, 2 workers, wait adaptive"), "{set}");
    let workers = left.json(&["workers", "--json"]);
    assert_eq!(keys(&workers), documented("field of the workers"));
    assert_eq!(keys(&workers["threads"][1]), documented("field of a thread"));
    assert_eq!(keys(&workers["stages"][0]), documented("field of a stage"));
    let trace = left.json(&["trace", "--json", "tcp", "10.1.0.1:1", "10.2.0.1:2"]);
    assert_eq!(keys(&trace["leaving"]), documented("field of a trace"));
}

fn vpnd_check() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("policy.xml");
    let check = |text: &str| {
        std::fs::write(&path, text).expect("writable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
        let mut vpnd = Command::new(env!("CARGO_BIN_EXE_vpnd"));
        let output = vpnd.args(["check", "--config", "none"]).arg(&path).output();
        let output = output.expect("vpnd is built");
        let text = |octets| String::from_utf8(octets).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (status, told, warned) = check(policies::VENDOR);
    assert_eq!(status, Some(0), "{warned}");
    for part in ["LP1  phase 1, IKEv2", "LP2  phase 2, transport mode", "AES-GCM-16-256", "ECP-384"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("12345") && !warned.contains("12345"), "a key is shown");

    let bad = policies::changed(policies::VENDOR, "IKE_DHGroup=\"20\"", "IKE_DHGroup=\"2O\"");
    let bad = policies::changed(&bad, "ProtectionRef=\"LP2Pol\"", "ProtectionRef=\"LP2Poll\"");
    let (status, told, error) = check(&bad);
    assert_eq!((status, told.as_str()), (Some(1), ""), "{error}");
    let line = |of: &str| 1 + bad.lines().position(|l| l.contains(of)).expect("there");
    for (at, what) in [(line("2O"), "2O"), (line("LP2Poll"), "LP2Poll")] {
        assert!(error.contains(&format!("policy.xml:{at}")) && error.contains(what), "{error}");
    }
}
