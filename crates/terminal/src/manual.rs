//! Manual pages: those of the commands are made of their arguments.
//!
//! `vpnctl` is in section 1, `vpnd` in section 8, vpnd.toml in section 5.

mod help;
mod reference;

use crate::help::{Heading, parted};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use help::{Block, Help};
pub use reference::{Entry, Program, Reference, named};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A manual page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The name of its file without the section, as in `vpnctl-list`.
    pub name: String,
    /// The section of the manual, from 1 to 8.
    pub section: u8,
    /// The page in roff.
    pub text: String,
}

impl Page {
    /// The name of its file, as in `vpnctl-list.1`.
    pub fn file_name(&self) -> String {
        format!("{}.{}", self.name, self.section)
    }
}

/// The pages of a program: its own, one for each of its commands, and its other pages.
///
/// # Errors
/// Where a page cannot be rendered.
pub fn pages(program: &Program) -> io::Result<Vec<Page>> {
    let mut root = (program.arguments)().disable_help_subcommand(true);
    root.build();
    let reference = (program.reference)()?;
    let mut pages = Vec::new();
    collect(&root, None, program, &reference, &mut pages)?;
    pages.extend(reference.more);
    Ok(pages)
}

/// Writes the pages of a program below a directory. If its last name is `man` or one like `man1`, they go into the
/// directories of their sections, as `man1/vpnctl.1`; otherwise all go into the directory itself.
///
/// # Errors
/// Where a page cannot be written; the message names it.
pub fn write(program: &Program, directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for page in pages(program)? {
        let path = place(directory, page.section).join(page.file_name());
        let parent = path.parent().unwrap_or(directory);
        fs::create_dir_all(parent).map_err(|error| with_path(parent, &error))?;
        fs::write(&path, page.text).map_err(|error| with_path(&path, &error))?;
        written.push(path);
    }
    Ok(written)
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The directory for the pages of a section.
fn place(directory: &Path, section: u8) -> PathBuf {
    let last = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let of_section = format!("man{section}");
    match last.strip_prefix("man") {
        Some("") => directory.join(of_section),
        Some(number) if number.parse::<u8>().is_ok_and(|n| (1..=9).contains(&n)) => {
            directory.with_file_name(of_section)
        }
        _ => directory.to_owned(),
    }
}

fn collect(
    command: &Command,
    above: Option<&Command>,
    program: &Program,
    reference: &Reference,
    pages: &mut Vec<Page>,
) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let text = page(command, above, program, reference)?;
    pages.push(Page { name, section: reference.section, text });
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        collect(sub, Some(command), program, reference, pages)?;
    }
    Ok(())
}

fn page(
    command: &Command,
    above: Option<&Command>,
    program: &Program,
    reference: &Reference,
) -> io::Result<String> {
    let man = Man::new(command.clone())
        .section(reference.section.to_string())
        .source(format!("vpnd {}", env!("CARGO_PKG_VERSION")))
        .manual("VPN");
    let help = Help::of(command);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    let mut notes = Roff::new();
    help.notes.iter().for_each(|block| block.write(&mut notes));
    notes.to_writer(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if above.is_none() && !program.headings.is_empty() {
        commands(command, program.headings, reference.section).to_writer(&mut text)?;
    } else if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    let mut rest = Roff::new();
    if let Some(examples) = &help.examples {
        rest.control("SH", ["EXAMPLES"]);
        examples.write(&mut rest);
    }
    rest.control("SH", ["EXIT STATUS"]);
    help.exit_status.unwrap_or_else(|| reference.exit_status.clone()).iter().for_each(
        |(status, meaning)| {
            rest.control("TP", []);
            rest.text([bold(status.as_str())]);
            rest.text([roman(meaning.as_str())]);
        },
    );
    entries(&mut rest, "FILES", &reference.files);
    entries(&mut rest, "ENVIRONMENT", &reference.environment);
    see_also(&mut rest, command, above, reference.section);
    rest.to_writer(&mut text)?;
    String::from_utf8(text).map_err(io::Error::other)
}

/// The commands of a program below their headings.
fn commands(program: &Command, headings: &[Heading], section: u8) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SUBCOMMANDS"]);
    for (heading, below) in parted(program, headings) {
        roff.control("SS", [heading]);
        for command in below {
            let name = command.get_display_name().unwrap_or_else(|| command.get_name());
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            roff.control("TP", []);
            roff.text([roman(format!("{name}({section})"))]);
            roff.text([roman(about)]);
        }
    }
    roff
}

/// A section of names with their meanings.
pub fn entries(roff: &mut Roff, title: &str, entries: &[Entry]) {
    roff.control("SH", [title]);
    for (name, meaning) in entries {
        roff.control("TP", []);
        roff.text([bold(name.as_str())]);
        roff.text([roman(meaning.as_str())]);
    }
}

