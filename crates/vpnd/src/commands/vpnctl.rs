//! The commands of `vpnctl` that need the engine: `vpnctl` becomes this command, with all of its arguments.

mod crypto;
mod sa;
mod support;

pub use sa::OutputError;

use super::check;
use crate::commands::{Failure, Run, Session};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use terminal::control_socket;
use terminal::delegated::{self, PolicyCheck};

/// Carries out a command of vpnctl
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct Vpnctl {
    /// Socket of the daemon
    #[arg(long, global = true, value_name = "SOCKET")]
    control: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

/// As the commands of `vpnctl`, without those that `vpnctl` carries out itself.
#[derive(Debug, Subcommand)]
enum Command {
    Crypto {
        #[command(subcommand)]
        command: crypto::Crypto,
    },
    Policy {
        #[command(subcommand)]
        command: Policy,
    },
    Sa {
        #[command(subcommand)]
        command: sa::Sa,
    },
    Support(delegated::Support),
}

#[derive(Debug, Subcommand)]
enum Policy {
    Check(PolicyCheck),
}

impl Run for Vpnctl {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        session.control = control_socket::of_client(self.control.as_deref());
        let outcome = match &self.command {
            Command::Crypto { command } => command.run(session),
            Command::Policy { command: Policy::Check(check) } => check::run(check, session),
            Command::Sa { command } => command.run(session),
            Command::Support(support) => support::run(support, session),
        };
        // The operator has typed a command of that program.
        Ok(outcome.unwrap_or_else(|failure| failure.report(delegated::COMMAND)))
    }
}
