//! Certificates that `vpnctl pki` has made, for both sides.

use crate::authority::{HOSTS, Key, Plan, Revocation};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes everything as [`Plan::make`] says.
pub fn make(plan: &Plan, directory: &Path, vpnd: &Path, charon: &Path) -> Result<(), String> {
    let key = match plan.key {
        Key::Rsa(bits) => format!("rsa{bits}"),
        Key::Ecdsa(bits) => format!("ecdsa{bits}"),
        Key::Ed25519 => "ed25519".to_owned(),
    };
    fs::create_dir_all(directory).map_err(|error| error.to_string())?;
    pki(directory, &["init", "--name", "root authority", "--key", &key])?;
    // The name is that of the subject, too.
    let hosts = [HOSTS[0], plan.host];
    for host in hosts {
        pki(directory, &["issue", host, "--dns", host, "--key", &key])?;
    }
    if plan.revoked {
        pki(directory, &["revoke", plan.host])?;
    }
    let [left, right] = hosts.map(|host| authority(directory).join("ends").join(host));
    for part in ["ca", "certs", "private"] {
        copy(&left.join(part), &vpnd.join(part))?;
    }
    if plan.revocation == Revocation::File {
        copy(&left.join("crls"), &vpnd.join("crls"))?;
    }
    for (part, theirs) in [("ca", "x509ca"), ("certs", "x509"), ("private", "private")] {
        copy(&right.join(part), &charon.join(theirs))?;
    }
    // The name in swanctl.conf.
    let own = charon.join("x509");
    let from = own.join(format!("{}.pem", plan.host));
    fs::rename(from, own.join("right.pem")).map_err(|error| error.to_string())
}

/// Puts strongSwan's certificate on the list that `vpnd` has in a file.
pub fn revoke(directory: &Path, vpnd: &Path) -> Result<(), String> {
    pki(directory, &["revoke", HOSTS[1]])?;
    copy(&authority(directory).join("ends").join(HOSTS[0]).join("crls"), &vpnd.join("crls"))
}

fn authority(directory: &Path) -> PathBuf {
    directory.join("pki")
}

fn pki(directory: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new(testkit::vpnctl());
    command.args(["pki", "--dir"]).arg(authority(directory)).args(arguments);
    let output = command.output().map_err(|error| format!("vpnctl: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Copies the files of a directory into another one.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let error = |error: std::io::Error| format!("{} to {}: {error}", from.display(), to.display());
    fs::create_dir_all(to).map_err(error)?;
    for entry in fs::read_dir(from).map_err(error)? {
        let path = entry.map_err(error)?.path();
        let name = path.file_name().expect("a file has a name");
        fs::copy(&path, to.join(name)).map_err(error)?;
    }
    Ok(())
}
