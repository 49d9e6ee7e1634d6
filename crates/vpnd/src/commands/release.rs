//! `vpnd release`

use crate::commands::{Failure, Run, Session};
use crate::config::Config;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use vpn::guard::{self, Released};

/// Ends what vpnd guard began, and removes what blocks the traffic after a crash
///
/// If vpnd does not run, this removes everything that a vpnd which has ended left on this host: the guard, blackhole
/// routes, routing rules, filters and policies of the kernel. If vpnd runs, its guard stays in force and goes when vpnd
/// is stopped.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo vpnd release
  sudo vpnd release --config /etc/vpnd/vpnd.toml      if it names another device or state directory")]
pub struct Release {
    /// Configuration file; none: the built-in defaults [default: /etc/vpnd/vpnd.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Run for Release {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let config = Config::find(self.config.as_deref())?.config;
        let released = guard::release(&config.esp.state_dir, &config.esp.device);
        session.line(match released.map_err(Failure::other)? {
            Released::Now => {
                "released: the traffic of the tunnels is no longer blocked, and takes the host's other routes"
            }
            Released::WithTheGateway => {
                "vpnd runs: its guard stays in force, and goes when vpnd is stopped"
            }
            _ => "nothing was blocked",
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
