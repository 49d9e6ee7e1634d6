//! The scripts of the repository: each says at its beginning which programs it lacks, and how they are installed; and
//! `.ci/changed` chooses the tests of each file that differs.
#![forbid(unsafe_code)]

use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Directories whose scripts people and other scripts run.
const PLACES: [&str; 3] = ["packaging", "tests", "benches"];

/// Scripts that need nothing but the essential packages of Debian; or that run inside a guest, whose start needs more.
const WITHOUT_NEEDS: [&str; 5] = [
    "packaging/book-links", // packaging/book calls it
    "packaging/documents",
    "tests/kernel/guest/init",
    "tests/lacking",
    "tests/needs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Files below a directory that begin with `#!` and can be executed, from the root on.
fn scripts(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).expect("readable").flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("known"));
        let is_executable = || {
            let mode = entry.metadata().expect("readable").permissions().mode();
            mode & 0o111 != 0 && fs::read(&path).is_ok_and(|text| text.starts_with(b"#!"))
        };
        if kind.is_dir() {
            scripts(&path, found);
        } else if kind.is_file() && is_executable() {
            let name = path.strip_prefix(root()).expect("below the root");
            found.insert(name.display().to_string());
        }
    }
}

/// A directory with all programs of the search path but those of the list of `tests/needs`, and but those of Rust.
fn without_listed_programs() -> tempfile::TempDir {
    let list = fs::read_to_string(root().join("tests/needs")).expect("there");
    let listed = list.lines().filter_map(|line| line.trim().strip_prefix('[')?.split(']').next());
    let listed: BTreeSet<&str> = listed.chain(["cargo", "rustc", "rustup"]).collect();
    assert!(listed.len() > 10, "{listed:?}");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = std::env::var_os("PATH").unwrap_or_default();
    for entry in std::env::split_paths(&path).flat_map(fs::read_dir).flatten().flatten() {
        if !listed.contains(&*entry.file_name().to_string_lossy()) {
            // The first in the search path counts.
            let _ = symlink(entry.path(), directory.path().join(entry.file_name()));
        }
    }
    directory
}

/// Where a program is.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.exists())
}

