//! `vpnd exec`

use super::listen_ike::ListenIke;
use crate::commands::{Failure, Run, Session};
use crate::config::{LogFormat, LogLevel};
use crate::exec::{self, OWN_FAILURE, Options};
use crate::in_process;
use clap::{Args, ValueHint};
use std::error::Error;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs a command whose only network are the tunnels, as an ordinary user
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnd exec --policy site.xml -- curl http://10.2.0.7/
  vpnd exec --policy site.xml --dns 10.2.0.53 -- psql -h db.example
  vpnd exec --policy site.xml -- bash        a shell; every program that it starts has the same network

The command gets a network namespace with a loopback device, a TUN device, and routes to the networks behind the tunnels. It
can reach nothing else over IP, and this host stays as it is. Unix sockets are files: the command can connect to those of
this user, such as the session bus or a container daemon, and have such a service reach the host's network. An ordinary user needs user namespaces, and access to /dev/net/tun.
The command starts once a tunnel is up. If vpnd ends, the command has no network any more.

The status is that of the command, or 128 and the number of the signal that has ended it. 125: vpnd could not start it;
126: it is no program; 127: it was not found. Signals that are sent to vpnd go to the command.")]
pub struct Exec {
    /// AIX_VPN XML policy file
    #[arg(long, value_name = "FILE", required_unless_present = "inside")]
    policy: Option<PathBuf>,
    /// Configuration file; its sections ike, certificates and crypto count [default: /etc/vpnd/vpnd.toml if readable]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of this end in the tunnels [default: the first of each tunnel's local network]
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<IpAddr>,
    #[command(flatten)]
    listen_ike: ListenIke,
    /// Server behind a tunnel that resolves names [default: names are not resolved]
    #[arg(long, value_name = "ADDRESS")]
    dns: Vec<IpAddr>,
    /// Level of the log, which goes to standard error
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log_level: LogLevel,
    /// Format of the log [default: the configuration's, human]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Ignores elements and attributes with unknown names in the policy, with a warning
    #[arg(long)]
    lenient: bool,
    /// Stops when the parent process ends
    #[arg(long, hide = true)]
    exit_with_parent: bool,
    /// This is the process that becomes the command
    #[arg(long, hide = true)]
    inside: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

impl Run for Exec {
    fn run(&self, _: &mut Session) -> Result<ExitCode, Failure> {
        let Some(policy) = self.policy.clone().filter(|_| !self.inside) else {
            return Ok(exec::run_inside(&self.command));
        };
        let listen_ike = match self.listen_ike.addresses() {
            Ok(addresses) => addresses,
            Err(error) => return Ok(own_failure(&error)),
        };
        let options = Options {
            gateway: in_process::Options {
                policy,
                lenient: self.lenient,
                config: self.config.clone(),
                addresses: self.address.clone(),
                listen_ike,
                log_level: Some(self.log_level.clone()),
                log_format: self.log_format,
                exit_with_parent: self.exit_with_parent,
            },
            name_servers: self.dns.clone(),
            command: self.command.clone(),
        };
        Ok(exec::run(&options).unwrap_or_else(|error| own_failure(&error)))
    }
}

/// Prints an error of vpnd itself, and returns the status for it.
fn own_failure(error: &dyn Error) -> ExitCode {
    eprintln!("vpnd: {error}");
    ExitCode::from(OWN_FAILURE)
}
