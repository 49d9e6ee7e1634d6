//! The same in a guest: a kernel that has IPsec, and a simulated card.

use super::found::Found;
use crate::experiment::lab::Lab;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// In a checkout: runs a command in a guest.
const BOOT: &str = "tests/kernel/guest/boot";
/// Seconds that the guest may take.
const LIMIT: &str = "240";
/// The paths of the guest's kernel: our build with all features, and the distribution's.
const KERNELS: [&str; 2] = ["target/kernel/linux", "/usr/bin/linux"];
/// Between two looks at whether a signal has come.
const PAUSE: Duration = Duration::from_millis(100);

/// A note about a missing requirement of the guest, with a cure.
pub(crate) fn lacking() -> Option<String> {
    let left_out = "offload leaves out the kernel's IPsec in a guest";
    if !Path::new(BOOT).is_file() {
        return Some(format!("{left_out}: it boots one only in a checkout of the sources"));
    }
    let [built, packaged] = KERNELS.map(|kernel| Path::new(kernel).is_file());
    let makes = "`tests/kernel/guest/build-kernel` makes a kernel for it (four minutes, once)";
    match (built, packaged) {
        (true, _) => None,
        (_, true) => Some(format!(
            "offload shows less of the guest than it could, whose kernel is the distribution's; {makes}"
        )),
        _ => Some(format!("{left_out}; {makes}")),
    }
}

/// The results of a guest's kernel, or the reason why there is none.
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
    let line = format!("{} offload --raw{quick}", own.display());
    let mut boot = Command::new(BOOT);
    boot.args(["-t", LIMIT, &line]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let guest = boot.spawn().map_err(|error| format!("{BOOT}: {error}"))?;
    let process = guest.id();
    let (done, ended) = channel();
    // Nobody waits any more once a signal has come.
    std::thread::spawn(move || done.send(guest.wait_with_output()));
    let output = loop {
        match ended.recv_timeout(PAUSE) {
            Ok(output) => break output.map_err(|error| format!("{BOOT}: {error}"))?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(format!("{BOOT}: nobody waited for it"));
            }
            Err(RecvTimeoutError::Timeout) if lab.is_interrupted() => {
                if let Ok(process) = i32::try_from(process) {
                    // It takes the guest with it.
                    let _ = kill(Pid::from_raw(process), Signal::SIGTERM);
                }
                return Err("interrupted".to_owned());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
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
