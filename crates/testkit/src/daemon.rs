//! A `vpnd start` in a network namespace: its files, its process, and `vpnctl` to command it.
//!
//! All tests and benches start `vpnd` here. Programs that users run start it by `demo::node`, which depends on no crate of
//! tests, can be interrupted, and gives up a daemon that does not answer in time.

use crate::process::{Printing, Process, last_lines};
use crate::programs::{vpnctl, vpnd};
use namespaces::isolation::Namespace;
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};

/// Lines of the log that an error has.
const LAST: usize = 40;

/// The directory of policy files.
const DIRECTORY: &str = "policy.d";

/// A daemon: the files that it reads and writes, and the process while it runs. Dropping it kills the process. Where a
/// test fails, its log is printed.
pub struct Daemon {
    name: String,
    /// Dropped before the directory goes.
    process: Option<Process>,
    directory: PathBuf,
    program: PathBuf,
    /// Of `vpnd start`, beside those that name its files.
    arguments: Vec<OsString>,
    /// The environment of its process, beside that of this process.
    pub environment: Vec<(&'static str, OsString)>,
    /// The policy file, or the directory of policy files, that it runs; `None`: its policy store.
    policy: Option<&'static str>,
}

impl Daemon {
    /// One that does not run yet; `name` is for messages. Its files are in a directory, which is made if it is not there.
    pub fn new(name: &str, directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        fs::create_dir_all(&directory).expect("writable");
        Self {
            name: name.to_owned(),
            process: None,
            directory,
            program: vpnd(),
            arguments: Vec::new(),
            environment: Vec::new(),
            policy: Some("policy.xml"),
        }
    }

    /// The same with this policy.
    #[must_use]
    pub fn with_policy(self, text: &str) -> Self {
        self.write_policy(text);
        self
    }

    /// The same with a configuration: lines of `[ike]`, and lines of `[esp]` with all sections that follow.
    #[must_use]
    pub fn with_config(self, ike: &str, esp: &str) -> Self {
        let state = self.path("state");
        let text = format!("[ike]\n{ike}\n[esp]\nstate_dir = {state:?}\n{esp}\n");
        fs::write(self.path("vpnd.toml"), text).expect("writable");
        self
    }

    /// The same as another build of `vpnd`.
    #[must_use]
    pub fn with_program(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
    }

    /// The same with further arguments.
    #[must_use]
    pub fn with_arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(OsString::from));
        self
    }

    /// The same with further variables in its environment.
    #[must_use]
    pub fn with_environment<V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (&'static str, V)>,
    ) -> Self {
        self.environment.extend(variables.into_iter().map(|(name, value)| (name, value.into())));
        self
    }

    /// A file of its own.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes its policy, which nobody else may read.
    pub fn write_policy(&self, text: &str) {
        write_secret(&self.path("policy.xml"), text);
    }

    /// Appends text to the configuration.
    pub fn configure(&self, text: &str) {
        let mut file = File::options().append(true).open(self.path("vpnd.toml")).expect("there");
        file.write_all(text.as_bytes()).expect("writable");
    }

    /// Has later processes run a policy store, which is empty, instead of the policy file.
    pub fn use_store(&mut self) {
        self.configure(&format!("[policy]\ndirectory = {:?}\n", self.path("store")));
        self.policy = None;
    }

    /// Has later processes run a directory of policy files, which is empty, instead of the policy file.
    pub fn use_directory(&mut self) {
        fs::create_dir_all(self.path(DIRECTORY)).expect("writable");
        self.policy = Some(DIRECTORY);
    }

    /// Writes a file of the directory of [`use_directory`](Self::use_directory), which nobody else may read.
    pub fn write_policy_of(&self, name: &str, text: &str) {
        write_secret(&self.path(DIRECTORY).join(name), text);
    }

    /// The `vpnd start` of this daemon.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["start", "--exit-with-parent"]).args(&self.arguments);
        if let Some(policy) = self.policy {
            command.arg("--policy").arg(self.path(policy));
        }
        command
            .arg("--config")
            .arg(self.path("vpnd.toml"))
            .arg("--control")
            .arg(self.path("control.sock"))
            .env_remove("NOTIFY_SOCKET")
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null());
        command
    }

    /// A command of `vpnd` with this configuration, beside the daemon.
    pub fn vpnd_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--config").arg(self.path("vpnd.toml"));
        command.env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
        command
    }

    /// Starts it and waits until it takes commands. Returns its line, which tells how many tunnels its policy has.
    ///
    /// # Errors
    /// Where it does not start: what it printed, and the end of its log.
    pub fn start(&mut self, space: &Namespace) -> Result<String, String> {
        self.start_as(space, self.command())
    }

    /// The same by another command.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_as(&mut self, space: &Namespace, command: Command) -> Result<String, String> {
        let line = self.spawn(space, command)?;
        // It prints the line once it listens at the socket that the line names.
        if line.starts_with("ready: ") && line.contains(", control socket ") {
            return Ok(line);
        }
        Err(format!("{} is not ready but {line:?}\n{}", self.name, self.last_words()))
    }

    /// Runs a command as the daemon, waits for its first line, and returns it.
    ///
    /// # Errors
    /// Where the system cannot start it.
    pub fn spawn(&mut self, space: &Namespace, command: Command) -> Result<String, String> {
        let mut printing = Printing::start_with_log(space, command, &self.path("log"))?;
        let line = printing.next_line();
        self.process = Some(printing.into_process());
        Ok(line)
    }

    /// Its process.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("it runs")
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process().signal(signal);
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.take().expect("it runs").wait()
    }

    /// Ends it as a crash or a power cut would, without a Delete.
    pub fn crash(&mut self) {
        self.signal(Signal::SIGKILL);
        assert!(!self.wait().success());
    }

    /// Ends it as a service manager would: its ports and the network are free.
    pub fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        assert!(status.success(), "{}: {status}", self.name);
    }

    /// All that it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The end of its log, for a message.
    pub fn last_words(&self) -> String {
        format!("---- log of {}\n{}", self.name, last_lines(&self.log(), LAST))
    }

    /// A `vpnctl` for it, without arguments.
    pub fn vpnctl(&self) -> Command {
        let mut command = Command::new(vpnctl());
        command.arg("--control").arg(self.path("control.sock"));
        command
    }

    /// Runs `vpnctl` for it.
    pub fn ctl(&self, arguments: &[&str]) -> Output {
        self.vpnctl().args(arguments).output().expect("vpnctl is built")
    }

    /// The standard output of a `vpnctl` that succeeds.
    ///
    /// # Errors
    /// Where it fails: all that it printed.
    pub fn try_ctl(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.ctl(arguments);
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        match output.status.success() {
            true => Ok(stdout),
            false => Err(format!(
                "{}: vpnctl {}: {}\n{stdout}{stderr}",
                self.name,
                arguments.join(" "),
                output.status
            )),
        }
    }

    /// The same of a command that must succeed.
    ///
    /// # Panics
    /// Where it fails.
    pub fn ctl_ok(&self, arguments: &[&str]) -> String {
        self.try_ctl(arguments).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- log of {}\n{}", self.name, self.log());
        }
    }
}

/// Writes a file that only its owner may read.
///
/// # Panics
/// Where it cannot be written.
pub fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).expect("writable");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("ours");
}
