//! The IKEv2 and ESP gateway daemon. Each command is a file in `commands/`.
#![forbid(unsafe_code)]

use clap::{CommandFactory, Parser};
use control::protocol::DEFAULT_SOCKET;
use std::process::ExitCode;
use terminal::manual::Program;
use terminal::session::{Run, Session};
use terminal::shell;
use vpnd::commands::{Command, reference};

/// IKEv2 and ESP gateway that reads AIX_VPN XML policies
#[derive(Debug, Parser)]
#[command(
    name = "vpnd",
    version,
    arg_required_else_help = true,
    help_template = Command::help_template(),
    after_help = "\
Examples:
  vpnd demo                                 see a tunnel work on this machine, in about 15 seconds
  vpnd check /etc/vpnd/policy.xml           check a policy: every mistake is shown with its line
  sudo vpnd install                         install the programs, systemd units and manual pages
  sudo vpnd start --policy /etc/vpnd/policy.xml
  sudo vpnctl activate                      bring the tunnels up

The daemon is commanded with vpnctl."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const PROGRAM: Program =
    Program { arguments: Arguments::command, headings: Command::HEADINGS, reference };

fn main() -> ExitCode {
    shell::answer(Arguments::command);
    let mut session = Session::new(DEFAULT_SOCKET.into(), PROGRAM);
    let command = Arguments::parse().command;
    command.run(&mut session).unwrap_or_else(|failure| failure.report("vpnd"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn everything_is_explained_and_completed_and_has_a_page() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let gaps = shell::gaps(&PROGRAM, directory.path()).expect("writable");
        assert_eq!(gaps, [""; 0]);
        assert!(directory.path().join("vpnd-start.8").exists());
        assert!(directory.path().join("vpnd.toml.5").exists());
    }

    #[test]
    fn parses_what_the_help_shows() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' '));
        assert!(
            parse("vpnd start --policy p.xml --config c.toml --control s --log-format json")
                .is_ok()
        );
        assert!(parse("vpnd start --policy p.xml --insecure-export-keys keys").is_ok());
        assert!(parse("vpnd start").is_ok());
        assert!(parse("vpnd start --policy p.xml --log-format xml").is_err());
        assert!(parse("vpnd check p.xml").is_ok());
        assert!(parse("vpnd check p.xml --config c.toml").is_ok());
        assert!(parse("vpnd check p.xml --lenient --format json").is_ok());
        assert!(parse("vpnd start --policy p.xml --lenient").is_ok());
        assert!(parse("vpnd start --config none").is_ok());
        assert!(parse("vpnd install --prefix /usr --root d --dry-run").is_ok());
        assert!(parse("vpnd uninstall").is_ok());
        assert!(parse("vpnd demo --seconds 30 --json").is_ok());
        assert!(parse("vpnd demo --seconds 0").is_err());
    }
}
