//! `docs/reference/rfc-coverage.toml` says what the RFCs ask for, which code keeps it and which test shows it. Here it
//! is held against the sources, so that it cannot go stale, and rendered for readers: `UPDATE_COVERAGE=1 cargo test -p
//! workspace-tests --test coverage` writes `docs/reference/rfc-coverage.md` again.
#![forbid(unsafe_code)]

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const TABLE: &str = "docs/reference/rfc-coverage.toml";
const DOCUMENT: &str = "docs/reference/rfc-coverage.md";

/// Where code is looked for that the table names without its crate.
const CORE: &str = "crates/ike/src";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    rfc: Vec<Rfc>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rfc {
    number: u32,
    title: String,
    /// Sections that state no requirement of their own, and may be cited.
    #[serde(default)]
    background: Vec<String>,
    requirement: Vec<Requirement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    section: String,
    level: Level,
    text: String,
    /// `path#symbol`.
    #[serde(default)]
    code: Vec<String>,
    /// Names of tests.
    #[serde(default)]
    tests: Vec<String>,
    /// Why it does not concern this implementation.
    not_applicable: Option<String>,
    /// Why this implementation does otherwise.
    deviates: Option<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
enum Level {
    #[serde(rename = "MUST")]
    Must,
    #[serde(rename = "MUST NOT")]
    MustNot,
    #[serde(rename = "SHOULD")]
    Should,
    #[serde(rename = "SHOULD NOT")]
    ShouldNot,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::MustNot => "MUST NOT",
            Self::Should => "SHOULD",
            Self::ShouldNot => "SHOULD NOT",
        }
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn table() -> Table {
    let text = fs::read_to_string(root().join(TABLE)).expect("the table is there");
    toml::from_str(&text).unwrap_or_else(|error| panic!("{TABLE}: {error}"))
}

/// Every file of Rust below a directory, with its text.
fn sources(directory: &str) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root().join(directory)];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).expect("a directory of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("sources are text");
                found.insert(path, text);
            }
        }
    }
    found
}

/// Whether a text defines something of that name.
fn defines(text: &str, symbol: &str) -> bool {
    const KINDS: [&str; 7] = ["fn", "struct", "enum", "trait", "type", "const", "static"];
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    KINDS.iter().any(|kind| {
        let head = format!("{kind} {symbol}");
        text.match_indices(&head).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            before.is_none_or(|c| !c.is_alphanumeric()) && ends(&text[at + head.len()..])
        })
    })
}

/// How many tests have a name: functions with that attribute, alone and with the name of their file in front, and the
/// titles of tests that need a machine of their own.
fn test_names() -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    let mut count = |name: String| *names.entry(name).or_insert(0) += 1;
    for directory in ["tests", "crates"] {
        for (path, text) in sources(directory) {
            let file = path.file_stem().expect("a file of Rust").to_string_lossy();
            let mut attributed = false;
            for line in text.lines().map(str::trim) {
                // Scenarios with other implementations are called `subject::case::variant`.
                let scenario = |word: &&str| word.contains("::") && !word.contains([' ', '{']);
                if path.iter().any(|part| part == "scenarios") {
                    line.split('"')
                        .skip(1)
                        .step_by(2)
                        .filter(scenario)
                        .for_each(|n| count(n.into()));
                }
                if let Some((_, rest)) = line.split_once("test(\"") {
                    rest.split('"').next().map(str::to_owned).into_iter().for_each(&mut count);
                }
                attributed |= line == "#[test]" || line.starts_with("#[tokio::test");
                if let Some(rest) = line.strip_prefix("fn ").or(line.strip_prefix("async fn ")) {
                    if let Some(name) = rest.split('(').next().filter(|_| attributed) {
                        count(name.to_owned());
                        count(format!("{file}::{name}"));
                    }
                    attributed = false;
                }
            }
        }
    }
    names
}

/// Sections that a text cites, by RFC.
fn citations(text: &str) -> BTreeSet<(u32, String)> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("RFC ") {
        let rest = &text[at + 4..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let Ok(number) = rest[..digits].parse() else { continue };
        let mut rest = &rest[digits..];
        // "RFC 7296 §1.4.1, §2.25.1", perhaps in the next line of a comment.
        loop {
            let trimmed =
                rest.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ',' | '/'));
            let trimmed = trimmed.strip_prefix("and ").unwrap_or(trimmed);
            let Some(section) = trimmed.strip_prefix('§') else { break };
            let section = section.trim_start_matches(' ');
            let len = section.len()
                - section.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.').len();
            found.insert((number, section[..len].trim_end_matches('.').to_owned()));
            rest = &section[len..];
        }
    }
    found
}

