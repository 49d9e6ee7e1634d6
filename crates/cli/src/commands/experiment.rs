//! `vpnctl experiment`. The experiments themselves are in the program `vpn-lab`.

use super::session::{Failure, Run, Session};
use crate::programs;
use clap::Args;
use std::process::ExitCode;
use terminal::delegated;

/// Repeats published measurements on this machine and writes a report with plots
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo vpnctl experiment all --quick         all of them, in less than ten minutes
  sudo vpnctl experiment workloads --output /tmp/measurements

An experiment creates two hosts in network namespaces and starts a vpnd on each; a running daemon is not \
disturbed. If user namespaces are allowed, sudo is not needed. Ctrl-C takes everything down again; \
reports of finished experiments stay. See docs/understand/experiments.md.")]
pub struct Experiment {
    /// The experiment and its extent.
    #[command(flatten)]
    pub experiment: delegated::ExperimentRun,
}

impl Run for Experiment {
    fn run(&self, _: &mut Session) -> Result<ExitCode, Failure> {
        Err(programs::become_vpn_lab(&self.experiment).into())
    }
}
