//! The page vpnd.toml(5), made of the declarations of the settings, so that it says what `config/vpnd.toml` says.

use crate::config::{HEAD, REPEATED, SECTIONS, range_in_words};
use clap_mangen::roff::{Roff, bold, roman};
use settings::Section;
use std::io;
use terminal::manual::{Page, entries, named, verbatim};

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
    comment(&mut roff, HEAD);
    roff.control("SH", ["OPTIONS"]);
    SECTIONS.iter().for_each(|of| section(&mut roff, of));
    roff.control("SS", ["Sections that can be repeated"]);
    REPEATED.iter().for_each(|lines| comment(&mut roff, lines));
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

/// Writes the settings of a section with their documentation.
fn section(roff: &mut Roff, section: &Section) {
    roff.control("SS", [format!("[{}]", section.name).as_str()]);
    // Settings without documentation share the one before.
    for group in section.keys.chunk_by(|_, next| next.doc.is_empty()) {
        for (n, key) in group.iter().enumerate() {
            roff.control(if n == 0 { "TP" } else { "TQ" }, []);
            roff.text([bold(key.name), roman(format!(" = {}", (key.default)()))]);
        }
        comment(roff, group[0].doc);
        for key in group {
            let Some(range) = range_in_words(key) else { continue };
            let of = if group.len() > 1 { format!(" of {}", key.name) } else { String::new() };
            roff.text([roman(format!("Range{of}: {range}."))]);
            roff.control("br", []);
        }
    }
    comment(roff, section.after);
}

/// Writes lines of documentation: those that are indented, such as an example, as they are, and others as a paragraph.
fn comment(roff: &mut Roff, lines: &[&str]) {
    for part in lines.chunk_by(|one, next| is_example(one) == is_example(next)) {
        if is_example(part[0]) {
            roff.control("RS", ["4"]);
            verbatim(roff, part.iter().map(|line| &line[3..]));
            roff.control("RE", []);
        } else {
            roff.text([roman(part.concat().trim_start())]);
            roff.control("br", []);
        }
    }
}

fn is_example(line: &str) -> bool {
    line.starts_with("   ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

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
        for line in config::text().lines() {
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
    fn the_page_has_the_ranges_of_the_declarations_and_of_the_engine() {
        let page = words(&page().expect("rendered").text).join(" ");
        for range in [
            "Range: 576 to 65535.",
            "Range: \"2m\" to \"24h\", or \"off\".",
            "Range: 0 to 64.",
            "Range: 10 seconds or more or \"off\".",
            "Range of fetch_timeout: \"100ms\" to \"15s\".",
        ] {
            assert!(page.contains(range), "{range}: {page}");
        }
    }

    #[test]
    fn documentation_stands_with_its_settings() {
        settings::section! {
            /// Three settings.
            struct Sample = "a" {
                /// One
                /// and more.
                one: u16 = 1;
                two: u16 = 2;
                /// Three:
                ///   [[x]]
                ///   y = 1
                three: Vec<String> = Vec::new();
            }
        }
        let mut roff = Roff::new();
        section(&mut roff, &<Sample as settings::Declared>::SECTION);
        let page = roff.render();
        let places = [
            ".SS [a]",
            "one",
            " = 1",
            "two",
            " = 2",
            "One and more.",
            "three",
            " = []",
            "Three:",
            "[[x]]",
            "y = 1",
        ];
        let mut rest = page.as_str();
        for place in places {
            let found = rest
                .find(place)
                .unwrap_or_else(|| panic!("{place:?} is not in its place:\n{page}"));
            rest = &rest[found + place.len()..];
        }
        assert_eq!(page.matches(".TP").count(), 2, "{page}");
        assert_eq!(page.matches(".TQ").count(), 1, "{page}");
    }
}
