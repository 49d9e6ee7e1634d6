//! A gateway: a namespace, its files, and the `vpnd` in it, commanded with `vpnctl` as an operator would.

use crate::programs::{vpnctl, vpnd};
use crate::space::Space;
use crate::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

/// A gateway; its daemon runs between [`Gateway::start`] and [`Gateway::wait`]. Where a test fails, its log is printed.
pub struct Gateway {
    /// Its name in messages.
    pub name: &'static str,
    /// The host it runs on.
    pub space: Space,
    /// The environment of its daemon, beside that of this process.
    pub environment: Vec<(&'static str, OsString)>,
    directory: tempfile::TempDir,
    process: Option<Child>,
    /// The daemon runs its policy store.
    stored: bool,
}

/// Lines of `[ike]`: a lost message is soon sent again, and a peer that is slow on a busy host is not given up (two
/// minutes).
pub const PATIENT: &str = "retransmit_after = \"500ms\"\nretransmissions = 8\n";

/// Lines of `[ike]`: a peer that does not answer is given up after six seconds. For tests in which a peer dies.
pub const GIVES_UP: &str = "retransmit_after = \"1s\"\nretransmissions = 2\n";

impl Gateway {
    /// One without a daemon yet; `ike` and `esp` are lines of those sections of its configuration.
    pub fn new(name: &'static str, policy: &str, ike: &str, esp: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let space = Space::new(name);
        let gateway =
            Self { name, space, environment: Vec::new(), directory, process: None, stored: false };
        gateway.write_policy(policy);
        let state = gateway.path("state");
        let text = format!("[ike]\n{ike}\n[esp]\nstate_dir = {state:?}\n{esp}\n");
        fs::write(gateway.path("vpnd.toml"), text).expect("writable");
        gateway
    }

    /// Two on one wire, `192.0.2.` with these last numbers.
    pub fn pair(policies: &[String; 2], numbers: [u8; 2], ike: &str) -> [Self; 2] {
        let [left, right] = [("left", &policies[0]), ("right", &policies[1])]
            .map(|(name, policy)| Self::new(name, policy, ike, ""));
        let addresses = numbers.map(|number| format!("192.0.2.{number}/24"));
        Space::connect(
            (&left.space, "wire", &[&addresses[0]]),
            (&right.space, "wire", &[&addresses[1]]),
        );
        [left, right]
    }

    /// A file of its own.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes its policy, which nobody else may read.
    pub fn write_policy(&self, text: &str) {
        let path = self.path("policy.xml");
        fs::write(&path, text).expect("writable");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
    }

    /// Appends text to the configuration.
    pub fn configure(&self, text: &str) {
        let mut file = File::options().append(true).open(self.path("vpnd.toml")).expect("there");
        file.write_all(text.as_bytes()).expect("writable");
    }

    /// Has later daemons run a policy store, which is empty, instead of the policy file.
    pub fn use_store(&mut self) {
        self.configure(&format!("[policy]\ndirectory = {:?}\n", self.path("store")));
        self.stored = true;
    }

    /// A `vpnd start` of this gateway that does not run yet.
    pub fn command(&self) -> Command {
        let mut command = Command::new(vpnd());
        command.args(["start", "--exit-with-parent", "--log-format", "json"]);
        if !self.stored {
            command.arg("--policy").arg(self.path("policy.xml"));
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

    /// A command of `vpnd` with this gateway's configuration, beside its daemon.
    pub fn vpnd_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(vpnd());
        command.args(arguments).arg("--config").arg(self.path("vpnd.toml"));
        command.env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
        command
    }

    /// Runs such a command to its end.
    pub fn vpnd(&self, arguments: &[&str]) -> Output {
        let mut command = self.vpnd_command(arguments);
        self.space.run(move || command.output()).expect("vpnd is built")
    }

    /// Starts the daemon and waits for its one line.
    pub fn start(&mut self) {
        let command = self.command();
        self.start_as(command);
    }

    /// The same by another command.
    pub fn start_as(&mut self, command: Command) {
        let line = self.spawn(command);
        assert!(
            line.starts_with("ready: ") && line.contains(", control socket "),
            "{line:?}\n{}",
            self.log()
        );
    }

    /// Starts the daemon, which may fail. Returns `true` if it runs.
    pub fn try_start(&mut self) -> bool {
        let runs = self.spawn(self.command()).starts_with("ready: ");
        if !runs {
            assert!(!self.wait().success(), "it has not started");
        }
        runs
    }

    /// Runs a command as the daemon, waits for its first line, and returns it.
    pub fn spawn(&mut self, mut command: Command) -> String {
        let log = File::options().create(true).append(true).open(self.path("log"));
        command.stdout(Stdio::piped()).stderr(log.expect("writable"));
        let mut process = self.space.run(move || command.spawn()).expect("vpnd is built");
        let output = process.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("text");
        self.process = Some(process);
        line
    }

    /// Sends the daemon a signal.
    pub fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("it runs");
        kill(Pid::from_raw(i32::try_from(process.id()).expect("a process")), signal).expect("ours");
    }

