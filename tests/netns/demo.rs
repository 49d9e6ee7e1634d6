//! `vpnd demo` as root and as an ordinary user.

use crate::skip;
use nix::unistd::{Uid, geteuid};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65_534;

fn check(mut command: Command) {
    let output = command
        .args(["demo", "--json", "--seconds", "4"])
        .stdin(Stdio::null())
        .output()
        .expect("vpnd is built");
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("cannot make namespaces") || error.contains("/dev/net/tun") {
        return skip(&error);
    }
    assert!(output.status.success(), "{output:?}");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    for (field, value) in [("packets_lost", 0), ("cleartext_packets", 0), ("esp_refused", 0)] {
        assert_eq!(found[field], value, "{found}");
    }
    let at_least = |field: &str, least: u64| {
        assert!(found[field].as_u64().expect("a number") >= least, "{field}: {found}");
    };
    at_least("packets_sent", 1000);
    at_least("throughput_bps", 1_000_000);
    at_least("child_rekeys", 4);
    at_least("ike_rekeys", 3);
    at_least("ike_messages", 20);
    assert_eq!(found["mode"], "tunnel");
    assert!(found["ike_suite"].as_str().expect("a text").contains("AES-CBC-256"), "{found}");
    assert!(found["esp_suite"].as_str().expect("a text").contains("AES-GCM-16-256"), "{found}");
    assert!(!fs::exists("/run/vpnd-demo").expect("/run is readable"));
}

#[test]
fn as_the_user_of_this_test() {
    check(Command::new(env!("CARGO_BIN_EXE_vpnd")));
}

#[test]
fn as_an_ordinary_user() {
    if geteuid() != Uid::from_raw(0) {
        return skip("the test is no root, who could become an ordinary user");
    }
    // Where the build directory is closed to others, they run a copy.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let copy = directory.path().join("vpnd");
    fs::copy(env!("CARGO_BIN_EXE_vpnd"), &copy).expect("vpnd is built");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let mut command = Command::new(copy);
    command.uid(NOBODY).gid(NOBODY);
    check(command);
}
