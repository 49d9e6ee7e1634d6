//! Checks the documents against the repository: every path and link in Markdown exists, also in the documents of a
//! package, the book has every page, and the programs have every command that a document shows. The figures of the
//! README are those that were measured, and the cases from the field have tests. The pages about additions name places and
//! tests that exist. One term stands for one thing. The front pages of crates and of test targets name files that exist,
//! and few of them.
#![forbid(unsafe_code)]

mod adding;
mod book;
mod commands;
mod field;
mod figures;
mod installed;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Directories at the root of the repository. A path in a document that begins with one of them must exist.
const ROOTS: [&str; 8] =
    ["benches/", "config/", "crates/", "docs/", "examples/", "fuzz/", "src/", "tests/"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All Markdown files of the repository, without build output.
fn documents() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut directories = vec![root()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a readable directory").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                directories.push(path);
            } else if name.ends_with(".md") {
                let text = fs::read_to_string(&path).expect("a readable document");
                found.push((path, text));
            }
        }
    }
    found.sort();
    assert!(found.len() > 20, "only {} documents were found", found.len());
    found
}

/// The text between single backticks, outside of fenced and indented blocks.
fn code_spans(text: &str) -> Vec<String> {
    let mut prose = String::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !line.starts_with("    ") {
            prose.push_str(line);
        }
        // A span may go over the end of a line, and not over that of a paragraph.
        prose.push(if line.trim().is_empty() { '\n' } else { ' ' });
    }
    let spans = prose.split('\n').flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The words of code spans, and the lines of code blocks. A line that ends with a backslash goes on in the next one.
fn lines_of_code(text: &str) -> Vec<String> {
    let mut lines = code_spans(text);
    let mut fenced = false;
    let mut begun = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            // Two blanks in a line begin an explanation.
            let line = if begun.is_empty() { line } else { line.trim_start() };
            match line.strip_suffix('\\') {
                Some(part) => begun = format!("{begun}{} ", part.trim_end()),
                None => lines.push(std::mem::take(&mut begun) + line),
            }
        }
    }
    lines
}

/// The path that a word of a document names, if it names one of the repository.
fn named_path(word: &str) -> Option<&str> {
    let word = word.trim_matches(|c: char| "()[]<>,;:\"'".contains(c)).trim_end_matches(['.', '/']);
    let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    (is_plain && ROOTS.iter().any(|root| word.starts_with(root))).then_some(word)
}

#[test]
fn every_test_that_the_sources_name_exists() {
    let text = fs::read_to_string(root().join("docs/understand/sources.md")).expect("it is there");
    let rust = all_sources();
    let mut missing = Vec::new();
    let mut count = 0;
    let rows = text.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| in the document"));
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [capability, _, shown, state] = cells[..] else { panic!("four cells: {row}") };
        let known = ["works", "partly: ", "not yet: ", "not on this machine: "];
        assert!(known.iter().any(|known| state.starts_with(known)), "{capability}: {state}");
        assert!(state != "works" || !shown.is_empty(), "{capability}: no test");
        for (quote, opens) in [('`', "fn "), ('"', "\"")] {
            let closes = if quote == '`' { "(" } else { "\"" };
            for test in shown.split(quote).skip(1).step_by(2) {
                count += 1;
                if !rust.contains(&format!("{opens}{test}{closes}")) {
                    missing.push(format!("{capability}: {test}"));
                }
            }
        }
    }
    assert!(count > 50, "only {count} tests were found");
    assert!(missing.is_empty(), "tests that are not there:\n{}", missing.join("\n"));
}

#[test]
fn every_test_that_security_names_exists() {
    let text = fs::read_to_string(root().join("SECURITY.md")).expect("it is there");
    // It has no blocks of code, and lists in lists.
    let text = text.lines().map(str::trim_start).collect::<Vec<_>>().join("\n");
    let rust = all_sources();
    // A title of some words, or a function. Anything else in backticks is a path, a command or a setting.
    let is_command = |span: &str| ["vpn", "nft ", "ip "].iter().any(|word| span.starts_with(word));
    let has_words = |span: &str| [' ', '_'].iter().any(|&gap| span.matches(gap).count() > 2);
    let is_name =
        |span: &&String| has_words(span) && !span.contains(['/', '<', '=']) && !is_command(span);
    let spans = code_spans(&text);
    let named: Vec<_> = spans.iter().filter(is_name).collect();
    let is_there =
        |name| rust.contains(&format!("fn {name}()")) || rust.contains(&format!("\"{name}"));
    let missing: Vec<_> = named.iter().filter(|name| !is_there(name.as_str())).collect();
    assert!(named.len() > 25, "only {} tests were found", named.len());
    assert!(missing.is_empty(), "tests that are not there: {missing:#?}");
}

/// The text of all Rust files of the product and its tests.
fn all_sources() -> String {
    let mut rust = String::new();
    for directory in ["crates", "src", "tests"] {
        sources(&root().join(directory), &mut rust);
    }
    rust
}

