//! The programs, files and rights that a test cannot do without, and whether this machine has them.

use host::tun_file;
use namespaces::isolation::{self, Namespace};
use nix::unistd::{AccessFlags, access};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::Command;
use std::thread;

/// A requirement of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The rights of root.
    Root,
    /// Network namespaces of its own.
    Namespaces,
    /// A user namespace, and others in it.
    UserNamespaces,
    /// The TUN driver, by a file that the user of the test may open.
    Tun,
    /// A program in the search path, which the user of the test may run.
    Program(&'static str),
    /// A file that is not in the search path.
    File(&'static str),
    /// A daemon of another kind in its root directory, which `tests/peers` makes; and a file that it has there.
    Peer(&'static str, &'static str),
    /// Each of these.
    All(&'static [Need]),
    /// Each of these for [`NOBODY`], as whom the test runs a program.
    OfNobody(&'static [Need]),
}

/// The user and the group of programs that tests run as an ordinary user, without any other group.
pub const NOBODY: u32 = 65_534;

/// Where `tests/peers` puts its root directories.
pub const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers");

/// The requirements of two gateways in namespaces.
pub const GATEWAYS: &[Need] = &[Need::Root, Need::Namespaces, Need::Tun, Need::Program("ip")];

/// The same, whose packet filter the test reads, or sets.
pub const WITH_NFT: &[Need] = &[Need::All(GATEWAYS), Need::Program("nft")];

/// The same, which are pinged.
pub const PINGED: &[Need] = &[Need::All(GATEWAYS), Need::Program("ping")];

/// The same, with a packet filter between or around them.
pub const FILTERED: &[Need] = &[Need::All(PINGED), Need::Program("nft")];

impl Need {
    /// Why it cannot be met on this machine; `None`: it can.
    fn missing(self) -> Option<String> {
        match self {
            Self::Root => (!nix::unistd::geteuid().is_root()).then(|| "not run as root".to_owned()),
            Self::Namespaces => {
                Namespace::new("probe").err().map(|error| one_line(&error.to_string()))
            }
            Self::UserNamespaces => {
                Self::Program("unshare").missing().or_else(user_namespaces_missing)
            }
            Self::Tun => tun_file::check().err().map(|error| one_line(&error.to_string())),
            Self::Program(name) => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let mut found = std::env::split_paths(&path).map(|d| d.join(name));
                let found = found.any(|p| p.is_file() && access(&p, AccessFlags::X_OK).is_ok());
                (!found).then(|| format!("no program {name}"))
            }
            Self::Peer(name, file) => {
                let found = Path::new(PEERS).join(name).join(file).exists();
                (!found).then(|| format!("no {name} in target/peers; tests/peers makes it"))
            }
            Self::All(needs) => missing(needs),
            Self::OfNobody(needs) => missing_for_nobody(needs),
            Self::File(path) => (!Path::new(path).exists()).then(|| format!("no file {path}")),
        }
    }

    /// Adds the programs among them.
    pub(crate) fn name_programs(self, names: &mut BTreeSet<&'static str>) {
        match self {
            Self::Program(name) => _ = names.insert(name),
            Self::All(needs) | Self::OfNobody(needs) => {
                needs.iter().for_each(|need| need.name_programs(names));
            }
            _ => {}
        }
    }
}

/// Why one of these needs cannot be met on this machine.
pub fn missing(needs: &[Need]) -> Option<String> {
    needs.iter().find_map(|need| need.missing())
}

/// Makes the namespaces that `vpnd demo` and `vpnd exec` make, as the user of the calling thread.
fn user_namespaces_missing() -> Option<String> {
    let mut probe = Command::new("unshare");
    let probe = probe.args(["--map-root-user", "--net", "--mount", "true"]);
    let output = match probe.output() {
        Ok(output) if output.status.success() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    let cause = isolation::forbidding_setting().map_or(output, str::to_owned);
    Some(format!("cannot make namespaces: {cause}"))
}

/// Why one of these needs cannot be met for an ordinary user, as whom a thread of root looks.
fn missing_for_nobody(needs: &'static [Need]) -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return missing(needs);
    }
    let look = move || match become_nobody() {
        Ok(()) => missing(needs),
        Err(error) => Some(format!("user {NOBODY} cannot be used: {error}")),
    };
    let found = thread::spawn(look).join().expect("a look does not panic");
    found.map(|why| format!("as an ordinary user: {why}"))
}

/// Gives the calling thread, and only it, the rights of [`NOBODY`].
fn become_nobody() -> io::Result<()> {
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    Ok(())
}

/// An error and its cure, for reports with one line for each test.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

/// Why nobody can have one of these daemons at present, as `tests/peers` has found: Debian's archive does not give it.
pub fn unavailable(needs: &[Need]) -> Option<String> {
    needs.iter().find_map(|need| match need {
        Need::Peer(name, file) if !Path::new(PEERS).join(name).join(file).exists() => {
            let why = std::fs::read_to_string(Path::new(PEERS).join(format!("{name}.unavailable")));
            why.ok().map(|why| why.trim().to_owned())
        }
        Need::All(needs) | Need::OfNobody(needs) => unavailable(needs),
        _ => None,
    })
}
