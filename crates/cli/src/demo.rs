//! `vpnd demo`.

use std::process::ExitCode;
use std::time::Duration;

/// Runs it.
pub fn run(length: Duration, json: bool) -> ExitCode {
    let _ = (length, json);
    ExitCode::FAILURE
}
