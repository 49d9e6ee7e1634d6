//! The first tunnel of a new administrator: the samples, `vpnctl policy new`, `vpnctl pki`, and the default
//! configuration file.

use crate::site::{hosts, passes};
use libtest_mimic::Trial;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use testkit::gateway::{GIVES_UP, Gateway, PATIENT};
use testkit::space::Space;
use testkit::{GATEWAYS, Need, PINGED, output, test, until};

const MOUNTED: &[Need] = &[Need::All(GATEWAYS), Need::Program("unshare"), Need::Program("mount")];

pub fn trials() -> Vec<Trial> {
    vec![
        test("the tunnel of the samples is always up by itself", GATEWAYS, the_samples),
        test("the policies of policy new come up with a key", PINGED, with_a_key),
        test("the policies of policy new come up on demand", PINGED, on_demand),
        test("the policies of policy new come up in transport mode", PINGED, in_transport_mode),
        test("certificates of vpnctl pki, until one is revoked", PINGED, with_certificates),
        test("the default configuration and socket are found", MOUNTED, the_default_file),
    ]
}

/// Lines of `[ike]` with which a dead peer is noticed after some seconds.
fn watchful() -> String {
    format!("{GIVES_UP}liveness_interval = \"1s\"\n")
}

/// The samples as they are, but for the key.
fn samples() -> [String; 2] {
    let key = "9f".repeat(32);
    ["left", "right"].map(|name| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../config/{name}.xml"));
        let text = fs::read_to_string(path).expect("a sample");
        let (before, rest) = text.split_once("replace-with-").expect("a placeholder");
        let (_, after) = rest.split_once('"').expect("it ends");
        format!("{before}{key}\"{after}")
    })
}

/// Gives both gateways an address in the networks 10.1.0.0/24 and 10.2.0.0/24.
fn with_hosts([left, right]: [Gateway; 2]) -> [Gateway; 2] {
    left.space.ip("address add 10.1.0.1/32 dev lo");
    right.space.ip("address add 10.2.0.1/32 dev lo");
    [left, right]
}

fn the_samples() {
    let [mut left, mut right] = with_hosts(Gateway::pair(&samples(), [1, 2], &watchful()));
    left.start();
    right.start();
    left.await_list(&["site_lan"]);
    passes(&hosts(&left, &right), b"at first");
    // Either end is killed, and starts again as after a power failure; nobody types anything.
    for round in 0..2 {
        let inbound = |gateway: &Gateway| gateway.child_sa("site_lan")["inbound_spi"].clone();
        let other = if round == 0 { &right } else { &left };
        let before = inbound(other);
        let killed = if round == 0 { &mut left } else { &mut right };
        killed.crash();
        killed.start();
        let other = if round == 0 { &right } else { &left };
        let renewed = || {
            let now = inbound(other);
            (!now.is_null() && now != before).then_some(())
        };
        until("a new Child SA", renewed, || other.ctl_ok(&["list", "--all"]));
        left.await_list(&["site_lan"]);
        right.await_list(&["site_lan"]);
        passes(&hosts(&left, &right), b"again");
    }
}

/// The policies that `vpnctl policy new` writes, and its output.
fn written(arguments: &str) -> ([String; 2], String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new(testkit::vpnctl());
    command.args(["policy", "new"]).args(arguments.split_whitespace());
    let told = output({
        command.arg("--output").arg(directory.path());
        command
    });
    let texts = ["left", "right"].map(|name| {
        fs::read_to_string(directory.path().join(format!("{name}.xml"))).expect("it was written")
    });
    (texts, told)
}

const ENDS: &str = "--local 192.0.2.1 --remote 192.0.2.2 --protect 10.1.0.0/24=10.2.0.0/24";

fn with_a_key() {
    let (policies, _) = written(ENDS);
    let [mut left, mut right] = with_hosts(Gateway::pair(&policies, [1, 2], PATIENT));
    right.start();
    left.start();
    left.await_list(&["site_lan"]);
    passes(&hosts(&left, &right), b"protected");
}

fn on_demand() {
    let (policies, _) = written(&format!("{ENDS} --on-demand --suite chacha20-poly1305"));
    let [mut left, mut right] = with_hosts(Gateway::pair(&policies, [1, 2], PATIENT));
    left.start();
    right.start();
    assert_eq!(right.ctl_ok(&["list", "--json"]), "[]\n");
    let first = || right.space.pings("-I 10.2.0.1", 1, "10.1.0.1").ok();
    until("a packet starts the tunnel", first, || right.log());
    left.await_list(&["site_lan"]);
}

fn in_transport_mode() {
    let (policies, _) = written("--local 2001:db8::1 --remote 2001:db8::2 --transport");
    let [left, right] = &policies;
    let [mut left, mut right] =
        [("left", left), ("right", right)].map(|(n, p)| Gateway::new(n, p, PATIENT, ""));
    Space::connect(
        (&left.space, "wire", &["2001:db8::1/64"]),
        (&right.space, "wire", &["2001:db8::2/64"]),
    );
    right.start();
    left.start();
    left.await_list(&["site_hosts"]);
    let status = left.json(&["status", "site_hosts", "--json"]);
    assert_eq!(status["children"][0]["mode"], "transport", "{status}");
    left.space.pings("-6", 3, "2001:db8::2").expect("the gateways reach each other");
}

