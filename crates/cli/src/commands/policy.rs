//! `vpnctl policy`

use super::session::{Failure, Run, Session};
use crate::convert::Convert;
use crate::policy_new::New;
use crate::policy_store::StoreCommand;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Writes, changes, shows, checks and converts policies
#[derive(Debug, Args)]
pub struct Policy {
    /// The subcommand.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// Subcommands of `vpnctl policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    #[command(flatten)]
    Store(StoreCommand),
    /// Writes the policies of both ends of a new tunnel
    New(Box<New>),
    /// Converts a swanctl.conf or an ipsec.conf, of strongSwan or libreswan, to a policy
    Convert(Convert),
}

impl Run for Policy {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        match &self.command {
            PolicyCommand::New(new) => {
                let told = new.run()?;
                session.text(&told)?;
                Ok(ExitCode::SUCCESS)
            }
            PolicyCommand::Convert(convert) => Ok(convert.run()?),
            PolicyCommand::Store(command) => {
                Ok(command.run(&session.control, &mut session.out, session.colour)?)
            }
        }
    }
}
