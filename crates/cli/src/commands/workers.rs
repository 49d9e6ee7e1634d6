//! `vpnctl workers`

use super::session::{Failure, Run, Session, answer};
use crate::completions::worker_settings;
use clap::{Args, Subcommand};
use control::protocol::{Command as Ask, WorkersChange};
use std::io;
use std::process::ExitCode;
use terminal::report;

/// Shows the worker threads and the stages of packet processing, or changes their settings
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl workers
  vpnctl workers set schedule=pipeline workers=2 wait=poll
  vpnctl workers --json | jq '.threads[] | {name, cpu, busy}'")]
pub struct Workers {
    /// Prints a JSON object; docs/reference/control.md describes its fields
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Option<WorkersCommand>,
}

/// Subcommands of `vpnctl workers`.
#[derive(Debug, Subcommand)]
pub enum WorkersCommand {
    /// Changes the workers' settings until the daemon ends; no packet is lost
    Set {
        /// workers=auto|N, schedule=run-to-completion|pipeline, wait=event|poll|adaptive, affinity=none|CPU,CPU
        #[arg(required = true, value_name = "SETTING=VALUE", value_parser = worker_setting, add = worker_settings())]
        settings: Vec<String>,
    },
}

/// Refuses what the daemon would, before it is asked.
fn worker_setting(text: &str) -> Result<String, String> {
    WorkersChange::default().set(text)?;
    Ok(text.to_owned())
}

impl Run for Workers {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let ask = match &self.command {
            None => Ask::Workers,
            Some(WorkersCommand::Set { settings }) => {
                let mut change = WorkersChange::default();
                for setting in settings {
                    change.set(setting).map_err(io::Error::other)?;
                }
                Ask::WorkersSet(change)
            }
        };
        let shown = answer!(session, ask, Workers);
        session.show(self.json, &shown, report::workers)?;
        Ok(ExitCode::SUCCESS)
    }
}
