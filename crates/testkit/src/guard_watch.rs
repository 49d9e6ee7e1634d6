//! `vpnd guard --watch` on the host of a gateway, beside its daemon or without one.

use crate::gateway::Gateway;
use crate::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};

/// A `vpnd guard --watch` with the policy and the configuration of a gateway. Where a test fails, its log is printed.
pub struct GuardWatch {
    log: PathBuf,
    process: Child,
}

impl GuardWatch {
    /// Starts it, and waits until it guards.
    pub fn start(gateway: &Gateway) -> Self {
        let policy = gateway.path("policy.xml").display().to_string();
        let mut command = gateway.vpnd_command(&["guard", "--watch", "--policy", &policy]);
        let log = gateway.path("watch");
        let file = File::create(&log).expect("writable");
        command.stdout(Stdio::null()).stderr(file);
        let process = gateway.space.run(move || command.spawn()).expect("vpnd is built");
        let watch = Self { log, process };
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
        let process = i32::try_from(self.process.id()).expect("a process");
        kill(Pid::from_raw(process), signal).expect("ours");
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait().expect("a child of ours")
    }
}

impl Drop for GuardWatch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- log of the watch\n{}", self.log());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
