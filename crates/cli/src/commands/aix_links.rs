//! `vpnctl aix-links`

use super::session::{Failure, Run, Session};
use crate::aix::links;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Makes links by whose names this program is the commands of AIX: ike, ikedb, lssrc and others
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  sudo vpnctl aix-links /usr/local/bin
  ike cmd=list

docs/from-aix.md tells what each does here.")]
pub struct AixLinks {
    /// Directory, made where there is none
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
