//! The packages that `packaging/build` makes, on machines with nothing but a minimal Debian and its systemd; what
//! `vpnd install` makes of such a machine, from its boot to its power-off; and the image of a container that
//! `packaging/image/build` makes of the Debian package.
//!
//! Needs root, `/dev/net/tun`, control groups of version 2, the programs below, `target/tools`,
//! `target/image` and `target/schemas`, which `tests/setup` fills, and `target/peers/debian`, which `tests/peers` makes.
#![forbid(unsafe_code)]

mod boot;
mod debian;
mod image;
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
    Need::File(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/bin/cargo-about")),
    Need::Peer("debian", "usr/sbin/nft"),
];

/// The packages of the programs that were built with these tests, in two versions.
static PACKAGES: LazyLock<[PathBuf; 2]> = LazyLock::new(|| ["0.1.0", "0.1.1"].map(package));

/// Makes `vpnd.deb` and `vpnd.rpm` of a version; returns their directory.
fn package(version: &str) -> PathBuf {
    let to = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/packages").join(version);
    package_to(version, to)
}

fn package_to(version: &str, to: PathBuf) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut build = Command::new(root.join("packaging/build"));
    let programs = Path::new(env!("CARGO_BIN_EXE_vpnd")).parent().expect("a directory");
    build.args(["--fast", "--version", version]).arg("--programs").arg(programs);
    testkit::output({
        build.arg("--output").arg(&to);
        build
    });
    to
}

/// Why nobody can make packages: the registry did not give the tools to `tests/setup`.
fn without_tools() -> Option<String> {
    const WHY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools.unavailable");
    std::fs::read_to_string(WHY).ok().map(|why| why.trim().to_owned())
}

/// Why nobody can make packages: the registry does not give the crates whose licenses are packed, which are more than those
/// of a build.
fn without_crates() -> Option<String> {
    // Any other lack is an error where no test may be left out.
    if testkit::missing(NEEDS).is_some() {
        return None;
    }
    let mut fetch = Command::new(env!("CARGO"));
    fetch.args(["fetch", "--quiet", "--locked"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let fetched = fetch.output().is_ok_and(|output| output.status.success());
    (!fetched).then(|| "the registry does not give all crates of Cargo.lock".to_owned())
}

/// Why nobody can make an image: Debian's archive did not give its packages to `tests/setup`.
fn without_base() -> Option<String> {
    const WHY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/image.unavailable");
    std::fs::read_to_string(WHY).ok().map(|why| why.trim().to_owned())
}

/// Why no older Debian can run the programs: its C library is older than that of this machine.
fn newer_than_debian_12() -> Option<String> {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let is_12 = release.lines().any(|line| line == "VERSION_ID=\"12\"");
    (!is_12).then(|| "the programs were not built on Debian 12".to_owned())
}

/// Why nobody can boot a systemd on this machine: its kernel gives no control groups.
fn without_groups() -> Option<String> {
    // Any other lack is an error where no test may be left out.
    if testkit::missing(boot::NEEDS).is_some() {
        return None;
    }
    let probe = "mount --make-rprivate / && mount -t cgroup2 none /mnt && mkdir /mnt/vpn-test-probe && \
                 rmdir /mnt/vpn-test-probe";
    let mut unshare = Command::new("unshare");
    let tried = unshare.args(["--mount", "sh", "-c", probe]).output().ok()?;
    let said = String::from_utf8_lossy(&tried.stderr).trim().to_owned();
    (!tried.status.success()).then(|| format!("no control groups of version 2: {said}"))
}

/// The trials, left out if there is a reason.
fn unless(why: Option<String>, trials: impl Iterator<Item = Trial>) -> Vec<Trial> {
    let Some(why) = why else { return trials.collect() };
    let leave_out = |trial: Trial| {
        let why = why.clone();
        Trial::ignorable_test(trial.name().to_owned(), move || Ok(testkit::leave_out(&why)))
    };
    trials.map(leave_out).collect()
}

fn trials() -> Vec<Trial> {
    let groups = without_groups();
    let without = without_tools().or(groups.clone()).or_else(without_crates);
    let without_image = without.clone().or_else(without_base);
    let of_packages = debian::trials().into_iter().chain(rpm::trials());
    let mut trials = unless(groups, boot::trials().into_iter());
    trials.extend(unless(without.clone(), of_packages));
    let on_12 = debian::trials_on_12().into_iter();
    trials.extend(unless(without.or_else(newer_than_debian_12), on_12));
    trials.extend(unless(without_image, image::trials().into_iter()));
    trials.extend(image::trials_of_files());
    trials
}

fn main() -> std::process::ExitCode {
    testkit::run(trials())
}
