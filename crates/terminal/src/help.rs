//! The help of a program with many commands: they stand below headings, by what somebody wants to do.
//!
//! clap has one heading for all commands of a program. Its help is therefore made of a template that contains them.

use crate::report::{fit_stdout, width, wrapped};
use clap::Command;
use clap::builder::Styles;
use std::fmt::Write;

/// A heading, and the number of commands below it. The commands that all programs have follow those of the last one.
pub type Heading = (&'static str, usize);

/// Blanks before the name of a command, and behind the longest one.
const MARGIN: usize = 2;

/// The template of the help of a program, whose commands are counted by `headings` in their order.
pub fn template(mut program: Command, headings: &[Heading]) -> String {
    fit_stdout();
    program.build();
    let styles = Styles::styled();
    let (title, name) = (styles.get_header(), styles.get_literal());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    let longest = commands(&program).map(|command| command.get_name().len()).max().unwrap_or(0);
    let indent = MARGIN + longest + MARGIN;
    for (heading, below) in parted(&program, headings) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{title}{heading}:{title:#}\n");
        for command in below {
            let word = command.get_name();
            let gap = " ".repeat(indent - MARGIN - word.len());
            let first = format!("  {name}{word}{name:#}{gap}");
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            // clap would take it for a part of the template.
            debug_assert!(!about.contains(['{', '}']), "{about}");
            wrapped(&mut text, &first, indent, &about, width());
        }
    }
    let _ = write!(text, "\n{title}Options:{title:#}\n{{options}}{{after-help}}");
    text
}

/// The commands below each heading.
pub fn parted<'c>(
    program: &'c Command,
    headings: &[Heading],
) -> Vec<(&'static str, Vec<&'c Command>)> {
    let mut rest = commands(program);
    let mut parted: Vec<_> = headings
        .iter()
        .map(|(heading, number)| (*heading, rest.by_ref().take(*number).collect::<Vec<_>>()))
        .collect();
    if let Some((_, last)) = parted.last_mut() {
        last.extend(rest);
    }
    parted
}

fn commands(program: &Command) -> impl Iterator<Item = &Command> {
    program.get_subcommands().filter(|command| !command.is_hide_set())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Command {
        let command = |name: &'static str| Command::new(name).about(format!("Does {name}"));
        Command::new("p").about("Does things").subcommands(["one", "two", "three"].map(command))
    }

    const HEADINGS: &[Heading] = &[("First", 1), ("Then", 2)];

    #[test]
    fn commands_stand_below_their_headings_in_their_order() {
        let help = program().help_template(template(program(), HEADINGS)).render_help();
        let help = console::strip_ansi_codes(&help.to_string()).into_owned();
        let told = "\
Does things

Usage: p [COMMAND]

First:
  one    Does one

Then:
  two    Does two
  three  Does three
  help   Print this message or the help of the given subcommand(s)

Options:
  -h, --help  Print help
";
        assert_eq!(help, told);
    }
}
