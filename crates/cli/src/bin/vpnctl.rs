//! Commands a running `vpnd`: its arguments, and what is printed of the answers.
#![forbid(unsafe_code)]

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use cli::aix::links::LinkError;
use cli::convert::{Convert, ConvertError};
use cli::crypto::{self, arguments::CryptoError};
use cli::experiment;
use cli::report::{self, Colour};
use cli::shell::{self, ShellCommand};
use cli::store::command::{CommandError, StoreCommand};
use cli::top::{self, TopError};
use control::client::{Client, ClientError};
use control::protocol::DefaultAction;
use control::protocol::{
    Command as Ask, DEFAULT_SOCKET, ManualSaInfo, RefusalCode, Reply, Tunnel, WorkersChange,
};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Commands a running vpnd
#[derive(Debug, Parser)]
#[command(
    name = "vpnctl",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  vpnctl activate                start all tunnels this side may start, and wait until each is up or has failed
  vpnctl activate site           start one
  vpnctl list                    what is up
  vpnctl list --verbose          everything about what is up
  vpnctl status site             everything about one tunnel
  vpnctl status                  the daemon as a whole
  vpnctl why site                why it is down, and what to do about it
  vpnctl trace tcp 10.1.0.5:40000 10.2.0.7:443
  vpnctl list --json | jq -r '.[] | select(.state != \"established\") | .name'

