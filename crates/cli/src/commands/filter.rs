//! `vpnctl filter`

use super::session::{Failure, Run, Session, answer};
use crate::report;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use control::protocol::{Command as Ask, DefaultAction};
use std::process::ExitCode;

/// Shows the filter for traffic outside the tunnels, or changes its default until the next reload or restart
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl filter
  vpnctl filter --ipv4 deny --ipv6 deny     drop packets that no tunnel and no rule covers; make sure that ssh has a rule
  vpnctl filter --ipv4 permit               undo it

Rules and permanent defaults belong in section [filter] of vpnd.toml: see docs/filter.md.")]
pub struct Filter {
    /// Action for IPv4 packets that no rule and no tunnel covers
    #[arg(long, value_name = "ACTION", value_parser = default_action())]
    pub ipv4: Option<DefaultAction>,
    /// Action for IPv6 packets that no rule and no tunnel covers
    #[arg(long, value_name = "ACTION", value_parser = default_action())]
    pub ipv6: Option<DefaultAction>,
    /// Prints a JSON object; docs/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

impl Run for Filter {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let ask = match (self.ipv4, self.ipv6) {
            (None, None) => Ask::Filter,
            (ipv4, ipv6) => Ask::SetFilter { ipv4, ipv6 },
        };
        let found = answer!(session, ask, Filter);
        session.show(self.json, &found, report::filter)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads `permit` or `deny`, and explains both in the help.
fn default_action() -> impl TypedValueParser<Value = DefaultAction> {
    let (permit, deny) = (PossibleValue::new("permit"), PossibleValue::new("deny"));
    PossibleValuesParser::new([permit.help("Pass in the clear"), deny.help("Drop")])
        .map(|action| if action == "permit" { DefaultAction::Permit } else { DefaultAction::Deny })
}
