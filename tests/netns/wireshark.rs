//! Exported keys: Wireshark reads with them what was on the wire, and without the option there are none.

use crate::site::{hosts, passes, two};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::gateway::Gateway;
use testkit::policies::{changed, site};
use testkit::{GATEWAYS, Need, test, until};

const NEEDS: &[Need] = &[Need::All(GATEWAYS), Need::Program("tshark"), Need::Program("dumpcap")];

/// Packets that tell of IKE_AUTH, and of CREATE_CHILD_SA with a nonce, that could be read.
const IDENTITY: &str = "isakmp.exchangetype == 35 && isakmp.id.data.ipv4_addr == 192.0.2.1";
const PROOF: &str = "isakmp.exchangetype == 35 && isakmp.auth.method == 2";
const REKEY: &str = "isakmp.exchangetype == 36 && isakmp.nonce";

pub fn trials() -> Vec<Trial> {
    vec![
        test("Wireshark reads AES-GCM", NEEDS, || readable(gcm(false), [true, false])),
        test("Wireshark reads AES-CBC with HMAC", NEEDS, || readable(cbc(false), [true, false])),
        test("Wireshark reads long sequence numbers", NEEDS, || {
            readable(cbc(true), [false, false]);
            // Wireshark has no words for an ICV of AES-GCM that it is not to check.
            readable(gcm(true), [false, true]);
        }),
        test("keys go to no directory that others may use", NEEDS, refused),
    ]
}

/// AES-GCM for both IKE and ESP.
fn gcm(esn: bool) -> [String; 2] {
    site().map(|policy| {
        let policy = changed(&policy, "\"AES-CBC-256\"", "\"AES-GCM-16-256\"");
        let policy = changed(&policy, "<IKETransform IKE_Hash=\"HMAC_SHA2_256\"/>", "");
        numbered(&policy, esn)
    })
}

/// AES-CBC with HMAC-SHA2-256 for both.
fn cbc(esn: bool) -> [String; 2] {
    site().map(|policy| {
        let policy = changed(
            &policy,
            "\"ESP_AES256_GCM_16\" ESP_Authentication=\"NONE\"",
            "\"ESP_AES_CBC_256\" ESP_Authentication=\"HMAC-SHA2-256\"",
        );
        numbered(&policy, esn)
    })
}

fn numbered(policy: &str, esn: bool) -> String {
    let number = format!("ESP_ExtendedSeqNum=\"{}\"", u8::from(esn));
    changed(policy, "ESP_ExtendedSeqNum=\"0\"", &number)
}

/// Both roles. `integrity`: whether Wireshark finds good ICVs of ESP, and bad ones.
fn readable(policies: [String; 2], integrity: [bool; 2]) {
    // The initiator's keys, then the responder's.
    for exporting in [0, 1] {
        let [mut left, mut right] = two();
        left.write_policy(&policies[0]);
        right.write_policy(&policies[1]);
        let gateways = [&mut left, &mut right];
        let recording = record(gateways[exporting], "wire.pcap");
        for (number, gateway) in gateways.into_iter().enumerate() {
            match number == exporting {
                true => start_exporting(gateway),
                false => gateway.start(),
            }
        }
        left.ctl_ok(&["activate"]);
        let hosts = hosts(&left, &right);
        passes(&hosts, b"said before the rekeys");
        left.ctl_ok(&["rekey", "site"]);
        left.ctl_ok(&["rekey", "site_lan"]);
        passes(&hosts, b"said after the rekeys");
        let [open, shut] = match exporting {
            0 => [&left, &right],
            _ => [&right, &left],
        };
        tells(open, shut);
        let keys = open.path("keys");
        let early = payload(b"said before the rekeys");
        let late = payload(b"said after the rekeys");
        let filters = [IDENTITY, PROOF, REKEY, &early, &late];
        for filter in filters {
            let look = || (shown(&keys, &recording.path, filter) > 0).then_some(());
            until(&format!("{filter} in {:?}", recording.path), look, || open.log());
        }
        let nothing = tempfile::tempdir().expect("a temporary directory");
        let any = format!("({})", filters.join(") || ("));
        assert_eq!(shown(nothing.path(), &recording.path, &any), 0, "read without keys");
        let is_shown = |filter| shown(&keys, &recording.path, filter) > 0;
        assert!(!is_shown("isakmp.ikev2.integrity_checksum"), "IKE's integrity");
        let found = ["esp.icv_good == 1", "esp.icv_bad == 1"].map(is_shown);
        assert_eq!(found, integrity, "ESP's integrity: good, bad");
        left.stop();
        right.stop();
    }
}

