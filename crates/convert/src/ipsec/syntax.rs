//! The text of ipsec.conf → blocks, each with what it inherits; the text of ipsec.secrets → entries.

use crate::finding::{Finding, Report, unreadable};
use crate::include::Walk;
use crate::source::{File, Files, Location, Value};
use std::collections::BTreeSet;
use zeroize::Zeroizing;

/// Lines of all files together.
const MAX_LINES: usize = 100_000;

const TOO_MANY_LINES: &str = "more than 100,000 lines";

/// Blocks that one inherits of.
const MAX_ALSO: usize = 100;

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Setup,
    Conn,
    Authority,
}

/// `conn NAME` and the indented lines below.
#[derive(Clone)]
pub(super) struct Block {
    pub kind: Kind,
    pub name: String,
    pub location: Location,
    pub settings: Vec<(String, Value)>,
}

impl Block {
    /// Takes a setting out; of several, the last one counts.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        let mut taken = None;
        self.settings.retain(|(known, value)| {
            if known == name {
                taken = Some(value.clone());
            }
            known != name
        });
        taken.filter(|value| !value.text.is_empty())
    }

    /// Takes all spellings of a setting out; the first one that is there counts.
    pub fn take_any(&mut self, names: &[&str]) -> Option<Value> {
        names.iter().fold(None, |found, name| found.or(self.take(name)))
    }
}

/// Reads a file, and the included files in the place of each `include`.
pub(super) fn parse(
    file: &File,
    files: &mut dyn Files,
    report: &mut Report,
) -> Result<Vec<Block>, Finding> {
    let mut blocks = Vec::new();
    let mut walk = Walk::new(files, MAX_LINES, TOO_MANY_LINES, report);
    parse_file(file, &mut walk, &mut blocks)?;
    Ok(blocks)
}

/// An included file goes on in the block that is open, and leaves open the one that it opened last.
fn parse_file(file: &File, walk: &mut Walk<'_>, blocks: &mut Vec<Block>) -> Result<(), Finding> {
    for Line { location, indented, text: line } in lines(file, walk)? {
        let (word, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let name = rest.trim().trim_matches('"').to_owned();
        match word {
            // FreeS/WAN's files say which format they have.
            "version" if !rest.trim_start().starts_with('=') => continue,
            "include" if !rest.trim_start().starts_with('=') => {
                walk.include(&name, file, &location, |file, walk| parse_file(file, walk, blocks))?;
                continue;
            }
            _ => {}
        }
        if indented {
            let Some(block) = blocks.last_mut() else {
                let help = "write it below conn NAME, or remove the blanks before it";
                return Err(unreadable(
                    &location,
                    "an indented line that belongs to no block",
                    help,
                ));
            };
            let Some((name, value)) = line.split_once('=') else {
                let message = format!("{line:?} is not name=value");
                return Err(unreadable(&location, message, ""));
            };
            let value = value.trim();
            let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
            let name = name.trim().to_ascii_lowercase();
            block.settings.push((name, Value::new(value, &location)));
            continue;
        }
        let kind = match word {
            "conn" => Kind::Conn,
            "ca" => Kind::Authority,
            "config" if name == "setup" => Kind::Setup,
            other => {
                let message = format!("{other:?} begins no block");
                let help = "a line that is not indented is config setup, conn NAME, ca NAME or include FILE";
                return Err(unreadable(&location, message, help));
            }
        };
        if name.is_empty() {
            return Err(unreadable(&location, format!("{word} without a name"), ""));
        }
        blocks.push(Block { kind, name, location, settings: Vec::new() });
    }
    Ok(())
}

/// A line that is neither empty nor only a comment.
struct Line<'t> {
    location: Location,
    indented: bool,
    text: &'t str,
}

/// The lines of a file, without comments and blanks around them.
fn lines<'t>(file: &'t File, walk: &mut Walk<'_>) -> Result<Vec<Line<'t>>, Finding> {
    let mut lines = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let location = Location { file: file.name.clone(), line: number + 1 };
        walk.count(&location)?;
        let text = without_comment(line).trim();
        if !text.is_empty() {
            lines.push(Line { location, indented: line.starts_with([' ', '\t']), text });
        }
    }
    Ok(lines)
}

/// A `#` begins a comment at the beginning of a word, outside of quotes.
fn without_comment(line: &str) -> &str {
    let (mut quoted, mut blank) = (false, true);
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted && blank => return &line[..at],
            _ => {}
        }
        blank = c.is_whitespace();
    }
    line
}

/// A block with all it inherits: its own settings, those of `also`, those of `%default`. `None`, reported, if it cannot
/// be made.
pub(super) fn inherit(blocks: &[Block], block: &Block, report: &mut Report) -> Option<Block> {
    let mut whole = Block { settings: Vec::new(), ..block.clone() };
    let mut seen = BTreeSet::from([block.name.as_str()]);
    let mut queue = vec![block];
    let mut at = 0;
    while let Some(part) = queue.get(at).copied() {
        at += 1;
        for (_, value) in part.settings.iter().filter(|(name, _)| name == "also") {
            let name = value.text.as_str();
            if !seen.insert(name) {
                continue;
            }
            let found = blocks.iter().find(|other| other.kind == block.kind && other.name == name);
            let Some(found) = found.filter(|_| queue.len() < MAX_ALSO) else {
                let message =
                    format!("conn {:?}: there is no conn {name:?} to inherit from", block.name);
                report.left_out(&value.location, message, "correct also=");
                return None;
            };
            queue.push(found);
        }
    }
    // %default may be written in pieces.
    queue
        .extend(blocks.iter().filter(|other| other.kind == block.kind && other.name == "%default"));
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for part in queue {
        let settings = part.settings.iter().filter(|(name, _)| name != "also");
        let new: Vec<&(String, Value)> =
            settings.filter(|(name, _)| !known.contains(name.as_str())).collect();
        known.extend(new.iter().map(|(name, _)| name.as_str()));
        whole.settings.extend(new.into_iter().cloned());
    }
    Some(whole)
}

