//! Tests that cannot run on a machine are noted here, and the last test target of `cargo test --workspace` says how
//! many there were, why, and how to install the missing programs.
//!
//! The notes are a file beside the test binaries, named after the cargo process that runs them.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};

const PREFIX: &str = "left-out.";

/// Whether tests that cannot run must fail: `VPN_TEST_REQUIRE=all` in the environment.
pub fn is_forbidden() -> bool {
    std::env::var("VPN_TEST_REQUIRE").is_ok_and(|value| value == "all")
}

/// Notes that so many tests cannot run, for a reason.
pub fn note(reason: &str, tests: usize) {
    let Some(directory) = directory() else { return };
    let file = directory.join(format!("{PREFIX}{}", parent_id()));
    if let Ok(mut file) = File::options().create(true).append(true).open(file) {
        // A test that cannot say that it was left out is still reported as ignored.
        let _ = writeln!(file, "{tests} {reason}");
    }
}

/// Says why a test does nothing.
///
/// # Panics
/// Where no test may be left out.
pub fn skip(reason: &str) {
    assert!(!is_forbidden(), "required, but {reason}");
    note(reason, 1);
    println!("skipped: {reason}");
}

/// The tests that were left out since this cargo process began; the notes are removed.
pub fn summary() -> Option<String> {
    let directory = directory()?;
    let file = directory.join(format!("{PREFIX}{}", parent_id()));
    let notes = fs::read_to_string(&file).unwrap_or_default();
    let _ = fs::remove_file(file);
    remove_stale(&directory);
    written(&notes)
}

fn written(notes: &str) -> Option<String> {
    let mut reasons = BTreeMap::<&str, usize>::new();
    for (tests, reason) in notes.lines().filter_map(|line| line.split_once(' ')) {
        *reasons.entry(reason).or_default() += tests.parse::<usize>().unwrap_or(0);
    }
    let all: usize = reasons.values().sum();
    let mut text = format!("left out: {all} tests\n");
    for (reason, tests) in &reasons {
        let _ = writeln!(text, "{tests:7}  {reason}");
    }
    text.push_str("As root on Debian, tests/setup installs everything they need.\n");
    (all > 0).then_some(text)
}

/// Where cargo puts test binaries.
fn directory() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.to_owned())
}

/// Removes the notes of cargo processes that have ended, which were interrupted or ran only some of the targets.
fn remove_stale(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
