//! A program that runs in a network namespace.

use namespaces::isolation::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A running program. Dropping it kills it: its namespace goes with it, so that nothing must be undone in order.
pub struct Process(Child);

impl Process {
    /// Starts a program whose output is appended to a log.
    ///
    /// # Errors
    /// Where the system cannot start it.
    pub fn start(space: &Namespace, mut command: Command, log: &Path) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let started = appended(log).and_then(|output| {
            let errors = output.try_clone()?;
            command.stdin(Stdio::null()).stdout(output).stderr(errors);
            space.run(move || command.spawn())
        });
        started.map(Self).map_err(|error| format!("{name}: {error}"))
    }

    /// Starts a program that says on its standard output when it is ready. Returns that line too, which is empty if the
    /// program ended without one. Its standard error is appended to a log.
    ///
    /// # Errors
    /// Where the system cannot start it.
    pub fn start_and_listen(
        space: &Namespace,
        mut command: Command,
        log: &Path,
    ) -> Result<(Self, String), String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let started = appended(log).and_then(|errors| {
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
            let mut process = Self(space.run(move || command.spawn())?);
            let mut line = String::new();
            if let Some(output) = process.0.stdout.take() {
                BufReader::new(output).read_line(&mut line)?;
            }
            Ok((process, line))
        });
        started.map_err(|error| format!("{name}: {error}"))
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        // Nobody has waited for it: it still has its number, even if it has ended.
        kill(Pid::from_raw(i32::try_from(self.id()).expect("a process")), signal).expect("ours");
    }

    /// Waits until it has ended.
    pub fn wait(mut self) -> ExitStatus {
        self.0.wait().expect("a child of ours")
    }

    /// A file of its directory below `/proc`.
    pub fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.id()))
    }

    /// Kilobytes in a field of `/proc/PID/status`, such as `RssAnon`: memory of its own that is resident.
    pub fn kilobytes(&self, field: &str) -> Option<u64> {
        let status = fs::read_to_string(self.proc("status")).ok()?;
        let mut fields = status.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = fields.find(|(name, _)| *name == field)?;
        value.trim().strip_suffix(" kB")?.parse().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A program that has ended already needs no signal.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn appended(log: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(log)
}

/// The last lines of a text.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