fn see_also(roff: &mut Roff, command: &Command, above: Option<&Command>, section: u8) {
    let own = command.get_display_name().unwrap_or_else(|| command.get_name());
    let mut pages: Vec<String> = Vec::new();
    if let Some(above) = above {
        let name = above.get_display_name().unwrap_or_else(|| above.get_name());
        pages.push(format!("{name}({section})"));
    }
    let general = ["vpnctl(1)", "vpnd.toml(5)", "vpnd(8)"].map(str::to_owned);
    let mut more: Vec<String> =
        general.into_iter().filter(|page| page.split('(').next() != Some(own)).collect();
    more.retain(|page| !pages.contains(page));
    pages.extend(more);
    roff.control("SH", ["SEE ALSO"]);
    let mut words = Vec::new();
    for (n, page) in pages.iter().enumerate() {
        let (name, section) = page.split_once('(').unwrap_or((page, ""));
        words.push(bold(name));
        words.push(roman(format!("({section}{}", if n + 1 < pages.len() { ", " } else { "" })));
    }
    roff.text(words);
}

/// Appends words as they stand.
pub fn verbatim<'a>(roff: &mut Roff, lines: impl IntoIterator<Item = &'a str>) {
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
}

impl Block {
    fn write(&self, roff: &mut Roff) {
        match self {
            Self::Words(words) => {
                roff.control("PP", []);
                roff.text([roman(words.as_str())]);
            }
            Self::Lines { title, lines } => {
                if let Some(title) = title {
                    roff.control("PP", []);
                    roff.text([roman(title.as_str())]);
                }
                roff.control("RS", ["4"]);
                verbatim(roff, lines.iter().map(String::as_str));
                roff.control("RE", []);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn small() -> Command {
        let list = Command::new("list").about("Lists").arg(Arg::new("all").long("all").help("All"));
        Command::new("vpnctl").about("Does things").arg(Arg::new("a").help("b")).subcommand(list)
    }

    fn program(arguments: fn() -> Command) -> Program {
        Program { arguments, headings: &[], reference: || Ok(Reference::of_command()) }
    }

    #[test]
    fn every_page_has_the_sections_that_people_look_for() {
        let pages = pages(&program(small)).expect("rendered");
        let names: Vec<String> = pages.iter().map(Page::file_name).collect();
        assert_eq!(names, ["vpnctl.1", "vpnctl-list.1"]);
        for page in &pages {
            let mut last = 0;
            for section in [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "OPTIONS",
                "EXIT STATUS",
                "FILES",
                "ENVIRONMENT",
                "SEE ALSO",
            ] {
                let heading = match section.contains(' ') {
                    true => format!("\n.SH \"{section}\"\n"),
                    false => format!("\n.SH {section}\n"),
                };
                let at = page.text.find(&heading);
                let at = at.unwrap_or_else(|| panic!("{} has no {section}", page.file_name()));
                assert!(at > last, "{}: {section} stands too early", page.file_name());
                last = at;
            }
        }
    }

    #[test]
    fn pages_go_where_man_looks_for_them() {
        assert_eq!(place(Path::new("/usr/share/man"), 8), Path::new("/usr/share/man/man8"));
        assert_eq!(place(Path::new("/usr/share/man/man1"), 5), Path::new("/usr/share/man/man5"));
        assert_eq!(place(Path::new("pages"), 8), Path::new("pages"));
        assert_eq!(place(Path::new("mansion"), 8), Path::new("mansion"));
        let directory = tempfile::tempdir().expect("a temporary directory");
        let bare = || Command::new("vpnctl").about("x").arg(Arg::new("a").help("b"));
        let written = write(&program(bare), &directory.path().join("man/man1")).expect("writable");
        assert_eq!(written, [directory.path().join("man/man1/vpnctl.1")]);
    }

    #[test]
    fn the_text_behind_the_help_is_parted_into_sections() {
        let explained = || {
            small().after_help(
                "Examples:\n  vpnctl a\n  vpnctl b\n\nA remark about\nboth.\n\nExit status:\n  0  done\n  1  refused",
            )
        };
        let text = &pages(&program(explained)).expect("rendered")[0].text;
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in {text}"));
        assert!(at("A remark about both.") < at(".SH OPTIONS"));
        assert!(at(".SH EXAMPLES") < at("vpnctl b") && at("vpnctl b") < at(".SH \"EXIT STATUS\""));
        assert!(at("\\fB1\\fR\nrefused") > at(".SH \"EXIT STATUS\""));
    }
}
