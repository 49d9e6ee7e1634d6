//! The page vpnd.toml(5), made of the comments of `config/vpnd.toml`, so that it says what the file says.

use clap_mangen::roff::{Roff, bold, roman};
use std::io;
use terminal::manual::{Page, entries, named, verbatim};

/// The file with every setting, its default and its explanation.
const FILE: &str = include_str!("../../../../config/vpnd.toml");

/// A part of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part<'t> {
    /// `[name]`.
    Section(&'t str),
    /// Comments.
    Words(String),
    /// Comments that are indented, such as an example.
    Example(Vec<&'t str>),
    /// A setting and its default, in TOML.
    Setting(&'t str, &'t str),
}

/// The page.
///
/// # Errors
/// Where it cannot be rendered.
pub(super) fn page() -> io::Result<Page> {
    let mut roff = Roff::new();
    let version = format!("vpnd {}", env!("CARGO_PKG_VERSION"));
    roff.control("TH", ["vpnd.toml", "5", "", version.as_str(), "VPN"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("vpnd.toml - configuration of vpnd")]);
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold("vpnd start --config"), roman(" /etc/vpnd/vpnd.toml")]);
    roff.control("SH", ["DESCRIPTION"]);
    let parts = parts(FILE);
    let head = parts.iter().position(|part| matches!(part, Part::Section(_)));
    let (head, settings) = parts.split_at(head.unwrap_or(parts.len()));
    paragraphs(&mut roff, head);
    roff.control("SH", ["OPTIONS"]);
    write(&mut roff, settings);
    roff.control("SH", ["EXIT STATUS"]);
    roff.text([roman(
        "vpnd start ends with 1 if the file has an error, and names the line. vpnd check POLICY --config FILE reads the file without starting anything.",
    )]);
    let files = [("/etc/vpnd/vpnd.toml", "The file that the systemd service names.")];
    entries(&mut roff, "FILES", &named(&files));
    roff.control("SH", ["ENVIRONMENT"]);
    roff.text([roman("The file refers to no environment variables.")]);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("vpnd"), roman("(8), "), bold("vpnctl"), roman("(1)")]);
    let mut text = Vec::new();
    roff.to_writer(&mut text)?;
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    Ok(Page { name: "vpnd.toml".to_owned(), section: 5, text })
}

/// Writes settings with the comments that stand before them.
fn write(roff: &mut Roff, parts: &[Part<'_>]) {
    let mut comments: Vec<Part<'_>> = Vec::new();
    let mut rest = parts;
    while let [part, behind @ ..] = rest {
        rest = behind;
        match part {
            Part::Section(name) => {
                paragraphs(roff, &comments);
                comments.clear();
                roff.control("SS", [format!("[{name}]").as_str()]);
            }
            Part::Setting(..) => {
                // Settings without a comment between them share the one before.
                let more = rest.iter().take_while(|p| matches!(p, Part::Setting(..))).count();
                for (n, setting) in std::iter::once(part).chain(&rest[..more]).enumerate() {
                    let Part::Setting(name, default) = setting else { continue };
                    roff.control(if n == 0 { "TP" } else { "TQ" }, []);
                    roff.text([bold(*name), roman(format!(" = {default}"))]);
                }
                rest = &rest[more..];
                paragraphs(roff, &comments);
                comments.clear();
            }
            comment => comments.push(comment.clone()),
        }
    }
    // Examples of sections that have no defaults.
    roff.control("SS", ["Sections that can be repeated"]);
    paragraphs(roff, &comments);
}

fn paragraphs(roff: &mut Roff, parts: &[Part<'_>]) {
    for part in parts {
        match part {
            Part::Words(words) => {
                roff.text([roman(words.as_str())]);
                roff.control("br", []);
            }
            Part::Example(lines) => {
                roff.control("RS", ["4"]);
                verbatim(roff, lines.iter().copied());
                roff.control("RE", []);
            }
            Part::Section(_) | Part::Setting(..) => {}
        }
    }
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut before = "";
    for line in text.lines() {
        match (line, line.strip_prefix('#')) {
            ("", _) => {}
            (_, Some(comment)) if comment.starts_with("   ") => match parts.last_mut() {
                Some(Part::Example(lines)) if !before.is_empty() => lines.push(&comment[3..]),
                _ => parts.push(Part::Example(vec![&comment[3..]])),
            },
            (_, Some(comment)) if comment.starts_with(' ') => match parts.last_mut() {
                Some(Part::Words(words)) if !before.is_empty() => words.push_str(comment),
                _ => parts.push(Part::Words(comment.trim_start().to_owned())),
            },
            (section, None) if section.starts_with('[') => {
                parts.push(Part::Section(section.trim_matches(['[', ']'])));
            }
            (setting, _) => {
                let setting = setting.trim_start_matches('#');
                if let Some((name, default)) = setting.split_once('=') {
                    parts.push(Part::Setting(name.trim(), default.trim()));
                }
            }
        }
        before = line;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a page without its markup.
    fn words(roff: &str) -> Vec<String> {
        let plain = roff
            .replace("\\fB", "")
            .replace("\\fR", "")
            .replace("\\*(Aq", "'")
            .replace("\\&", "")
            .replace('\\', "");
        plain.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_page_has_every_setting_and_every_word_of_the_file() {
        let page = page().expect("rendered").text;
        let found = words(&page);
        let mut settings = 0;
        for line in FILE.lines() {
            let is_setting = line.strip_prefix('#').is_some_and(|l| !l.starts_with([' ', '\t']));
            if is_setting && line.contains('=') {
                let (name, default) = line[1..].split_once('=').expect("a setting");
                let entry = format!("\n\\fB{}\\fR = ", name.trim().replace('-', "\\-"));
                assert!(page.contains(&entry), "{line} is not in the page");
                assert!(found.iter().any(|w| default.trim().starts_with(w.as_str())), "{line}");
                settings += 1;
            }
            for word in line.trim_start_matches('#').split_whitespace() {
                let bare = word.trim_start_matches('#');
                assert!(found.iter().any(|w| w.contains(bare)), "{word:?} of {line:?} is missing");
            }
        }
        assert!(settings > 30, "{settings} settings");
    }

    #[test]
    fn comments_stand_with_their_settings() {
        let text = "# Head.\n\n[a]\n# One\n# and more.\n#one = 1\n#two = 2\n# Three:\n#   [[x]]\n#   y = 1\n#three = []\n";
        assert_eq!(
            parts(text),
            [
                Part::Words("Head.".to_owned()),
                Part::Section("a"),
                Part::Words("One and more.".to_owned()),
                Part::Setting("one", "1"),
                Part::Setting("two", "2"),
                Part::Words("Three:".to_owned()),
                Part::Example(vec!["[[x]]", "y = 1"]),
                Part::Setting("three", "[]"),
            ]
        );
    }
}
