//! The remedy for mistakes in `vpnd.toml` that the parser names by its own rules.

use super::SECTIONS;
use settings::Key;
use std::ops::Range;

/// The least likeness of a misspelt name, between 0 and 1.
const LIKENESS: f64 = 0.6;

/// A line with its number, from 1.
type Numbered<'a> = (usize, &'a str);

/// The change that mends the file, where the parser's message does not tell it.
pub(super) fn advice(text: &str, message: &str, span: Option<Range<usize>>) -> Option<String> {
    let start = span?.start;
    let number = text.get(..start)?.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1)?.trim();
    if message.starts_with("duplicate key") {
        return duplicate(text, number, line);
    }
    if let Some(rest) = message.strip_prefix("unknown field `") {
        return unknown(text, number, line, rest.split('`').next()?);
    }
    let (name, value) = line.split_once('=').map(|(name, value)| (name.trim(), value.trim()))?;
    let value = value.split(" #").next().unwrap_or_default().trim();
    let is_bare = value.starts_with(|c: char| c.is_ascii_alphanumeric() || "/.:-".contains(c))
        && value.parse::<f64>().is_err();
    let is_text = message.starts_with("string values must be quoted")
        || message.starts_with("invalid ") && !message.starts_with("invalid type");
    let own = section(text, number).map_or("", |(_, header)| inner(header));
    let is_quoted =
        settings().any(|known| known.section == own && known.name == name && takes_text(known));
    (is_text && is_bare && is_quoted).then(|| format!("write text in quotes: {name} = \"{value}\""))
}

/// The line of a setting `section.key`; `None` if the file has no line for it below the header of its section.
pub(super) fn line_of(text: &str, field: &str) -> Option<usize> {
    let (of, name) = field.split_once('.')?;
    let (number, _) = lines(text).find(|(number, line)| {
        line.split('=').next().is_some_and(|written| written.trim() == name)
            && section(text, *number).is_some_and(|(_, header)| inner(header) == of)
    })?;
    Some(number)
}

/// A header or a setting that stands in the file twice.
fn duplicate(text: &str, number: usize, line: &str) -> Option<String> {
    if line.starts_with('[') {
        let (first, _) = lines(text).find(|(at, other)| *at < number && *other == line)?;
        return Some(format!("{line} begins in line {first} already: write its settings there"));
    }
    let name = line.split('=').next()?.trim();
    let (begins, _) = section(text, number).unwrap_or((0, ""));
    let is_same = |other: &str| other.split('=').next().is_some_and(|other| other.trim() == name);
    let mut before = lines(text).filter(|(at, _)| (begins..number).contains(at));
    let (first, _) = before.find(|(_, other)| is_same(other))?;
    Some(format!("{name} stands in line {first} already: remove one of the two lines"))
}

/// A name that its section does not have.
fn unknown(text: &str, number: usize, line: &str, name: &str) -> Option<String> {
    if line.starts_with('[') {
        let near = near(name, SECTIONS.iter().map(|section| section.name))?;
        return Some(format!("did you mean {near}?"));
    }
    let here = section(text, number);
    let own = here.map_or("", |(_, header)| inner(header));
    let mut elsewhere = settings().filter(|known| known.name == name && known.section != own);
    if let Some(Key { section: of, .. }) = elsewhere.next() {
        let place = match here {
            Some((_, header)) => format!("this line belongs to {header}"),
            None => "this line stands before the first section".to_owned(),
        };
        let there = headers(text).find(|(_, header)| inner(header) == *of);
        let there = match there {
            Some((at, _)) => format!("which begins in line {at}"),
            None => format!("so that a line [{of}] must stand before it"),
        };
        return Some(format!("{place}; {name} is a setting of [{of}], {there}"));
    }
    let near = near(name, settings().filter(|known| known.section == own).map(|known| known.name))?;
    Some(format!("did you mean {near}?"))
}

/// The lines of a file, without the blanks around them.
fn lines(text: &str) -> impl Iterator<Item = Numbered<'_>> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()))
}

