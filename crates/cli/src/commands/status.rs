//! `vpnctl status`

use super::session::{Failure, Run, Session, answer};
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;
use terminal::report;
use terminal::shell::tunnel_names;

/// Shows one tunnel, and the reason if it is down; without a name, an overview of the daemon
#[derive(Debug, Args)]
pub struct Status {
    /// Phase 1 or phase 2 tunnel; none: the daemon
    #[arg(add = tunnel_names())]
    pub name: Option<String>,
    /// Prints a JSON object; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for Status {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let Some(name) = &self.name else {
            let overview = answer!(session, Ask::Overview, Overview);
            session.show(self.json, &*overview, report::overview)?;
            return Ok(ExitCode::SUCCESS);
        };
        for tunnel in answer!(session, Ask::Status { name: name.clone() }, Tunnels) {
            session.show(self.json, &tunnel, report::status)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
