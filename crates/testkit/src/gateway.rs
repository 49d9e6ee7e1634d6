//! A gateway: a host in a network namespace, and the `vpnd` on it, commanded with `vpnctl` as an operator would.

use crate::daemon::Daemon;
use crate::space::Space;
use crate::until;
use serde_json::Value;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::{Command, Output};

/// A gateway; its daemon runs between [`Gateway::start`] and [`Daemon::wait`].
pub struct Gateway {
    /// Its name in messages.
    pub name: &'static str,
    /// Dropped before its host and its files.
    daemon: Daemon,
    /// The host it runs on.
    pub space: Space,
    _directory: tempfile::TempDir,
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
        let daemon = Daemon::new(name, directory.path())
            .with_arguments(&["--log-format", "json"])
            .with_policy(policy)
            .with_config(ike, esp);
        Self { name, daemon, space: Space::new(name), _directory: directory }
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

    /// Runs a command of `vpnd` with this gateway's configuration to its end, beside its daemon.
    pub fn vpnd(&self, arguments: &[&str]) -> Output {
        let mut command = self.vpnd_command(arguments);
        self.space.run(move || command.output()).expect("vpnd is built")
    }

    /// Starts the daemon and waits until it takes commands.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start(&mut self) {
        self.start_as(self.command());
    }

    /// The same by another command.
    pub fn start_as(&mut self, command: Command) {
        let started = self.daemon.start_as(&self.space.0, command);
        started.map(drop).unwrap_or_else(|error| panic!("{error}"));
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
    pub fn spawn(&mut self, command: Command) -> String {
        self.daemon.spawn(&self.space.0, command).expect("vpnd is built")
    }

    /// Ends the daemon as a service manager would.
    pub fn stop(&mut self) {
        self.daemon.stop();
    }

    /// Ends the daemon as a crash would.
    pub fn crash(&mut self) {
        self.daemon.crash();
    }

    /// Octets of memory that the daemon has now, and the most it ever had since [`Gateway::forget_peak`].
    pub fn memory(&self) -> [u64; 2] {
        ["VmRSS", "VmHWM"].map(|field| self.process().kilobytes(field).expect("it runs") << 10)
    }

    /// How often its threads have gone to sleep so far: a thread that wakes up does so again.
    pub fn sleeps(&self) -> u64 {
        let threads = fs::read_dir(self.process().proc("task")).expect("it runs");
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
        fs::write(self.process().proc("clear_refs"), "5").expect("it runs, and we are root");
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

    /// A `vpnctl` among the packets of the gateway: whether it succeeded, and all that it printed.
    pub fn ctl_inside(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = self.vpnctl();
        command.args(arguments);
        let output = self.space.run(move || command.output()).expect("vpnctl is built");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).expect("text"))
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

impl Deref for Gateway {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

impl DerefMut for Gateway {
    fn deref_mut(&mut self) -> &mut Daemon {
        &mut self.daemon
    }
}
