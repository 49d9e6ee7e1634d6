//! `vpnctl top`

use super::session::{Failure, Run, Session};
use crate::top::{self, Options};
use clap::Args;
use std::process::ExitCode;

/// Shows tunnels, rates, drops and CPU on one screen, until q is pressed
#[derive(Debug, Args)]
pub struct Top {
    /// Its options.
    #[command(flatten)]
    pub options: Options,
}

impl Run for Top {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        top::run(&self.options, &session.control, session.colour)?;
        Ok(ExitCode::SUCCESS)
    }
}