/// Runs `vpnctl pki` on the authority in a directory.
fn pki(directory: &Path, arguments: &str) -> String {
    let mut command = Command::new(testkit::vpnctl());
    command.args(["pki", "--dir"]).arg(directory).args(arguments.split_whitespace());
    output(command)
}

fn with_certificates() {
    let names = "--certificates --local-id left.example.net --remote-id right.example.net";
    let (policies, told) = written(&format!("{ENDS} {names}"));
    let place = tempfile::tempdir().expect("a temporary directory");
    let authority = place.path().join("pki");
    pki(&authority, "init");
    // The commands are those that policy new has shown.
    let commands = told.lines().filter_map(|line| line.trim().strip_prefix("vpnctl pki issue "));
    let commands: Vec<&str> = commands.collect();
    assert_eq!(commands, ["left --dns left.example.net", "right --dns right.example.net"]);
    for command in commands {
        pki(&authority, &format!("issue {command}"));
    }
    let [mut left, mut right] = with_hosts(Gateway::pair(&policies, [1, 2], PATIENT));
    for gateway in [&left, &right] {
        let directory = authority.join("ends").join(gateway.name);
        gateway.configure(&format!("[certificates]\ndirectory = {directory:?}\n"));
    }
    right.start();
    left.start();
    left.await_list(&["site_lan"]);
    passes(&hosts(&left, &right), b"protected");
    let certs = left.ctl_ok(&["certs"]);
    assert!(certs.contains("CN=left") && certs.contains("CN=VPN CA"), "{certs}");
    for gateway in [&left, &right] {
        let about_files = |line: &&str| line.contains("\"WARN\"") && line.contains("pki/ends");
        assert_eq!(gateway.log().lines().find(about_files), None);
    }

    // The list for the left gateway is in its directory already.
    pki(&authority, "revoke right");
    let before = left.child_sa("site_lan");
    left.ctl_ok(&["reload"]);
    assert_eq!(left.child_sa("site_lan")["inbound_spi"], before["inbound_spi"], "it stays up");
    left.ctl_ok(&["deactivate", "site"]);
    let said = left.ctl_fails(&["activate", "site"], 1);
    assert!(said.contains("CN=right") && said.contains("is revoked"), "{said}");

    pki(&authority, "issue right --dns right.example.net");
    right.ctl_ok(&["reload"]);
    left.ctl_ok(&["activate", "site"]);
    passes(&hosts(&left, &right), b"again");
}

fn the_default_file() {
    let [mut left, _right] = Gateway::pair(&samples(), [1, 2], PATIENT);
    // A directory that stands for /etc.
    let etc = left.path("etc");
    fs::create_dir_all(etc.join("vpnd")).expect("writable");
    let socket = left.path("elsewhere.sock");
    left.configure(&format!("[control]\nsocket = {socket:?}\n"));
    fs::rename(left.path("vpnd.toml"), etc.join("vpnd/vpnd.toml")).expect("it is there");
    fs::rename(left.path("policy.xml"), etc.join("vpnd/policy.xml")).expect("it is there");
    fs::set_permissions(etc.join("vpnd/policy.xml"), Permissions::from_mode(0o600)).expect("ours");
    let within = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc && exec \"$@\""]);
        command.arg(&etc).arg(program).args(arguments).env_remove("VPND_CONTROL");
        command.env_remove("NOTIFY_SOCKET");
        command
    };
    let (vpnd, vpnctl) = (env!("CARGO_BIN_EXE_vpnd"), testkit::vpnctl());
    let policy = ["start", "--exit-with-parent", "--policy", "/etc/vpnd/policy.xml"];
    let line = left.spawn(within(vpnd, &policy));
    assert!(line.ends_with(&format!("control socket {}\n", socket.display())), "{line}");
    let told = output(within(vpnctl, &["status"]));
    assert!(told.contains("/etc/vpnd/vpnd.toml\n"), "{told}");

    // The variable comes before the file, and the option before the variable.
    let mut named = Command::new(vpnctl);
    named.args(["status", "--json"]).env("VPND_CONTROL", &socket);
    assert!(output(named).contains("\"configuration\": \"/etc/vpnd/vpnd.toml\""));
    let mut command = within(vpnctl, &["--control", "/nonexistent/sock", "list"]);
    let refused = command.env("VPND_CONTROL", &socket).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("/nonexistent/sock"));

    // A file with an error is told, and can be left aside.
    fs::write(etc.join("vpnd/vpnd.toml"), "[esp]\ndevise = 1\n").expect("writable");
    let check = |more: &[&str]| {
        let arguments = [&["check", "/etc/vpnd/policy.xml"], more].concat();
        let output = within(vpnd, &arguments).output().expect("it runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let (status, said) = check(&[]);
    assert_eq!(status, Some(1));
    assert!(said.contains("/etc/vpnd/vpnd.toml") && said.contains("devise"), "{said}");
    assert_eq!(check(&["--config", "none"]), (Some(0), String::new()));
}
