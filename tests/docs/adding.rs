//! The pages "Adding a …": their tables name places that exist, and tests that exist.

use crate::{all_sources, code_spans, root};
use std::fs;
use std::path::Path;

/// The beginnings of a last column that names no test.
const NO_NAMES: [&str; 4] = ["the compiler", "cargo", "no test", "the test of the scenario"];

/// A row of a table: the place, the change there, and what fails if that is forgotten.
struct Row {
    page: String,
    cells: [String; 3],
}

/// The pages with their texts.
fn pages() -> Vec<(String, String)> {
    let directory = root().join("docs/understand/adding");
    let entries = fs::read_dir(directory).expect("the pages").flatten();
    let mut pages: Vec<_> = entries
        .map(|entry| {
            let text = fs::read_to_string(entry.path()).expect("a readable page");
            (entry.file_name().to_string_lossy().into_owned(), text)
        })
        .collect();
    pages.sort();
    assert!(pages.len() > 6, "only {} pages were found", pages.len());
    pages
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (page, text) in pages() {
        let lines =
            text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| place"));
        for line in lines {
            let cells = line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned());
            let cells: Vec<_> = cells.collect();
            let cells = cells.try_into().unwrap_or_else(|_| panic!("{page}: three cells: {line}"));
            rows.push(Row { page: page.clone(), cells });
        }
    }
    assert!(rows.len() > 40, "only {} rows were found", rows.len());
    rows
}

#[test]
fn every_place_exists() {
    let mut missing = Vec::new();
    for Row { page, cells: [place, change, _] } in rows() {
        for path in code_spans(&place) {
            let path = root().join(&path);
            if !path.exists() {
                missing.push(format!("{page}: {}", path.display()));
            }
            // Of a folder, the second column may name files.
            let is_file = |span: &String| Path::new(span).extension().is_some_and(|e| e == "rs");
            let files = code_spans(&change).into_iter().filter(is_file);
            let below = files.map(|file| match file.starts_with("crates/") {
                true => root().join(file),
                false => path.join(file),
            });
            missing
                .extend(below.filter(|p| !p.exists()).map(|p| format!("{page}: {}", p.display())));
        }
    }
    assert!(missing.is_empty(), "places that are not there:\n{}", missing.join("\n"));
}

#[test]
fn every_test_that_fails_without_an_entry_exists() {
    let sources = all_sources();
    let mut missing = Vec::new();
    let mut count = 0;
    for Row { page, cells: [.., test] } in rows() {
        if NO_NAMES.iter().any(|words| test.starts_with(words)) {
            continue;
        }
        let functions = code_spans(&test).into_iter().map(|name| format!("fn {name}("));
        let titles = test.split('"').skip(1).step_by(2).map(|title| format!("\"{title}\""));
        let named: Vec<_> = functions.chain(titles).collect();
        assert!(!named.is_empty(), "{page}: {test}");
        count += named.len();
        missing.extend(
            named.into_iter().filter(|n| !sources.contains(n)).map(|n| format!("{page}: {n}")),
        );
    }
    // Outside of tables: names of so many words are those of tests.
    for (page, text) in pages() {
        let is_test = |span: &String| {
            let is_plain =
                span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            is_plain && span.matches('_').count() > 2 && !span.starts_with("vpnd_")
        };
        let named = code_spans(&text).into_iter().filter(is_test).map(|name| format!("fn {name}("));
        missing.extend(named.filter(|n| !sources.contains(n)).map(|n| format!("{page}: {n}")));
    }
    assert!(count > 10, "only {count} tests are named");
    assert!(missing.is_empty(), "tests that are not there:\n{}", missing.join("\n"));
}

#[test]
fn every_page_names_an_example() {
    for (page, text) in pages() {
        let example = text.split("\n## Example\n").nth(1);
        let has_title = example.is_some_and(|text| text.contains("commit") && text.contains('"'));
        assert!(has_title, "docs/understand/adding/{page} names no commit");
    }
}
