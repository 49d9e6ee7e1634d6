//! Certificates that `vpnctl pki` makes, for both sides.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::gateway::Gateway;
use testkit::output;
use testkit::policies::{self, changed};

/// The names of `vpnd` and libreswan.
pub const HOSTS: [&str; 2] = ["left.example", "right.example"];

/// A kind of keys.
#[derive(Clone, Copy)]
pub struct Key {
    pub title: &'static str,
    /// In the words of `vpnctl pki`.
    name: &'static str,
    /// In those of a policy.
    method: &'static str,
    /// `authby` of libreswan.
    pub authby: &'static str,
}

pub const RSA: Key =
    Key { title: "RSA", name: "rsa3072", method: "RSA_signatures", authby: "rsasig" };
/// A certificate and a signature of these do not fit into a packet.
pub const RSA_4096: Key = Key { title: "RSA-4096", name: "rsa4096", ..RSA };
pub const ECDSA: Key =
    Key { title: "ECDSA", name: "ecdsa256", method: "ECDSA_signatures", authby: "ecdsa" };

/// A policy for preshared keys with certificates in their place.
pub fn in_policy(text: &str, key: Key) -> String {
    let mut text = changed(text, "\"Preshared_key\"", &format!("{:?}", key.method));
    let from = text.find("  <IKEPresharedKey").expect("the policy has a key");
    let end = "</IKEPresharedKey>\n";
    let to = from + text[from..].find(end).expect("it ends") + end.len();
    text.replace_range(from..to, "");
    for (host, address) in HOSTS.iter().zip(policies::SITE_ADDRESSES[0]) {
        let address = format!("Identity><IPV4_Address Value=\"{address}\"/>");
        let inner = address.trim_start_matches("Identity>").to_owned();
        text = changed(&text, &address, &format!("Identity><FQDN Value=\"{host}\">{inner}</FQDN>"));
    }
    text
}

/// An authority, and what it has made for both sides.
pub struct Authority(tempfile::TempDir);

/// Makes an authority with such keys, and a certificate for each side.
pub fn make(key: Key) -> Authority {
    let authority = Authority(tempfile::tempdir().expect("a temporary directory"));
    authority.pki(&["init", "--name", "authority", "--key", key.name]);
    for host in HOSTS {
        authority.pki(&["issue", host, "--dns", host, "--key", key.name]);
    }
    authority
}

impl Authority {
    fn pki(&self, arguments: &[&str]) {
        let mut command = Command::new(testkit::vpnctl());
        command.args(["pki", "--dir"]).arg(self.0.path()).args(arguments);
        output(command);
    }

    /// The only file of a directory that is made for a side.
    fn file(&self, host: &str, part: &str) -> PathBuf {
        let directory = self.0.path().join("ends").join(host).join(part);
        let mut entries = fs::read_dir(&directory).expect("vpnctl pki has made it");
        entries.next().expect("it has a file").expect("readable").path()
    }

    /// Puts the certificates of `vpnd` where it looks for them.
    pub fn give(&self, vpnd: &Gateway) {
        let directory = vpnd.path("certificates");
        for part in ["ca", "certs", "private"] {
            let (from, to) = (self.file(HOSTS[0], part), directory.join(part));
            fs::create_dir_all(&to).expect("writable");
            fs::copy(&from, to.join(from.file_name().expect("a file"))).expect("writable");
        }
        vpnd.configure(&format!("[certificates]\ndirectory = {directory:?}\n"));
    }

    /// Writes libreswan's certificate with its key as PKCS #12 without a password, and the authority's certificate.
    pub fn export(&self, container: &Path, authority: &Path) {
        let [certificate, key] = ["certs", "private"].map(|part| self.file(HOSTS[1], part));
        let mut command = Command::new("openssl");
        command.args(["pkcs12", "-export", "-passout", "pass:", "-name", HOSTS[1], "-in"]);
        command.arg(certificate).arg("-inkey").arg(key).arg("-out").arg(container);
        output(command);
        fs::copy(self.file(HOSTS[1], "ca"), authority).expect("writable");
    }
}