#[test]
fn the_table_names_code_and_tests_that_are_there() {
    let tests = test_names();
    let mut wrong = Vec::new();
    for rfc in table().rfc {
        for requirement in &rfc.requirement {
            let Requirement { section, text, .. } = requirement;
            let mut complain = |what: String| {
                wrong.push(format!("RFC {} §{section}, {text:?}: {what}", rfc.number))
            };
            let excused = requirement.not_applicable.is_some() || requirement.deviates.is_some();
            let kept = !requirement.code.is_empty() && !requirement.tests.is_empty();
            if excused == kept
                || (requirement.not_applicable.is_some() && requirement.deviates.is_some())
            {
                complain("it needs code and tests, or a reason to have none".into());
            }
            for code in &requirement.code {
                let Some((path, symbol)) = code.split_once('#') else {
                    complain(format!("{code} is not path#symbol"));
                    continue;
                };
                match fs::read_to_string(root().join(located(path))) {
                    Err(error) => complain(format!("{path}: {error}")),
                    Ok(text) if !defines(&text, symbol) => {
                        complain(format!("{path} has no {symbol}"));
                    }
                    Ok(_) => {}
                }
            }
            let reasons = requirement.not_applicable.iter().chain(&requirement.deviates);
            let quoted = reasons.flat_map(|r| r.split('`').skip(1).step_by(2));
            for test in requirement.tests.iter().map(String::as_str).chain(quoted) {
                match tests.get(test) {
                    Some(1) => {}
                    None => complain(format!("no test {test:?}")),
                    Some(n) => complain(format!("{n} tests are called {test:?}: say file::name")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{TABLE}:\n{}", wrong.join("\n"));
}

#[test]
fn every_citation_in_the_code_is_of_a_section_in_the_table() {
    let table = table();
    let known: BTreeSet<(u32, &str)> = (table.rfc.iter())
        .flat_map(|rfc| {
            let requirements = rfc.requirement.iter().map(|r| r.section.as_str());
            let background = rfc.background.iter().map(String::as_str);
            requirements.chain(background).map(|section| (rfc.number, section))
        })
        .collect();
    let covered: BTreeSet<u32> = table.rfc.iter().map(|rfc| rfc.number).collect();
    let mut unknown = Vec::new();
    let mut count = 0;
    for (path, text) in sources(CORE) {
        for (number, section) in citations(&text) {
            count += 1;
            if covered.contains(&number) && !known.contains(&(number, section.as_str())) {
                unknown.push(format!("{}: RFC {number} §{section}", path.display()));
            }
        }
    }
    assert!(count > 100, "{count} citations: they are looked for in the wrong way");
    assert!(unknown.is_empty(), "not in {TABLE}:\n{}", unknown.join("\n"));
}

#[test]
fn the_document_is_the_table() {
    let rendered = render(&table());
    let path = root().join(DOCUMENT);
    if std::env::var_os("UPDATE_COVERAGE").is_some() {
        fs::write(&path, &rendered).expect("the document can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let differing = written.lines().zip(rendered.lines()).find(|(a, b)| a != b);
    assert!(
        written == rendered,
        "{DOCUMENT} is not what {TABLE} says (first difference: {differing:?}); write it anew: UPDATE_COVERAGE=1 cargo test -p workspace-tests --test coverage"
    );
}

/// A path of the table from the root on.
fn located(path: &str) -> String {
    match path.starts_with("crates/") || path.starts_with("src/") {
        true => path.to_owned(),
        false => format!("{CORE}/{path}"),
    }
}

fn render(table: &Table) -> String {
    let mut out = String::from(
        "# RFC requirements, code and tests\n\n\
         For auditors and protocol engineers who want to know what `vpnd` does with each requirement of the RFCs.\n\n\
         `UPDATE_COVERAGE=1 cargo test -p workspace-tests --test coverage` writes this page from `rfc-coverage.toml`. The same test compares the\n\
         table with the sources: the code and the tests named here exist, and every citation in `crates/ike` is of a section\n\
         listed here. The requirements are short summaries; the RFCs have the full text. Paths are below `crates/ike/src` unless\n\
         they begin with `crates/`.\n",
    );
    let count = |of: &dyn Fn(&Requirement) -> bool| {
        table.rfc.iter().flat_map(|r| &r.requirement).filter(|r| of(r)).count()
    };
    _ = writeln!(
        out,
        "\n{} requirements: {} met, {} not applicable, {} deviations (\"deviates\").",
        count(&|_| true),
        count(&|r| !r.code.is_empty()),
        count(&|r| r.not_applicable.is_some()),
        count(&|r| r.deviates.is_some()),
    );
    for rfc in &table.rfc {
        _ = writeln!(out, "\n## RFC {}: {}\n", rfc.number, rfc.title);
        out.push_str("| § | | requirement | code | tests |\n|---|---|---|---|---|\n");
        for r in &rfc.requirement {
            let list = |items: &[String]| {
                let quoted = items.iter().map(|i| format!("`{}`", i.replace('#', " ")));
                quoted.collect::<Vec<_>>().join("<br>")
            };
            let (code, tests) = match (&r.not_applicable, &r.deviates) {
                (Some(why), _) => (format!("not applicable: {why}"), String::new()),
                (_, Some(why)) => (format!("deviates: {why}"), String::new()),
                _ => (list(&r.code), list(&r.tests)),
            };
            let (section, level, text) = (&r.section, r.level.name(), &r.text);
            _ = writeln!(out, "| {section} | {level} | {text} | {code} | {tests} |");
        }
    }
    out
}

#[test]
fn citations_are_found_however_they_are_written() {
    let text =
        "// RFC 7296 §1.4.1, §2.25.1 and §3.\n/// (RFC\n 7383 §2.5; RFC 4303 2.1, RFC 6989 §2)";
    let found = citations(text);
    let expected = [(7296, "1.4.1"), (7296, "2.25.1"), (7296, "3"), (6989, "2")];
    assert_eq!(found, expected.map(|(n, s)| (n, s.to_owned())).into());
    assert!(defines("    pub(crate) fn sent(&self)", "sent"));
    assert!(!defines("fn sentence()", "sent") && !defines("// sent", "sent"));
}
