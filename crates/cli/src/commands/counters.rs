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
        if self.json {
            session.json(&found)?;
            return Ok(ExitCode::SUCCESS);
        }
        let meanings = if_known(session, Ask::CounterMeanings, |reply| match reply {
            Reply::CounterMeanings(meanings) => Ok(meanings),
            other => Err(other),
        })?;
        session.text(&report::counters(&found, &meanings, self.all, session.colour))?;
        let tunnels = if_known(session, Ask::TunnelCounters, |reply| match reply {
            Reply::TunnelCounters(counters) => Ok(counters),
            other => Err(other),
        })?;
        if !tunnels.is_empty() {
            let table = report::tunnel_counters(&tunnels, &meanings, session.colour);
            session.text(&format!("\n{table}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks a question that a daemon of an earlier version does not know; then there is nothing to show.
fn if_known<T>(
    session: &mut Session,
    ask: Ask,
    take: impl FnOnce(Reply) -> Result<BTreeMap<String, T>, Reply>,
) -> Result<BTreeMap<String, T>, Failure> {
    match session.client()?.ask(ask) {
        Ok(reply) => take(reply).map_err(|reply| session.unexpected(&reply)),
        Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::UnknownCommand => {
            Ok(BTreeMap::new())
        }
        Err(error) => Err(error.into()),
    }
}
