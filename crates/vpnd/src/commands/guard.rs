//! `vpnd guard`

mod watch;

use crate::commands::{Failure, Run, Session};
use crate::config::{Config, ConfigError, Esp, Found};
use crate::daemon::{Source, SourceError};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use terminal::report::duration;
use vpn::guard::{self, Definition, GuardState};

/// The status to exit with if the guard is in force, but not by the policy that was asked for.
const LAST_GOOD: u8 = 4;
/// The status to exit with if neither the policy nor the last good guard can be used (EX_CONFIG of sysexits.h). The
/// unit does not try again then.
const NOTHING_GUARDED: u8 = 78;

/// Blocks the traffic of the policy's tunnels unless it is protected, until vpnd release
///
/// The guard is an nftables table. vpnd start puts it in force, too, and an orderly end removes it. After vpnd guard it
/// stays in force, whether vpnd runs or not: at boot before the first interface is up, while vpnd is restarted or
/// upgraded, and after a crash.
///
/// If the policy or the configuration cannot be used, the guard that was in force last is put in force again, and the
/// exit status is 4. If there is none, nothing is guarded, and the exit status is 78.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo vpnd guard --policy /etc/vpnd/policy.xml --config /etc/vpnd/vpnd.toml
  sudo vpnd guard --show
  sudo vpnd release                       the traffic takes the host's other routes again

The systemd unit vpn-guard.service runs vpnd guard --watch. A policy that changes while vpnd runs changes the guard, too. \
After a change while vpnd does not run, call vpnd guard again.")]
pub struct Guard {
    /// AIX_VPN XML policy file, or a directory of such files; default: the policy store, which vpnctl policy changes
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Configuration file; none: the built-in defaults [default: /etc/vpnd/vpnd.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ignores elements and attributes with unknown names in the policy, with a warning
    #[arg(long)]
    lenient: bool,
    /// Goes on, and puts the guard back if another program removes it while vpnd does not run
    ///
    /// Until the guard is back, a second table holds the traffic, which no other program can remove (Linux 5.12). It
    /// ends when the guard is released. A signal ends it, too, and leaves the guard in force.
    #[arg(long, conflicts_with = "show")]
    watch: bool,
    /// Changes nothing, and prints the state of the guard
    #[arg(long, conflicts_with_all = ["policy", "lenient"])]
    show: bool,
    /// Prints JSON, for programs
    #[arg(long, requires = "show")]
    json: bool,
}

/// The reason why nothing can be guarded as the operator wants it.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Policy(#[from] SourceError),
    #[error(transparent)]
    Settings(#[from] vpn::StartError),
}

impl Run for Guard {
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure> {
        if self.show {
            let esp = Config::find(self.config.as_deref())?.config.esp;
            let state = guard::state(&esp.state_dir, &esp.device).map_err(Failure::other)?;
            session.show(self.json, &Shown::of(&state), |_, _| text(&state))?;
            return Ok(ExitCode::SUCCESS);
        }
        let found = Config::find(self.config.as_deref());
        // A configuration with errors names no other directory or device.
        let config =
            found.as_ref().map_or_else(|_| Config::default(), |found| found.config.clone());
        let of_gateway = guard::hold_of_gateway(&config.esp.state_dir, &config.esp.device);
        let has_gateway = match of_gateway.map_err(Failure::other)? {
            Some(state) if !self.watch => {
                session.text(&text(&state))?;
                return Ok(ExitCode::SUCCESS);
            }
            state => state.is_some(),
        };
        let (definition, status, outcome) = match self.definition(found, has_gateway) {
            Ok((definition, status)) => (definition, status, ExitCode::SUCCESS),
            Err(unusable) => match last(&config.esp) {
                Ok((definition, since)) => {
                    eprintln!(
                        "vpnd: {unusable}\nvpnd: the last good guard is put in force, of {since}"
                    );
                    let status =
                        format!("guarding by the last good policy, of {since}: {unusable}");
                    (definition, status, ExitCode::from(LAST_GOOD))
                }
                Err(absent) => {
                    let file = config.esp.guard_file();
                    let guarded = guard::state(&config.esp.state_dir, &config.esp.device);
                    let outcome = match guarded.is_ok_and(|state| state.in_force) {
                        true => "the guard that is in force stays as it is",
                        false => "NOTHING IS GUARDED",
                    };
                    eprintln!(
                        "vpnd: {unusable}\nvpnd: {outcome}: neither the policy nor the last good guard can be used ({}: {absent}); \
                         mend the policy, then: vpnd guard",
                        file.display()
                    );
                    return Ok(ExitCode::from(NOTHING_GUARDED));
                }
            },
        };
        if self.watch {
            return watch::watch(definition, &config.log, &status);
        }
        let state = definition.hold().map_err(Failure::other)?;
        session.text(&text(&state))?;
        Ok(outcome)
    }
}

impl Guard {
    /// The guard that the operator wants, and a line about it. While a gateway runs, that is the gateway's.
    fn definition(
        &self,
        found: Result<Found, ConfigError>,
        has_gateway: bool,
    ) -> Result<(Definition, String), Unusable> {
        let config = found?.config;
        if has_gateway && let Ok((definition, _)) = last(&config.esp) {
            return Ok((definition, "guarding the tunnels of the vpnd that runs".to_owned()));
        }
        let source = Source::find(self.policy.as_deref(), self.lenient, &config)?;
        let read = source.read()?;
        for warning in &read.warnings {
            eprintln!("{warning}");
        }
        let status = format!("guarding the tunnels of {source}");
        Ok((config.gateway(Arc::new(read.policy)).guard()?, status))
    }
}

/// The guard that was in force last, and since when.
fn last(esp: &Esp) -> io::Result<(Definition, String)> {
    let (definition, since) = Definition::last(&esp.guard_file(), &esp.state_dir)?;
    Ok((definition, humantime::format_rfc3339_seconds(since).to_string()))
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

/// The state of the guard, with the way out for an operator who is blocked.
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
    if state.in_force || state.unprotected_leaving > 0 {
        let _ = writeln!(
            text,
            "packets dropped: {} that would have left in the clear, {} that arrived in the clear",
            state.unprotected_leaving, state.unprotected_arriving
        );
    }
    text
}
