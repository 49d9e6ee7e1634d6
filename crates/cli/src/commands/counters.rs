//! `vpnctl counters`

use super::session::{Failure, Run, Session, answer};
use clap::Args;
use control::client::ClientError;
use control::protocol::{Command as Ask, RefusalCode, Reply};
use std::collections::BTreeMap;
use std::process::ExitCode;
use terminal::report;

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
        if self.json {
            session.json(&found)?;
            return Ok(ExitCode::SUCCESS);
        }
        let meanings = match if_known(session, Ask::CounterMeanings)? {
            None => BTreeMap::new(),
            Some(Reply::CounterMeanings(meanings)) => meanings,
            Some(reply) => return Err(session.unexpected(&reply)),
        };
        session.text(&report::counters(&found, &meanings, self.all, session.colour))?;
        let tunnels = match if_known(session, Ask::TunnelCounters)? {
            None => BTreeMap::new(),
            Some(Reply::TunnelCounters(counters)) => counters,
            Some(reply) => return Err(session.unexpected(&reply)),
        };
        if !tunnels.is_empty() {
            let table = report::tunnel_counters(&tunnels, &meanings, session.colour);
            session.text(&format!("\n{table}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks a question; `None`: the daemon is of an earlier version, and does not know it.
fn if_known(session: &mut Session, ask: Ask) -> Result<Option<Reply>, Failure> {
    match session.client()?.ask(ask) {
        Ok(reply) => Ok(Some(reply)),
        Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::UnknownCommand => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
