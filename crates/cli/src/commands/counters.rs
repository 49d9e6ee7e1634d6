//! `vpnctl counters`

use super::session::{Failure, Run, Session, answer};
use crate::report;
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;

/// Shows how many packets and IKE messages were discarded, by reason
#[derive(Debug, Args)]
pub struct Counters {
    /// Also reasons whose count is 0
    #[arg(long)]
    pub all: bool,
    /// Prints a JSON object
    #[arg(long)]
    pub json: bool,
}

impl Run for Counters {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let found = answer!(session, Ask::Counters, Counters);
        session
            .show(self.json, &found, |counts, colour| report::counters(counts, self.all, colour))?;
        Ok(ExitCode::SUCCESS)
    }
}
