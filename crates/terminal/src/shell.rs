//! Manual pages and completions, made from the arguments of a command, so that they say what it takes.

use crate::manual::{self, Program};
use clap::{Command, Subcommand, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use clap_complete::env::Shells;
use control::client::{Client, Page, Pages};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Names the variable by which a shell asks for completions; its value is the shell.
const VARIABLE: &str = "VPN_COMPLETE";

mod bash;

/// The longest time that a shell waits for the names of tunnels.
const PATIENCE: Duration = Duration::from_millis(500);

/// The commands for shells and manual pages, which `vpnd` and `vpnctl` share.
#[derive(Clone, Debug, Subcommand)]
pub enum ShellCommand {
    /// Prints a completion script for a shell; it completes the names of tunnels, too
    #[command(after_help = "\
Examples:
  source <(vpnctl completions bash)       in ~/.bashrc
  source <(vpnctl completions zsh)        in ~/.zshrc, after compinit
  vpnctl completions fish > ~/.config/fish/completions/vpnctl.fish

vpnd has its own: vpnd completions bash.")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Writes manual pages
    #[command(after_help = "\
Examples:
  sudo vpnctl man /usr/local/share/man && man vpnctl
  sudo vpnd man /usr/local/share/man && man vpnd.toml

If the last name of DIR is man, or one such as man1, the pages go into the directories of their sections: vpnctl(1), \
vpnd(8) and vpnd.toml(5). Otherwise all pages go into DIR.")]
    Man {
        /// Directory of the pages; created if it does not exist
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// A shell that completes arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// Bash
    Bash,
    /// Zsh
    Zsh,
    /// Fish
    Fish,
    /// Elvish
    Elvish,
    /// PowerShell
    Powershell,
}

impl ShellCommand {
    /// Runs the command for this program.
    ///
    /// # Errors
    /// Where the output or a page cannot be written.
    pub fn run(&self, program: &Program, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Completions { shell } => {
                out.write_all(&script((program.arguments)().get_name(), *shell)?)
            }
            Self::Man { directory } => {
                let written = manual::write(program, directory)?;
                let mut directories: Vec<&Path> =
                    written.iter().filter_map(|path| path.parent()).collect();
                directories.sort_unstable();
                directories.dedup();
                let names: Vec<String> =
                    directories.iter().map(|path| path.display().to_string()).collect();
                writeln!(out, "manual pages are in {}", names.join(" and "))
            }
        }
    }
}

/// Answers a shell that asks for completions, and ends; returns where none does.
pub fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// Completes names of tunnels.
pub fn tunnel_names() -> ArgValueCompleter {
    ArgValueCompleter::new(tunnels)
}

/// Names of phase 1 and phase 2 tunnels that begin like this; none where no daemon tells them at once.
pub fn tunnels(current: &OsStr) -> Vec<CompletionCandidate> {
    let socket = socket(std::env::args_os());
    let names = ask(&socket).unwrap_or_default();
    let begins = names
        .into_iter()
        .filter(|name| current.to_str().is_some_and(|text| name.starts_with(text)));
    begins.map(CompletionCandidate::new).collect()
}

/// The socket that the words to be completed name.
fn socket(words: impl Iterator<Item = OsString>) -> PathBuf {
    let mut words = words.skip_while(|word| word != "--control").skip(1);
    crate::control_socket::of_client(words.next().as_deref().map(Path::new))
}

fn ask(socket: &Path) -> Option<Vec<String>> {
    let mut client = Client::connect(socket).ok()?;
    client.set_timeout(PATIENCE).ok()?;
    let (mut pages, mut names) = (Pages::new(true), Vec::new());
    let began = Instant::now();
    while let Some(Page { tunnels, .. }) = pages.read(&mut client).ok()? {
        names.extend(tunnels.into_iter().flat_map(|tunnel| {
            let children = tunnel.children.into_iter().map(|child| child.name);
            std::iter::once(tunnel.name).chain(children)
        }));
        // A part of the names would complete to a name that is not the only one.
        if began.elapsed() > PATIENCE {
            return None;
        }
    }
    names.dedup();
    Some(names)
}

fn script(name: &str, shell: Shell) -> io::Result<Vec<u8>> {
    let shell = shell.to_possible_value().map(|value| value.get_name().to_owned());
    let shells = Shells::builtins();
    let completer = shell.as_deref().and_then(|shell| shells.completer(shell));
    let mut script = Vec::new();
    match completer {
        Some(_) if shell.as_deref() == Some("bash") => script.extend(bash::script(name).bytes()),
        Some(completer) => completer.write_registration(VARIABLE, name, name, name, &mut script)?,
        None => return Err(io::Error::other("completions for this shell are not built in")),
    }
    Ok(script)
}

/// Lists the arguments and commands without a help text, a manual page or a completion; for tests.
///
/// # Errors
/// Where the pages cannot be written below `directory`.
pub fn gaps(program: &Program, directory: &Path) -> io::Result<Vec<String>> {
    manual::write(program, directory)?;
    let mut gaps = Vec::new();
    let command = (program.arguments)();
    find_gaps(&command, &command, &[], directory, &mut gaps)?;
    Ok(gaps)
}

fn find_gaps(
    root: &Command,
    command: &Command,
    path: &[&str],
    directory: &Path,
    gaps: &mut Vec<String>,
) -> io::Result<()> {
    let words: Vec<&str> = [root.get_name()].into_iter().chain(path.iter().copied()).collect();
    let title = words.join(" ");
    let section = if words[0] == "vpnd" { 8 } else { 1 };
    if command.get_about().is_none() {
        gaps.push(format!("{title} is not explained"));
    }
    // roff has a backslash before each hyphen, and options have none.
    let page = fs::read_to_string(directory.join(format!("{}.{section}", words.join("-"))))
        .unwrap_or_default()
        .replace('\\', "");
    let options = candidates(root, &words, "--")?;
    for argument in command.get_arguments().filter(|a| !a.is_hide_set()) {
        let name = argument.get_id();
        if argument.get_help().is_none() {
            gaps.push(format!("{title}: {name} is not explained"));
        }
        let shown = match argument.get_long() {
            Some(long) => {
                let option = format!("--{long}");
                if !options.iter().any(|o| *o == *option) {
                    gaps.push(format!("{title}: {option} is not completed"));
                }
                option
            }
            None => name.to_string(),
        };
        if !page.to_lowercase().contains(&shown.to_lowercase()) {
            let value = argument.get_value_names().unwrap_or_default();
            if !value.iter().any(|value| page.contains(value.as_str())) {
                gaps.push(format!("{title}: {shown} is not in the manual page"));
            }
        }
    }
    let commands = candidates(root, &words, "")?;
    for sub in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        if !commands.iter().any(|c| *c == *sub.get_name()) {
            gaps.push(format!("{title}: {} is not completed", sub.get_name()));
        }
        let path: Vec<&str> = path.iter().copied().chain([sub.get_name()]).collect();
        find_gaps(root, sub, &path, directory, gaps)?;
    }
    Ok(())
}

