//! A strongSwan whose packets the kernel protects.

use crate::peer::Peer;
use std::fs;
use std::process::Child;
use testkit::space::Space;
use testkit::strongswan;
use testkit::until;

/// Name of the connection and of its child.
pub const NAME: &str = "net";

/// A running charon; dropping it kills it.
pub struct Charon {
    space: Space,
    directory: tempfile::TempDir,
    process: Child,
}

impl Charon {
    /// Starts it in a namespace with this swanctl.conf.
    pub fn start(space: Space, connections: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let log = "default = 1\n      ike = 2\n      knl = 2\n      flush_line = yes";
        strongswan::write_settings(directory.path(), strongswan::KERNEL, "", log)
            .expect("writable");
        let file = directory.path().join("swanctl.conf");
        fs::write(&file, connections).expect("writable");
        let process = strongswan::spawn(&space.0, directory.path()).expect("charon is installed");
        let charon = Self { space, directory, process };
        let listens = || charon.try_swanctl(&["--stats"]).ok();
        until("charon to listen", listens, || charon.log());
        let loaded = charon.swanctl(&["--load-all", "--file", &file.to_string_lossy()]);
        assert!(loaded.contains("loaded connection"), "{loaded}");
        charon
    }

    /// The output of a command of `swanctl`, which must succeed.
    pub fn swanctl(&self, arguments: &[&str]) -> String {
        self.try_swanctl(arguments).unwrap_or_else(|said| panic!("swanctl {arguments:?}: {said}"))
    }

    fn try_swanctl(&self, arguments: &[&str]) -> Result<String, String> {
        strongswan::swanctl(self.directory.path(), arguments)
    }

    fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.directory.path().join(name)).unwrap_or_default();
        format!("{}{}", read("stderr"), read("log"))
    }
}

impl Peer for Charon {
    fn space(&self) -> &Space {
        &self.space
    }

    fn initiate(&self) {
        self.swanctl(&["--initiate", "--child", NAME, "--timeout", "240"]);
    }

    /// Child SAs that were replaced stay for some seconds, for packets on their way.
    fn await_one(&self) -> String {
        let one = || {
            let sas = self.swanctl(&["--list-sas"]);
            let states = ["INSTALLED,", "REKEYING,"].map(|state| sas.matches(state).count());
            (states == [1, 0]).then_some(sas)
        };
        until("one Child SA at strongSwan", one, || self.swanctl(&["--list-sas"]))
    }

    fn rekey_child(&self) {
        self.swanctl(&["--rekey", "--child", NAME]);
    }

    fn rekey_ike(&self) {
        self.swanctl(&["--rekey", "--ike", NAME]);
    }
}

impl Drop for Charon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(80)..].join("\n");
            eprintln!("---- log of charon\n{last}\n{}", self.space.ip("-s xfrm state"));
        }
        // Its namespace goes with it: there is nothing to be undone in order.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
