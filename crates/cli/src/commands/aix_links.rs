//! `vpnctl aix-links`

use super::session::{Failure, Run, Session};
use crate::aix::links;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Creates links with the names of the AIX commands ike, ikedb, lssrc and others
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  sudo vpnctl aix-links /usr/local/bin
  ike cmd=list

docs/migrate/from-aix.md describes each command.")]
pub struct AixLinks {
    /// Directory of the links; created if it does not exist
    pub directory: PathBuf,
}

impl Run for AixLinks {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let program = std::env::current_exe()?;
        for path in links::make(&self.directory, &program)? {
            session.line(&format!("{} is a link to {}", path.display(), program.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