Exit status:
  0  done
  1  refused or failed; the reason is on standard error
  2  wrong arguments
  3  no vpnd answers on the socket"
)]
struct Arguments {
    /// Socket of the daemon
    #[arg(long, global = true, value_name = "SOCKET", default_value = DEFAULT_SOCKET)]
    control: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts tunnels and waits until each is up or has failed
    #[command(after_help = "\
Examples:
  vpnctl activate
  vpnctl activate site branch

Prints one line per tunnel, and ends with 1 if one of them failed.")]
    Activate {
        /// Phase 1 or phase 2 tunnels; none: all that this side may start
        #[arg(add = tunnel_names())]
        names: Vec<String>,
    },
    /// Deletes a tunnel and waits until it is gone
    Deactivate {
        /// Phase 1 tunnel with all it carries, or one phase 2 tunnel
        #[arg(add = tunnel_names())]
        name: String,
    },
    /// Lists the tunnels that are up or being negotiated
    List(List),
    /// Shows one tunnel, also why it is down; without a name, the daemon as a whole
    Status(Status),
    /// Tells which way a packet would go: the rule, the tunnel and the SA it would take
    #[command(after_help = "\
Examples:
  vpnctl trace tcp 10.1.0.5:40000 10.2.0.7:443
  vpnctl trace 'udp [fd01::5]:53 > [fd02::7]:53'
  vpnctl trace icmp 10.1.0.5 10.2.0.7 echo-request      or a type and code, as in 3/4
  vpnctl trace udp 10.1.0.5 10.2.0.7 fragment           what follows the first fragment and shows no ports
  vpnctl trace 47 10.1.0.5 10.2.0.7                     another protocol

Nothing is sent: the daemon looks the packet up as it does with every packet.")]
    Trace(Trace),
    /// Shows what happens to traffic that is no tunnel's, or changes it until vpnd is restarted or reloaded
    #[command(after_help = "\
Examples:
  vpnctl filter
  vpnctl filter --ipv4 deny --ipv6 deny     drop what no tunnel and no rule covers; mind that ssh has a rule
  vpnctl filter --ipv4 permit               undo it

Rules, and what is to last, are in the section [filter] of vpnd.toml: docs/filter.md.")]
    Filter(Filter),
    /// Shows tunnels, rates, drops and CPU on one screen, until q is pressed
    Top(top::Options),
    /// Explains why a tunnel is up or down: what failed, what each side wants, and what to do
    #[command(after_help = "\
Example:
  vpnctl why site

What the peer has not proved to have said is marked as such.")]
    Why(Why),
    /// Shows what happens, as it happens, until interrupted
    #[command(after_help = "\
Examples:
  vpnctl events
  vpnctl events site --json | jq -r 'select(.event == \"failed\") | .failure.message'")]
    Events(Events),
    /// Renews the keys of a tunnel without interruption
    Rekey {
        /// Phase 1 or phase 2 tunnel
        #[arg(add = tunnel_names())]
        name: String,
    },
    /// Reads the policy file and the certificates again; a file with errors changes nothing
    #[command(after_help = "\
Example:
  vpnctl reload --dry-run

What has changed is rekeyed or set up anew, what is gone is deleted, and everything else stays up.")]
    Reload {
        /// Only says what would change
        #[arg(long)]
        dry_run: bool,
        /// Prints a JSON object; docs/control.md describes its fields
        #[arg(long)]
        json: bool,
    },
    /// Changes what the daemon logs, until it ends
    #[command(after_help = "\
Examples:
  vpnctl log debug
  vpnctl log info,ike=debug")]
    Log {
        /// error, warn, info, debug, trace or off; for one part of the daemon as in info,ike=debug
        level: String,
    },
    /// Counts what was discarded, by reason
    Counters(Counters),
    /// Shows the threads that carry packets and the stages packets pass, or changes how they work
    #[command(after_help = "\
Examples:
  vpnctl workers
  vpnctl workers set schedule=pipeline workers=2 wait=poll
  vpnctl workers --json | jq '.threads[] | {name, cpu, busy}'")]
    Workers(Workers),
    /// Lists certificates, authorities and revocation lists with their expiry
    Certs(Certs),
    /// Changes, shows and makes policies
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// Shows and sets how the crypto facility works, what it has done and how fast it is
    Crypto(crypto::arguments::Arguments),
    /// Repeats published measurements on this machine and writes a report with plots
    #[command(after_help = "\
Examples:
  sudo vpnctl experiment all --quick         all of them, in less than ten minutes
  sudo vpnctl experiment workloads --output /tmp/measurements

It makes two hosts in network namespaces and starts a vpnd on either; a daemon that runs is left
alone. An ordinary user can do without sudo where user namespaces are allowed. Ctrl-C takes
everything down again; reports of finished experiments stay. docs/experiments.md has the rest.")]
    Experiment(experiment::Options),
    /// Makes links by whose names this program is the commands of AIX: ike, ikedb, lssrc and others
    #[command(after_help = "\
Example:
  sudo vpnctl aix-links /usr/local/bin
  ike cmd=list

docs/from-aix.md tells what each does here.")]
    AixLinks {
        /// Directory, made where there is none
        directory: PathBuf,
    },
    /// Shows what network cards do for SAs in the kernel: what each offers, has and has refused
    #[command(after_help = "\
Examples:
  vpnctl offload
  vpnctl offload --sas             and where each SA is
  vpnctl offload --json | jq '.devices[] | {name, inbound, outbound}'")]
    Offload(Offload),
    /// Prints the daemon's SAs and policies in the kernel as commands of ip xfrm that would put them there
    #[command(after_help = "\
Example:
  vpnctl xfrm | grep ' state '

Each line is a command, keys left out. What ip xfrm cannot say (masks of ports, packet offload in old versions) it refuses.")]
    Xfrm(Xfrm),
    /// Puts back what other programs have removed from the kernel, and SAs into network cards that have come back
    Resync {
        /// Prints a JSON object; docs/control.md describes its fields
        #[arg(long)]
        json: bool,
    },
    /// Deletes all tunnels and ends the daemon
    Stop,
    #[command(flatten)]
    Shell(ShellCommand),
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    #[command(flatten)]
    Store(StoreCommand),
    /// Makes a policy of strongSwan's swanctl.conf or ipsec.conf
    Convert(Convert),
}

