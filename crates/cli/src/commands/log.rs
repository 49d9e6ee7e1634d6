//! `vpnctl log`

use super::session::{Failure, Run, Session, answer};
use crate::completions::levels;
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;
use terminal::report::plain;

/// Changes the log level until the daemon ends; without a level, shows the present one
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl log
  vpnctl log debug
  vpnctl log info,ike=debug")]
pub struct Log {
    /// error, warn, info, debug, trace or off; for one part of the daemon: info,ike=debug
    #[arg(add = levels())]
    pub level: Option<String>,
}

impl Run for Log {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let Some(level) = &self.level else { return shown(session) };
        session.done(Ask::Log { level: level.clone() })?;
        session.line(&format!("log level: {}", plain(level)))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the level in force, and where the log goes.
fn shown(session: &mut Session) -> Result<ExitCode, Failure> {
    let daemon = answer!(session, Ask::Overview, Overview);
    let level = daemon.log_level.as_deref().map_or("unknown".into(), plain);
    session.line(&format!("log level: {level}"))?;
    session.line(
        "vpnd logs to standard error. Of the systemd service: journalctl --unit vpnd --follow",
    )?;
    Ok(ExitCode::SUCCESS)
}
