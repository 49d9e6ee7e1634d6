//! `vpnctl support`: what reads the configuration and the state of the host.

use crate::commands::{Failure, Session};
use crate::support;
use std::process::ExitCode;
use std::time::Duration;
use terminal::delegated::Support;

/// The longest time that the daemon may take for an answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Writes the archive, and tells what is not in it.
pub fn run(arguments: &Support, session: &mut Session) -> Result<ExitCode, Failure> {
    let written = support::write(&session.control, arguments.output.as_deref(), LIMIT)?;
    let path = written.path.display();
    session.line(&format!("{path}: {} files, without keys and passwords", written.files))?;
    for missing in &written.missing {
        // The rest is advice.
        let why = missing.why.lines().next().unwrap_or_default();
        session.line(&format!("  not in it: {}: {why}", missing.name))?;
    }
    Ok(ExitCode::SUCCESS)
}
