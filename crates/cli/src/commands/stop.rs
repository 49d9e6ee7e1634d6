//! `vpnctl stop`

use super::session::{Failure, Run, Session};
use clap::Args;
use control::protocol::{Command as Ask, Reply};
use std::process::ExitCode;

/// Deletes all tunnels and ends the daemon
///
/// Afterwards the traffic of the tunnels takes the host's other routes, in the clear, unless vpnd guard or --keep-guard
/// keeps it blocked.
#[derive(Debug, Args)]
pub struct Stop {
    /// Keeps the traffic of the tunnels blocked until the next start, or until vpnd release
    #[arg(long)]
    keep_guard: bool,
}

impl Run for Stop {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        // A daemon that cannot tell stops all the same.
        let held = match session.ask(Ask::Overview) {
            Ok(Reply::Overview(overview)) => overview.guard.and_then(|guard| guard.held_seconds),
            _ => None,
        };
        session.done(Ask::Stop { keep_guard: self.keep_guard })?;
        session.client()?.wait_until_gone();
        session.line(match self.keep_guard || held.is_some() {
            true => {
                "vpnd has stopped; the traffic of its tunnels stays blocked; to release it: vpnd release"
            }
            false => {
                "vpnd has stopped; the traffic of its tunnels is no longer blocked, and takes the host's other routes"
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
