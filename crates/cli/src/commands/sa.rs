//! `vpnctl sa`

use super::by_vpnd::ByVpnd;
use super::session::{Failure, Run, Session, answer};
use clap::{Args, Subcommand};
use control::protocol::Command as Ask;
use std::process::ExitCode;
use terminal::delegated::{SaAdd, SaConvert, SaMirror};
use terminal::report;

/// Adds, lists and removes SAs that are keyed by hand, and writes those of the other end
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl sa add lab.toml
  vpnctl sa list
  vpnctl sa remove lab --keep-blocked
  vpnctl sa mirror /etc/vpnd/vpnd.toml --output for-the-peer.toml
  vpnctl sa convert ip-xfrm.txt --output lab.toml

See docs/operate/manual-sas.md for the tables of such a file.")]
pub struct Sa {
    #[command(subcommand)]
    pub command: SaCommand,
}

/// Subcommands of `vpnctl sa`.
#[derive(Debug, Subcommand)]
pub enum SaCommand {
    Add(ByVpnd<SaAdd>),
    Mirror(ByVpnd<SaMirror>),
    Convert(ByVpnd<SaConvert>),
    /// Lists the SAs that are keyed by hand
    List {
        /// Prints a JSON object; docs/reference/control.md describes its fields
        #[arg(long)]
        json: bool,
    },
    /// Removes the SAs of a name
    #[command(after_help = "\
Examples:
  vpnctl sa remove lab                   its traffic takes the host's other routes, in the clear
  vpnctl sa remove lab --keep-blocked    its traffic stays blocked: new SAs are to follow

SAs that vpnd.toml defines are back after a restart of vpnd.")]
    Remove {
        /// Name of the SAs
        #[arg(value_name = "NAME")]
        name: String,
        /// Keeps their traffic blocked until SAs of this name are added, or are removed without this option
        #[arg(long)]
        keep_blocked: bool,
        /// Prints a JSON object; docs/reference/control.md describes its fields
        #[arg(long)]
        json: bool,
    },
}

impl Run for Sa {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        match &self.command {
            SaCommand::Add(command) => return command.run(session),
            SaCommand::Convert(command) => return command.run(session),
            SaCommand::Mirror(command) => return command.run(session),
            SaCommand::List { json } => {
                let list = answer!(session, Ask::SaList, SaList);
                session.show(*json, &list, report::sa_list)?;
            }
            SaCommand::Remove { name, keep_blocked, json } => {
                let ask = Ask::SaRemove { name: name.clone(), keep_blocked: *keep_blocked };
                let removed = answer!(session, ask, SaRemoved);
                session.show(*json, &removed, |removed, _| report::sa_removed(removed))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
