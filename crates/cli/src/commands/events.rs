//! `vpnctl events`

use super::session::{Failure, Run, Session};
use crate::report;
use crate::shell::tunnel_names;
use clap::Args;
use control::protocol::Command as Ask;
use std::io::{self, Write};
use std::process::ExitCode;

/// Prints events of tunnels as they happen, until interrupted
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl events
  vpnctl events site --json | jq -r 'select(.event == \"failed\") | .failure.message'")]
pub struct Events {
    /// Phase 1 or phase 2 tunnels; none: everything
    #[arg(add = tunnel_names())]
    pub names: Vec<String>,
    /// Prints one JSON object per line; docs/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for Events {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        session.done(Ask::Events { names: self.names.clone() })?;
        while let Some(happening) = session.client()?.next_event()? {
            if self.json {
                let mut line = serde_json::to_vec(&happening).map_err(io::Error::from)?;
                line.push(b'\n');
                session.out.write_all(&line)?;
            } else {
                session.line(&report::happening(&happening, session.colour))?;
            }
            session.out.flush()?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
