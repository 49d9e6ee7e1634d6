//! `vpnctl deactivate`

use super::progress::{Patience, Waited};
use super::session::{Failure, Run, Session};
use clap::Args;
use control::protocol::{Command as Ask, Reply};
use std::process::ExitCode;
use terminal::report::plain;
use terminal::shell::tunnel_names;

/// Deletes a tunnel and waits until it is gone
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl deactivate site
  vpnctl deactivate site --no-wait

The tunnel carries nothing from the first moment on; the wait is for the peer's answer. The exit \
status is 4 if --timeout ended the wait, and 130 if Ctrl-C did. vpnd goes on deleting then.")]
pub struct Deactivate {
    /// Phase 1 tunnel with all it carries, or one phase 2 tunnel
    #[arg(add = tunnel_names())]
    pub name: String,
    #[command(flatten)]
    patience: Patience,
}

impl Run for Deactivate {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let name = self.name.clone();
        let shown = plain(&self.name);
        if self.patience.no_wait {
            session.done(Ask::BeginDeactivation { name })?;
            session.line(&format!("{shown}: closing"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let names = [name.clone()];
        match self.patience.wait(session, Ask::Deactivate { name }, &names)? {
            Waited::Answered(Reply::Done) => {
                session.line(&format!("{shown}: down"))?;
                Ok(ExitCode::SUCCESS)
            }
            Waited::Answered(reply) => Err(session.unexpected(&reply)),
            Waited::Left(why, status) => {
                eprintln!(
                    "vpnctl: {why}; vpnd goes on deleting {shown}\n  to see how far it is: vpnctl why {shown}"
                );
                Ok(status)
            }
        }
    }
}
