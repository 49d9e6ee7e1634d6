//! `vpnctl rekey`

use super::session::{Failure, Run, Session};
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;
use terminal::report::plain;
use terminal::shell::tunnel_names;

/// Renews the keys of a tunnel without interruption
#[derive(Debug, Args)]
pub struct Rekey {
    /// Phase 1 or phase 2 tunnel
    #[arg(add = tunnel_names())]
    pub name: String,
}

impl Run for Rekey {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        session.done(Ask::Rekey { name: self.name.clone() })?;
        session.line(&format!("{}: rekeyed", plain(&self.name)))?;
        Ok(ExitCode::SUCCESS)
    }
}
