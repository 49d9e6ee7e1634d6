//! Repeats published measurements on this machine.
#![forbid(unsafe_code)]

use clap::Parser;
use lab::experiment::{self, Effort, Request};
use std::process::ExitCode;
use terminal::delegated::ExperimentRun;

/// Repeats published measurements on this machine and writes a report with plots
#[derive(Debug, Parser)]
#[command(
    name = "vpn-lab",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  sudo vpn-lab all --quick         all of them, in less than ten minutes
  sudo vpn-lab workloads --output /tmp/measurements

An experiment creates two hosts in network namespaces and starts a vpnd on each; a running daemon is not \
disturbed. If user namespaces are allowed, sudo is not needed. Ctrl-C takes everything down again; \
reports of finished experiments stay. See docs/understand/experiments.md."
)]
struct Arguments {
    #[command(flatten)]
    experiment: ExperimentRun,
}

fn main() -> ExitCode {
    let ExperimentRun { name, quick, rehearsal, output, raw } = Arguments::parse().experiment;
    let effort = match (rehearsal, quick) {
        (true, _) => Effort::Rehearsal,
        (_, true) => Effort::Quick,
        _ => Effort::Full,
    };
    match experiment::run(&Request { name, effort, output, raw }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vpn-lab: {error}");
            ExitCode::FAILURE
        }
    }
}
