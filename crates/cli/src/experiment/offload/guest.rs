//! The same in a guest: a kernel that has IPsec, and a simulated card.

use super::Found;
use crate::experiment::Lab;
use std::path::Path;
use std::process::Command;

/// In a checkout: runs a command in a guest.
const BOOT: &str = "tests/kernel/guest/boot";
/// Seconds that the guest may take.
const LIMIT: &str = "240";

/// What a guest's kernel showed, or why there is none.
pub(super) fn look(lab: &Lab) -> Result<Found, String> {
    if !Path::new(BOOT).is_file() {
        return Err(format!(
            "there is no {BOOT} here; run the experiment in a checkout of the sources"
        ));
    }
    let own = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let quick = match lab.effort.option() {
        "" => " --quick",
        option => option,
    };
    let line = format!("{} experiment offload --raw{quick}", own.display());
    let output = Command::new(BOOT).args(["-t", LIMIT, &line]).output();
    let output = output.map_err(|error| format!("{BOOT}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().rev().find(|line| line.starts_with("{\""));
    match found.and_then(|line| serde_json::from_str(line).ok()) {
        Some(found) => Ok(found),
        None => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> = text.lines().chain(errors.lines()).collect();
            let last = lines[lines.len().saturating_sub(3)..].join("; ");
            Err(format!("{BOOT} failed ({}): {last}", output.status))
        }
    }
}
