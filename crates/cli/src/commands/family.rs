//! `vpnctl family`

use super::session::{Failure, Run, Session, answer};
use clap::{Args, ValueEnum};
use control::protocol::Command as Ask;
use std::process::ExitCode;
use terminal::report;

/// Shows whether tunnels may use IPv4 and IPv6, or switches IPsec of one family off and on
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl family
  vpnctl family ipv6 off                    take down the tunnels of IPv6, and block their traffic
  vpnctl family ipv6 on                     set them up again
  vpnctl family ipv6 off --persist          also after a restart of vpnd

While a family is off, its packets pass no tunnel, and no tunnel runs between its addresses. The traffic that the \
tunnels protect is dropped, and never leaves in the clear. The tunnels of the other family go on. Traffic of no tunnel is \
not concerned: see vpnctl filter.")]
pub struct FamilyCommand {
    /// The address family to be switched
    #[arg(requires = "state")]
    pub family: Option<Family>,
    /// The new state
    pub state: Option<State>,
    /// Also after a restart of the daemon
    #[arg(long, requires = "state")]
    pub persist: bool,
    /// Prints a JSON object; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

/// An address family.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Family {
    /// IPv4
    Ipv4,
    /// IPv6
    Ipv6,
}

/// The state of a family.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum State {
    /// Tunnels may use the family
    On,
    /// Tunnels may not use the family
    Off,
    /// The setting of vpnd.toml
    Default,
}

impl Run for FamilyCommand {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let ask = match self.family.zip(self.state) {
            None => Ask::Families,
            Some((family, state)) => Ask::SetFamily {
                family: match family {
                    Family::Ipv4 => "ipv4".to_owned(),
                    Family::Ipv6 => "ipv6".to_owned(),
                },
                on: match state {
                    State::On => Some(true),
                    State::Off => Some(false),
                    State::Default => None,
                },
                persist: self.persist,
            },
        };
        let found = answer!(session, ask, Families);
        session.show(self.json, &found, report::families)?;
        Ok(ExitCode::SUCCESS)
    }
}
