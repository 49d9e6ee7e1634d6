//! `startsrc`: starts `vpnd` as a service of systemd, or detached from the terminal where systemd does not run.

use super::{Trouble, named_configuration};
use crate::programs;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// There while systemd runs this machine (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";
/// The policy of the service; without this file, `vpnd` runs the policy store.
const POLICY: &str = "/etc/vpnd/policy.xml";
/// The log of a `vpnd` that systemd does not start.
const LOG: &str = "/var/log/vpnd.log";
/// The most of the log that a failure shows, in octets.
const SHOWN: u64 = 4096;

/// The policy file of a `vpnd` that is started here; `None`: it runs the policy store.
pub(super) fn policy_file() -> Option<&'static str> {
    Path::new(POLICY).exists().then_some(POLICY)
}

/// Starts the daemon and returns as soon as it is ready. Returns a note about a daemon that is no service.
pub(super) fn start() -> Result<Option<String>, Trouble> {
    if !Path::new(SYSTEMD).is_dir() {
        return detached().map(Some);
    }
    if named_configuration().is_some() {
        eprintln!(
            "startsrc: warning: the service of systemd reads the configuration that its unit names, and not that of \
             VPND_CONFIG; see it with: systemctl cat vpnd"
        );
    }
    by_systemd().map(|()| None)
}

fn by_systemd() -> Result<(), Trouble> {
    let output = Command::new("systemctl").args(["start", "vpnd"]).output();
    let output = output.map_err(|error| Trouble::new(format!("cannot run systemctl: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(Trouble::new(format!(
        "systemctl start vpnd: {}\n  see the log with: journalctl -u vpnd\n  \
         if there is no such unit, install it with: vpnd install",
        words.trim()
    )))
}

fn detached() -> Result<String, Trouble> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    let mut log = options.open(LOG).map_err(|error| cannot(&format!("write {LOG}"), &error))?;
    let begun = log.seek(SeekFrom::End(0)).unwrap_or(0);
    let program = programs::vpnd()?;
    let mut command = Command::new(&program);
    command.arg("start");
    let stored = match policy_file() {
        Some(file) => {
            command.args(["--policy", file]);
            format!("its policy is {file}")
        }
        None => "it runs the policy store".to_owned(),
    };
    if let Some(config) = named_configuration() {
        command.arg("--config").arg(config);
    }
    let stderr = log.try_clone().map_err(|error| cannot(&format!("write {LOG}"), &error))?;
    // A group of its own: the end of the terminal and its Ctrl-C are not for the daemon.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
    let what = format!("start {}", program.display());
    let mut vpnd = command.spawn().map_err(|error| cannot(&what, &error))?;
    match is_ready(&mut vpnd) {
        true => Ok(format!("{stored}, and its log is {LOG}")),
        false => {
            let status = vpnd.wait().map_err(|error| cannot("wait for vpnd", &error))?;
            let end = format!("vpnd ended ({status}); the end of {LOG}:");
            Err(Trouble::new(format!("{end}\n{}", tail(&mut log, begun))))
        }
    }
}

fn cannot(what: &str, error: &io::Error) -> Trouble {
    let cure = match error.kind() {
        io::ErrorKind::PermissionDenied => "; run startsrc as root",
        _ => "",
    };
    Trouble::new(format!("cannot {what}: {error}{cure}"))
}

/// Waits for the line that says that the daemon is ready; `false` if it ends without one.
fn is_ready(vpnd: &mut Child) -> bool {
    let mut line = String::new();
    let told = vpnd.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    matches!(told, Some(Ok(1..)))
}

/// The end of a log from a place on.
fn tail(log: &mut File, begun: u64) -> String {
    let end = log.seek(SeekFrom::End(0)).unwrap_or(0);
    let mut text = Vec::new();
    let from = begun.max(end.saturating_sub(SHOWN));
    let read = log.seek(SeekFrom::Start(from)).and_then(|_| log.read_to_end(&mut text));
    match read {
        Ok(_) => String::from_utf8_lossy(&text).trim_end().to_owned(),
        Err(error) => format!("(cannot be read: {error})"),
    }
}
