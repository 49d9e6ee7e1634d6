//! `vpnd guard --watch` on the host of a gateway, beside its daemon or without one.

use crate::gateway::Gateway;
use crate::process::Process;
use crate::until;
use nix::sys::signal::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::ExitStatus;

/// A `vpnd guard --watch` with the policy and the configuration of a gateway. Where a test fails, its log is printed.
pub struct GuardWatch {
    log: PathBuf,
    process: Option<Process>,
}

impl GuardWatch {
    /// Starts it, and waits until it guards.
    pub fn start(gateway: &Gateway) -> Self {
        let policy = gateway.path("policy.xml").display().to_string();
        let command = gateway.vpnd_command(&["guard", "--watch", "--policy", &policy]);
        let log = gateway.path("watch");
        // An earlier watch of this gateway may have left its own.
        let _ = fs::remove_file(&log);
        let process = Process::start(&gateway.space.0, command, &log).expect("vpnd is built");
        let watch = Self { log, process: Some(process) };
        watch.await_log("guarding ", 1);
        watch
    }

    /// All that it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// How often its log has a text.
    pub fn count(&self, text: &str) -> usize {
        self.log().matches(text).count()
    }

    /// Waits until its log has a text so many times.
    pub fn await_log(&self, text: &str, times: usize) {
        let told = || (self.count(text) >= times).then_some(());
        until(&format!("{text:?} in the log of the watch"), told, || self.log());
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.as_ref().expect("it runs").signal(signal);
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.take().expect("it runs").wait()
    }
}

impl Drop for GuardWatch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- log of the watch\n{}", self.log());
        }
    }
}
