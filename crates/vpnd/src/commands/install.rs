//! `vpnd install` and `vpnd uninstall`

use crate::commands::{Failure, Run, Session};
use crate::config::Config;
use crate::install::Request;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vpn::guard::{self, GuardState};

/// Installs vpnd, vpnctl, systemd units, manual pages and completions
///
/// The programs are this vpnd and the vpnctl in the same directory. /etc/vpnd gets its directories and a commented
/// vpnd.toml, if they are missing. Configuration that exists is never changed. systemd is not needed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo build --release && sudo target/release/vpnd install
  vpnd install --dry-run                              shows what it would do
  vpnd install --prefix /usr --root build/package     everything is below build/package

Running it again installs a new version. The files are listed in PREFIX/share/vpnd/installed; vpnd uninstall \
removes them.")]
pub struct Install {
    /// The places of the files.
    #[command(flatten)]
    place: Place,
}

/// Removes the files that vpnd install has installed, and leaves the configuration
///
/// While the traffic of the tunnels is blocked without a vpnd that runs, nothing is removed: nothing else releases it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo systemctl disable --now vpnd vpn-guard
  sudo vpnd release                       the traffic of the tunnels takes the host's other routes again
  sudo vpnd uninstall

/etc/vpnd and /var/lib/vpnd stay. A vpnd that runs is not stopped.")]
pub struct Uninstall {
    /// The places of the files.
    #[command(flatten)]
    place: Place,
    /// Configuration file; none: the built-in defaults [default: /etc/vpnd/vpnd.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The traffic of the tunnels is blocked, and only the program that is to be removed releases it.
#[derive(Debug, thiserror::Error)]
#[error(
    "nothing is removed: the traffic of the tunnels is blocked (nftables table inet {table}), and nothing but vpnd releases it\n  \
     first: {before}vpnd release"
)]
struct Blocked {
    table: String,
    /// Commands that come first.
    before: &'static str,
}

/// The places of installed files.
#[derive(Debug, Args)]
struct Place {
    /// Directory that the files are below: bin, share, lib
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    prefix: PathBuf,
    /// Directory that stands for /, as DESTDIR does for make
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Changes nothing, and prints what would be done
    #[arg(long)]
    dry_run: bool,
}

impl Place {
    fn request(&self) -> Request {
        let Self { prefix, root, dry_run } = self;
        Request { prefix: prefix.clone(), root: root.clone(), dry_run: *dry_run }
    }
}

impl Run for Install {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let vpnd = std::env::current_exe()?;
        session.text(&self.place.request().install(&vpnd).map_err(Failure::other)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Uninstall {
    /// Refuses to remove the only program that releases the traffic of the tunnels.
    fn check_guard(&self) -> Result<(), Failure> {
        if self.place.root.is_some() {
            return Ok(());
        }
        // A configuration with errors is no reason to keep the program.
        let config = Config::find(self.config.as_deref()).unwrap_or_default().config;
        let state =
            guard::state(&config.esp.state_dir, &config.esp.device).map_err(Failure::other)?;
        let GuardState { table, in_force, held_since, has_gateway, .. } = state;
        let needs_release = held_since.is_some() || (in_force && !has_gateway);
        let before = match Path::new("/run/systemd/system").is_dir() {
            true => "systemctl disable --now vpnd vpn-guard; ",
            false => "",
        };
        if needs_release { Err(Failure::other(Blocked { table, before })) } else { Ok(()) }
    }
}

impl Run for Uninstall {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        self.check_guard()?;
        session.text(&self.place.request().uninstall().map_err(Failure::other)?)?;
        Ok(ExitCode::SUCCESS)
    }
}
