//! `vpnctl stop`

use super::session::{Failure, Run, Session};
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;

/// Deletes all tunnels and ends the daemon
#[derive(Debug, Args)]
pub struct Stop {}

impl Run for Stop {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        session.done(Ask::Stop)?;
        session.client()?.wait_until_gone();
        session.line("vpnd has stopped")?;
        Ok(ExitCode::SUCCESS)
    }
}