#[test]
fn each_script_says_what_it_lacks_before_it_begins() {
    let mut found = BTreeSet::new();
    for place in PLACES {
        scripts(&root().join(place), &mut found);
    }
    for name in WITHOUT_NEEDS {
        assert!(found.remove(name), "there is no script {name}");
    }
    assert!(found.len() >= 9, "{found:?}");
    let programs = without_listed_programs();
    for name in found {
        let text = fs::read_to_string(root().join(&name)).expect("text");
        // It would begin with its work otherwise.
        let asks = text.lines().any(|line| line.contains("needs ") || line.contains("\"needs\""));
        assert!(asks, "{name} does not say what it needs: see tests/needs");
        let needed = text.lines().filter_map(|line| line.split_once("needs ")?.1.split('"').next());
        let mut needed = needed.flat_map(str::split_whitespace);
        if text.starts_with("#!/usr/bin/env bash") && needed.all(|need| need.starts_with('/')) {
            // Files cannot be hidden by the search path.
            continue;
        }
        let mut command = match text.starts_with("#!/usr/bin/env python3") {
            // Without its interpreter no script can say anything.
            true => match program("python3") {
                Some(python) => Command::new(python),
                None => continue,
            },
            false => Command::new("bash"),
        };
        command.arg(root().join(&name));
        if name.ends_with("build-kernel") {
            // Where this machine has the kernel already, the script has nothing to do and needs nothing.
            command.arg(programs.path().join("kernel"));
        }
        let Output { status, stdout, stderr } = command
            .current_dir(root())
            .env("PATH", programs.path())
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let said = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(1), "{name}: {}{said}", String::from_utf8_lossy(&stdout));
        assert!(said.contains(": missing: "), "{name}: {said}");
        assert!(said.contains("\n  apt-get install --no-install-recommends "), "{name}: {said}");
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

/// The options that `.ci/changed` prints for files, from the root on; `None` without Python.
fn chosen(files: &[&str]) -> Option<String> {
    changed(files, "")
}

/// The output of `.ci/changed` for files, from the root on, with this option; `None` without Python.
fn changed(files: &[&str], option: &str) -> Option<String> {
    let command = &format!("printf '%s\\n' \"$@\" | .ci/changed {option}");
    let mut shell = Command::new("sh");
    shell.args(["-c", command, "sh"]).args(files).current_dir(root());
    let output = shell.output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("python3") && output.status.code() == Some(127) {
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(String::from_utf8(output.stdout).expect("text").trim().to_owned())
}

#[test]
fn the_workflows_of_a_forge_are_those_that_the_scripts_make() {
    for name in ["landing", "nightly"] {
        let mut script = Command::new(root().join(".ci/workflows"));
        let made = script.args(["--print", name]).output().expect("it can be started");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let path = root().join(format!(".github/workflows/{name}.yml"));
        let there = fs::read_to_string(path).expect("the file");
        assert_eq!(there, String::from_utf8_lossy(&made.stdout), "write them: .ci/workflows");
    }
}

#[test]
fn scenarios_are_chosen_by_name() {
    let Some(of_file) = changed(&["tests/netns/reload.rs"], "--scenarios") else {
        return left_out::skip("no program python3");
    };
    assert!(of_file.starts_with("netns\ta broken policy changes nothing\nnetns\t"), "{of_file}");
    let of_target = changed(&["tests/kernel/guest/init"], "--scenarios").expect("python3 is there");
    assert_eq!(of_target, "kernel", "without a name: all of it");
    let directories = fs::read_dir(root().join("crates")).expect("the crates");
    let crates = directories.map(|d| d.expect("it can be read").file_name().into_string());
    let files = crates.map(|name| format!("crates/{}/src/lib.rs", name.expect("text")));
    let files: Vec<String> =
        files.chain(["packaging/build", "src/planes.rs"].map(str::to_owned)).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let all = changed(&files, "--scenarios").expect("python3 is there");
    assert!(all.lines().count() > 8, "{all}");
    for line in all.lines() {
        let (target, name) = line.split_once('\t').expect("a target and a name");
        let mut sources = String::new();
        read_sources(&root().join("tests").join(target), &mut sources);
        let there =
            name.split("::").flat_map(|part| part.split(": ")).all(|part| sources.contains(part));
        assert!(there, "no scenario of {target} has this name: {name}");
    }
}

fn read_sources(directory: &Path, sources: &mut String) {
    for entry in fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("a file")) {
        let path = entry.path();
        match path.extension().and_then(|end| end.to_str()) {
            Some("rs") => sources.push_str(&fs::read_to_string(&path).expect("text")),
            None if path.is_dir() => read_sources(&path, sources),
            _ => {}
        }
    }
}

#[test]
fn the_tests_of_each_file_that_differs_are_chosen() {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--format-version", "1", "--no-deps"]).current_dir(root());
    let metadata = metadata.output().expect("cargo runs");
    let metadata: Metadata = serde_json::from_slice(&metadata.stdout).expect("metadata");
    let targets = metadata.packages.into_iter().flat_map(|package| package.targets);
    let tests: Vec<Target> = targets.filter(|t| t.kind.iter().any(|kind| kind == "test")).collect();
    assert!(tests.len() > 20, "{}", tests.len());
    for Target { name, src_path, .. } in tests {
        let path = src_path.canonicalize().expect("there");
        let file = path.strip_prefix(root()).expect("below the root").display().to_string();
        let Some(options) = chosen(&[&file]) else {
            return left_out::skip("no program python3");
        };
        // Steps of their own play these.
        let expected = match name.as_str() {
            "simulated" | "netns" | "interop" | "kernel" | "packages" => String::new(),
            name => format!("--test={name}"),
        };
        assert_eq!(options, expected, "{file}");
    }
    for (file, expected) in [
        ("crates/vpnd/src/main.rs", "--bins --test=control --test=texts"),
        ("crates/cli/src/main.rs", "--bins --test=delegated --test=libraries"),
        ("tests/kernel/guest/init", "--test=scripts"),
        (
            "crates/net/tests/ends/mod.rs",
            "--test=hostile --test=lifetimes --test=pair --test=relay --test=worlds",
        ),
        ("src/gateway.rs", "--test=serialization"),
        ("docs/start/install.md", "--test=circles --test=coverage --test=docs"),
        ("packaging/build", "--test=scripts"),
        ("LICENSE-MIT", ""),
    ] {
        assert_eq!(chosen(&[file]).as_deref(), Some(expected), "{file}");
    }
}
