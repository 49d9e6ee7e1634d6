//! `vpnctl experiment`. The experiments themselves are in the crate `lab`.

use super::session::{Failure, Run, Session};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use lab::experiment::{self, ALL, Effort, Request};
use std::path::PathBuf;
use std::process::ExitCode;

/// Repeats published measurements on this machine and writes a report with plots
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo vpnctl experiment all --quick         all of them, in less than ten minutes
  sudo vpnctl experiment workloads --output /tmp/measurements

An experiment creates two hosts in network namespaces and starts a vpnd on each; a running daemon is not \
disturbed. If user namespaces are allowed, sudo is not needed. Ctrl-C takes everything down again; \
reports of finished experiments stay. See docs/experiments.md.")]
pub struct Experiment {
    /// Name of the experiment
    #[arg(value_parser = names())]
    name: String,
    /// Fewer and shorter repetitions: all experiments take less than ten minutes
    #[arg(long)]
    quick: bool,
    /// One short measurement of each kind, as a test of the experiments; the figures are meaningless
    #[arg(long, conflicts_with = "quick")]
    rehearsal: bool,
    /// Directory for the reports; created if it does not exist [default: measurements]
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Prints figures and writes no report: what offload does in a guest, and in-core without instructions
    #[arg(long, hide = true)]
    raw: bool,
}

fn names() -> PossibleValuesParser {
    let one = |(name, document)| PossibleValue::new(name).help(format!("After \"{document}\""));
    let all = PossibleValue::new(ALL).help("All of them, one after the other");
    PossibleValuesParser::new(experiment::list().map(one).chain([all]))
}

impl Run for Experiment {
    fn run(&self, _: &mut Session) -> Result<ExitCode, Failure> {
        let effort = match (self.rehearsal, self.quick) {
            (true, _) => Effort::Rehearsal,
            (_, true) => Effort::Quick,
            _ => Effort::Full,
        };
        let Self { name, output, raw, .. } = self;
        let request = Request { name: name.clone(), effort, output: output.clone(), raw: *raw };
        match experiment::run(&request) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => {
                eprintln!("vpnctl experiment: {error}");
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
