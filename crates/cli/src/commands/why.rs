//! `vpnctl why`

mod troubled;

use super::session::{Failure, Run, Session, answer};
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;
use terminal::report;
use terminal::shell::tunnel_names;

/// Explains why a tunnel is up or down: the failures, the proposals of both sides, and a remedy
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl why site
  vpnctl why          every tunnel that is not up, or whose packets may not pass

Times are in UTC, as in the log. JSON always has all failures.

Messages that were not authenticated are marked: they may not come from the peer.")]
pub struct Why {
    /// Phase 1 or phase 2 tunnel; none: all that are not up, or whose packets may not pass
    #[arg(add = tunnel_names())]
    pub name: Option<String>,
    /// Shows failures from before the tunnel came up or the last reload, too
    #[arg(long)]
    pub all: bool,
    /// Prints a JSON object, or without a name an array; docs/reference/control.md describes the fields
    #[arg(long)]
    pub json: bool,
}

impl Run for Why {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let Some(name) = self.name.clone() else {
            return troubled::run(session, self.all, self.json);
        };
        let found = answer!(session, Ask::Why { name }, Why);
        session.show(self.json, &found, |found, colour| report::why(found, self.all, colour))?;
        if !self.json && found.up_seconds.is_some() {
            let name = found.name.clone();
            let tunnels = answer!(session, Ask::Status { name }, Tunnels);
            let legacy = host::firewall::has_legacy_tables();
            let hints = tunnels.iter().filter_map(|tunnel| report::quiet(&found, tunnel, legacy));
            session.text(&hints.collect::<String>())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
