//! A strongSwan in its namespace, commanded by `swanctl`.

use crate::setup::{CONNECTION, Setup};
use crate::token;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use testkit::space::Space;
use testkit::{eventually, strongswan};

/// A running charon; dropping it kills it.
pub struct Charon {
    /// Dropped before its namespace.
    charon: strongswan::Charon,
    pub space: Space,
}

impl Charon {
    /// Starts it and loads its configuration.
    pub fn start(space: Space, directory: PathBuf, setup: &Setup) -> Result<Self, String> {
        let error = |error: std::io::Error| format!("cannot start charon: {error}");
        let log = "default = 1\n      ike = 2\n      cfg = 2\n      flush_line = yes";
        let (mut plugins, mut lines) = (strongswan::USERSPACE.to_owned(), setup.charon.to_owned());
        if setup.has_token() {
            plugins = format!("{plugins} {}", token::PLUGIN);
            lines = format!("{lines}\n  {}", token::CHARON);
        }
        strongswan::write_settings(&directory, &plugins, &lines, log)?;
        fs::write(directory.join("swanctl.conf"), setup.swanctl()).map_err(error)?;
        let (variable, file) = token::environment(&directory);
        let mut charon = strongswan::Charon::new(directory)
            .newest(setup.newest)
            .with_environment(variable, file);
        charon.start(&space.0)?;
        Ok(Self { charon, space })
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

    /// Starts it again after [`strongswan::Charon::crash`].
    pub fn restart(&mut self) {
        self.charon.start(&self.space.0).expect("it started before");
    }
}

impl Deref for Charon {
    type Target = strongswan::Charon;

    fn deref(&self) -> &strongswan::Charon {
        &self.charon
    }
}

impl DerefMut for Charon {
    fn deref_mut(&mut self) -> &mut strongswan::Charon {
        &mut self.charon
    }
}
