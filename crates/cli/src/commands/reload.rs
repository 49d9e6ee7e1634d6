//! `vpnctl reload`

use super::session::{Failure, Run, Session, answer};
use crate::lockout::{self, Answer};
use clap::Args;
use control::protocol::{Command as Ask, Reloaded};
use std::process::ExitCode;
use std::time::Duration;
use terminal::report::{self, duration};

/// Reloads the policy, the certificates and the filter; if one has errors, nothing changes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl reload --dry-run
  vpnctl reload --for 60s      have a changed filter undone after 60 seconds
  vpnctl filter --confirm      keep it

Changed tunnels are rekeyed or established again, removed tunnels are deleted, all others stay up.

If the new filter may drop ssh to this host, the command asks on a terminal before it changes anything. \
With --for, the daemon undoes the change of the filter by itself unless you confirm it in time.")]
pub struct Reload {
    /// Shows the changes without making them
    #[arg(long)]
    pub dry_run: bool,
    /// Undoes the change of the filter after this time, as in 60s or 5m, unless it is confirmed
    #[arg(long = "for", value_name = "TIME", value_parser = lockout::time, conflicts_with = "dry_run")]
    pub time: Option<Duration>,
    /// Does not ask before a change of the filter that may shut out ssh
    #[arg(long)]
    pub yes: bool,
    /// Prints a JSON object; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for Reload {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let asks = !self.dry_run && !self.yes && self.time.is_none();
        if asks && lockout::is_terminal() {
            let would = reload(session, true, None)?;
            let risks = risks(&would);
            if !risks.is_empty() && lockout::ask_about_reload(&risks)? == Answer::No {
                return Ok(ExitCode::FAILURE);
            }
        }
        let reloaded = reload(session, self.dry_run, self.time)?;
        if !self.json {
            self.remark(&reloaded, asks && !lockout::is_terminal());
        }
        session.show(self.json, &reloaded, report::reloaded)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Reload {
    fn remark(&self, reloaded: &Reloaded, nobody_was_asked: bool) {
        for warning in &reloaded.warnings {
            eprintln!("{warning}");
        }
        let risks = risks(reloaded);
        if !risks.is_empty() && (nobody_was_asked || self.dry_run) {
            eprintln!("vpnctl: {}", lockout::reload_warning(&risks));
        }
        if let Some(time) = self.time.filter(|_| !reloaded.filter.is_empty()) {
            let time = duration(time);
            eprintln!(
                "vpnctl: the filter of before comes back in {time} unless you confirm the new one: vpnctl filter --confirm"
            );
        }
    }
}

fn reload(
    session: &mut Session,
    dry_run: bool,
    time: Option<Duration>,
) -> Result<Reloaded, Failure> {
    let undo_after_seconds = time.map(|time| time.as_secs());
    Ok(answer!(session, Ask::Reload { dry_run, undo_after_seconds }, Reloaded))
}

/// The changes of the filter that may shut out an operator who is connected by ssh.
fn risks(reloaded: &Reloaded) -> Vec<&str> {
    let risks = reloaded.filter.iter().filter(|change| change.may_shut_out);
    risks.map(|change| change.message.as_str()).collect()
}
