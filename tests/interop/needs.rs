//! What this machine must have.

use libtest_mimic::{Completion, Failed};
use std::env;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

/// Where distributions put charon.
const CHARON: &[&str] =
    &["/usr/lib/ipsec/charon", "/usr/libexec/ipsec/charon", "/usr/lib/strongswan/charon"];
/// Where they put its plugins.
const PLUGINS: &[&str] =
    &["/usr/lib/ipsec/plugins", "/usr/lib64/strongswan/plugins", "/usr/lib/strongswan/plugins"];
/// Plugins that distributions pack apart from `charon`: the plane, and the algorithms of most scenarios.
const PACKED_APART: &[&str] = &["kernel-libipsec", "gcm", "openssl"];
const PROGRAMS: &[&str] =
    &["curl", "ip", "nft", "openssl", "ping", "pki", "setpriv", "swanctl", "unshare"];

/// The IKE daemon of strongSwan.
pub fn charon() -> Option<PathBuf> {
    CHARON.iter().map(PathBuf::from).find(|path| path.exists())
}

/// What keeps the scenarios from running here.
pub fn lacking() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("this is not root".into());
    }
    if OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_err() {
        return Some("/dev/net/tun cannot be opened".into());
    }
    let missing = |program: &&&str| {
        let path = env::var_os("PATH").unwrap_or_default();
        !env::split_paths(&path)
            .chain(["/usr/sbin".into(), "/sbin".into()])
            .any(|directory| directory.join(program).exists())
    };
    if let Some(program) = PROGRAMS.iter().find(missing) {
        return Some(format!("there is no {program}"));
    }
    if charon().is_none() {
        return Some(format!("strongSwan's charon is not in {}", CHARON.join(", ")));
    }
    let absent = |plugin: &&&str| {
        let file = format!("libstrongswan-{plugin}.so");
        !PLUGINS.iter().any(|directory| Path::new(directory).join(&file).exists())
    };
    if let Some(plugin) = PACKED_APART.iter().find(absent) {
        return Some(format!("strongSwan has no plugin {plugin}"));
    }
    lab::isolation::Namespace::new("probe").err().map(|error| error.to_string())
}

/// The outcome of a scenario that cannot run.
pub fn without(why: &str) -> Result<Completion, Failed> {
    if left_out::is_forbidden() {
        return Err(Failed::from(format!("required, but {why}")));
    }
    Ok(leave_out(why))
}

/// The outcome of a scenario whose daemon nobody can have at present.
pub fn leave_out(why: &str) -> Completion {
    left_out::note(why, 1);
    Completion::ignored_with(why)
}
