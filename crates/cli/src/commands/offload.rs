//! `vpnctl offload`

use super::session::{Failure, Run, Session, answer};
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;
use terminal::report;

/// Shows the offload of the kernel's SAs to network cards: features, SAs and refusals of each card
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl offload
  vpnctl offload --sas             also the place of each SA
  vpnctl offload --json | jq '.devices[] | {name, inbound, outbound}'")]
pub struct Offload {
    /// Also a line for each SA
    #[arg(long)]
    pub sas: bool,
    /// Prints a JSON object; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for Offload {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let found = answer!(session, Ask::Offload, Offload);
        session.show(self.json, &found, |info, colour| report::offload(info, self.sas, colour))?;
        Ok(ExitCode::SUCCESS)
    }
}