/// Adds the text of all Rust files below a directory.
fn sources(directory: &Path, text: &mut String) {
    for entry in fs::read_dir(directory).expect("a readable directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).expect("a readable source"));
        }
    }
}

#[test]
fn every_path_exists() {
    let mut missing = BTreeSet::new();
    let mut count = 0;
    for (path, text) in documents() {
        for code in lines_of_code(&text) {
            for named in code.split_whitespace().filter_map(named_path) {
                count += 1;
                if !root().join(named).exists() {
                    missing.insert(format!("{}: {named}", path.display()));
                }
            }
        }
    }
    assert!(count > 100, "only {count} paths were found");
    let missing: Vec<_> = missing.into_iter().collect();
    assert!(missing.is_empty(), "paths that do not exist:\n{}", missing.join("\n"));
}

/// The front pages: the `//!` text at the head of each crate's `lib.rs` and of each `main.rs` in `tests/`.
fn front_pages() -> Vec<(PathBuf, String)> {
    let mut files = vec![root().join("src/lib.rs")];
    for (directory, file) in [("crates", "src/lib.rs"), ("tests", "main.rs")] {
        let entries = fs::read_dir(root().join(directory)).expect("a readable directory").flatten();
        files.extend(entries.map(|entry| entry.path().join(file)).filter(|file| file.exists()));
    }
    files.sort();
    let with_text = |file: PathBuf| {
        let text = front_page(&file);
        (file, text)
    };
    let pages: Vec<_> = files.into_iter().map(with_text).collect();
    assert!(pages.len() > 20, "only {} front pages were found", pages.len());
    pages
}

/// The `//!` text of a Rust file, as Markdown.
fn front_page(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("a readable source");
    let lines = text.lines().filter_map(|line| line.strip_prefix("//!"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// Returns `true` if a code span of a front page is the path of a file or directory of the repository. Paths of the
/// host begin with a slash, and a build makes all that is in `target/`.
fn is_path(span: &str) -> bool {
    let is_plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let names_a_file = span.contains('/') || span.ends_with(".rs");
    is_plain && names_a_file && !span.starts_with('/') && !span.starts_with("target/")
}

#[test]
fn every_path_in_a_front_page_exists() {
    let mut missing = Vec::new();
    let mut count = 0;
    for (file, text) in front_pages() {
        // A path begins at the root of the repository, or at the directory of the crate or of its sources.
        let directories = file.ancestors().skip(1).take(2).map(Path::to_path_buf);
        let bases: Vec<_> = directories.chain([root()]).collect();
        for path in code_spans(&text).into_iter().filter(|span| is_path(span)) {
            count += 1;
            if !bases.iter().any(|base| base.join(&path).exists()) {
                missing.push(format!("{}: {path}", file.display()));
            }
        }
    }
    assert!(count > 200, "only {count} paths were found");
    assert!(missing.is_empty(), "paths that do not exist:\n{}", missing.join("\n"));
}

/// A longer table tells what happens in the files, which the files tell themselves.
#[test]
fn no_front_page_has_more_than_twelve_rows() {
    let mut tables = 0;
    for (file, text) in front_pages() {
        let table = text.lines().skip_while(|line| !line.starts_with("| question | file |"));
        let lines = table.take_while(|line| line.starts_with('|')).count();
        // Two lines are the head of the table.
        let rows = lines.saturating_sub(2);
        tables += usize::from(rows > 0);
        assert!(rows <= 12, "{} has {rows} rows; name folders in place of files", file.display());
    }
    assert!(tables > 15, "only {tables} tables were found");
}

/// A newcomer reads it whole. Details are on the front pages of the crates.
#[test]
fn the_architecture_has_at_most_900_words() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is there");
    let words = text.split_whitespace().count();
    assert!(words <= 900, "{words} words");
}

/// The libraries of `[workspace.dependencies]`, without the crates of the workspace.
fn libraries(manifest: &str) -> Vec<&str> {
    let section = manifest.split("[workspace.dependencies]").nth(1).expect("the section");
    let lines = section.lines().skip(1).take_while(|line| !line.starts_with('['));
    let entries = lines.filter(|line| !line.starts_with('#') && !line.contains("path = "));
    entries.filter_map(|line| line.split_once(" = ").map(|(name, _)| name)).collect()
}

#[test]
fn each_library_has_its_reason() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let document =
        fs::read_to_string(root().join("docs/understand/dependencies.md")).expect("the document");
    let first_cells = document.lines().filter(|line| line.starts_with("| `"));
    let named: BTreeSet<&str> = first_cells
        .flat_map(|line| line.split(" | ").next().unwrap_or_default().split('`').skip(1).step_by(2))
        .collect();
    let used: BTreeSet<&str> = libraries(&manifest).into_iter().collect();
    assert!(used.len() > 50, "only {} libraries were found", used.len());
    let missing: Vec<_> = used.difference(&named).collect();
    let gone: Vec<_> = named.difference(&used).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "missing: {missing:?}; no longer used: {gone:?}"
    );
}
