//! `vpnd install` and `vpnd uninstall`

use super::other;
use crate::commands::{Failure, Run, Session};
use crate::install::Request;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

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
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo systemctl disable --now vpnd vpn-guard
  sudo vpnd uninstall

/etc/vpnd and /var/lib/vpnd stay. A vpnd that runs is not stopped.")]
pub struct Uninstall {
    /// The places of the files.
    #[command(flatten)]
    place: Place,
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
        session.text(&self.place.request().install(&vpnd).map_err(other)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Run for Uninstall {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        session.text(&self.place.request().uninstall().map_err(other)?)?;
        Ok(ExitCode::SUCCESS)
    }
}
