//! A program that runs in a network namespace.

use namespaces::isolation::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// A running program. Dropping it kills it: its namespace goes with it, so that nothing must be undone in order.
pub struct Process(Child);

impl Process {
    /// Starts a program whose output is appended to a log.
    ///
    /// # Errors
    /// Where the system cannot start it.
    pub fn start(space: &Namespace, mut command: Command, log: &Path) -> Result<Self, String> {
        let [output, errors] = [appended(log)?, appended(log)?];
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        Self::spawn(space, command)
    }

    fn spawn(space: &Namespace, mut command: Command) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let started = space.run(move || command.spawn());
        started.map(Self).map_err(|error| format!("{name}: {error}"))
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

fn appended(log: &Path) -> Result<File, String> {
    let file = File::options().create(true).append(true).open(log);
    file.map_err(|error| format!("{}: {error}", log.display()))
}

/// A running program whose standard output is read line by line. Dropping it kills it.
pub struct Printing {
    process: Process,
    output: BufReader<ChildStdout>,
}

impl Printing {
    /// Starts a program, whose standard error goes where the command says.
    ///
    /// # Errors
    /// Where the system cannot start it.
    pub fn start(space: &Namespace, mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process::spawn(space, command)?;
        let output = BufReader::new(process.0.stdout.take().expect("it is piped"));
        Ok(Self { process, output })
    }

    /// The same with its standard error appended to a log.
    ///
    /// # Errors
    /// Where the system cannot start it.
    pub fn start_with_log(
        space: &Namespace,
        mut command: Command,
        log: &Path,
    ) -> Result<Self, String> {
        command.stderr(appended(log)?);
        Self::start(space, command)
    }

    /// The next line with its end; empty if the program has ended without one.
    pub fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line
    }

    /// The rest of the next line that begins so.
    ///
    /// # Panics
    /// Where the program ends before.
    pub fn line(&mut self, start: &str) -> String {
        let mut others = String::new();
        loop {
            let line = self.next_line();
            assert!(!line.is_empty(), "it has ended\n{others}");
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim_end().to_owned();
            }
            others += &line;
        }
    }

    /// Sends it a signal, and does as [`end`](Self::end).
    pub fn end_by(self, signal: Signal) -> String {
        self.process.signal(signal);
        self.end()
    }

    /// Waits for its end, which must be a good one. Returns the lines that it has printed since.
    pub fn end(mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        assert!(self.process.wait().success(), "{rest}");
        rest
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The process, whose further lines nobody reads.
    pub fn into_process(self) -> Process {
        self.process
    }
}

/// The last lines of a text.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