    /// Octets of memory that the daemon has now, and the most it ever had since [`Gateway::forget_peak`].
    pub fn memory(&self) -> [u64; 2] {
        let status = fs::read_to_string(self.proc("status")).expect("it runs");
        ["VmRSS:", "VmHWM:"].map(|field| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let number = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
            number.expect("a number of kilobytes") << 10
        })
    }

    /// How often its threads have gone to sleep so far: a thread that wakes up does so again.
    pub fn sleeps(&self) -> u64 {
        let threads = fs::read_dir(self.proc("task")).expect("it runs");
        let sleeps = |thread: PathBuf| {
            // A thread may end meanwhile.
            let status = fs::read_to_string(thread.join("status")).ok()?;
            let count = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
            count.and_then(|count| count.trim().parse::<u64>().ok())
        };
        threads.flatten().filter_map(|thread| sleeps(thread.path())).sum()
    }

    /// Begins again to look for the most memory.
    pub fn forget_peak(&self) {
        // proc_pid_clear_refs(5)
        fs::write(self.proc("clear_refs"), "5").expect("it runs, and we are root");
    }

    fn proc(&self, file: &str) -> PathBuf {
        let process = self.process.as_ref().expect("it runs");
        PathBuf::from(format!("/proc/{}/{file}", process.id()))
    }

    /// Waits until the daemon has ended.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.take().expect("it runs").wait().expect("a child of ours")
    }

    /// Ends the daemon as a crash would.
    pub fn crash(&mut self) {
        self.signal(Signal::SIGKILL);
        assert!(!self.wait().success());
    }

    /// Ends the daemon as a service manager would.
    pub fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        assert!(status.success(), "{}: {status}", self.name);
    }

    /// All that the daemon has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits until the log has a line with all of `words`, and returns it.
    pub fn await_log(&self, words: &[&str]) -> String {
        let fits = |line: &&str| words.iter().all(|word| line.contains(word));
        let look = || self.log().lines().find(fits).map(str::to_owned);
        until(&format!("{words:?} in the log of {}", self.name), look, String::new)
    }

    /// Waits until `vpnctl list` shows these phase 2 tunnels and no others.
    pub fn await_list(&self, children: &[&str]) {
        let look = || {
            let list = self.json(&["list", "--json"]);
            let up = list.as_array().into_iter().flatten().flat_map(|t| t["children"].as_array());
            let up = up.flatten().filter(|c| c["state"] == "established");
            let mut names: Vec<&str> = up.filter_map(|c| c["name"].as_str()).collect();
            names.sort_unstable();
            (names == children).then_some(())
        };
        until(&format!("{children:?} in the list of {}", self.name), look, || {
            self.ctl_ok(&["list", "--all"])
        });
    }

    /// Runs `vpnctl` for the daemon.
    pub fn ctl(&self, arguments: &[&str]) -> Output {
        Command::new(vpnctl())
            .arg("--control")
            .arg(self.path("control.sock"))
            .args(arguments)
            .output()
            .expect("vpnctl is built")
    }

    /// A `vpnctl` among the packets of the gateway: whether it succeeded, and all that it printed.
    pub fn ctl_inside(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(vpnctl());
        command.arg("--control").arg(self.path("control.sock")).args(arguments);
        let output = self.space.run(move || command.output()).expect("vpnctl is built");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).expect("text"))
    }

    /// Standard output of a command that must succeed.
    pub fn ctl_ok(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert!(output.status.success(), "{}: {arguments:?}: {output:?}", self.name);
        String::from_utf8(output.stdout).expect("text")
    }

    /// Output of a command that must fail with this status.
    pub fn ctl_fails(&self, arguments: &[&str], status: i32) -> String {
        let output = self.ctl(arguments);
        let text = String::from_utf8([output.stderr, output.stdout].concat()).expect("text");
        assert_eq!(output.status.code(), Some(status), "{}: {arguments:?}: {text}", self.name);
        text
    }

    /// The output of a command, which is JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ctl_ok(arguments)).expect("JSON")
    }

    /// The `child_sa` of a phase 2 tunnel.
    pub fn child_sa(&self, name: &str) -> Value {
        self.json(&["status", name, "--json"])["children"][0]["child_sa"].clone()
    }

    /// The counters of discarded packets, without those that are 0.
    pub fn discards(&self) -> Vec<(String, u64)> {
        let counters = self.json(&["counters", "--json"]);
        let counters = counters.as_object().expect("an object").iter();
        let count = |v: &Value| v.as_u64().expect("a number");
        counters.map(|(k, v)| (k.clone(), count(v))).filter(|(_, n)| *n > 0).collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- log of {}\n{}", self.name, self.log());
        }
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
