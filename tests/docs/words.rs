//! One term for one thing: names and terms that the project has given up do not come back.

use super::{documents, root};
use std::fs;
use std::path::{Path, PathBuf};

/// Names that sources no longer have, with the reason and the name to use. A single word counts also as a part of an
/// identifier: `send_farewell` has the part `farewell`.
const IDENTIFIERS: [(&str, &str); 8] = [
    ("rename_rule", "a rule has a number, no name: renumber_rule"),
    ("RenewalForm", "the forms of a rekey: RekeyForm"),
    ("EngineWork", "the engine negotiates; this is the crypto engine: CryptoEngineWork"),
    ("Story", "a failure with its explanation: ExplainedFailure"),
    ("make_up", "say what is done again: retry_preparation"),
    (
        "farewell",
        "the answer that ends an IKE SA is its final answer; a function called at an end is on_end",
    ),
    ("amiss", "fault"),
    ("heed", "say what is done about it: answer_call"),
];

/// Terms for which the glossary has another one.
const TERMS: [(&str, &str); 2] =
    [("child tunnel", "phase 2 tunnel"), ("ike tunnel", "phase 1 tunnel")];

/// The sources of the product and of its tests, without this file.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for directory in ["benches", "crates", "examples", "src", "tests"] {
        collect(&root().join(directory), &mut found);
    }
    found.retain(|(path, _)| !path.ends_with("tests/docs/words.rs"));
    assert!(found.len() > 500, "only {} sources were found", found.len());
    found
}

fn collect(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(directory).expect("a readable directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a readable source");
            found.push((path, text));
        }
    }
}

/// Returns `true` if a text has a name as an identifier, or a single word as a part of one between underscores.
fn has_name(text: &str, name: &str) -> bool {
    let is_whole = name.contains('_');
    let belongs = |c: char| c.is_ascii_alphanumeric() || is_whole && c == '_';
    let is_edge = |c: Option<char>| c.is_none_or(|c| !belongs(c));
    text.match_indices(name).any(|(at, name)| {
        is_edge(text[..at].chars().next_back()) && is_edge(text[at + name.len()..].chars().next())
    })
}

/// The prose of a text as one line, so that a term is found that goes over the end of a line: without the marks of
/// comments, in small letters.
fn prose(text: &str) -> String {
    let unmarked = text.lines().map(|line| line.trim_start().trim_start_matches(['/', '!', '#']));
    let words = unmarked.flat_map(str::split_whitespace);
    words.collect::<Vec<_>>().join(" ").to_lowercase()
}

#[test]
fn given_up_names_do_not_come_back() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (name, instead) in IDENTIFIERS {
            if has_name(&text, name) {
                found.push(format!("{}: {name}: {instead}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "names that were given up:\n{}", found.join("\n"));
}

#[test]
fn text_has_the_terms_of_the_glossary() {
    let glossary =
        fs::read_to_string(root().join("docs/reference/glossary.md")).expect("the glossary");
    let mut found = Vec::new();
    // The changelog tells of the past.
    let documents = documents().into_iter().filter(|(path, _)| !path.ends_with("CHANGELOG.md"));
    let texts: Vec<_> = documents.chain(sources()).collect();
    for (term, instead) in TERMS {
        assert!(glossary.contains(&format!("| {instead} |")), "the glossary defines {instead:?}");
        for (path, text) in &texts {
            if has_name(&prose(text), term) || has_name(&prose(text), &format!("{term}s")) {
                found.push(format!("{}: {term:?} is a {instead}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "terms that the glossary does not have:\n{}", found.join("\n"));
}

#[test]
fn a_word_is_found_as_a_part_between_underscores() {
    assert!(has_name("fn send_farewell(", "farewell") && has_name("amiss", "amiss"));
    assert!(!has_name("fn unheeded()", "heed") && !has_name("History", "Story"));
    assert!(
        has_name("self.make_up()", "make_up") && !has_name("does_not_make_up_series", "make_up")
    );
    assert!(prose("/// Of one child\n    /// Tunnel.").contains("child tunnel"));
}
