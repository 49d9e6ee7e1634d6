//! `vpnctl reload`

use super::session::{Failure, Run, Session, answer};
use crate::report;
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;

/// Reloads the policy and the certificates; if one has errors, nothing changes
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  vpnctl reload --dry-run

Changed tunnels are rekeyed or established again, removed tunnels are deleted, all others stay up.")]
pub struct Reload {
    /// Shows the changes without making them
    #[arg(long)]
    pub dry_run: bool,
    /// Prints a JSON object; docs/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for Reload {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let reloaded = answer!(session, Ask::Reload { dry_run: self.dry_run }, Reloaded);
        if !self.json {
            for warning in &reloaded.warnings {
                eprintln!("{warning}");
            }
        }
        session.show(self.json, &reloaded, report::reloaded)?;
        Ok(ExitCode::SUCCESS)
    }
}
