//! The text that stands behind a command's help, in parts: examples, exit status, and remarks.

use clap::Command;

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// Sentences, whose lines may be broken in other places.
    Words(String),
    /// Lines that stay as they are, and a line before them.
    Lines { title: Option<String>, lines: Vec<String> },
}

/// The parts of the text behind a command's help.
#[derive(Debug, Default)]
pub(super) struct Help {
    pub notes: Vec<Block>,
    pub examples: Option<Block>,
    /// Each status and its meaning.
    pub exit_status: Option<Vec<(String, String)>>,
}

impl Help {
    pub fn of(command: &Command) -> Self {
        let text = command.get_after_long_help().or_else(|| command.get_after_help());
        let text = text.map(ToString::to_string).unwrap_or_default();
        let mut help = Self::default();
        for block in text.split("\n\n").filter(|block| !block.trim().is_empty()) {
            let first = block.lines().next().unwrap_or_default();
            match first {
                "Example:" | "Examples:" => {
                    let lines = block.lines().skip(1).map(unindented).collect();
                    help.examples = Some(Block::Lines { title: None, lines });
                }
                "Exit status:" => help.exit_status = Some(statuses(block)),
                _ => help.notes.push(note(block)),
            }
        }
        help
    }
}

/// The statuses below the heading; one meaning may go on in the next line.
fn statuses(block: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in block.lines().skip(1) {
        let (status, meaning) = line.trim().split_once("  ").unwrap_or(("", line.trim()));
        match found.last_mut() {
            Some((_, before)) if status.is_empty() => {
                before.push(' ');
                before.push_str(meaning.trim());
            }
            _ => found.push((status.to_owned(), meaning.trim().to_owned())),
        }
    }
    found
}

/// Sentences, or a heading with indented lines.
fn note(block: &str) -> Block {
    let mut lines = block.lines();
    if !block.lines().any(|line| line.starts_with("  ")) {
        return Block::Words(block.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    let title = lines.next().filter(|line| !line.starts_with("  ")).map(str::to_owned);
    let rest = if title.is_some() { 1 } else { 0 };
    Block::Lines { title, lines: block.lines().skip(rest).map(unindented).collect() }
}

fn unindented(line: &str) -> String {
    line.strip_prefix("  ").unwrap_or(line).to_owned()
}
