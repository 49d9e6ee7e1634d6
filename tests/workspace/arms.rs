//! Algorithms, identities and credentials of a policy are matched without a wildcard: one that is added later is then an
//! error of the compiler in each place that has to know it, and neither a panic nor the word of another one.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        match path.extension() {
            _ if path.is_dir() => sources(&path, found),
            Some(extension) if extension == "rs" => found.push(path),
            _ => {}
        }
    }
}

#[test]
fn no_wildcard_stands_for_an_algorithm_that_is_added_later() {
    let mut found = Vec::new();
    for directory in ["crates", "src"] {
        sources(&root().join(directory), &mut found);
    }
    assert!(found.len() > 500, "only {} sources", found.len());
    for path in found {
        let text = fs::read_to_string(&path).expect("UTF-8");
        let arm = text.lines().find(|line| line.contains("_ => unreachable!(\"every "));
        assert_eq!(arm, None, "{}", path.display());
    }
}

#[test]
fn the_enums_of_a_policy_are_exhaustive() {
    let algorithms = ["cipher", "integrity", "prf", "ah", "group", "key"];
    let algorithms = algorithms.map(|file| format!("algorithms/src/{file}.rs"));
    let others = ["proposal", "identity", "credential"].map(|file| format!("policy/src/{file}.rs"));
    for file in algorithms.into_iter().chain(others) {
        let text = fs::read_to_string(root().join("crates").join(&file)).expect("UTF-8");
        assert!(text.contains("pub enum "), "{file}");
        assert!(!text.contains("#[non_exhaustive]"), "{file}: others have to add a wildcard");
    }
}
