//! A strongSwan in its namespace, commanded by `swanctl`.

use crate::setup::{CONNECTION, Setup};
use crate::token;
use namespaces::isolation::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use testkit::eventually;
use testkit::strongswan;

/// A running charon; dropping it kills it.
pub struct Charon {
    pub space: Namespace,
    directory: PathBuf,
    newest: bool,
    process: Child,
}

fn spawn(space: &Namespace, directory: &Path, newest: bool) -> Result<Child, String> {
    match newest {
        true => strongswan::spawn_newest(space, directory),
        false => strongswan::spawn_with(space, directory, &[token::environment(directory)]),
    }
}

impl Charon {
    /// Starts it and loads its configuration.
    pub fn start(space: Namespace, directory: PathBuf, setup: &Setup) -> Result<Self, String> {
        let error = |error: std::io::Error| format!("cannot start charon: {error}");
        let log = "default = 1\n      ike = 2\n      cfg = 2\n      flush_line = yes";
        let (mut plugins, mut lines) = (strongswan::USERSPACE.to_owned(), setup.charon.to_owned());
        if setup.has_token() {
            plugins = format!("{plugins} {}", token::PLUGIN);
            lines = format!("{lines}\n  {}", token::CHARON);
        }
        strongswan::write_settings(&directory, &plugins, &lines, log)?;
        fs::write(directory.join("swanctl.conf"), setup.swanctl()).map_err(error)?;
        let newest = setup.newest;
        let process = spawn(&space, &directory, newest)?;
        let charon = Self { space, directory, newest, process };
        charon.load()?;
        Ok(charon)
    }

    /// Waits for its socket and loads connections and secrets.
    fn load(&self) -> Result<(), String> {
        let file = self.directory.join("swanctl.conf");
        let file = file.to_str().ok_or("the directory has a strange name")?;
        eventually("charon listens for swanctl", || {
            self.swanctl(&["--stats"]).is_ok().then_some(())
        });
        let loaded = self.swanctl(&["--load-all", "--file", file])?;
        match loaded.contains("loaded connection") {
            true => Ok(()),
            false => Err(format!("swanctl loaded no connection:\n{loaded}")),
        }
    }

    pub fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.directory.join(name)).unwrap_or_default();
        format!("{}{}", read("stderr"), read("log"))
    }

    /// Runs `swanctl`. Returns its output, also if it fails.
    pub fn swanctl(&self, arguments: &[&str]) -> Result<String, String> {
        strongswan::swanctl(&self.directory, arguments)
    }

    /// Starts the tunnel and waits until it is up or has failed.
    pub fn initiate(&self) -> Result<String, String> {
        self.swanctl(&["--initiate", "--child", CONNECTION, "--timeout", "240"])
    }

    /// Its SAs.
    pub fn sas(&self) -> String {
        self.swanctl(&["--list-sas"]).expect("charon answers")
    }

    /// Numbers of established IKE SAs and installed Child SAs.
    pub fn counts(&self) -> (usize, usize) {
        let sas = self.sas();
        (sas.matches(", ESTABLISHED, ").count(), sas.matches(", INSTALLED, ").count())
    }

    /// Waits until one IKE SA and one Child SA are up, and nothing else.
    pub fn wait_up(&self) {
        eventually("one IKE SA and one Child SA at strongSwan", || {
            (self.counts() == (1, 1)).then_some(())
        });
    }

    /// Waits until it has no SA.
    pub fn wait_down(&self) {
        eventually("no SA at strongSwan", || self.sas().trim().is_empty().then_some(()));
    }

    /// Datagrams that its socket had no room for.
    pub fn overflows(&self) -> usize {
        let read = || fs::read_to_string("/proc/thread-self/net/snmp");
        let text = self.space.run(read).expect("every kernel has it");
        let [names, numbers] = ["Udp: InDatagrams", "Udp: "].map(|start| {
            let line = text.lines().rfind(|line| line.starts_with(start)).expect("a line of UDP");
            line.split_whitespace().collect::<Vec<_>>()
        });
        let column = names.iter().position(|name| *name == "RcvbufErrors").expect("a column");
        numbers[column].parse().expect("a number")
    }

    /// Waits for words in the log.
    pub fn wait_log(&self, words: &str) {
        eventually(&format!("charon logs {words:?}"), || self.log().contains(words).then_some(()));
    }

    /// Ends it without a Delete, as a power cut would.
    pub fn crash(&mut self) {
        self.signal(Signal::SIGKILL);
        self.process.wait().expect("it is our child");
    }

    /// Stops or continues it.
    pub fn signal(&self, signal: Signal) {
        let process = i32::try_from(self.process.id()).expect("a process number");
        kill(Pid::from_raw(process), signal).expect("it is our child and not waited for");
    }

    /// Starts it again after [`Charon::crash`].
    pub fn restart(&mut self) {
        let process = spawn(&self.space, &self.directory, self.newest);
        self.process = process.expect("it started before");
        self.load().expect("it was loaded before");
    }
}

impl Drop for Charon {
    fn drop(&mut self) {
        // Its namespace goes with it: there is nothing to be undone in order.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
