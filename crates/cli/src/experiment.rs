//! `vpnctl experiment`: its arguments. The experiments themselves are in the crate `lab`.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use lab::experiment::{self, ALL, Effort, Request};
use std::path::PathBuf;
use std::process::ExitCode;

fn names() -> PossibleValuesParser {
    let one = |(name, document)| PossibleValue::new(name).help(format!("After \"{document}\""));
    let all = PossibleValue::new(ALL).help("All of them, one after the other");
    PossibleValuesParser::new(experiment::list().map(one).chain([all]))
}

/// Arguments of `vpnctl experiment`.
#[derive(Debug, Args)]
pub struct Options {
    /// Which experiment
    #[arg(value_parser = names())]
    name: String,
    /// Fewer and shorter repetitions: all experiments in less than ten minutes
    #[arg(long)]
    quick: bool,
    /// One shortest measurement of each kind, to see that everything works; its figures say nothing
    #[arg(long, conflicts_with = "quick")]
    rehearsal: bool,
    /// Directory for the reports; unless it is named docs/measurements where there is one, and measurements elsewhere
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Prints what the experiment offload measures on this kernel, and writes no report: what it does in a guest
    #[arg(long, hide = true)]
    raw: bool,
}

/// Runs experiments and writes their reports. Must be called while the process has a single thread.
pub fn run(options: &Options) -> ExitCode {
    let effort = match (options.rehearsal, options.quick) {
        (true, _) => Effort::Rehearsal,
        (_, true) => Effort::Quick,
        _ => Effort::Full,
    };
    let Options { name, output, raw, .. } = options;
    let request = Request { name: name.clone(), effort, output: output.clone(), raw: *raw };
    match experiment::run(&request) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vpnctl experiment: {error}");
            ExitCode::FAILURE
        }
    }
}
