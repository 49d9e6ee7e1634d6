//! Errors of the library can be read wherever they are printed: a program prints the one that its `main` returns by
//! `Debug`, which is to be its `Display`.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

/// The crates whose errors a program that embeds the library meets.
const CRATES: &[&str] =
    &["policy", "crypto", "esp", "ike", "net", "userspace", "xfrm", "host", "token"];

#[test]
fn public_errors_have_a_debug_for_readers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    collect(&root.join("src"), &mut files);
    CRATES.iter().for_each(|name| collect(&root.join("crates").join(name).join("src"), &mut files));
    let (mut found, mut readable) = (Vec::new(), 0);
    for file in files {
        let text = fs::read_to_string(&file).expect("readable");
        readable += text.matches("::readable_debug!(").count();
        for name in unreadable(&text) {
            found.push(format!("{}: {name}", file.display()));
        }
    }
    assert!(found.is_empty(), "derive no Debug, use policy::readable_debug!: {found:#?}");
    assert!(readable > 30, "{readable} errors");
}

#[test]
fn an_error_with_a_derived_debug_is_found() {
    let text = "#[derive(Debug, thiserror::Error)]\n#[error(\"a\")]\npub struct A;\n\
                #[derive(Clone, Debug)]\npub enum B {}\nimpl std::error::Error for B {}\n\
                #[derive(thiserror::Error)]\npub struct C;\npolicy::readable_debug!(C);\n\
                #[derive(Debug, thiserror::Error)]\nstruct Private;\n";
    assert_eq!(unreadable(text), ["A", "B"]);
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The public errors of a file whose `Debug` is derived.
fn unreadable(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut derived = "";
    for line in text.lines() {
        if let Some(traits) = line.strip_prefix("#[derive(") {
            derived = traits;
        }
        let item = ["pub struct ", "pub enum "].iter().find_map(|start| line.strip_prefix(start));
        let private = ["struct ", "enum ", "pub("].iter().any(|start| line.starts_with(start));
        if let Some(item) = item {
            let end = item.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(item.len());
            let name = &item[..end];
            let by_hand = text.lines().any(|line| {
                line.starts_with("impl") && line.contains(&format!("Error for {name} {{"))
            });
            if derived.contains("Debug") && (derived.contains("thiserror::Error") || by_hand) {
                found.push(name);
            }
        }
        if item.is_some() || private {
            derived = "";
        }
    }
    found
}