/// One secret.
pub(super) struct Entry {
    pub location: Location,
    pub owners: Vec<String>,
    pub kind: String,
    pub secret: Zeroizing<String>,
}

/// Reads ipsec.secrets. Entries are lines, and go on in the indented lines below.
pub(super) fn secrets(
    file: &File,
    files: &mut dyn Files,
    report: &mut Report,
) -> Result<Vec<Entry>, Finding> {
    let mut entries = Vec::new();
    let mut walk = Walk::new(files, MAX_LINES, TOO_MANY_LINES, report);
    secrets_file(file, &mut walk, &mut entries)?;
    Ok(entries)
}

fn secrets_file(file: &File, walk: &mut Walk<'_>, entries: &mut Vec<Entry>) -> Result<(), Finding> {
    // Each entry with all its lines in one.
    let mut joined: Vec<(Location, Zeroizing<String>)> = Vec::new();
    for Line { location, indented, text: line } in lines(file, walk)? {
        let is_include = line.starts_with("include ") || line.starts_with("include\t");
        match joined.last_mut().filter(|_| indented && !is_include) {
            Some((_, entry)) => {
                entry.push(' ');
                entry.push_str(line);
            }
            None => joined.push((location, Zeroizing::new(line.to_owned()))),
        }
    }
    for (location, line) in joined {
        if let Some(pattern) = line.strip_prefix("include").filter(|rest| {
            // An identity may begin with the same letters.
            rest.starts_with(|c: char| c.is_ascii_whitespace()) && !rest.trim().starts_with(':')
        }) {
            walk.include(pattern.trim().trim_matches('"'), file, &location, |file, walk| {
                secrets_file(file, walk, entries)
            })?;
            continue;
        }
        entries.push(entry(&location, &line)?);
    }
    Ok(())
}

/// Kinds of secrets of both daemons.
const KINDS: &[&str] = &[
    "PSK", "RSA", "ECDSA", "EDDSA", "ED25519", "PKCS8", "P12", "PIN", "BLISS", "EAP", "XAUTH",
    "NTLM", "PPK", "PPKS", "DSS", "PUBKEY", "PRIV",
];

/// The place of the colon between identities and the kind of a secret. IPv6 addresses have colons as well, even at
/// their end, and FreeS/WAN's files may have the separator at the word before it or at the kind.
fn separator(line: &str) -> Option<usize> {
    let mut quoted = false;
    let colons = line.char_indices().filter(|(_, c)| {
        quoted ^= *c == '"';
        *c == ':' && !quoted
    });
    let candidates: Vec<(usize, &str, &str)> =
        colons.map(|(at, _)| (at, &line[..at], &line[at + 1..])).collect();
    let before_kind = candidates.iter().find(|(_, before, after)| {
        (before.is_empty() || ends_blank(before) || starts_blank(after))
            && after
                .split_ascii_whitespace()
                .next()
                .is_some_and(|word| KINDS.iter().any(|kind| word.eq_ignore_ascii_case(kind)))
    });
    // A kind that is not known may follow a colon that stands alone.
    let found = before_kind
        .or_else(|| {
            candidates.iter().find(|(_, before, after)| {
                (before.is_empty() || ends_blank(before))
                    && (after.is_empty() || starts_blank(after))
            })
        })
        .or_else(|| candidates.iter().find(|(_, _, after)| starts_blank(after)));
    found.map(|(at, ..)| *at)
}

fn starts_blank(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_whitespace())
}

fn ends_blank(text: &str) -> bool {
    text.ends_with(|c: char| c.is_ascii_whitespace())
}

/// `ID ID : KIND "secret"`. Nothing of a line that is not understood is shown: it may be a key.
fn entry(location: &Location, line: &str) -> Result<Entry, Finding> {
    let help = "write it like: left.example right.example : PSK \"the key\"";
    let at = separator(line).ok_or_else(|| unreadable(location, "this is no secret", help))?;
    let (owners, rest) = (&line[..at], &line[at + 1..]);
    let rest = rest.trim();
    let (kind, rest) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    let rest = rest.trim();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
    let secret = match quote {
        Some(quote) => rest[1..].split(quote).next().unwrap_or_default(),
        None => rest.split_ascii_whitespace().next().unwrap_or_default(),
    };
    Ok(Entry {
        location: location.clone(),
        owners: words(owners),
        kind: kind.to_owned(),
        secret: Zeroizing::new(secret.to_owned()),
    })
}

/// Words, some in quotes.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((rest, "")),
        };
        if !word.is_empty() {
            words.push(word.to_owned());
        }
        rest = after.trim_start();
    }
    words
}
