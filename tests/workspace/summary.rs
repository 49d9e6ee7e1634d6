//! The last words of `cargo test --workspace`, before the examples of the documentation: which tests were left out.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(later) = later_package() {
        eprintln!("cargo runs the tests of {later} after this target, which is to be the last");
        return ExitCode::FAILURE;
    }
    match left_out::summary() {
        Some(text) => print!("\n{text}\n"),
        None => println!("\nleft out: no test\n"),
    }
    ExitCode::SUCCESS
}

/// A package of this workspace whose name comes after that of this one.
fn later_package() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
    let manifests = fs::read_dir(root).into_iter().flatten().flatten();
    let texts =
        manifests.filter_map(|entry| fs::read_to_string(entry.path().join("Cargo.toml")).ok());
    let names = texts
        .filter_map(|text| text.split_once("[package]")?.1.split('"').nth(1).map(str::to_owned));
    names.max().filter(|name| name.as_str() > env!("CARGO_PKG_NAME"))
}
