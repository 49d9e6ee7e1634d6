//! `vpnctl support`

use super::session::{Failure, Run, Session};
use crate::support;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Writes one archive with everything that the developers of vpnd need to find an error, and no key or password
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl support
  vpnctl support --output /tmp/gateway.tar.gz
  tar xzOf /tmp/gateway.tar.gz --wildcards '*/contents.txt'

The archive has the answers of vpnd (its state, tunnels with explanations, counters, certificates, policy, events meanwhile), \
the configuration, the log, and of the host the addresses, routes, nftables rules, settings and versions. vpnd need not run.

Preshared keys, private keys, keys of SAs and PINs are left out, and every file is searched for those that this host has. The \
names, addresses, routes and rules of this host are in it. Look at the archive before you send it to somebody.")]
pub struct Support {
    /// The archive [default: vpnd-support-HOST-TIME.tar.gz in the working directory]
    #[arg(long, short, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub output: Option<PathBuf>,
}

/// The longest time that the daemon may take for an answer.
const LIMIT: Duration = Duration::from_secs(10);

impl Run for Support {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let written = support::write(&session.control, self.output.as_deref(), LIMIT)?;
        let path = written.path.display();
        session.line(&format!("{path}: {} files, without keys and passwords", written.files))?;
        for missing in &written.missing {
            // The rest is advice.
            let why = missing.why.lines().next().unwrap_or_default();
            session.line(&format!("  not in it: {}: {why}", missing.name))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
