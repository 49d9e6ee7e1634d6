//! `vpnctl resync`

use super::session::{Failure, Run, Session, answer};
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;
use terminal::report;

/// Restores SAs and policies that another program removed from the kernel, and offloads SAs again to cards that
/// have returned
#[derive(Debug, Args)]
pub struct Resync {
    /// Prints a JSON object; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for Resync {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let found = answer!(session, Ask::Resync, Resync);
        session.show(self.json, &found, |done, _| format!("{}\n", report::resynced(done)))?;
        Ok(ExitCode::SUCCESS)
    }
}
