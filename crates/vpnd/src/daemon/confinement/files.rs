//! Files: Landlock lets a process open its own, and those of the system that it needs.
//!
//! A new path of the system goes here, and one that a setting names into `paths.rs`.

use super::Paths;
use host::nft;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};
use std::fs;
use std::path::{Path, PathBuf};

/// The rights that the rules are about. Newer ones restrict connections to sockets by their paths: the filter of system
/// calls leaves no socket to connect.
const RIGHTS: ABI = ABI::V6;

type Rights = BitFlags<AccessFs>;

const READ: Rights = make_bitflags!(AccessFs::{ReadFile | ReadDir});
const OWN: Rights = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | MakeSock | RemoveFile
});
const EXECUTE: Rights = make_bitflags!(AccessFs::{ReadFile | Execute});
/// Rights that a file can have.
const FILE: Rights =
    make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | Execute | IoctlDev});

/// A path, and what may be done with it and all that is below.
pub type Rule = (PathBuf, Rights);

/// Files of the system, for the daemon.
const OF_DAEMON: [(&str, Rights); 11] = [
    ("/dev/net/tun", make_bitflags!(AccessFs::{ReadFile | WriteFile | IoctlDev})),
    // Settings of devices; the user and CAP_NET_ADMIN decide which of them can be written.
    ("/proc/sys/net", make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | Truncate})),
    ("/proc/crypto", READ),
    ("/proc/cpuinfo", READ),
    // The number of CPUs.
    ("/sys/devices/system/cpu", READ),
    ("/sys/fs/cgroup", READ),
    // The names of the hosts that CRLs come from.
    ("/etc/gai.conf", READ),
    ("/etc/host.conf", READ),
    ("/etc/hosts", READ),
    ("/etc/nsswitch.conf", READ),
    ("/etc/resolv.conf", READ),
];

/// Files of the system, for nft and the daemon.
const OF_NFT: [(&str, Rights); 13] = [
    ("/dev/null", make_bitflags!(AccessFs::{ReadFile | WriteFile})),
    ("/dev/random", READ),
    ("/dev/urandom", READ),
    ("/proc/self", READ),
    // Libraries: those of nft, and the modules of tokens.
    ("/lib", READ),
    ("/lib64", READ),
    ("/usr/lib", READ),
    ("/usr/lib64", READ),
    ("/usr/local/lib", READ),
    ("/usr/local/lib64", READ),
    ("/etc/ld.so.cache", READ),
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

/// Restricts the calling thread to these files and, with `programs`, to nft. The text says which parts an older kernel
/// lacks.
pub fn restrict(
    files: impl Iterator<Item = Rule>,
    programs: bool,
) -> (Pinned, Result<Option<String>, String>) {
    match apply(files, programs) {
        Ok((pinned, outcome)) => (pinned, outcome),
        Err(error) => (Pinned::default(), Err(error.to_string())),
    }
}

type Applied = (Pinned, Result<Option<String>, String>);

fn apply(files: impl Iterator<Item = Rule>, programs: bool) -> Result<Applied, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RIGHTS))?
        .scope(make_bitflags!(Scope::{Signal | AbstractUnixSocket}))?
        .create()?;
    let mut pinned = Vec::new();
    let linkers = programs.then(linkers).into_iter().flatten();
    for (path, rights) in files.chain(linkers) {
        // Those of the system need not be there, and the daemon's own are told of by those that use them.
        let Ok(file) = PathFd::new(&path) else { continue };
        let rights = if path.is_dir() { rights } else { rights & FILE };
        rules = rules.add_rule(PathBeneath::new(&file, rights))?;
        if path.starts_with("/proc") {
            pinned.push(file);
        }
    }
    if let Some(program) = programs.then(nft::keep_program).flatten() {
        rules = rules.add_rule(PathBeneath::new(program, EXECUTE))?;
    }
    let status = rules.restrict_self()?;
    Ok((Pinned(pinned), outcome(&status.ruleset, &status.landlock)))
}

/// Says which parts this kernel lacks, or why none is in force.
fn outcome(ruleset: &RulesetStatus, landlock: &LandlockStatus) -> Result<Option<String>, String> {
    match (ruleset, landlock) {
        (RulesetStatus::FullyEnforced, _) => Ok(None),
        (RulesetStatus::PartiallyEnforced, LandlockStatus::Available { effective_abi, .. }) => {
            Ok(Some(format!("this kernel has {effective_abi:?} of {RIGHTS:?}")))
        }
        (_, LandlockStatus::NotEnabled) => {
            Err("it is off in this kernel (boot option lsm=)".to_owned())
        }
        _ => Err("this kernel lacks it".to_owned()),
    }
}

/// The files of the daemon.
pub fn of_daemon(paths: &Paths) -> impl Iterator<Item = Rule> {
    let own = paths.read.iter().map(|path| (path.clone(), READ));
    let own = own.chain(paths.write.iter().map(|path| (path.clone(), OWN)));
    // The daemon that writes this file replaces it.
    let resolver = directory_of_target("/etc/resolv.conf").filter(|path| path != "/etc");
    let resolver = resolver.map(|path| (path, READ));
    own.chain(of_system(&OF_DAEMON)).chain(of_nft()).chain(resolver)
}

/// The files of nft, without itself: none of them can be written.
pub fn of_nft() -> impl Iterator<Item = Rule> {
    of_system(&OF_NFT)
}

fn of_system(files: &[(&str, Rights)]) -> impl Iterator<Item = Rule> {
    files.iter().map(|&(path, rights)| (PathBuf::from(path), rights))
}

/// The linkers. An upgrade replaces the linker, so the right is that of its directory.
fn linkers() -> impl Iterator<Item = Rule> {
    LINKERS.iter().filter_map(|path| directory_of_target(path)).map(|path| (path, EXECUTE))
}

fn directory_of_target(path: &str) -> Option<PathBuf> {
    fs::canonicalize(path).ok()?.parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux 5.13 has V1, Linux 6.12 has V6.
    #[test]
    fn the_parts_of_landlock_that_an_older_kernel_lacks_are_told() {
        let has = |effective_abi| LandlockStatus::Available { effective_abi, kernel_abi: None };
        for older in [ABI::V1, ABI::V2, ABI::V3, ABI::V4, ABI::V5] {
            let told = outcome(&RulesetStatus::PartiallyEnforced, &has(older));
            assert_eq!(told, Ok(Some(format!("this kernel has {older:?} of V6"))));
        }
        assert_eq!(outcome(&RulesetStatus::FullyEnforced, &has(RIGHTS)), Ok(None));
        for (status, words) in [
            (LandlockStatus::NotEnabled, "it is off in this kernel"),
            (LandlockStatus::NotImplemented, "this kernel lacks it"),
        ] {
            let told = outcome(&RulesetStatus::NotEnforced, &status);
            assert!(told.as_ref().is_err_and(|told| told.contains(words)), "{told:?}");
        }
    }
}
