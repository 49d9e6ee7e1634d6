//! `vpnd demo` as root and as an ordinary user.

use libtest_mimic::Trial;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use testkit::{NOBODY, Need, output, test};

const NEEDS: &[Need] = &[Need::Root, Need::Namespaces, Need::Tun];
/// The test is root, who becomes an ordinary user.
const NOBODYS_NEEDS: &[Need] =
    &[Need::All(NEEDS), Need::OfNobody(&[Need::Tun, Need::UserNamespaces])];

pub fn trials() -> Vec<Trial> {
    vec![
        test("vpnd demo as root", NEEDS, as_root),
        test("vpnd demo as an ordinary user", NOBODYS_NEEDS, as_an_ordinary_user),
    ]
}

/// The fields that the document names.
fn documented() -> BTreeSet<&'static str> {
    let text = include_str!("../../docs/start/demo.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.flat_map(|row| {
        let cell = row.split('|').next().unwrap_or_default();
        cell.split('`').step_by(2).filter(|name| !name.trim().is_empty())
    })
    .collect()
}

fn check(mut command: Command) {
    let output = command
        .args(["demo", "--json", "--seconds", "3"])
        .stdin(Stdio::null())
        .output()
        .expect("vpnd is built");
    assert!(output.status.success(), "{output:?}");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    for (field, value) in [("packets_lost", 0), ("cleartext_packets", 0), ("esp_refused", 0)] {
        assert_eq!(found[field], value, "{found}");
    }
    let at_least = |field: &str, least: u64| {
        assert!(found[field].as_u64().expect("a number") >= least, "{field}: {found}");
    };
    at_least("packets_sent", 1);
    at_least("tcp_bytes", 1);
    at_least("child_rekeys", 4);
    at_least("ike_rekeys", 3);
    at_least("ike_messages", 20);
    assert_eq!(found["mode"], "transport");
    assert_eq!(found["ok"], true, "{found}");
    let keys: BTreeSet<&str> =
        found.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(keys, documented());
    assert_eq!(found["ike_suite"], "AES-CBC-256/HMAC-SHA1-96/PRF-HMAC-SHA1/ECP-384");
    assert_eq!(found["esp_suite"], "AES-GCM-16-256");
    assert!(!fs::exists("/run/vpnd-demo").expect("/run is readable"));
}

fn as_root() {
    check(Command::new(env!("CARGO_BIN_EXE_vpnd")));
}

fn as_an_ordinary_user() {
    // Where the build directory is closed to others, they run a copy.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let copy = directory.path().join("vpnd");
    // Not written by this process: another test's child could still hold it open when it is to be run.
    let mut cp = Command::new("cp");
    cp.arg(env!("CARGO_BIN_EXE_vpnd")).arg(&copy);
    output(cp);
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let mut command = Command::new(copy);
    command.uid(NOBODY).gid(NOBODY);
    check(command);
}
