//! `vpnctl filter`

use super::session::{Failure, Run, Session, answer};
use crate::lockout::{self, Answer};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use control::protocol::{Command as Ask, DefaultAction};
use std::process::ExitCode;
use std::time::Duration;
use terminal::report;

/// Shows the filter for traffic outside the tunnels, or changes its default
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl filter
  vpnctl filter --ipv4 deny --for 60s       drop IPv4 that no tunnel and no rule covers, and undo it after 60 seconds
  vpnctl filter --confirm                   keep it
  vpnctl filter --ipv4 permit               undo it now
  vpnctl filter --ipv6 deny --persist       drop IPv6 also after a restart
  vpnctl filter --forget                    the defaults of vpnd.toml count again

With deny, ssh to this host is dropped as well, unless a rule passes it. On a terminal the command asks before that. \
With --for, the daemon undoes the change by itself unless you confirm it in time.

A change lasts until the next reload or restart, or with --persist for good. Rules belong in section [filter] of \
vpnd.toml: see docs/operate/filter.md.")]
pub struct Filter {
    /// Action for IPv4 packets that no rule and no tunnel covers
    #[arg(long, value_name = "ACTION", value_parser = default_action())]
    pub ipv4: Option<DefaultAction>,
    /// Action for IPv6 packets that no rule and no tunnel covers
    #[arg(long, value_name = "ACTION", value_parser = default_action())]
    pub ipv6: Option<DefaultAction>,
    /// Undoes the change after this time, as in 60s or 5m, unless it is confirmed
    #[arg(long = "for", value_name = "TIME", value_parser = lockout::time)]
    pub time: Option<Duration>,
    /// Keeps a change that was made with --for
    #[arg(long, conflicts_with_all = ["ipv4", "ipv6", "time", "yes", "persist", "forget"])]
    pub confirm: bool,
    /// Has the change outlive a reload and a restart; with --for, once it is confirmed
    #[arg(long)]
    pub persist: bool,
    /// Has the defaults of vpnd.toml count again, in place of those set with --persist or mkfilt
    #[arg(long, conflicts_with_all = ["ipv4", "ipv6", "time", "persist"])]
    pub forget: bool,
    /// Does not ask before a change that may shut out ssh
    #[arg(long)]
    pub yes: bool,
    /// Prints a JSON object; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for Filter {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let undo_after_seconds = self.time.map(|time| time.as_secs());
        let ask = match (self.ipv4, self.ipv6) {
            (None, None) if self.time.is_some() || self.persist => {
                let option = if self.persist { "--persist" } else { "--for" };
                return Err(Failure::Other(format!("{option} goes with --ipv4 or --ipv6").into()));
            }
            (None, None) if self.forget => Ask::ForgetFilter,
            (None, None) if !self.confirm => Ask::Filter,
            (ipv4, ipv6) => {
                Ask::SetFilter { ipv4, ipv6, undo_after_seconds, persist: self.persist }
            }
        };
        if self.time.is_none() && !self.yes && !self.may_deny(session)? {
            return Ok(ExitCode::FAILURE);
        }
        let found = answer!(session, ask, Filter);
        session.show(self.json, &found, report::filter)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Filter {
    /// Returns `true` unless the command drops what passes now, and the operator does not want that.
    fn may_deny(&self, session: &mut Session) -> Result<bool, Failure> {
        let wanted = [("IPv4", self.ipv4), ("IPv6", self.ipv6)];
        if wanted.iter().all(|(_, action)| *action != Some(DefaultAction::Deny)) {
            return Ok(true);
        }
        let now = answer!(session, Ask::Filter, Filter);
        let newly = wanted.into_iter().zip([&now.ipv4, &now.ipv6]);
        let denied: Vec<&str> = newly
            .filter(|((_, action), now)| *action == Some(DefaultAction::Deny) && *now != "deny")
            .map(|((family, _), _)| family)
            .collect();
        Ok(denied.is_empty() || lockout::ask("vpnctl", &denied)? == Answer::Yes)
    }
}

/// Reads `permit` or `deny`, and explains both in the help.
fn default_action() -> impl TypedValueParser<Value = DefaultAction> {
    let (permit, deny) = (PossibleValue::new("permit"), PossibleValue::new("deny"));
    PossibleValuesParser::new([permit.help("Pass in the clear"), deny.help("Drop")])
        .map(|action| if action == "permit" { DefaultAction::Permit } else { DefaultAction::Deny })
}
