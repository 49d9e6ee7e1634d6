//! The IKEv2 and ESP gateway daemon: its arguments.
#![forbid(unsafe_code)]

use clap::{Args, CommandFactory, Parser, Subcommand};
use cli::config::{Config, LogFormat};
use cli::report::Colour;
use cli::shell::{self, ShellCommand};
use cli::{check, daemon, demo};
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// IKEv2 and ESP gateway that reads AIX_VPN XML policies
#[derive(Debug, Parser)]
#[command(
    name = "vpnd",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  vpnd demo                                 see a tunnel work on this machine, in about 15 seconds
  vpnd check /etc/vpnd/policy.xml           see what a policy means, and what is wrong with it
  sudo vpnd start --policy /etc/vpnd/policy.xml
  sudo vpnctl activate                      bring the tunnels up

The daemon is commanded with vpnctl."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the gateway in the foreground
    Start(Start),
    /// Validates a policy and prints it as understood
    Check(Check),
    /// Shows a tunnel at work between two network namespaces of this machine
    Demo(Demo),
    #[command(flatten)]
    Shell(ShellCommand),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo vpnd start --policy /etc/vpnd/policy.xml
  sudo vpnd start --policy site.xml --config vpnd.toml --log-format json
  sudo vpnd start                         with what vpnctl policy put has stored in /var/lib/vpnd

One line on standard output says when it is ready; the log goes to standard error.

Signals:
  SIGHUP           reads the policy again; a file with errors changes nothing
  SIGTERM, SIGINT  deletes all tunnels, undoes every change to the system and ends

It needs the capabilities CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE, and /dev/net/tun.")]
struct Start {
    /// AIX_VPN XML policy with the tunnels; without it, the policy store, which vpnctl policy changes
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Configuration of timers, limits and paths; without it, the defaults
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Socket for vpnctl [default: the configuration's, /run/vpnd/control.sock]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Form of the log [default: the configuration's, human]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Writes the keys of all SAs to DIR, for Wireshark: whoever reads them reads the traffic
    ///
    /// For looking into packets while a fault is searched, and for nothing else. DIR must be only for the user that vpnd
    /// runs as; it is made if need be. The keys stay there until they are removed.
    #[arg(long, value_name = "DIR")]
    insecure_export_keys: Option<PathBuf>,
    /// Warns of elements and attributes with unknown names in the policy, and leaves them out
    ///
    /// Without it such a policy is refused, since half of it may protect less than its author thinks.
    #[arg(long)]
    lenient: bool,
    /// Stops when the parent process ends
    #[arg(long, hide = true)]
    exit_with_parent: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnd check /etc/vpnd/policy.xml
  vpnd check site.xml --config vpnd.toml
  vpnd check site.xml --format json | jq -r '.findings[].message'

Where the policy has tunnels with certificates, those of the configuration are read, too: as root, since private keys
are among them.

Ends with 0 if vpnd would run this policy, else with 1 after all its errors, each with its line and a cure.
It needs no privilege and changes nothing.")]
struct Check {
    /// AIX_VPN XML policy
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Configuration that says where certificates are; without it, the defaults
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Warns of elements and attributes with unknown names, and leaves them out, instead of refusing the file
    #[arg(long)]
    lenient: bool,
    /// How findings are printed
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: check::Format,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo vpnd demo
  vpnd demo --seconds 60                    as an ordinary user, where user namespaces are allowed
  vpnd demo --json | jq .packets_lost

Two vpnd negotiate a tunnel between two network namespaces. Traffic runs through it while its keys are renewed
again and again, and everything on the wire is watched for packets that are not encrypted. The network of this
machine is not touched, and nothing is left behind.")]
struct Demo {
    /// How long traffic runs
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u64).range(3..=3600))]
    seconds: u64,
    /// Prints one JSON object instead of a report
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    shell::answer(Arguments::command);
    match Arguments::parse().command {
        Command::Shell(command) => match command.run(Arguments::command(), &mut io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        },
        Command::Start(arguments) => start(arguments),
        Command::Check(arguments) => check(&arguments),
        Command::Demo(arguments) => {
            demo::run(Duration::from_secs(arguments.seconds), arguments.json)
        }
    }
}

fn start(arguments: Start) -> ExitCode {
    let options = daemon::Options {
        policy: arguments.policy,
        lenient: arguments.lenient,
        config: arguments.config,
        control: arguments.control,
        log_format: arguments.log_format,
        exit_with_parent: arguments.exit_with_parent,
        export_keys: arguments.insecure_export_keys,
    };
    daemon::start(&options)
}

fn check(arguments: &Check) -> ExitCode {
    let config =
        match arguments.config.as_deref().map_or_else(|| Ok(Config::default()), Config::read) {
            Ok(config) => config,
            Err(error) => return fail(&error),
        };
    let outcome = check::check(&check::Request {
        file: &arguments.file,
        config: &config,
        lenient: arguments.lenient,
        format: arguments.format,
        colour: Colour::of_stdout(),
    });
    print!("{}", outcome.output);
    eprint!("{}", outcome.errors);
    if outcome.is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fail(error: &dyn Error) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
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
        let gaps = shell::gaps(&Arguments::command(), directory.path()).expect("writable");
        assert_eq!(gaps, [""; 0]);
        assert!(directory.path().join("vpnd-start.1").exists());
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
        assert!(parse("vpnd demo --seconds 30 --json").is_ok());
        assert!(parse("vpnd demo --seconds 0").is_err());
    }
}
