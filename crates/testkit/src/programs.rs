//! Programs that tests run.

use std::path::PathBuf;
use std::process::Command;

/// The path of `vpnd` or `vpnctl`, as cargo builds them for the tests of `vpn-cli`: beside the directory of the test's
/// own executable.
pub fn built(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("this program");
    let directory = this.parent().and_then(|deps| deps.parent()).expect("cargo's directories");
    directory.join(name)
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
