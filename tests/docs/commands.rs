//! The commands of `vpnd` and `vpnctl` that documents show: the programs have each of them, with each of its options.

use crate::{documents, lines_of_code, root};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Subcommand};
use std::collections::BTreeSet;
use std::fs;

fn programs() -> [Command; 2] {
    let control = Arg::new("control").long("control").global(true);
    [
        vpnd::commands::Command::augment_subcommands(Command::new("vpnd")),
        cli::commands::Command::augment_subcommands(Command::new("vpnctl").arg(control)),
    ]
    .map(|program| program.version("0"))
}

/// The commands of a line for a shell, each as its words. Quoted text is one word. Redirections and comments are left
/// out.
fn commands_of_shell(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    // A gap of two blanks begins an explanation beside the command.
    let line = line.trim_start().trim_start_matches(['$', '#']).trim_start();
    let line = line.split("  ").next().unwrap_or_default();
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | '|' | '&' | ';' | '(' | ')' | '`') => {
                let command = commands.last_mut().expect("there is always one");
                command.extend(word.take());
                if c != ' ' {
                    commands.push(Vec::new());
                }
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    for command in &mut commands {
        let mut is_target = false;
        command.retain(|word| {
            let is_redirection = word.contains(['<', '>']);
            let is_left = !is_redirection && !is_target;
            is_target = word.ends_with(['<', '>']);
            is_left
        });
    }
    commands
}

/// The words from `vpnd` or `vpnctl` on, if a command runs one of them.
fn invocation(command: &[String]) -> Option<Vec<String>> {
    let is_program = |word: &str| matches!(word.rsplit('/').next(), Some("vpnd" | "vpnctl"));
    let is_prefix =
        |word: &str| matches!(word, "sudo" | "exec" | "env" | "time") || word.contains('=');
    let plain =
        command.iter().position(|word| !is_prefix(word)).filter(|&at| is_program(&command[at]));
    // Of `podman exec NAME vpnctl`, and of `cargo run --bin NAME --`.
    let inside = || {
        let by = command.iter().position(|word| matches!(word.as_str(), "exec" | "--bin"))?;
        (by + 1..command.len()).rev().find(|&at| is_program(&command[at]))
    };
    let at = plain.or_else(inside)?;
    let mut words = vec![command[at].rsplit('/').next().unwrap_or_default().to_owned()];
    let rest = command[at + 1..].iter().map(|word| word.trim_matches(['[', ']']));
    // cargo takes its own `--`. Brackets are around words that may be left out.
    words.extend(
        rest.skip_while(|word| *word == "--").filter(|word| *word != "...").map(str::to_owned),
    );
    // Prose and outputs have other words after the name.
    let next = words.get(1)?;
    let is_command =
        next.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !next.starts_with('-');
    (is_command || next == "--control").then_some(words)
}

/// Why a program refuses a command, whatever stands in the place of words in capitals, and of words that are missing.
fn refusal(program: &Command, words: &[String]) -> Option<String> {
    let error = program.clone().try_get_matches_from(words).err()?;
    let named =
        [ContextKind::InvalidValue, ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    let at_fault = named.iter().find_map(|&kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    });
    let is_option = |word: &str| word.starts_with('-');
    let is_placeholder =
        |word: &str| !is_option(word) && !word.contains(|c: char| c.is_ascii_lowercase());
    // A sentence may go on behind a command: "vpnctl why there, if it is vpnd".
    let is_sentence =
        error.kind() == ErrorKind::UnknownArgument && !at_fault.is_some_and(is_option);
    let is_abridged = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::DisplayVersion
            | ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
    );
    let is_wrong = !is_abridged && !is_sentence && !at_fault.is_some_and(is_placeholder);
    is_wrong.then(|| error.to_string())
}

#[test]
fn the_programs_have_every_command_and_option() {
    let programs = programs();
    let mut shown = BTreeSet::new();
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        for line in lines_of_code(&text) {
            let commands = commands_of_shell(&line);
            for words in commands.iter().filter_map(|command| invocation(command)) {
                let program = programs.iter().find(|program| program.get_name() == words[0]);
                let program = program.expect("one of the two");
                if !shown.insert(words.clone()) {
                    continue;
                }
                if let Some(why) = refusal(program, &words) {
                    wrong.push(format!("{}: {}\n  {why}", path.display(), words.join(" ")));
                }
            }
        }
    }
    assert!(shown.len() > 150, "only {} commands were found", shown.len());
    assert!(wrong.is_empty(), "commands that do not exist:\n{}", wrong.join("\n"));
}

#[test]
fn the_page_of_commands_lists_all_of_them_below_the_headings_of_the_help() {
    let page = fs::read_to_string(root().join("docs/reference/commands.md")).expect("the page");
    let headings = [vpnd::commands::Command::HEADINGS, cli::commands::Command::HEADINGS];
    for (mut program, headings) in programs().into_iter().zip(headings) {
        program.build();
        let name = program.get_name();
        let section = page.split("\n## ").find(|section| section.lines().next() == Some(name));
        let section =
            section.unwrap_or_else(|| panic!("docs/reference/commands.md has no section {name}"));
        let listed: Vec<(&str, Vec<&str>)> = section
            .split("\n### ")
            .skip(1)
            .map(|part| {
                let rows = part.lines().filter_map(|line| line.strip_prefix("| `"));
                let names = rows.filter_map(|row| row.split('`').next()).collect();
                (part.lines().next().unwrap_or_default(), names)
            })
            .collect();
        let there: Vec<(&str, Vec<&str>)> = terminal::help::parted(&program, headings)
            .into_iter()
            .map(|(heading, below)| (heading, below.into_iter().map(Command::get_name).collect()))
            .collect();
        assert_eq!(listed, there, "left: docs/reference/commands.md; right: {name}");
    }
}

#[test]
fn commands_are_found_in_lines_for_a_shell() {
    for (line, found) in [
        ("$ sudo vpnctl why site      # why it is down", "vpnctl why site"),
        ("vpnctl list --json | jq -r '.[] | .name' > names", "vpnctl list --json"),
        ("ssh gate 'umask 077' && /usr/sbin/vpnd check a.xml > b", "vpnd check a.xml"),
        ("source <(vpnctl completions bash)", "vpnctl completions bash"),
        ("podman exec gateway vpnctl status [--json]", "vpnctl status --json"),
        ("cargo run --release --bin vpnd -- demo", "vpnd demo"),
    ] {
        let commands = commands_of_shell(line);
        let words: Vec<_> = commands.iter().filter_map(|c| invocation(c)).collect();
        assert_eq!(words.iter().map(|w| w.join(" ")).collect::<Vec<_>>(), [found]);
    }
    let [vpnd, vpnctl] = programs();
    let refuses = |program, line: &str| {
        refusal(program, &line.split(' ').map(str::to_owned).collect::<Vec<_>>()).is_some()
    };
    for line in ["vpnctl list --al", "vpnctl shut", "vpnctl policy mak", "vpnctl top --sort size"] {
        assert!(refuses(&vpnctl, line), "{line}");
    }
    for line in ["vpnctl log LEVEL", "vpnctl help COMMAND", "vpnctl probe", "vpnctl --version"] {
        assert!(!refuses(&vpnctl, line), "{line}");
    }
    assert!(refuses(&vpnd, "vpnd start --polcy p.xml") && !refuses(&vpnd, "vpnd check FILE"));
}
