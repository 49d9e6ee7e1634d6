//! `vpnctl reload`

use super::session::{Failure, Run, Session, answer};
use crate::report;
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;

/// Reads the policy file and the certificates again; a file with errors changes nothing
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  vpnctl reload --dry-run

What has changed is rekeyed or set up anew, what is gone is deleted, and everything else stays up.")]
pub struct Reload {
    /// Only says what would change
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
