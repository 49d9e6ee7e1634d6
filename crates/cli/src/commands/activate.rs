//! `vpnctl activate`

use super::session::{Failure, Run, Session, answer};
use crate::report;
use crate::shell::tunnel_names;
use clap::Args;
use control::protocol::Command as Ask;
use std::process::ExitCode;

/// Starts tunnels and waits until each is up or has failed
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl activate
  vpnctl activate site branch

Prints one line per tunnel. The exit status is 1 if one of them failed.")]
pub struct Activate {
    /// Phase 1 or phase 2 tunnels; none: all that this side may start
    #[arg(add = tunnel_names())]
    pub names: Vec<String>,
}

impl Run for Activate {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let ask = Ask::Activate { names: self.names.clone() };
        let activations = answer!(session, ask, Activations);
        if activations.is_empty() {
            session.line("the policy has no tunnel that this side may start")?;
        }
        for activation in &activations {
            session.line(&report::activation(activation, session.colour))?;
        }
        let all_up = activations.iter().all(|activation| activation.up);
        Ok(if all_up { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
