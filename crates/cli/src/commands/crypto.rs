//! `vpnctl crypto`

use super::by_vpnd::ByVpnd;
use super::session::{Failure, Run, Session};
use crate::completions;
use crate::crypto;
use clap::{Args, Subcommand};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;
use terminal::delegated::{CryptoBench, CryptoInfo};
use terminal::report;

/// Shows cryptographic acceleration, statistics and benchmarks, and sets tunables
#[derive(Debug, Args)]
pub struct Crypto {
    /// The subcommand.
    #[command(subcommand)]
    pub command: CryptoCommand,
}

/// Subcommands of `vpnctl crypto`.
#[derive(Debug, Subcommand)]
pub enum CryptoCommand {
    Info(ByVpnd<CryptoInfo>),
    /// Shows operations by place: CPU instructions for cryptography, software, kernel, network cards
    #[command(after_help = "\
Examples:
  vpnctl crypto stats                    since vpnd was started
  vpnctl crypto stats --interval 10      in the next 10 seconds")]
    Stats {
        /// Counts only the next SECONDS seconds
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
        interval: Option<u64>,
        /// Prints a JSON object; docs/reference/control.md describes its fields
        #[arg(long)]
        json: bool,
    },
    /// Shows the tunables
    Get {
        /// nx_enabled, min_sz or in_core_enabled; none: all
        #[arg(add = completions::tunable_names())]
        tunable: Option<String>,
        /// Prints a JSON array; docs/reference/control.md describes its fields
        #[arg(long)]
        json: bool,
    },
    /// Sets a tunable, also for running tunnels
    #[command(after_help = "\
Examples:
  vpnctl crypto set in_core_enabled=0              packets are encrypted in software only
  vpnctl crypto set in_core_enabled=1 --persist    use the CPU's instructions, also after a restart
  vpnctl crypto set min_sz=default --persist       restores the default

Tunables:
  in_core_enabled  1: use the CPU's instructions for cryptography; 0: do not; no restart is needed
  nx_enabled       use of an engine of threads for requests of min_sz octets and above
  min_sz           octets of the smallest request that goes to the engine")]
    Set {
        /// NAME=VALUE, or NAME=default
        #[arg(value_name = "NAME=VALUE", add = completions::tunables())]
        setting: Setting,
        /// Keeps the value after a restart of vpnd
        #[arg(long)]
        persist: bool,
        /// Prints a JSON object; docs/reference/control.md describes its fields
        #[arg(long)]
        json: bool,
    },
    Bench(ByVpnd<CryptoBench>),
}

/// A tunable and what it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    name: String,
    /// `None`: its default.
    value: Option<u64>,
}

impl Run for Crypto {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        match &self.command {
            CryptoCommand::Info(command) => return command.run(session),
            CryptoCommand::Bench(command) => return command.run(session),
            CryptoCommand::Stats { interval, json } => {
                let mut stats = crypto::stats(session.client()?)?;
                if let Some(seconds) = interval {
                    std::thread::sleep(Duration::from_secs(*seconds));
                    stats = crypto::stats(session.client()?)?.since(&stats);
                }
                session.show(*json, &stats, report::crypto_stats)?;
            }
            CryptoCommand::Get { tunable, json } => {
                let mut tunables = crypto::state(session.client()?)?.tunables;
                if let Some(name) = tunable {
                    tunables.retain(|tunable| tunable.name == *name);
                    if tunables.is_empty() {
                        let names = "nx_enabled, min_sz, in_core_enabled";
                        let message = format!("no tunable {name:?}; there are {names}");
                        return Err(Failure::Other(message.into()));
                    }
                }
                session
                    .show(*json, &tunables, |tunables, _| report::tunables(tunables.as_slice()))?;
            }
            CryptoCommand::Set { setting: Setting { name, value }, persist, json } => {
                let state = crypto::set(session.client()?, name, *value, *persist)?;
                session.show(*json, &state, |state, colour| {
                    report::tunable_changed(name, state, *persist, colour)
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl FromStr for Setting {
    type Err = String;

    /// Also as AIX prints it, with blanks and a full stop.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once(['=', ':'])
            .ok_or_else(|| format!("{text:?} is not NAME=VALUE, as in in_core_enabled=0"))?;
        let value = value.trim().trim_end_matches('.');
        let value = match value {
            "default" => None,
            number => Some(
                number
                    .parse()
                    .map_err(|_| format!("{number:?} is no number; write one, or default"))?,
            ),
        };
        Ok(Self { name: name.trim().to_owned(), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_written_and_as_printed() {
        let setting = |text: &str| text.parse::<Setting>();
        let expected = |value| Setting { name: "in_core_enabled".to_owned(), value };
        for text in ["in_core_enabled=1", "in_core_enabled : 1.", " in_core_enabled = 1"] {
            assert_eq!(setting(text), Ok(expected(Some(1))), "{text}");
        }
        assert_eq!(setting("in_core_enabled=default"), Ok(expected(None)));
        for text in ["in_core_enabled", "in_core_enabled=yes", "in_core_enabled=-1"] {
            assert!(setting(text).is_err(), "{text}");
        }
    }
}
