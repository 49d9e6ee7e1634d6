//! The cases from the field: each row names tests that exist.

use crate::root;
use std::fs;
use std::path::PathBuf;

/// The source of every test, and of code with tests beside it.
fn sources() -> Vec<String> {
    let mut found = Vec::new();
    let mut directories: Vec<PathBuf> =
        ["tests", "crates", "src"].map(|name| root().join(name)).into();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a readable directory").flatten() {
            let path = entry.path();
            if path.is_dir() && entry.file_name() != "target" {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(fs::read_to_string(&path).expect("a readable source"));
            }
        }
    }
    found
}

#[test]
fn each_case_of_the_field_names_its_tests() {
    let text = fs::read_to_string(root().join("docs/migrate/field-cases.md")).expect("it is there");
    let sources = sources();
    let is_head = |line: &str| line.ends_with("| test |") || line.starts_with("|---");
    let rows = text.lines().filter(|line| line.starts_with('|') && !is_head(line));
    let mut seen = 0;
    for row in rows {
        let (_, last) = row.trim_end_matches(" |").rsplit_once("| ").expect("columns");
        let mut names = last.split('`').skip(1).step_by(2).peekable();
        assert!(names.peek().is_some(), "no test: {row}");
        for name in names {
            let (function, trial) = (format!("fn {name}("), format!("\"{name}\""));
            let is_there = root().join(name).is_file()
                || sources
                    .iter()
                    .any(|source| source.contains(&function) || source.contains(&trial));
            assert!(is_there, "docs/migrate/field-cases.md: there is no test {name}");
        }
        seen += 1;
    }
    assert!(seen > 20, "{seen} rows");
}
