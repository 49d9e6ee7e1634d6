//! `vpnctl list`

use super::session::{Failure, Run, Session, answer};
use crate::report;
use clap::Args;
use control::client::ClientError;
use control::protocol::{Command as Ask, ManualSaInfo, RefusalCode, Reply};
use std::process::ExitCode;

/// Lists the tunnels that are up or being negotiated
#[derive(Debug, Args)]
pub struct List {
    /// Also tunnels that are defined but down
    #[arg(long)]
    pub all: bool,
    /// All details: identities, algorithms, remaining lifetimes, packets
    #[arg(long, short)]
    pub verbose: bool,
    /// Prints a JSON array; docs/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for List {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let tunnels = answer!(session, Ask::List { all: self.all }, Tunnels);
        if self.json {
            session.json(&tunnels)?;
        } else if self.verbose {
            session.text(&report::verbose(&tunnels, session.colour))?;
        } else {
            session.text(&report::list(&tunnels, session.colour))?;
            let by_hand = manual_sas(session)?;
            if !by_hand.is_empty() {
                session.text(&format!("\n{}", report::manual(&by_hand, session.colour)))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The SAs that are keyed by hand; none where the daemon is older than the question.
fn manual_sas(session: &mut Session) -> Result<Vec<ManualSaInfo>, Failure> {
    match session.client()?.ask(Ask::ManualSas) {
        Ok(Reply::ManualSas(sas)) => Ok(sas),
        Ok(reply) => Err(session.unexpected(&reply)),
        Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::UnknownCommand => {
            Ok(Vec::new())
        }
        Err(error) => Err(error.into()),
    }
}
