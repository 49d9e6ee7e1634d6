//! `vpnctl events`

use super::session::{Failure, Run, Session};
use clap::Args;
use control::protocol::Command as Ask;
use std::io::{self, Write};
use std::process::ExitCode;
use terminal::report;
use terminal::shell::tunnel_names;

/// The types of events, as in docs/reference/control.md.
const TYPES: [&str; 13] = [
    "negotiating",
    "established",
    "resumed",
    "ticket_refused",
    "rekeyed",
    "failed",
    "turned_away",
    "moved",
    "readdressed",
    "closed",
    "restored",
    "warning",
    "missed",
];

/// Prints events of tunnels as they happen, until interrupted
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl events
  vpnctl events --type failed --type closed
  vpnctl events site --json | jq -r 'select(.event == \"failed\") | .failure.message'")]
pub struct Events {
    /// Phase 1 or phase 2 tunnels; none: everything
    #[arg(add = tunnel_names())]
    pub names: Vec<String>,
    /// Only events of this type; may be repeated
    #[arg(long = "type", value_name = "TYPE", value_parser = TYPES)]
    pub types: Vec<String>,
    /// Prints one JSON object per line; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for Events {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        session.done(Ask::Events { names: self.names.clone() })?;
        while let Some(happening) = session.client()?.next_event()? {
            // The events that were missed may have been of a wanted type.
            let wanted = happening.missed.is_some() || self.types.contains(&happening.event);
            if !self.types.is_empty() && !wanted {
                continue;
            }
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

#[cfg(test)]
mod tests {
    use super::TYPES;

    #[test]
    fn the_document_has_every_type() {
        let document = include_str!("../../../../docs/reference/control.md");
        let types = document.lines().find(|line| line.starts_with("| `event` |"));
        let types = types.expect("a row of events");
        let words = types.split('`').skip(3).step_by(2);
        assert_eq!(words.collect::<Vec<_>>(), TYPES);
    }
}
