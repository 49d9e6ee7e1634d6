//! `vpnctl deactivate`

use super::session::{Failure, Run, Session};
use crate::report::plain;
use crate::shell::tunnel_names;
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;

/// Deletes a tunnel and waits until it is gone
#[derive(Debug, Args)]
pub struct Deactivate {
    /// Phase 1 tunnel with all it carries, or one phase 2 tunnel
    #[arg(add = tunnel_names())]
    pub name: String,
}

impl Run for Deactivate {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        session.done(Ask::Deactivate { name: self.name.clone() })?;
        session.line(&format!("{}: down", plain(&self.name)))?;
        Ok(ExitCode::SUCCESS)
    }
}
