//! The packages that `packaging/build` makes, on machines with nothing but a minimal Debian and its systemd.
//!
//! Needs root, `/dev/net/tun`, control groups of version 2, the programs below, `target/tools`, which `tests/setup` fills, and
//! `target/peers/debian`, which `tests/peers` makes.
#![forbid(unsafe_code)]

mod debian;
mod machine;
mod rpm;

use libtest_mimic::Trial;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use testkit::{FILTERED, Need};

const NEEDS: &[Need] = &[
    Need::All(FILTERED),
    Need::Program("unshare"),
    Need::Program("nsenter"),
    Need::Program("dpkg-shlibdeps"),
    Need::Program("rpm"),
    Need::Program("strip"),
    Need::File(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/bin/cargo-deb")),
    Need::File(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/bin/cargo-generate-rpm")),
    Need::Peer("debian", "usr/sbin/nft"),
];

/// The packages of the programs that were built with these tests, in two versions.
static PACKAGES: LazyLock<[PathBuf; 2]> = LazyLock::new(|| ["0.1.0", "0.1.1"].map(package));

/// Makes `vpnd.deb` and `vpnd.rpm` of a version; returns their directory.
fn package(version: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let to = root.join("target/packages").join(version);
    let mut build = Command::new(root.join("packaging/build"));
    let programs = Path::new(env!("CARGO_BIN_EXE_vpnd")).parent().expect("a directory");
    build.args(["--fast", "--version", version]).arg("--programs").arg(programs);
    testkit::output({
        build.arg("--output").arg(&to);
        build
    });
    to
}

/// Why nobody can make packages, or boot a systemd, on this machine: its kernel gives no control groups, or the registry did not
/// give the tools to `tests/setup`.
fn impossible() -> Option<String> {
    const WHY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools.unavailable");
    if let Ok(why) = std::fs::read_to_string(WHY) {
        return Some(why.trim().to_owned());
    }
    // What else is missing is an error where no test may be left out.
    if testkit::missing(NEEDS).is_some() {
        return None;
    }
    let probe = "mount --make-rprivate / && mount -t cgroup2 none /mnt && mkdir /mnt/vpn-test-probe && \
                 rmdir /mnt/vpn-test-probe";
    let mut unshare = Command::new("unshare");
    let tried = unshare.args(["--mount", "sh", "-c", probe]).output().ok()?;
    let said = String::from_utf8_lossy(&tried.stderr).trim().to_owned();
    (!tried.status.success()).then(|| format!("no control groups of version 2: {said}"))
}

fn trials() -> Vec<Trial> {
    let all = || debian::trials().into_iter().chain(rpm::trials());
    let Some(why) = impossible() else { return all().collect() };
    let leave_out = |trial: Trial| {
        let why = why.clone();
        Trial::ignorable_test(trial.name().to_owned(), move || Ok(testkit::leave_out(&why)))
    };
    all().map(leave_out).collect()
}

fn main() -> std::process::ExitCode {
    testkit::run(trials())
}
