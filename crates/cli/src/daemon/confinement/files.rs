//! Files: Landlock lets the process open its own, and those of the system that it needs.

use super::Paths;
use host::nft;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};
use std::fs;
use std::path::{Path, PathBuf};

/// The rights that the rules are about. Newer ones restrict connections to sockets: the service manager's and the
/// resolver's have no fixed paths.
const RIGHTS: ABI = ABI::V6;

type Rights = BitFlags<AccessFs>;

const READ: Rights = make_bitflags!(AccessFs::{ReadFile | ReadDir});
const OWN: Rights = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | MakeSock | RemoveFile
});
/// Rights that a file can have.
const FILE: Rights =
    make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | Execute | IoctlDev});

/// Files of the system, and directories with all that is below.
const SYSTEM: [(&str, Rights); 24] = [
    ("/dev/net/tun", make_bitflags!(AccessFs::{ReadFile | WriteFile | IoctlDev})),
    ("/dev/null", make_bitflags!(AccessFs::{ReadFile | WriteFile})),
    ("/dev/random", READ),
    ("/dev/urandom", READ),
    // Settings of devices; the user and CAP_NET_ADMIN decide which of them can be written.
    ("/proc/sys/net", make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | Truncate})),
    ("/proc/self", READ),
    ("/proc/crypto", READ),
    ("/proc/cpuinfo", READ),
    // The number of CPUs.
    ("/sys/devices/system/cpu", READ),
    ("/sys/fs/cgroup", READ),
    // Libraries: those of nft, and those with which the system's library resolves names.
    ("/lib", READ),
    ("/lib64", READ),
    ("/usr/lib", READ),
    ("/usr/lib64", READ),
    ("/usr/local/lib", READ),
    ("/usr/local/lib64", READ),
    ("/etc/ld.so.cache", READ),
    // The names of the hosts that CRLs come from.
    ("/etc/gai.conf", READ),
    ("/etc/host.conf", READ),
    ("/etc/hosts", READ),
    ("/etc/nsswitch.conf", READ),
    ("/etc/resolv.conf", READ),
    // The names of nft.
    ("/etc/iproute2", READ),
    ("/etc/protocols", READ),
];

/// The dynamic linker of nft, which the kernel executes with it.
const LINKERS: [&str; 6] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux-riscv64-lp64d.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
    "/lib/ld-musl-riscv64.so.1",
];

/// Open directories and files of /proc. The kernel forgets their rules with its cached directory entries, unless
/// somebody has them open.
#[derive(Debug, Default)]
pub struct Pinned(#[allow(dead_code, reason = "they are only kept open")] Vec<PathFd>);

/// Restricts the calling thread to the files of `paths` and of the system. The text says which parts an older kernel
/// lacks.
pub fn restrict(paths: &Paths) -> (Pinned, Result<Option<String>, String>) {
    match apply(paths) {
        Ok((pinned, outcome)) => (pinned, outcome),
        Err(error) => (Pinned::default(), Err(error.to_string())),
    }
}

type Applied = (Pinned, Result<Option<String>, String>);

fn apply(paths: &Paths) -> Result<Applied, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RIGHTS))?
        .scope(Scope::Signal)?
        .create()?;
    let mut pinned = Vec::new();
    for (path, rights) in rights(paths) {
        // Those of the system need not be there, and the daemon's own are told of by those that use them.
        let Ok(file) = PathFd::new(&path) else { continue };
        let rights = if path.is_dir() { rights } else { rights & FILE };
        rules = rules.add_rule(PathBeneath::new(&file, rights))?;
        if path.starts_with("/proc") {
            pinned.push(file);
        }
    }
    if let Some(program) = nft::keep_program() {
        let rights = make_bitflags!(AccessFs::{ReadFile | Execute});
        rules = rules.add_rule(PathBeneath::new(program, rights))?;
    }
    let status = rules.restrict_self()?;
    let outcome = match (status.ruleset, status.landlock) {
        (RulesetStatus::FullyEnforced, _) => Ok(None),
        (RulesetStatus::PartiallyEnforced, LandlockStatus::Available { effective_abi, .. }) => {
            Ok(Some(format!("this kernel has {effective_abi:?} of {RIGHTS:?}")))
        }
        (_, LandlockStatus::NotEnabled) => {
            Err("it is off in this kernel (boot option lsm=)".to_owned())
        }
        _ => Err("this kernel lacks it".to_owned()),
    };
    Ok((Pinned(pinned), outcome))
}

/// All paths with their rights.
fn rights(paths: &Paths) -> impl Iterator<Item = (PathBuf, Rights)> {
    let own = paths.read.iter().map(|path| (path.clone(), READ));
    let own = own.chain(paths.write.iter().map(|path| (path.clone(), OWN)));
    let system = SYSTEM.iter().map(|&(path, rights)| (PathBuf::from(path), rights));
    // An upgrade replaces the linker, so the right is that of its directory.
    let linkers = LINKERS.iter().filter_map(|path| directory_of_target(path));
    let linkers = linkers.map(|path| (path, make_bitflags!(AccessFs::{ReadFile | Execute})));
    // The daemon that writes this file replaces it.
    let resolver = directory_of_target("/etc/resolv.conf").filter(|path| path != "/etc");
    own.chain(system).chain(linkers).chain(resolver.map(|path| (path, READ)))
}

fn directory_of_target(path: &str) -> Option<PathBuf> {
    fs::canonicalize(path).ok()?.parent().map(Path::to_owned)
}
