//! The text of swanctl.conf → sections and settings as written.

use super::section::Written;
use crate::finding::{Finding, Report, unreadable};
use crate::include::Walk;
use crate::source::{File, Files, Location, Value};
use zeroize::Zeroizing;

/// Sections inside sections.
const MAX_DEPTH: usize = 12;

/// Sections and settings of all files together.
const MAX_ENTRIES: usize = 20_000;

/// Reads a file, and the included files in the place of each `include`.
pub(super) fn parse(
    file: File,
    files: &mut dyn Files,
    report: &mut Report,
) -> Result<Written, Finding> {
    let location = Location { file: file.name.clone(), line: 0 };
    let mut root = Written::new("", location);
    let too_many = "more than 20,000 sections and settings";
    parse_file(&file, &mut Walk::new(files, MAX_ENTRIES, too_many, report), &mut root)?;
    Ok(root)
}

fn parse_file(file: &File, walk: &mut Walk<'_>, root: &mut Written) -> Result<(), Finding> {
    let mut scanner = Scanner { rest: &file.text, file, line: 1 };
    // The names of the open sections; included files begin at the section where they are included.
    let mut open: Vec<String> = Vec::new();
    loop {
        scanner.skip_blanks();
        let location = scanner.location();
        let Some(first) = scanner.peek() else { break };
        if first == '}' {
            scanner.advance(1);
            if open.pop().is_none() {
                let help = "remove it, or open the section that it closes";
                return Err(unreadable(&location, "a } closes no section", help));
            }
            continue;
        }
        walk.count(&location)?;
        let name = scanner.name();
        if name.is_empty() {
            let message = format!("{first:?} begins neither a section nor a setting");
            return Err(unreadable(&location, message, "write name { … } or name = value"));
        }
        // A pattern may be at the beginning of the next line's blanks, but no sign follows the word.
        let blank = scanner.peek().is_some_and(|c| c == ' ' || c == '\t' || c == '"');
        scanner.skip_blanks();
        match scanner.peek() {
            Some('=') => {
                scanner.advance(1);
                let value = Value { text: scanner.value()?, location };
                section(root, &open, &value.location).set(name, value);
            }
            Some('{') => {
                scanner.advance(1);
                enter(root, &mut open, name, &location)?;
            }
            Some(':') => {
                scanner.advance(1);
                let bases = scanner.references();
                if scanner.peek() != Some('{') {
                    let message = format!("no {{ follows the sections that {name:?} inherits");
                    return Err(unreadable(&location, message, "write name : other { … }"));
                }
                scanner.advance(1);
                enter(root, &mut open, name, &location)?;
                section(root, &open, &location).bases.extend(bases);
            }
            _ if name == "include" && blank => {
                let pattern = scanner.value()?;
                let section = section(root, &open, &location);
                walk.include(&pattern, file, &location, |file, walk| {
                    parse_file(file, walk, section)
                })?;
            }
            _ => {
                let message = format!("neither = nor {{ follows {name:?}");
                return Err(unreadable(&location, message, "write name { … } or name = value"));
            }
        }
    }
    match open.last() {
        None => Ok(()),
        Some(name) => {
            let message = format!("the section {name:?} is not closed at the end of the file");
            Err(unreadable(&scanner.location(), message, "add a }"))
        }
    }
}

fn enter(
    root: &mut Written,
    open: &mut Vec<String>,
    name: String,
    location: &Location,
) -> Result<(), Finding> {
    if open.len() >= MAX_DEPTH {
        return Err(unreadable(location, "sections are nested too deeply", ""));
    }
    open.push(name);
    section(root, open, location);
    Ok(())
}

/// The section at the end of a path, made where there is none.
fn section<'w>(root: &'w mut Written, path: &[String], location: &Location) -> &'w mut Written {
    path.iter().fold(root, |section, name| section.child(name, location))
}

struct Scanner<'t> {
    rest: &'t str,
    file: &'t File,
    line: usize,
}

impl Scanner<'_> {
    fn location(&self) -> Location {
        Location { file: self.file.name.clone(), line: self.line }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    /// Goes on by that many octets, which end at a character.
    fn advance(&mut self, octets: usize) {
        let (passed, rest) = self.rest.split_at(octets);
        self.line += passed.bytes().filter(|octet| *octet == b'\n').count();
        self.rest = rest;
    }

    /// Passes blanks, empty lines and comments.
    fn skip_blanks(&mut self) {
        loop {
            let blanks = self.rest.len() - self.rest.trim_start().len();
            self.advance(blanks);
            if self.peek() != Some('#') {
                return;
            }
            self.advance(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
    }

    fn name(&mut self) -> String {
        let end = self.rest.find(|c: char| {
            c.is_whitespace() || matches!(c, '{' | '}' | '=' | ':' | ',' | '#' | '"')
        });
        let name = self.rest[..end.unwrap_or(self.rest.len())].to_owned();
        self.advance(name.len());
        name
    }

    fn references(&mut self) -> Vec<Value> {
        let mut bases = Vec::new();
        loop {
            self.skip_blanks();
            let location = self.location();
            let name = self.name();
            if !name.is_empty() {
                bases.push(Value::new(name, &location));
            }
            self.skip_blanks();
            if self.peek() != Some(',') {
                return bases;
            }
            self.advance(1);
        }
    }

    /// The rest of the line, or what stands in quotes, which may be several lines.
    fn value(&mut self) -> Result<Zeroizing<String>, Finding> {
        let mut text = Zeroizing::new(String::with_capacity(self.rest.len().min(256)));
        // Up to where no blank may be cut off.
        let mut kept = 0;
        while let Some(c) = self.peek() {
            match c {
                '\n' | '#' | '}' | '{' => break,
                '"' => {
                    self.quoted(&mut text)?;
                    kept = text.len();
                }
                ' ' | '\t' | '\r' if text.is_empty() => self.advance(1),
                c => {
                    text.push(c);
                    self.advance(c.len_utf8());
                }
            }
        }
        let length = kept.max(text.trim_end().len());
        text.truncate(length);
        Ok(text)
    }

    fn quoted(&mut self, text: &mut String) -> Result<(), Finding> {
        let start = self.location();
        self.advance(1);
        while let Some(c) = self.peek() {
            self.advance(c.len_utf8());
            match c {
                '"' => return Ok(()),
                '\\' => {
                    let Some(escaped) = self.peek() else { break };
                    self.advance(escaped.len_utf8());
                    match escaped {
                        'n' => text.push('\n'),
                        'r' => text.push('\r'),
                        't' => text.push('\t'),
                        '\n' => {}
                        other => text.push(other),
                    }
                }
                other => text.push(other),
            }
        }
        Err(unreadable(&start, "a string in quotes does not end", "add a \""))
    }
}