/// The headers of sections.
fn headers(text: &str) -> impl Iterator<Item = Numbered<'_>> {
    lines(text).filter(|(_, line)| line.starts_with('['))
}

/// The header of the section of a line.
fn section(text: &str, number: usize) -> Option<Numbered<'_>> {
    headers(text).take_while(|(at, _)| *at < number).last()
}

/// The name in a header.
fn inner(header: &str) -> &str {
    header.trim_start_matches('[').split(']').next().unwrap_or_default()
}

/// Every setting.
fn settings() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().flat_map(|section| section.keys)
}

/// Whether the value of a setting is text, or a list.
fn takes_text(key: &Key) -> bool {
    (key.default)().starts_with(['"', '['])
}

/// The name that is most like a misspelt one.
fn near<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let like = |known: &'a str| (strsim::normalized_damerau_levenshtein(name, known), known);
    let best = names.map(like).max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (best.0 >= LIKENESS).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use std::path::Path;

    /// The last line of the error about a text.
    fn last_line(text: &str) -> String {
        let error = Config::parse(Path::new("vpnd.toml"), text).expect_err("a mistake").to_string();
        error.lines().last().expect("a line").to_owned()
    }

    #[test]
    fn a_section_that_stands_twice_is_named_with_its_first_line() {
        let shipped = include_str!("../../../../config/vpnd.toml");
        let first = shipped.lines().position(|line| line == "[metrics]").expect("a section") + 1;
        assert_eq!(
            last_line(&format!("{shipped}[metrics]\nlisten = \"127.0.0.1:9400\"\n")),
            format!("  [metrics] begins in line {first} already: write its settings there")
        );
        assert_eq!(
            last_line("[log]\nlevel = \"info\"\n[esp]\n[ike]\nlinger = \"1s\"\nlinger = \"2s\"\n"),
            "  linger stands in line 5 already: remove one of the two lines"
        );
    }

    #[test]
    fn a_setting_in_the_wrong_section_is_told_its_own() {
        assert_eq!(
            last_line("[metrics]\n[crypto]\nlisten = \"127.0.0.1:9400\"\n"),
            "  this line belongs to [crypto]; listen is a setting of [metrics], which begins in line 1"
        );
        assert_eq!(
            last_line("listen = \"127.0.0.1:9400\"\n"),
            "  this line stands before the first section; listen is a setting of [metrics], so that a line [metrics] \
             must stand before it"
        );
    }

    #[test]
    fn a_misspelt_name_is_told_the_right_one() {
        for (text, near) in [
            ("[metrics]\nlistn = \"\"\n", "listen"),
            ("[metric]\n", "metrics"),
            ("[esp]\nworker = 2\n", "workers"),
        ] {
            assert_eq!(last_line(text), format!("  did you mean {near}?"));
        }
        let told = last_line("[esp]\ncompletely_different = 2\n");
        assert!(told.starts_with("unknown field"), "{told}");
    }

    #[test]
    fn text_without_quotes_is_told_them() {
        for (text, quoted) in [
            ("[metrics]\nlisten = 127.0.0.1:9400\n", "listen = \"127.0.0.1:9400\""),
            ("[log]\nformat = json # for a program\n", "format = \"json\""),
            ("[log]\nlevel = info\n", "level = \"info\""),
            ("[ike]\nlinger = 5s\n", "linger = \"5s\""),
            ("[control]\nsocket = /run/s\n", "socket = \"/run/s\""),
        ] {
            assert_eq!(last_line(text), format!("  write text in quotes: {quoted}"));
        }
    }

    #[test]
    fn numbers_and_switches_are_not_told_quotes() {
        for text in [
            "[esp]\nworkers = 100000\n",
            "[esp]\nouter_mtu = 70000\n",
            "[ike]\nmobike = True\n",
            "[ike]\nmobike = yes\n",
            "[ike]\nretransmissions = 5s\n",
        ] {
            let told = last_line(text);
            assert!(!told.contains("quotes:"), "{text}{told}");
        }
    }
}