/// The words that the shell offers behind these if the next one begins like this.
fn candidates(root: &Command, words: &[&str], beginning: &str) -> io::Result<Vec<OsString>> {
    let line = words.iter().copied().chain([beginning]).map(OsString::from).collect();
    let candidates = complete(&mut root.clone(), line, words.len(), None)?;
    Ok(candidates.iter().map(|c| c.get_value().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manual::Reference;

    #[test]
    fn every_shell_has_a_script_that_asks_the_command() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script("vpnctl", *shell).expect("built in"));
            let script = script.expect("text");
            assert!(script.contains(VARIABLE) && script.contains("vpnctl"), "{shell:?}: {script}");
        }
    }

    #[test]
    fn the_socket_is_the_one_in_the_words() {
        let of = |line: &str| socket(line.split(' ').map(OsString::from));
        assert_eq!(of("vpnctl -- vpnctl --control /s status si"), Path::new("/s"));
        assert_eq!(of("vpnctl -- vpnctl status si"), crate::control_socket::of_client(None));
        assert!(ask(Path::new("/nonexistent")).is_none());
    }

    #[test]
    fn gaps_are_found() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let arguments = || {
            let sub = Command::new("sub").arg(clap::Arg::new("option").long("option"));
            Command::new("bare").subcommand(sub)
        };
        let bare = Program { arguments, headings: &[], reference: || Ok(Reference::of_command()) };
        let found = gaps(&bare, directory.path()).expect("writable");
        for gap in ["bare is not explained", "bare sub is not explained", "option is not explained"]
        {
            assert!(found.iter().any(|f| f.contains(gap)), "{gap}: {found:?}");
        }
        assert!(!found.iter().any(|f| f.contains("manual page") || f.contains("completed")));
    }
}
