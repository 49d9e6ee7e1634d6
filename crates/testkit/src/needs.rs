//! The programs, files and rights that a test cannot do without, and whether this machine has them.

use namespaces::isolation::Namespace;
use std::path::Path;
use std::process::Command;

/// A requirement of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The rights of root.
    Root,
    /// Network namespaces of its own.
    Namespaces,
    /// Namespaces for ordinary users.
    UserNamespaces,
    /// The TUN driver.
    Tun,
    /// A program in the search path.
    Program(&'static str),
    /// A file that is not in the search path.
    File(&'static str),
    /// A daemon of another kind in its root directory, which `tests/peers` makes; and a file that it has there.
    Peer(&'static str, &'static str),
    /// Each of these.
    All(&'static [Need]),
}

/// Where `tests/peers` puts its root directories.
pub const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers");

/// The requirements of two gateways in namespaces.
pub const GATEWAYS: &[Need] = &[Need::Root, Need::Namespaces, Need::Tun, Need::Program("ip")];

/// The same, which are pinged.
pub const PINGED: &[Need] = &[Need::All(GATEWAYS), Need::Program("ping")];

/// The same, with a packet filter between or around them.
pub const FILTERED: &[Need] = &[Need::All(PINGED), Need::Program("nft")];

impl Need {
    /// Why it cannot be met on this machine; `None`: it can.
    fn missing(self) -> Option<String> {
        match self {
            Self::Root => (!nix::unistd::geteuid().is_root()).then(|| "not run as root".to_owned()),
            Self::Namespaces => Namespace::new("probe").err().map(|error| error.to_string()),
            Self::UserNamespaces => {
                use std::os::unix::process::CommandExt;
                let mut probe = Command::new("unshare");
                let probe = probe.args(["--user", "--net", "true"]).uid(65_534).gid(65_534);
                let works = probe.output().is_ok_and(|output| output.status.success());
                (!works).then(|| "ordinary users cannot make namespaces".to_owned())
            }
            Self::Tun => std::fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/net/tun")
                .err()
                .map(|e| format!("cannot open /dev/net/tun: {e}")),
            Self::Program(name) => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let found = std::env::split_paths(&path).any(|d| d.join(name).is_file());
                (!found).then(|| format!("no program {name}"))
            }
            Self::Peer(name, file) => {
                let found = Path::new(PEERS).join(name).join(file).exists();
                (!found).then(|| format!("no {name} in target/peers; tests/peers makes it"))
            }
            Self::All(needs) => missing(needs),
            Self::File(path) => (!Path::new(path).exists()).then(|| format!("no file {path}")),
        }
    }
}

/// Why one of these needs cannot be met on this machine.
pub fn missing(needs: &[Need]) -> Option<String> {
    needs.iter().find_map(|need| need.missing())
}

/// Why nobody can have one of these daemons at present, as `tests/peers` has found: Debian's archive does not give it.
pub fn unavailable(needs: &[Need]) -> Option<String> {
    needs.iter().find_map(|need| match need {
        Need::Peer(name, file) if !Path::new(PEERS).join(name).join(file).exists() => {
            let why = std::fs::read_to_string(Path::new(PEERS).join(format!("{name}.unavailable")));
            why.ok().map(|why| why.trim().to_owned())
        }
        Need::All(needs) => unavailable(needs),
        _ => None,
    })
}
