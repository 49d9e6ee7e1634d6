//! The arguments of `vpnctl crypto`, and what each command does.

use super::bench::{ALGORITHMS, Plan, SIZES};
use super::machine::Machine;
use super::plot::{self, PlotError};
use super::{client, report};
use crate::completions;
use crate::report::Colour;
use ::crypto::Algorithm;
use clap::{Args, Subcommand};
use control::client::{Client, ClientError};
use control::protocol::CryptoStats;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// `vpnctl crypto`
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows this CPU's acceleration, each function's provider, and the support of the kernel and of network cards
    ///
    /// Works without a running vpnd, too.
    Info {
        /// Prints a JSON object; docs/control.md describes its fields
        #[arg(long)]
        json: bool,
    },
    /// Shows operations by place: CPU instructions for cryptography, software, kernel, network cards
    #[command(after_help = "\
Examples:
  vpnctl crypto stats                    since vpnd was started
  vpnctl crypto stats --interval 10      in the next 10 seconds")]
    Stats {
        /// Counts only the next SECONDS seconds
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
        interval: Option<u64>,
        /// Prints a JSON object; docs/control.md describes its fields
        #[arg(long)]
        json: bool,
    },
    /// Shows the tunables
    Get {
        /// nx_enabled, min_sz or in_core_enabled; none: all
        #[arg(add = completions::tunable_names())]
        tunable: Option<String>,
        /// Prints a JSON array; docs/control.md describes its fields
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
        /// Prints a JSON object; docs/control.md describes its fields
        #[arg(long)]
        json: bool,
    },
    /// Measures the throughput of each algorithm and provider on this CPU, by size
    #[command(after_help = "\
Examples:
  vpnctl crypto bench
  vpnctl crypto bench --algorithm aes-gcm-256 --size 1400 --seconds 3
  vpnctl crypto bench --algorithm all --seconds 60 --svg bench.svg

The benchmark runs in this process, on one core, and needs no vpnd.")]
    Bench {
        /// Algorithm such as aes-gcm-128, or all; may be repeated [default: five common ones]
        #[arg(long, value_name = "NAME", value_parser = algorithm, add = completions::algorithms(algorithm_names))]
        algorithm: Vec<String>,
        /// Octets of plaintext, 8 to 65536; may be repeated [default: 64 256 1024 1400 8192 65536]
        #[arg(long, value_name = "OCTETS", value_parser = clap::value_parser!(u32).range(8..=65_536))]
        size: Vec<u32>,
        /// Total duration in seconds
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
        /// Writes a plot as SVG
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// Prints a JSON array; docs/control.md describes its fields
        #[arg(long)]
        json: bool,
    },
}

/// A tunable and what it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    name: String,
    /// `None`: its default.
    value: Option<u64>,
}

/// A command could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum CryptoError {
    /// The daemon was needed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Standard output cannot be written.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// The plot cannot be written.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// No tunable of that name.
    #[error("no tunable {0:?}; there are nx_enabled, min_sz, in_core_enabled")]
    NoSuchTunable(String),
}

/// Carries out a command; `control` is the daemon's socket.
///
/// # Errors
/// As [`CryptoError`].
pub fn run(
    arguments: &Arguments,
    control: &Path,
    colour: Colour,
    out: &mut impl Write,
) -> Result<(), CryptoError> {
    match &arguments.command {
        Command::Info { json } => {
            // The machine can be looked at, even if the daemon does not answer.
            let daemon = Client::connect(control).ok();
            let daemon = daemon.and_then(|mut client| client::state(&mut client).ok());
            let machine = Machine::look(daemon);
            if *json {
                print_json(out, &machine)?;
            } else {
                let control = control.display().to_string();
                write!(out, "{}", report::machine(&machine, &control, colour))?;
            }
        }
        Command::Stats { interval, json } => {
            let mut client = Client::connect(control)?;
            let mut stats = client::stats(&mut client)?;
            if let Some(seconds) = interval {
                std::thread::sleep(Duration::from_secs(*seconds));
                let now = client::stats(&mut client)?;
                stats = now.since(&stats);
            }
            print(out, *json, &stats, |stats: &CryptoStats| report::stats(stats, colour))?;
        }
        Command::Get { tunable, json } => {
            let mut tunables = client::state(&mut Client::connect(control)?)?.tunables;
            if let Some(name) = tunable {
                tunables.retain(|tunable| tunable.name == *name);
                if tunables.is_empty() {
                    return Err(CryptoError::NoSuchTunable(name.clone()));
                }
            }
            print(out, *json, &tunables, |tunables| report::tunables(tunables))?;
        }
        Command::Set { setting: Setting { name, value }, persist, json } => {
            let state = client::set(&mut Client::connect(control)?, name, *value, *persist)?;
            print(out, *json, &state, |state| report::changed(name, state, *persist, colour))?;
        }
        Command::Bench { algorithm, size, seconds, svg, json } => {
            let names = match algorithm.as_slice() {
                [] => ALGORITHMS.map(str::to_owned).to_vec(),
                names if names.iter().any(|name| name == "all") => {
                    Algorithm::names().into_iter().map(str::to_owned).collect()
                }
                names => names.to_vec(),
            };
            let mut sizes: Vec<_> = size.iter().map(|octets| *octets as usize).collect();
            if sizes.is_empty() {
                sizes = SIZES.to_vec();
            }
            sizes.sort_unstable();
            sizes.dedup();
            let plan = Plan::new(&names, &sizes);
            let bar = progress(plan.len());
            let measured =
                plan.run(Duration::from_secs(*seconds), |done| bar.set_position(done as u64));
            bar.finish_and_clear();
            print(out, *json, &measured, |measured| report::measured(measured, colour))?;
            if let Some(path) = svg {
                plot::draw(path, &super::machine::title(), &measured)?;
            }
        }
    }
    Ok(())
}

/// A progress bar on standard error, if that is a terminal.
fn progress(len: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("measuring {wide_bar} {pos}/{len}");
    let bar = ProgressBar::with_draw_target(Some(len as u64), ProgressDrawTarget::stderr());
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn print<T: Serialize>(
    out: &mut impl Write,
    json: bool,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> io::Result<()> {
    if json { print_json(out, value) } else { write!(out, "{}", text(value)) }
}

fn print_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

fn algorithm(name: &str) -> Result<String, String> {
    if name == "all" {
        return Ok(name.to_owned());
    }
    name.parse::<Algorithm>().map(|a| a.to_string()).map_err(|error| format!("{error}, all"))
}

fn algorithm_names() -> Vec<String> {
    let all = std::iter::once("all".to_owned());
    all.chain(Algorithm::names().into_iter().map(str::to_owned)).collect()
}

impl FromStr for Setting {
    type Err = String;

    /// Also as AIX prints it, with blanks and a full stop.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not NAME=VALUE, as in in_core_enabled=0");
        let (name, value) = text.split_once(['=', ':']).ok_or_else(bad)?;
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
