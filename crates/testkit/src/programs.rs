//! Programs that tests run.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The path of `vpnd`, as cargo builds it for tests: beside the directory of the test's own executable.
pub fn vpnd() -> PathBuf {
    profile().join("vpnd")
}

/// The path of `vpnctl`, beside `vpnd`.
///
/// Cargo builds a program for the tests of its own package, and tests of another package use this one. So that they do
/// not use an old one, it is built again if a source has changed since.
///
/// # Panics
/// Where it cannot be built.
pub fn vpnctl() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| up_to_date("vpnctl", "delegated"))
}

/// The path of `vpn-lab`, as that of [`vpnctl`].
///
/// # Panics
/// Where it cannot be built.
pub fn vpn_lab() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| up_to_date("vpn-lab", "laboratory"))
}

/// The path of a program; `test`: a test target of its package, with which cargo builds it.
fn up_to_date(name: &str, test: &str) -> String {
    let profile = profile();
    let program = profile.join(name);
    // Without cargo there are no sources: in a guest, and in a container.
    if let Some(cargo) = env::var_os("CARGO") {
        build_again_if_old(&program, test, &profile, &cargo);
    }
    program.into_os_string().into_string().expect("a path of text")
}

/// The directory of the programs of this build.
fn profile() -> PathBuf {
    let this = env::current_exe().expect("this program");
    this.parent().and_then(Path::parent).expect("cargo's directories").to_owned()
}

fn build_again_if_old(program: &Path, test: &str, profile: &Path, cargo: &OsStr) {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crates");
    let built = modified(program);
    if built.is_some_and(|built| newest(crates) <= built) {
        return;
    }
    let mut command = Command::new(cargo);
    // As a part of the tests of all, so that its libraries have the features that they have there.
    command.args(["test", "--quiet", "--offline", "--workspace", "--no-run", "--test", test]);
    command.arg("--target-dir").arg(profile.parent().expect("the target directory"));
    if profile.ends_with("release") {
        command.arg("--release");
    }
    // What cargo has told this test: build scripts that look at it would run again, and all that uses them.
    let told =
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_TARGET_TMPDIR", "CARGO_CRATE"];
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| told.iter().any(|start| name.starts_with(start))) {
            command.env_remove(name);
        }
    }
    let status = command.current_dir(crates).status().expect("cargo");
    assert!(status.success(), "{command:?}: {status}");
    // Where nothing that it is made of has changed, cargo leaves its time as it was, and the next test would ask again.
    let now = File::options().append(true).open(program);
    let _ = now.and_then(|file| file.set_modified(SystemTime::now()));
}

/// The time of the last change of a source or a manifest of these crates.
fn newest(directory: &Path) -> SystemTime {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let changed = entries.filter_map(|entry| {
        let path = entry.path();
        let is_source = path.extension().is_some_and(|end| end == "rs" || end == "toml");
        match entry.metadata().ok()? {
            metadata if metadata.is_dir() => Some(newest(&path)),
            metadata if is_source => metadata.modified().ok(),
            _ => None,
        }
    });
    changed.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Standard output of a command.
///
/// # Panics
/// Where it fails.
pub fn output(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}
