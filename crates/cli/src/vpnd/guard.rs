//! `vpnd guard`

use super::{configured, other};
use crate::commands::{Failure, Run, Session};
use crate::daemon::Source;
use crate::report::duration;
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use vpn::guard::{self, GuardState};

/// Blocks the traffic of the policy's tunnels unless it is protected, until vpnd release
///
/// The guard is an nftables table. vpnd start puts it in force, too, and an orderly end removes it. After vpnd guard it
/// stays in force, whether vpnd runs or not: at boot before the first interface is up, while vpnd is restarted or upgraded,
/// and after a crash.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo vpnd guard --policy /etc/vpnd/policy.xml --config /etc/vpnd/vpnd.toml
  sudo vpnd guard --show
  sudo vpnd release                       the traffic takes the host's other routes again

config/vpn-guard.service is a systemd unit for it. A policy that changes while vpnd runs changes the guard, too. After a \
change while vpnd does not run, call vpnd guard again.")]
pub struct Guard {
    /// AIX_VPN XML policy file; default: the policy store, which vpnctl policy changes
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Configuration file; none: the built-in defaults [default: /etc/vpnd/vpnd.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ignores elements and attributes with unknown names in the policy, with a warning
    #[arg(long)]
    lenient: bool,
    /// Changes nothing, and prints the state of the guard
    #[arg(long, conflicts_with_all = ["policy", "lenient"])]
    show: bool,
    /// Prints JSON, for programs
    #[arg(long, requires = "show")]
    json: bool,
}

impl Run for Guard {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        let config = configured(self.config.as_deref())?;
        let (state_dir, device) = (&config.esp.state_dir, &config.esp.device);
        if self.show {
            let state = guard::state(state_dir, device).map_err(other)?;
            session.show(self.json, &Shown::of(&state), |_, _| text(&state))?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(state) = guard::hold_of_gateway(state_dir, device).map_err(other)? {
            session.text(&text(&state))?;
            return Ok(ExitCode::SUCCESS);
        }
        let source = match self.policy.clone() {
            Some(path) => Source::File { path, lenient: self.lenient },
            None => Source::open_store(&config.policy.directory).map_err(other)?,
        };
        let read = source.read().map_err(other)?;
        for warning in &read.warnings {
            eprintln!("{warning}");
        }
        let policy = Arc::new(read.policy);
        let state = config.gateway(policy).hold_guard().map_err(other)?;
        session.text(&text(&state))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The state of the guard, for programs.
#[derive(Serialize)]
struct Shown<'a> {
    table: &'a str,
    in_force: bool,
    held_seconds: Option<u64>,
    vpnd_runs: bool,
    unprotected_leaving: u64,
    unprotected_arriving: u64,
}

impl<'a> Shown<'a> {
    fn of(state: &'a GuardState) -> Self {
        Self {
            table: &state.table,
            in_force: state.in_force,
            held_seconds: state.held_for().map(|held| held.as_secs()),
            vpnd_runs: state.has_gateway,
            unprotected_leaving: state.unprotected_leaving,
            unprotected_arriving: state.unprotected_arriving,
        }
    }
}

/// The state of the guard, with the way out for whoever is blocked.
fn text(state: &GuardState) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match (state.in_force, state.held_for()) {
        (true, Some(held)) => writeln!(
            text,
            "the traffic of the tunnels passes only if it is protected: the guard (nftables table inet {}) has been held for \
             {}\nto release it: vpnd release",
            state.table,
            duration(held)
        ),
        (true, None) if state.has_gateway => writeln!(
            text,
            "the traffic of the tunnels passes only if it is protected: vpnd runs, and its guard (nftables table inet {}) goes \
             when it is stopped\nto keep it beyond that: vpnd guard",
            state.table
        ),
        (true, None) => writeln!(
            text,
            "the traffic of the tunnels is blocked: a vpnd that has ended left its guard (nftables table inet {})\nto release \
             it: vpnd release",
            state.table
        ),
        (false, Some(held)) => writeln!(
            text,
            "the guard has been held for {}, but there is nothing to guard: the policy has no tunnels, or another program has \
             removed the nftables table inet {}\nto put it in force: vpnd guard, or vpnd start; to release it: vpnd release",
            duration(held),
            state.table
        ),
        (false, None) => writeln!(text, "no guard is in force"),
    };
    if state.in_force {
        let _ = writeln!(
            text,
            "packets dropped: {} that would have left in the clear, {} that arrived in the clear",
            state.unprotected_leaving, state.unprotected_arriving
        );
    }
    text
}
