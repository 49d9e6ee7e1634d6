//! `vpnctl activate`

use super::progress::{Patience, Waited, goes_on};
use super::session::{Failure, Run, Session};
use clap::Args;
use control::protocol::{Activation, Command as Ask, Reply};
use std::process::ExitCode;
use terminal::report::{self, plain};
use terminal::shell::tunnel_names;

/// Starts tunnels and waits until each is up or has failed
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl activate
  vpnctl activate site branch
  vpnctl activate site --timeout 10

Prints one line per tunnel. The exit status is 1 if one of them failed, 4 if --timeout ended the \
wait, and 130 if Ctrl-C did. vpnd goes on trying then.")]
pub struct Activate {
    /// Phase 1 or phase 2 tunnels; none: all that this side may start
    #[arg(add = tunnel_names())]
    pub names: Vec<String>,
    #[command(flatten)]
    patience: Patience,
}

impl Run for Activate {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let names = self.names.clone();
        if self.patience.no_wait {
            return self.begin(session, names);
        }
        let reply = match self.patience.wait(session, Ask::Activate { names }, &self.names)? {
            Waited::Answered(reply) => reply,
            Waited::Left(why, status) => {
                eprintln!("vpnctl: {why}; {}", goes_on(&self.names));
                return Ok(status);
            }
        };
        let activations = self.activations(session, reply)?;
        for activation in &activations {
            session.line(&report::activation(activation, session.colour))?;
        }
        let all_up = activations.iter().all(|activation| activation.up);
        Ok(if all_up { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Activate {
    fn begin(&self, session: &mut Session, names: Vec<String>) -> Result<ExitCode, Failure> {
        let reply = session.ask(Ask::BeginActivation { names })?;
        for Activation { name, up, .. } in self.activations(session, reply)? {
            let state = if up { "up" } else { "negotiating" };
            session.line(&format!("{}: {state}", plain(&name)))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn activations(&self, session: &mut Session, reply: Reply) -> Result<Vec<Activation>, Failure> {
        let Reply::Activations(activations) = reply else {
            return Err(session.unexpected(&reply));
        };
        if activations.is_empty() {
            session.line("the policy has no tunnel that this side may start")?;
        }
        Ok(activations)
    }
}