#[derive(Debug, Args)]
struct List {
    /// Also tunnels that are defined but down
    #[arg(long)]
    all: bool,
    /// Everything about each: identities, algorithms, what is left of lifetimes, packets
    #[arg(long, short)]
    verbose: bool,
    /// Prints a JSON array; docs/control.md describes its fields
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Trace {
    /// Protocol, source and destination, and for ICMP the type
    #[arg(required = true)]
    packet: Vec<String>,
    /// Prints a JSON object; docs/control.md describes its fields
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Filter {
    /// What becomes of IPv4 that no rule and no tunnel covers
    #[arg(long, value_name = "ACTION", value_parser = default_action())]
    ipv4: Option<DefaultAction>,
    /// What becomes of IPv6 that no rule and no tunnel covers
    #[arg(long, value_name = "ACTION", value_parser = default_action())]
    ipv6: Option<DefaultAction>,
    /// Prints a JSON object; docs/control.md describes its fields
    #[arg(long)]
    json: bool,
}

/// Reads `permit` or `deny`, and explains both in the help.
fn default_action() -> impl TypedValueParser<Value = DefaultAction> {
    let (permit, deny) = (PossibleValue::new("permit"), PossibleValue::new("deny"));
    PossibleValuesParser::new([permit.help("Pass in the clear"), deny.help("Drop")])
        .map(|action| if action == "permit" { DefaultAction::Permit } else { DefaultAction::Deny })
}

#[derive(Debug, Args)]
struct Status {
    /// Phase 1 or phase 2 tunnel; none: the daemon
    #[arg(add = tunnel_names())]
    name: Option<String>,
    /// Prints a JSON object; docs/control.md describes its fields
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Why {
    /// Phase 1 or phase 2 tunnel
    #[arg(add = tunnel_names())]
    name: String,
    /// Prints a JSON object; docs/control.md describes its fields
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Events {
    /// Phase 1 or phase 2 tunnels; none: everything
    #[arg(add = tunnel_names())]
    names: Vec<String>,
    /// Prints one JSON object per line; docs/control.md describes its fields
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Counters {
    /// Also reasons for which nothing was discarded
    #[arg(long)]
    all: bool,
    /// Prints a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Workers {
    /// Prints a JSON object; docs/control.md describes its fields
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Option<WorkersCommand>,
}

#[derive(Debug, Subcommand)]
enum WorkersCommand {
    /// Changes how workers work, until the daemon ends; no packet is lost
    Set {
        /// workers=auto|N, schedule=run-to-completion|pipeline, wait=event|poll|adaptive, affinity=none|CPU,CPU
        #[arg(required = true, value_name = "SETTING=VALUE", value_parser = worker_setting)]
        settings: Vec<String>,
    },
}

/// Refuses what the daemon would, before it is asked.
fn worker_setting(text: &str) -> Result<String, String> {
    let mut change = WorkersChange::default();
    change.set(text)?;
    cli::view::workers_change(&change)?;
    Ok(text.to_owned())
}

#[derive(Debug, Args)]
struct Offload {
    /// Also a line for each SA
    #[arg(long)]
    sas: bool,
    /// Prints a JSON object; docs/control.md describes its fields
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Xfrm {
    /// With keys, which a daemon tells that was started with --insecure-export-keys
    #[arg(long)]
    keys: bool,
}

#[derive(Debug, Args)]
struct Certs {
    /// Prints a JSON array; docs/control.md describes its fields
    #[arg(long)]
    json: bool,
}

/// Completes names of tunnels.
fn tunnel_names() -> ArgValueCompleter {
    ArgValueCompleter::new(shell::tunnels)
}

fn main() -> ExitCode {
    if let Some(code) = cli::aix::run(std::env::args_os()) {
        return code;
    }
    shell::answer(Arguments::command);
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(code) => code,
        Err(Failure::Policy(error)) => {
            eprintln!("vpnctl: {error}");
            ExitCode::FAILURE
        }
        Err(Failure::Client(error)) => {
            eprintln!("vpnctl: {error}");
            match error {
                ClientError::Refused(_) => ExitCode::FAILURE,
                _ => ExitCode::from(3),
            }
        }
        Err(Failure::Links(error)) => {
            eprintln!("vpnctl: {error}");
            ExitCode::FAILURE
        }
        Err(Failure::Convert(error)) => {
            eprintln!("vpnctl: {error}");
            ExitCode::FAILURE
        }
        Err(Failure::Top(error)) => {
            eprintln!("vpnctl: {error}");
            ExitCode::FAILURE
        }
        Err(Failure::Crypto(error)) => {
            eprintln!("vpnctl: {error}");
            ExitCode::FAILURE
        }
        // Whoever read our output has seen enough.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(Failure::Output(error)) => {
            eprintln!("vpnctl: cannot write: {error}");
            ExitCode::FAILURE
        }
    }
}

enum Failure {
    Client(ClientError),
    Convert(ConvertError),
    Links(LinkError),
    /// A file that was named cannot be used.
    Policy(CommandError),
    Output(io::Error),
    Crypto(CryptoError),
    /// There is no terminal.
    Top(TopError),
}

impl From<TopError> for Failure {
    fn from(error: TopError) -> Self {
        match error {
            TopError::Client(error) => Self::Client(error),
            TopError::Terminal(error) => Self::Output(error),
            error => Self::Top(error),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<ConvertError> for Failure {
    fn from(error: ConvertError) -> Self {
        Self::Convert(error)
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Client(error) => Self::Client(error),
            CommandError::Output(error) => Self::Output(error),
            error => Self::Policy(error),
        }
    }
}

impl From<CryptoError> for Failure {
    fn from(error: CryptoError) -> Self {
        match error {
            CryptoError::Client(error) => Self::Client(error),
            CryptoError::Output(error) => Self::Output(error),
            error => Self::Crypto(error),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if let Command::Experiment(options) = &arguments.command {
        return Ok(experiment::run(options));
    }
    if let Command::Policy { command: PolicyCommand::Convert(convert) } = &arguments.command {
        return Ok(convert.run()?);
    }
    let colour = Colour::of_stdout();
    let mut out = io::stdout().lock();
    if let Command::Policy { command: PolicyCommand::Store(command) } = &arguments.command {
        return Ok(command.run(&arguments.control, &mut out, colour)?);
    }
    if let Command::Crypto(crypto) = &arguments.command {
        crypto::arguments::run(crypto, &arguments.control, colour, &mut out)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::AixLinks { directory } = &arguments.command {
        let program = std::env::current_exe()?;
        let made = cli::aix::links::make(directory, &program).map_err(Failure::Links)?;
        for path in made {
            writeln!(out, "{} is a link to {}", path.display(), program.display())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Shell(command) = &arguments.command {
        command.run(Arguments::command(), &mut out)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Top(options) = &arguments.command {
        drop(out);
        return Ok(top::run(options, &arguments.control, colour).map(|()| ExitCode::SUCCESS)?);
    }
    let mut client = Client::connect(&arguments.control)?;
    match &arguments.command {
        Command::Activate { names } => {
            let activations = match client.ask(Ask::Activate { names: names.clone() })? {
                Reply::Activations(activations) => activations,
                reply => return Err(client.unexpected(&reply).into()),
            };
            if activations.is_empty() {
                writeln!(out, "the policy has no tunnel that this side may start")?;
            }
            for activation in &activations {
                writeln!(out, "{}", report::activation(activation, colour))?;
            }
            let all_up = activations.iter().all(|activation| activation.up);
            return Ok(if all_up { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::List(list) => {
            let tunnels = tunnels(&mut client, Ask::List { all: list.all })?;
            if list.json {
                print_json(&mut out, &tunnels)?;
            } else if list.verbose {
                write!(out, "{}", report::verbose(&tunnels, colour))?;
            } else {
                write!(out, "{}", report::list(&tunnels, colour))?;
                let by_hand = manual_sas(&mut client)?;
                if !by_hand.is_empty() {
                    write!(out, "\n{}", report::manual(&by_hand, colour))?;
                }
            }
        }
        Command::Status(Status { name: Some(name), json }) => {
            for tunnel in tunnels(&mut client, Ask::Status { name: name.clone() })? {
                if *json {
                    print_json(&mut out, &tunnel)?;
                } else {
                    write!(out, "{}", report::status(&tunnel, colour))?;
                }
            }
        }
        Command::Status(Status { name: None, json }) => match client.ask(Ask::Overview)? {
            Reply::Overview(overview) if *json => print_json(&mut out, &overview)?,
            Reply::Overview(overview) => write!(out, "{}", report::overview(&overview, colour))?,
            reply => return Err(client.unexpected(&reply).into()),
        },
        Command::Trace(trace) => {
            match client.ask(Ask::Trace { packet: trace.packet.join(" ") })? {
                Reply::Trace(found) if trace.json => print_json(&mut out, &found)?,
                Reply::Trace(found) => write!(out, "{}", report::trace(&found, colour))?,
                reply => return Err(client.unexpected(&reply).into()),
            }
        }
        Command::Filter(filter) => {
            let (ipv4, ipv6) = (filter.ipv4, filter.ipv6);
            let ask = match (ipv4, ipv6) {
                (None, None) => Ask::Filter,
                _ => Ask::SetFilter { ipv4, ipv6 },
            };
            match client.ask(ask)? {
                Reply::Filter(found) if filter.json => print_json(&mut out, &found)?,
                Reply::Filter(found) => write!(out, "{}", report::filter(&found, colour))?,
                reply => return Err(client.unexpected(&reply).into()),
            }
        }
        Command::Why(status) => match client.ask(Ask::Why { name: status.name.clone() })? {
            Reply::Why(explanation) if status.json => print_json(&mut out, &explanation)?,
            Reply::Why(explanation) => write!(out, "{}", report::why(&explanation, colour))?,
            reply => return Err(client.unexpected(&reply).into()),
        },
        Command::Events(events) => {
            done(&mut client, Ask::Events { names: events.names.clone() })?;
            while let Some(happening) = client.next_event()? {
                if events.json {
                    serde_json::to_writer(&mut out, &happening).map_err(io::Error::from)?;
                    writeln!(out)?;
                } else {
                    writeln!(out, "{}", report::happening(&happening, colour))?;
                }
                out.flush()?;
            }
        }
        Command::Counters(counters) => match client.ask(Ask::Counters)? {
            Reply::Counters(counts) if counters.json => print_json(&mut out, &counts)?,
            Reply::Counters(counts) => {
                write!(out, "{}", report::counters(&counts, counters.all, colour))?
            }
            reply => return Err(client.unexpected(&reply).into()),
        },
        Command::Workers(workers) => {
            let ask = match &workers.command {
                None => Ask::Workers,
                Some(WorkersCommand::Set { settings }) => {
                    let mut change = WorkersChange::default();
                    for setting in settings {
                        change.set(setting).map_err(io::Error::other)?;
                    }
                    Ask::WorkersSet(change)
                }
            };
            match client.ask(ask)? {
                Reply::Workers(shown) if workers.json => print_json(&mut out, &shown)?,
                Reply::Workers(shown) => write!(out, "{}", report::workers(&shown, colour))?,
                reply => return Err(client.unexpected(&reply).into()),
            }
        }
        Command::Offload(offload) => match client.ask(Ask::Offload)? {
            Reply::Offload(info) if offload.json => print_json(&mut out, &info)?,
            Reply::Offload(info) => write!(out, "{}", report::offload(&info, offload.sas, colour))?,
            reply => return Err(client.unexpected(&reply).into()),
        },
        Command::Xfrm(xfrm) => match client.ask(Ask::Xfrm { keys: xfrm.keys })? {
            Reply::Xfrm(commands) => write!(out, "{}", &*commands)?,
            reply => return Err(client.unexpected(&reply).into()),
        },
        Command::Resync { json } => match client.ask(Ask::Resync)? {
            Reply::Resync(done) if *json => print_json(&mut out, &done)?,
            Reply::Resync(done) => writeln!(out, "{}", report::resynced(&done))?,
            reply => return Err(client.unexpected(&reply).into()),
        },
        Command::Certs(certs) => match client.ask(Ask::Certs)? {
            Reply::Certificates(all) if certs.json => print_json(&mut out, &all)?,
            Reply::Certificates(all) => write!(out, "{}", report::certificates(&all, colour))?,
            reply => return Err(client.unexpected(&reply).into()),
        },
        Command::Reload { dry_run, json } => match client.ask(Ask::Reload { dry_run: *dry_run })? {
            Reply::Reloaded(reloaded) if *json => print_json(&mut out, &reloaded)?,
            Reply::Reloaded(reloaded) => {
                for warning in &reloaded.warnings {
                    eprintln!("{warning}");
                }
                write!(out, "{}", report::reloaded(&reloaded, colour))?;
            }
            reply => return Err(client.unexpected(&reply).into()),
        },
        Command::Deactivate { name } => {
            done(&mut client, Ask::Deactivate { name: name.clone() })?;
            writeln!(out, "{}: down", report::plain(name))?;
        }
        Command::Rekey { name } => {
            done(&mut client, Ask::Rekey { name: name.clone() })?;
            writeln!(out, "{}: rekeyed", report::plain(name))?;
        }
        Command::Log { level } => {
            done(&mut client, Ask::Log { level: level.clone() })?;
            writeln!(out, "log level: {}", report::plain(level))?;
        }
        // They find their daemon themselves, or do without.
        Command::Policy { .. } | Command::Crypto(_) | Command::AixLinks { .. } => {}
        Command::Top(_) | Command::Shell(_) | Command::Experiment(_) => {}
        Command::Stop => {
            done(&mut client, Ask::Stop)?;
            client.wait_until_gone();
            writeln!(out, "vpnd has stopped")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn tunnels(client: &mut Client, ask: Ask) -> Result<Vec<Tunnel>, Failure> {
    match client.ask(ask)? {
        Reply::Tunnels(tunnels) => Ok(tunnels),
        reply => Err(client.unexpected(&reply).into()),
    }
}

/// None where the daemon is older than the question.
fn manual_sas(client: &mut Client) -> Result<Vec<ManualSaInfo>, Failure> {
    match client.ask(Ask::ManualSas) {
        Ok(Reply::ManualSas(sas)) => Ok(sas),
        Ok(reply) => Err(client.unexpected(&reply).into()),
        Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::UnknownCommand => {
            Ok(Vec::new())
        }
        Err(error) => Err(error.into()),
    }
}

fn done(client: &mut Client, ask: Ask) -> Result<(), Failure> {
    match client.ask(ask)? {
        Reply::Done => Ok(()),
        reply => Err(client.unexpected(&reply).into()),
    }
}

fn print_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
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
        assert!(directory.path().join("vpnctl-trace.1").exists());
    }

    #[test]
    fn parses_what_the_help_shows() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' '));
        for line in [
            "vpnctl activate",
            "vpnctl activate site branch",
            "vpnctl --control s list --json",
            "vpnctl list --all --control s",
            "vpnctl list --verbose",
            "vpnctl list -v --all",
            "vpnctl status site --json",
            "vpnctl log info,ike=debug",
            "vpnctl deactivate site",
            "vpnctl rekey site",
            "vpnctl reload",
            "vpnctl reload --dry-run --json",
            "vpnctl why site --json",
            "vpnctl events",
            "vpnctl events site branch --json",
            "vpnctl counters --all",
            "vpnctl certs --json",
            "vpnctl workers",
            "vpnctl workers --json",
            "vpnctl workers set schedule=pipeline workers=2 wait=poll --json",
            "vpnctl policy convert swanctl.conf --peer --output policy.xml",
            "vpnctl policy convert --from ipsec ipsec.conf --secrets ipsec.secrets",
            "vpnctl policy put site.xml --force --swap --json",
            "vpnctl policy put - --directory d",
            "vpnctl policy get",
            "vpnctl policy get --type IKETunnel --name site --recursive --hide-keys",
            "vpnctl policy delete --type IKEPresharedKey --name b --id-type FQDN",
            "vpnctl policy purge --yes",
            "vpnctl policy mirror hub.xml --tunnel branch",
            "vpnctl policy check site.xml --lenient --format json",
            "vpnctl policy diff",
            "vpnctl policy diff site.xml --json",
            "vpnctl crypto info --json",
            "vpnctl crypto stats --interval 10",
            "vpnctl crypto get min_sz",
            "vpnctl crypto set in_core_enabled=0 --persist",
            "vpnctl crypto bench --algorithm all --size 64 --size 1400 --seconds 2 --svg bench.svg",
            "vpnctl status",
            "vpnctl completions zsh",
            "vpnctl man pages",
            "vpnctl top --once --interval 5 --sort in --filter site --all",
            "vpnctl trace tcp 10.1.0.5:40000 > 10.2.0.7:443 --json",
            "vpnctl offload --sas --json",
            "vpnctl xfrm --keys",
            "vpnctl resync --json",
            "vpnctl filter",
            "vpnctl filter --ipv4 deny --ipv6 permit --json",
            "vpnctl aix-links /usr/local/bin",
            "vpnctl experiment all --quick",
            "vpnctl experiment workloads --rehearsal --output out",
            "vpnctl stop",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        for line in [
            "vpnctl",
            "vpnctl policy purge",
            "vpnctl why",
            "vpnctl trace",
            "vpnctl filter --ipv4 block",
            "vpnctl experiment none",
            "vpnctl experiment all --quick --rehearsal",
            "vpnctl deactivate",
            "vpnctl down site",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