/// One gateway exports keys, and tells the operator so. The other one does neither.
fn tells(open: &Gateway, shut: &Gateway) {
    let keys = open.path("keys");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&keys), 0o700);
    let mut lines = 0;
    let log = open.log();
    for table in [vpnd::wireshark::IKE_TABLE, vpnd::wireshark::ESP_TABLE] {
        assert_eq!(mode(&keys.join(table)), 0o600);
        let text = fs::read_to_string(keys.join(table)).expect("text");
        lines += text.lines().count();
        let secrets = keys_of(&text);
        assert!(!secrets.is_empty(), "no key in {text}");
        assert!(!secrets.iter().any(|key| log.contains(key)), "the log has a key");
    }
    // Of two IKE SAs, and of two Child SAs with two halves each.
    assert_eq!(lines, 6);
    assert_eq!(log.matches("keys exported to").count(), 6, "{log}");
    open.await_log(&["\"level\":\"WARN\"", "INSECURE: the keys of all SAs are written to"]);
    let told = keys.to_str().expect("text");
    for command in [&["list"][..], &["status", "site"]] {
        let text = open.ctl_ok(command);
        assert!(text.contains("INSECURE") && text.contains(told), "{text}");
        assert!(!shut.ctl_ok(command).contains("INSECURE"));
    }
    assert_eq!(open.json(&["status", "site", "--json"])["keys_exported_to"], told);
    assert!(shut.json(&["status", "site", "--json"])["keys_exported_to"].is_null());
    assert!(!shut.path("keys").exists() && !shut.log().contains("keys exported"));
}

/// The keys in a table of Wireshark, in hexadecimal digits. Shorter fields are SPIs.
pub fn keys_of(table: &str) -> Vec<&str> {
    let fields = table.split([',', '"', '\n']).map(|field| field.trim_start_matches("0x"));
    fields.filter(|f| f.len() > 16 && f.bytes().all(|b| b.is_ascii_hexdigit())).collect()
}

/// Starts a daemon that writes the keys of its SAs to the directory `keys`.
pub fn start_exporting(gateway: &mut Gateway) {
    let mut command = gateway.command();
    command.arg("--insecure-export-keys").arg(gateway.path("keys"));
    gateway.start_as(command);
}

fn refused() {
    let [left, _right] = two();
    let keys = left.path("keys");
    fs::create_dir(&keys).expect("writable");
    fs::set_permissions(&keys, Permissions::from_mode(0o755)).expect("ours");
    let mut command = left.command();
    command.arg("--insecure-export-keys").arg(&keys);
    let output = left.space.run(move || command.output()).expect("vpnd is built");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("mode 0755") && told.contains("chmod 700"), "{told}");
}

/// A filter for a UDP datagram with this content.
fn payload(text: &[u8]) -> String {
    let hex: Vec<String> = text.iter().map(|octet| format!("{octet:02x}")).collect();
    format!("esp && udp.payload == {}", hex.join(":"))
}

/// How many packets of a recording Wireshark shows, which finds its tables in a directory.
fn shown(tables: &Path, recording: &Path, filter: &str) -> usize {
    let output = Command::new("tshark")
        .env("WIRESHARK_CONFIG_DIR", tables)
        .args(["-o", "esp.enable_encryption_decode:TRUE"])
        .args(["-o", "esp.enable_authentication_check:TRUE", "-n", "-r"])
        .arg(recording)
        .args(["-Y", filter])
        .output()
        .expect("tshark is there");
    let complaints = String::from_utf8_lossy(&output.stderr);
    let understood = !complaints.contains("not a valid") && !complaints.contains("rror loading");
    assert!(understood, "{filter}: {complaints}");
    String::from_utf8_lossy(&output.stdout).lines().count()
}

/// A running recording of a gateway's wire.
struct Recording {
    path: PathBuf,
    process: Child,
}

fn record(gateway: &Gateway, name: &str) -> Recording {
    let path = gateway.path(name);
    let mut command = Command::new("dumpcap");
    command.args(["-q", "-P", "-i", "wire", "-w"]).arg(&path).stderr(Stdio::piped());
    let mut process = gateway.space.run(move || command.spawn()).expect("dumpcap is there");
    let mut said = BufReader::new(process.stderr.take().expect("it is piped")).lines();
    // It names the file once it listens.
    let listens = said.any(|line| line.is_ok_and(|line| line.starts_with("File: ")));
    let recording = Recording { path, process };
    assert!(listens, "dumpcap does not listen");
    recording
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Ok(process) = i32::try_from(self.process.id()) {
            let _ = kill(Pid::from_raw(process), Signal::SIGINT);
        }
        let _ = self.process.wait();
    }
}
