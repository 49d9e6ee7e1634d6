//! A strongSwan whose packets the kernel protects.

use crate::peer::Peer;
use std::fs;
use testkit::space::Space;
use testkit::strongswan;
use testkit::until;

/// Name of the connection and of its child.
pub const NAME: &str = "net";

/// A running charon; dropping it kills it.
pub struct Charon {
    /// Dropped before its host and its files.
    charon: strongswan::Charon,
    space: Space,
    _directory: tempfile::TempDir,
}

impl Charon {
    /// Starts it in a namespace with this swanctl.conf.
    pub fn start(space: Space, connections: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let log = "default = 1\n      ike = 2\n      knl = 2\n      flush_line = yes";
        strongswan::write_settings(directory.path(), strongswan::KERNEL, "", log)
            .expect("writable");
        fs::write(directory.path().join("swanctl.conf"), connections).expect("writable");
        let mut charon = strongswan::Charon::new(directory.path());
        charon.start(&space.0).expect("charon is installed");
        Self { charon, space, _directory: directory }
    }

    /// The output of a command of `swanctl`, which must succeed.
    pub fn swanctl(&self, arguments: &[&str]) -> String {
        let output = self.charon.swanctl(arguments);
        output.unwrap_or_else(|said| panic!("swanctl {arguments:?}: {said}"))
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
            eprintln!("{}", self.space.ip("-s xfrm state"));
        }
    }
}
