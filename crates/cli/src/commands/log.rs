//! `vpnctl log`

use super::session::{Failure, Run, Session};
use crate::report::plain;
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;

/// Changes the log level until the daemon ends
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl log debug
  vpnctl log info,ike=debug")]
pub struct Log {
    /// error, warn, info, debug, trace or off; for one part of the daemon: info,ike=debug
    pub level: String,
}

impl Run for Log {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        session.done(Ask::Log { level: self.level.clone() })?;
        session.line(&format!("log level: {}", plain(&self.level)))?;
        Ok(ExitCode::SUCCESS)
    }
}
