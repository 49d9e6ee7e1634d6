//! `vpnctl counters`

use super::session::{Failure, Run, Session, answer};
use crate::report;
use clap::Args;
use control::client::ClientError;
use control::protocol::{Command as Ask, RefusalCode, Reply};
use std::collections::BTreeMap;
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
        if !self.json {
            let tunnels = of_tunnels(session)?;
            if !tunnels.is_empty() {
                session
                    .text(&format!("\n{}", report::tunnel_counters(&tunnels, session.colour)))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The counters of single tunnels; none if the daemon is older than the question.
fn of_tunnels(session: &mut Session) -> Result<BTreeMap<String, BTreeMap<String, u64>>, Failure> {
    match session.client()?.ask(Ask::TunnelCounters) {
        Ok(Reply::TunnelCounters(counters)) => Ok(counters),
        Ok(reply) => Err(session.unexpected(&reply)),
        Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::UnknownCommand => {
            Ok(BTreeMap::new())
        }
        Err(error) => Err(error.into()),
    }
}
