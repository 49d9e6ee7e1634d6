//! `vpnctl crypto`

use super::session::{Failure, Run, Session};
use crate::crypto::arguments::{self, Arguments};
use clap::Args;
use std::process::ExitCode;

/// Shows cryptographic acceleration, statistics and benchmarks, and sets tunables
#[derive(Debug, Args)]
pub struct Crypto {
    /// The subcommand.
    #[command(flatten)]
    pub arguments: Arguments,
}

impl Run for Crypto {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        arguments::run(&self.arguments, &session.control, session.colour, &mut session.out)?;
        Ok(ExitCode::SUCCESS)
    }
}
