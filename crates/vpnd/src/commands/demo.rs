//! `vpnd demo`

use crate::commands::{Failure, Run, Session};
use crate::demo;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;

/// Shows a tunnel at work between two network namespaces of this machine
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo vpnd demo
  vpnd demo --seconds 60                    as an ordinary user, if user namespaces are allowed
  vpnd demo --json | jq .packets_lost

Two vpnd negotiate a tunnel between two network namespaces. Traffic runs through it while its keys are renewed \
again and again, and everything on the wire is watched for packets that are not encrypted. The \
network of this machine is not touched, and nothing is left behind.")]
pub struct Demo {
    /// Duration of the traffic in seconds
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u64).range(3..=3600))]
    seconds: u64,
    /// Prints one JSON object instead of a report
    #[arg(long)]
    json: bool,
}

impl Run for Demo {
    fn run(&self, _: &mut Session) -> Result<ExitCode, Failure> {
        Ok(demo::run(Duration::from_secs(self.seconds), self.json))
    }
}
