//! The book: its pages, the first paragraph of each, and the links between them.

use crate::{documents, root};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// A link of a document: the path of the file, which is empty for the document itself, and the heading.
#[derive(Debug)]
pub(crate) struct Link<'a> {
    pub file: &'a str,
    heading: Option<&'a str>,
}

/// The Markdown links of a text, apart from those to other sites.
pub(crate) fn links(text: &str) -> impl Iterator<Item = Link<'_>> {
    let ends = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    ends.filter(|link| !link.contains("://")).map(|link| match link.split_once('#') {
        Some((file, heading)) => Link { file, heading: Some(heading) },
        None => Link { file: link, heading: None },
    })
}

/// The name by which a link finds a heading, with mdbook and on the sites that show Markdown.
fn anchor(heading: &str) -> String {
    // Of a link in a heading, the text.
    let text = heading.split("](").map(|part| part.split_once(')').map_or(part, |(_, rest)| rest));
    let first = heading.split("](").next().unwrap_or_default();
    let text: String = std::iter::once(first).chain(text.skip(1)).collect();
    let kept = text.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ' '));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

/// The names of the headings of a document. The second of two equal ones gets the number 1.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found: Vec<String> = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if let Some(heading) = line.strip_prefix('#').filter(|_| !fenced) {
            found.push(anchor(heading.trim_start_matches('#')));
        }
    }
    let numbered = |(index, name): (usize, &String)| {
        let former = found[..index].iter().filter(|former| *former == name).count();
        if former == 0 { name.clone() } else { format!("{name}-{former}") }
    };
    found.iter().enumerate().map(numbered).collect()
}

/// A path without `..`, as far as its own components allow.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir if plain.file_name().is_some() => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// The pages of the book with their paths below `docs/`, and the text of each.
fn pages() -> Vec<(PathBuf, String)> {
    let documents = documents().into_iter().filter_map(|(path, text)| {
        let page = plain(&path).strip_prefix(plain(&root().join("docs"))).ok()?.to_owned();
        (page != Path::new("SUMMARY.md")).then_some((page, text))
    });
    documents.collect()
}

fn summary() -> String {
    fs::read_to_string(root().join("docs/SUMMARY.md")).expect("the book has a summary")
}

#[test]
fn every_page_is_in_the_summary_once() {
    let summary = summary();
    let mut listed: Vec<_> = links(&summary).map(|link| PathBuf::from(link.file)).collect();
    listed.sort();
    let pages: Vec<_> = pages().into_iter().map(|(page, _)| page).collect();
    assert!(pages.len() > 40, "only {} pages were found", pages.len());
    assert_eq!(listed, pages, "left: docs/SUMMARY.md; right: the pages below docs/");
}

#[test]
fn the_book_has_five_parts() {
    let summary = summary();
    let titles = summary.lines().filter_map(|line| line.strip_prefix("# "));
    let parts: Vec<_> = titles.skip(1).collect();
    assert_eq!(parts, ["Start", "Operate", "Migrate", "Understand", "Reference"]);
}

#[test]
fn every_page_is_in_the_folder_of_its_part() {
    let summary = summary();
    let mut folder = None;
    let mut elsewhere = Vec::new();
    for line in summary.lines() {
        if let Some(part) = line.strip_prefix("# ") {
            folder = Some(part.to_lowercase());
        }
        // The page in front of the parts is in none of them.
        let page = links(line).next().map(|link| link.file);
        if let Some(page) = page.filter(|page| *page != "introduction.md") {
            let part = folder.as_ref().expect("a part before its pages");
            if !Path::new(page).starts_with(part) {
                elsewhere.push(format!("{page} belongs to {part}"));
            }
        }
    }
    assert!(elsewhere.is_empty(), "pages in other folders:\n{}", elsewhere.join("\n"));
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    let mut count = 0;
    for (path, text) in documents() {
        let directory = path.parent().expect("a file is in a directory");
        for link in links(&text) {
            count += 1;
            let target = match link.file {
                "" => path.clone(),
                file => directory.join(file),
            };
            let has = |heading| {
                fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(heading))
            };
            if !target.exists() || link.heading.is_some_and(|heading| !has(heading)) {
                broken.push(format!("{}: {link:?}", path.display()));
            }
        }
    }
    assert!(count > 150, "only {count} links were found");
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// Built, the book is only the files below `docs/`.
#[test]
fn no_link_leads_out_of_the_book() {
    let mut out = Vec::new();
    for (page, text) in pages() {
        let directory = Path::new("docs").join(&page);
        let directory = directory.parent().expect("a file is in a directory");
        for link in links(&text) {
            if !plain(&directory.join(link.file)).starts_with("docs") {
                out.push(format!("docs/{}: {}", page.display(), link.file));
            }
        }
        // Files of the repository that are shown as pages are in other directories there.
        for (file, included) in included(&page, &text) {
            let inner = links(&included).find(|link| !link.file.is_empty());
            out.extend(inner.map(|link| format!("{}: {}", file.display(), link.file)));
        }
    }
    assert!(out.is_empty(), "write paths as code in place of these links:\n{}", out.join("\n"));
}

/// The files that a page includes, and the text of each.
fn included(page: &Path, text: &str) -> Vec<(PathBuf, String)> {
    let named = text.split("{{#include ").skip(1).filter_map(|rest| rest.split(['}', ':']).next());
    let read = |name: &str| {
        let file = root().join("docs").join(page).parent().expect("a directory").join(name);
        let text = fs::read_to_string(&file);
        let text = text.unwrap_or_else(|e| panic!("{}: {}: {e}", page.display(), file.display()));
        (file, text)
    };
    named.map(read).collect()
}

/// Words for those who read a page.
const READERS: [&str; 11] = [
    "administrators",
    "auditors",
    "contributors",
    "developers",
    "engineers",
    "every reader",
    "everyone",
    "newcomers",
    "programmers",
    "readers",
    "those who",
];

/// The first words of a report that a program writes, also on machines of users.
/// `docs/understand/measurements/README.md` says for whom these reports are.
const REPORTS: [&str; 4] = [
    "Made by `vpnctl experiment ",
    "Made by `cargo bench ",
    "This page compares `vpnd` with other VPNs in userspace.",
    "This page measures the cost of very many tunnels",
];

#[test]
fn every_page_says_first_for_whom_it_is() {
    let mut silent = Vec::new();
    for (page, text) in pages() {
        let (title, rest) = text.split_once("\n\n").expect("a title and a paragraph");
        assert!(title.starts_with("# ") && title.lines().count() == 1, "{}", page.display());
        let first = rest.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let is_report = page.starts_with("understand/measurements")
            && REPORTS.iter().any(|words| first.starts_with(words));
        let names_readers = first.to_lowercase().contains("for ")
            && READERS.iter().any(|reader| first.contains(reader));
        if !is_report && !names_readers {
            silent.push(format!("docs/{}: {first}", page.display()));
        }
    }
    assert!(silent.is_empty(), "these pages do not say for whom they are:\n{}", silent.join("\n"));
}

#[test]
fn headings_have_the_names_that_links_use() {
    for (heading, name) in [
        ("The engine: `nx_enabled` and `min_sz`", "the-engine-nx_enabled-and-min_sz"),
        ("IPsec of one address family", "ipsec-of-one-address-family"),
        ("The [guard](planes.md#the-guard), and more", "the-guard-and-more"),
    ] {
        assert_eq!(anchor(heading), name);
    }
    assert!(anchors("# A\n## A\n```\n# B\n```\n").into_iter().eq(["a", "a-1"].map(str::to_owned)));
}
