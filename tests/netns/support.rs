//! `vpnctl support`: everything about a gateway, and none of its secrets.

use crate::site::{hosts, passes, two};
use libtest_mimic::Trial;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::gateway::Gateway;
use testkit::{FILTERED, Need, output, test};

const PACKED: &[Need] = &[Need::All(FILTERED), Need::Program("tar"), Need::Program("gzip")];

pub fn trials() -> Vec<Trial> {
    vec![test("an archive for support has everything but secrets", PACKED, everything_but_secrets)]
}

const PRESHARED: &str = "open sesame & close <it>";
const OLD_PRESHARED: &str = "yesterday's word";
const INLINE: &str = "c0ffee00c0ffee01c0ffee02c0ffee03c0ffee04";
const IN_FILE: &str = "feedface11feedface22feedface33feedface44";
const OLD_INLINE: &str = "badcab1ebadcab1ebadcab1e";
const PPK: &str = "quantum-pass-phrase";
const PEM: &str = "VGhpcyBsaW5lIG9mIGEga2V5IGlzIHNlY3JldCwgdG9v";
const PIN: &str = "86420975";

fn write_private(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("writable");
    fs::write(path, text).expect("writable");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("ours");
}

/// Puts secrets wherever a gateway may have some.
fn plant(gateway: &Gateway, remote: &str) {
    let policy = fs::read_to_string(gateway.path("policy.xml")).expect("ours");
    let key = "tests-replace-this-key-before-use";
    assert!(policy.contains(key), "the sample has a key");
    let written = PRESHARED.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let policy = policy.replace(key, &written).replace(
        "  <!-- Phase 2",
        &format!("  <!-- The key before: {OLD_PRESHARED} -->\n  <!-- Phase 2"),
    );
    gateway.write_policy(&policy);
    let pki = gateway.path("pki");
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{PEM}\n-----END PRIVATE KEY-----\n");
    write_private(&pki.join("private/gateway.key"), &pem);
    write_private(&pki.join("ppk/site"), &format!("{PPK}\n"));
    write_private(&gateway.path("sa.key"), &format!("0x{IN_FILE}\n"));
    let config = gateway.path("vpnd.toml");
    let mut text = fs::read_to_string(&config).expect("ours");
    let local = if remote.ends_with('2') { "192.0.2.1" } else { "192.0.2.2" };
    let sa = |direction: &str, [source, destination]: [&str; 2], key: &str| {
        format!(
            "[[sa]]\nname = \"by hand\"\ndirection = \"{direction}\"\nsource = \"{source}\"\n\
             destination = \"{destination}\"\nspi = 0x1007\naead = \"rfc4106(gcm(aes))\"\nkey = {key}\n\
             selector = {{ protocol = \"tcp\" }}\n"
        )
    };
    text.push_str(&format!(
        "sequences = {:?}\n# the key before: 0x{OLD_INLINE}\n[certificates]\ndirectory = {pki:?}\n\
         token_module = \"/no/such/module.so\"\n\
         token_keys = [\"pkcs11:token=gateway;object=key?pin-value={PIN}\"]\n",
        gateway.path("lib/sequences")
    ));
    text.push_str(&sa("out", [local, remote], &format!("\"0x{INLINE}\"")));
    let file = format!("{{ file = {:?} }}", gateway.path("sa.key"));
    text.push_str(&sa("in", [remote, local], &file));
    write_private(&config, &text);
}

/// The files of an archive, unpacked into a directory.
fn unpacked(archive: &Path, directory: &Path) -> Vec<PathBuf> {
    fs::create_dir(directory).expect("writable");
    let mut tar = Command::new("tar");
    tar.arg("xzf").arg(archive).arg("--strip-components=1").arg("-C").arg(directory);
    output(tar);
    let files = fs::read_dir(directory).expect("it is there").flatten();
    files.map(|file| file.path()).collect()
}

/// The file with a secret, whatever the case of its letters is.
fn leak(files: &[PathBuf], secret: &str) -> Option<PathBuf> {
    let secret = secret.to_lowercase();
    let has = |file: &&PathBuf| {
        let text = fs::read(file).expect("ours");
        String::from_utf8_lossy(&text).to_lowercase().contains(&secret)
    };
    files.iter().find(has).cloned()
}

fn everything_but_secrets() {
    let [mut left, mut right] = two();
    plant(&left, "192.0.2.2");
    let key = fs::read_to_string(left.path("policy.xml")).expect("ours");
    let policy = fs::read_to_string(right.path("policy.xml")).expect("ours");
    let line = |text: &str| {
        let line = text.lines().find(|line| line.contains("<IKEPresharedKey "));
        line.expect("it has a key").to_owned()
    };
    right.write_policy(&policy.replace(&line(&policy), &line(&key)));
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    passes(&hosts(&left, &right), b"protected");

    let archive = left.path("support.tar.gz");
    let name = archive.to_str().expect("UTF-8");
    let (done, said) = left.ctl_inside(&["support", "--output", name]);
    assert!(done && said.contains("without keys and passwords"), "{said}");
    let files = unpacked(&archive, &left.path("unpacked"));
    let text = |name: &str| {
        let path = left.path("unpacked").join(name);
        fs::read_to_string(&path).unwrap_or_else(|_| panic!("no {name}: {said}"))
    };
    for (name, words) in [
        ("contents.txt", "[removed]"),
        ("overview.json", "\"confinement\""),
        ("tunnels.json", "\"site_lan\""),
        ("why.json", "\"established\""),
        ("counters.json", "ike."),
        ("workers.json", "\"threads\""),
        ("certificates.json", "["),
        ("policy.xml", "<IKEPresharedKey "),
        ("configuration.json", "\"by hand\""),
        ("manual-sas.json", "\"by hand\""),
        ("nftables.txt", "table inet vpn_guard_vpn0"),
        ("routes.txt", "10.2.0.0/24 dev vpn0"),
        ("rules.txt", "lookup"),
        ("addresses.txt", "192.0.2.1/24"),
        ("sysctl.txt", "rp_filter = "),
        ("process.txt", "Seccomp:"),
        ("system.txt", "Linux version"),
        ("programs.txt", "nftables"),
    ] {
        assert!(text(name).contains(words), "{name}: {}", text(name));
    }
    for secret in
        [PRESHARED, OLD_PRESHARED, INLINE, IN_FILE, OLD_INLINE, PPK, PEM, PIN, "open sesame"]
    {
        assert_eq!(leak(&files, secret), None, "{secret}");
        let digits: String = secret.bytes().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(leak(&files, &digits), None, "{secret}, in hexadecimal");
    }

    // Without the daemon, too.
    left.ctl_ok(&["stop"]);
    assert!(left.wait().success());
    let archive = left.path("later.tar.gz");
    let (done, said) = left.ctl_inside(&["support", "--output", archive.to_str().expect("UTF-8")]);
    assert!(done && said.contains("not in it: daemon: no vpnd is listening on "), "{said}");
    let files = unpacked(&archive, &left.path("later"));
    assert_eq!(leak(&files, "open sesame"), None);
}
