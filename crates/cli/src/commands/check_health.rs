//! `vpnctl check-health`

use super::session::{Failure, Run, Session, answer};
use crate::health::{self, Health, Level, Problem};
use clap::{Args, ValueEnum};
use control::client::ClientError;
use control::protocol::{Child, Command as Ask, Tunnel};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;
use terminal::shell::tunnel_names;

/// With so many tunnels that are up, the daemon looks at the host for each of them.
const FEW: usize = 32;

/// Checks the daemon or one tunnel, for monitoring systems: one line, and the exit status says how bad it is
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl check-health
  vpnctl check-health site
  vpnctl check-health --format json | jq -r '.problems[].message'

The text is that of a plugin of Nagios or Icinga: a line with the status, behind | the numbers of tunnels that are up, and a \
line for each problem.

A tunnel is critical if it is down or blocked, or if packets certainly do not pass. A tunnel that waits for its first packet, \
or for a peer with any address, is no problem. One that waits for a command is a warning, and so is a first negotiation. \
Without NAME, the daemon is checked, too: it is critical if the guard is not in force or keys are exported, and a warning if a \
certificate expires or a tunnel cannot come up on this host. With more than 32 tunnels that are up, the host is not looked at \
for the reasons why packets may not pass; name a tunnel to have that done.

Exit status:
  0  OK
  1  WARNING
  2  CRITICAL, also if no vpnd answers
  3  UNKNOWN: wrong arguments, no tunnel of that name, or no permission")]
pub struct CheckHealth {
    /// Phase 1 or phase 2 tunnel; none: all of them, and the daemon
    #[arg(add = tunnel_names())]
    pub name: Option<String>,
    /// Form of the output; docs/operate/metrics.md describes the fields of the JSON object
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Seconds after which a daemon that does not answer is critical
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub timeout: u16,
}

/// A form of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text of a plugin of Nagios
    #[default]
    Nagios,
    /// A JSON object
    Json,
}

impl Run for CheckHealth {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let health = match self.look(session) {
            Ok(health) => health,
            Err(Failure::Client(error)) => Health::silent(self.problem(&error)),
            Err(failure) => return Err(failure),
        };
        match self.format {
            Format::Nagios => session.text(&health::report(&health))?,
            Format::Json => session.json(&health)?,
        }
        Ok(ExitCode::from(health.exit_status))
    }
}

impl CheckHealth {
    fn look(&self, session: &mut Session) -> Result<Health, Failure> {
        let timeout = Duration::from_secs(self.timeout.into());
        session.client()?.set_timeout(timeout)?;
        if let Some(name) = self.name.clone() {
            let tunnels = answer!(session, Ask::Status { name }, Tunnels);
            return Ok(Health::of(&tunnels, None));
        }
        let daemon = answer!(session, Ask::Overview, Overview);
        let mut tunnels = session.client()?.tunnels(true)?;
        if daemon.tunnels.up <= FEW {
            for tunnel in tunnels.iter_mut().filter(|tunnel| has_sa(tunnel)) {
                let mut one = answer!(session, Ask::Status { name: tunnel.name.clone() }, Tunnels);
                if let Some(one) = one.pop() {
                    *tunnel = one;
                }
            }
        }
        Ok(Health::of(&tunnels, Some(&*daemon)))
    }

    /// The problem of a daemon that did not answer the questions.
    fn problem(&self, error: &ClientError) -> Problem {
        match error {
            ClientError::Broken { path, source }
                if matches!(source.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                let path = path.display();
                let message = format!("vpnd on {path} has not answered within {} s", self.timeout);
                Problem::new(Level::Critical, message)
            }
            ClientError::NoDaemon(_) | ClientError::Broken { .. } => {
                Problem::new(Level::Critical, error.to_string())
            }
            _ => Problem::new(Level::Unknown, error.to_string()),
        }
    }
}

fn has_sa(tunnel: &Tunnel) -> bool {
    tunnel.children.iter().any(Child::has_sa)
}

/// The exit status of wrong arguments: 2 would be "critical" to a monitoring system.
pub fn status_of_wrong_arguments(arguments: impl IntoIterator<Item = OsString>) -> Option<u8> {
    let is_check = arguments.into_iter().any(|argument| argument == "check-health");
    is_check.then_some(Level::Unknown.exit_status())
}
