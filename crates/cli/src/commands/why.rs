//! `vpnctl why`

use super::session::{Failure, Run, Session, answer};
use crate::report;
use crate::shell::tunnel_names;
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;

/// Explains why a tunnel is up or down: what failed, what each side wants, and what to do
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  vpnctl why site

What the peer has not proved to have said is marked as such.")]
pub struct Why {
    /// Phase 1 or phase 2 tunnel
    #[arg(add = tunnel_names())]
    pub name: String,
    /// Prints a JSON object; docs/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for Why {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let found = answer!(session, Ask::Why { name: self.name.clone() }, Why);
        session.show(self.json, &found, report::why)?;
        Ok(ExitCode::SUCCESS)
    }
}
