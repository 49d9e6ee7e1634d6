//! The documents of a package, as `packaging/documents` makes them: they are read without the repository.

use crate::book::links;
use crate::{named_path, root};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a readable directory").flatten();
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(|entry| below(entry.path())).collect()
}

#[test]
fn every_link_and_picture_of_an_installed_document_is_installed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let made = Command::new(root().join("packaging/documents")).arg(directory.path()).status();
    assert!(made.expect("bash is there").success());
    let mut broken = BTreeSet::new();
    let (mut pages, mut pictures) = (0, 0);
    for file in files(directory.path()) {
        if file.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        pages += 1;
        let text = fs::read_to_string(&file).expect("a readable document");
        let directory = file.parent().expect("a file is in a directory");
        for link in links(&text).filter(|link| !link.file.is_empty()) {
            let is_there = directory.join(link.file).is_file();
            pictures += usize::from(is_there && !link.file.ends_with(".md"));
            if !is_there {
                broken.insert(format!("{}: {}", file.display(), link.file));
            }
        }
        assert!(!text.contains("{{#include"), "{} has not what it includes", file.display());
    }
    assert!(pages > 50 && pictures > 40, "only {pages} pages, and {pictures} links to pictures");
    assert!(broken.is_empty(), "links that lead nowhere in a package:\n{broken:#?}");
}

/// An administrator with a package has no repository: the pages for administrators name samples that are installed.
#[test]
fn every_sample_that_a_page_for_administrators_names_is_installed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let made = Command::new(root().join("packaging/documents")).arg(directory.path()).status();
    assert!(made.expect("bash is there").success());
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).expect("it is there");
    let (_, for_them) = summary.split_once("# Start").expect("the part");
    let (for_them, _) = for_them.split_once("# Understand").expect("the part after those");
    let mut missing = BTreeSet::new();
    let mut count = 0;
    for page in links(for_them) {
        let text = fs::read_to_string(directory.path().join("docs").join(page.file));
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", page.file));
        for code in crate::lines_of_code(&text) {
            for named in code.split_whitespace().filter_map(named_path) {
                if named.starts_with("config/") {
                    count += 1;
                    if !directory.path().join(named).exists() {
                        missing.insert(format!("docs/{}: {named}", page.file));
                    }
                }
            }
        }
    }
    assert!(count > 10, "only {count} samples are named");
    assert!(missing.is_empty(), "samples that no package has:\n{missing:#?}");
}
