//! AIX's tunables of the crypto facility (`acfo`), as far as they mean something here, and the file of those set for
//! good.

use crate::config::Crypto;
use crate::kept;
use ::crypto::CryptoProviders;
use control::protocol::Tunable;
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use userspace::CryptoEngineWork;
use userspace::workers::{SettingsError, Workers};

/// Their names, in AIX's order.
pub const NAMES: [&str; 3] = ["nx_enabled", "min_sz", "in_core_enabled"];

const HEADER: &str = "\
# Written by vpnd for \"vpnctl crypto set … --persist\". What stands here goes before the section [crypto] of vpnd.toml.
";

/// The tunables of a running daemon.
pub struct Tunables {
    facility: Arc<CryptoProviders>,
    /// The threads of the data plane, a part of which is the engine.
    engine: Option<Workers>,
    defaults: Values,
    file: PathBuf,
    started: Instant,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct Values {
    nx_enabled: bool,
    min_sz: u64,
    in_core_enabled: bool,
}

struct State {
    min_sz: u64,
    persistent: Persistent,
}

/// The file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Persistent {
    nx_enabled: Option<u64>,
    min_sz: Option<u64>,
    in_core_enabled: Option<u64>,
}

/// A tunable stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum TunableError {
    /// It has another name.
    #[error("no tunable {0:?}; there are {names}", names = NAMES.join(", "))]
    Unknown(String),
    /// It takes other values.
    #[error("{name} is {rule}, not {value}")]
    Value {
        /// The tunable.
        name: &'static str,
        /// The values that are allowed.
        rule: &'static str,
        /// The value that was refused.
        value: u64,
    },
    /// The machine lacks what it is for.
    #[error("{name} stays 0: {why}")]
    Absent {
        /// The tunable.
        name: &'static str,
        /// The missing support.
        why: &'static str,
    },
    /// The system refused it.
    #[error("{name} stays as it is: {source}")]
    System {
        /// The tunable.
        name: &'static str,
        /// The reason.
        source: SettingsError,
    },
    /// It is in force, but not for good.
    #[error(
        "{} cannot be written, so that this is forgotten when vpnd ends: {source}; mend that, or name another file in vpnd.toml: [crypto] tunables",
        .path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Tunables {
    /// Puts the configuration in force, and before it the values that were set for good.
    ///
    /// Errors of those values come back as text: a file that cannot be read keeps no daemon from starting.
    pub fn start(
        config: &Crypto,
        facility: Arc<CryptoProviders>,
        engine: Option<Workers>,
    ) -> (Self, Vec<String>) {
        let Crypto { nx_enabled, min_sz, in_core_enabled, .. } = *config;
        let defaults = Values { nx_enabled, min_sz, in_core_enabled };
        let mut remarks = Vec::new();
        let persistent = kept::read(&config.tunables).unwrap_or_else(|why| {
            let path = config.tunables.display();
            remarks.push(format!("the tunables in {path} are ignored: {why}"));
            Persistent::default()
        });
        let state = Mutex::new(State { min_sz: defaults.min_sz, persistent });
        let tunables = Self {
            facility,
            engine,
            defaults,
            file: config.tunables.clone(),
            started: Instant::now(),
            state,
        };
        for (name, wanted) in NAMES.into_iter().zip(persistent.values()) {
            let wanted = wanted.or_else(|| (name != NAMES[1]).then_some(tunables.default(name)));
            if let Some(Err(error)) = wanted.map(|value| tunables.apply(name, value)) {
                // Software is what such a CPU does anyway.
                if !matches!(error, TunableError::Absent { name: "in_core_enabled", .. }) {
                    remarks.push(format!("{}: {error}", config.tunables.display()));
                }
            }
        }
        if !tunables.facility.in_core() && tunables.facility.cpu().accelerates() {
            remarks.push(OFF.to_owned());
        }
        (tunables, remarks)
    }

    /// The facility behind them.
    pub fn facility(&self) -> &CryptoProviders {
        &self.facility
    }

    /// For how long they have been in force.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// The file of those set for good.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// All of them.
    pub fn list(&self) -> Vec<Tunable> {
        let persistent = self.state().persistent.values();
        let tunables = NAMES.into_iter().zip(persistent).map(|(name, persistent)| Tunable {
            name: name.to_owned(),
            value: self.value(name),
            default: self.default(name),
            persistent,
            note: self.note(name).to_owned(),
        });
        tunables.collect()
    }

    /// Sets one, or with no value brings it back to its default; `persist` does so for good. Returns how many SAs have
    /// changed their cipher.
    ///
    /// # Errors
    /// Where it cannot be so; only [`TunableError::File`] leaves something changed.
    pub fn set(
        &self,
        name: &str,
        value: Option<u64>,
        persist: bool,
    ) -> Result<usize, TunableError> {
        let Some(known) = NAMES.into_iter().find(|known| *known == name) else {
            return Err(TunableError::Unknown(name.to_owned()));
        };
        let changed = self.apply(known, value.unwrap_or_else(|| self.default(known)))?;
        if persist {
            let mut state = self.state();
            let mut persistent = state.persistent;
            *persistent.value_mut(known) = value;
            replace(&self.file, &persistent)
                .map_err(|source| TunableError::File { path: self.file.clone(), source })?;
            state.persistent = persistent;
        }
        Ok(changed)
    }

    fn apply(&self, name: &'static str, value: u64) -> Result<usize, TunableError> {
        let rule = "0 or 1";
        match (name, value) {
            ("min_sz", value) => {
                if value > u64::from(u32::MAX) {
                    let rule = "a number of octets below 4294967296";
                    return Err(TunableError::Value { name, rule, value });
                }
                let mut state = self.state();
                if let Some(engine) = self.engine.as_ref().filter(|engine| engine.engine_is_on()) {
                    let changed = engine.set_engine(Some(value));
                    changed.map_err(|source| TunableError::System { name, source })?;
                }
                state.min_sz = value;
                Ok(0)
            }
            ("nx_enabled", 0 | 1) => {
                let from = (value == 1).then(|| self.state().min_sz);
                match &self.engine {
                    Some(engine) => {
                        let changed = engine.set_engine(from);
                        changed.map_err(|source| TunableError::System { name, source })?;
                    }
                    None if value == 1 => {
                        let why = "this daemon has no threads that carry packets";
                        return Err(TunableError::Absent { name, why });
                    }
                    None => {}
                }
                Ok(0)
            }
            ("in_core_enabled", 0 | 1) => self.facility.set_in_core(value == 1).map_err(|_| {
                let why = "this CPU has no instructions for cryptography that vpnd could use";
                TunableError::Absent { name, why }
            }),
            (name, value) => Err(TunableError::Value { name, rule, value }),
        }
    }

    fn value(&self, name: &str) -> u64 {
        match name {
            "min_sz" => self.state().min_sz,
            "in_core_enabled" => self.facility.in_core().into(),
            _ => self.engine_is_on().into(),
        }
    }

    fn default(&self, name: &str) -> u64 {
        match name {
            "min_sz" => self.defaults.min_sz,
            // An ability that the CPU lacks is not the default.
            "in_core_enabled" => {
                (self.defaults.in_core_enabled && self.facility.cpu().accelerates()).into()
            }
            _ => (self.defaults.nx_enabled && self.engine.is_some()).into(),
        }
    }

    fn note(&self, name: &str) -> &'static str {
        match name {
            "min_sz" if self.engine_is_on() => {
                "octets of the smallest request that goes to the engine of threads"
            }
            "min_sz" => "no effect while nx_enabled is 0",
            "in_core_enabled" if self.facility.in_core() => {
                "packets are protected with the CPU's instructions for cryptography"
            }
            "in_core_enabled" if self.facility.cpu().accelerates() => OFF,
            "in_core_enabled" => {
                "this CPU has no instructions for cryptography that vpnd could use"
            }
            _ if self.engine_is_on() => {
                "requests of min_sz octets and above go to an engine of threads outside of the one that reads"
            }
            _ => "each worker seals and opens its packets itself",
        }
    }

    /// The work of the engine since the start.
    pub fn engine_work(&self) -> CryptoEngineWork {
        self.engine.as_ref().map(Workers::engine_work).unwrap_or_default()
    }

    fn engine_is_on(&self) -> bool {
        self.engine.as_ref().is_some_and(Workers::engine_is_on)
    }

    /// A thread that panicked left whole values behind.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const OFF: &str = "packets are protected in software though this CPU has instructions for cryptography, because in_core_enabled is 0; vpnctl crypto set in_core_enabled=1 changes that";

impl Default for Tunables {
    /// Those of the default configuration, for a facility of their own and without a file.
    fn default() -> Self {
        let config = Crypto { tunables: PathBuf::new(), ..Crypto::default() };
        Self::start(&config, Arc::default(), None).0
    }
}

impl Persistent {
    fn values(self) -> [Option<u64>; 3] {
        [self.nx_enabled, self.min_sz, self.in_core_enabled]
    }

    fn value_mut(&mut self, name: &str) -> &mut Option<u64> {
        match name {
            "min_sz" => &mut self.min_sz,
            "in_core_enabled" => &mut self.in_core_enabled,
            _ => &mut self.nx_enabled,
        }
    }
}

fn replace(path: &Path, persistent: &Persistent) -> io::Result<()> {
    let mut text = HEADER.to_owned();
    for (name, value) in NAMES.into_iter().zip(persistent.values()) {
        if let Some(value) = value {
            text.push_str(&format!("{name} = {value}\n"));
        }
    }
    kept::replace(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::crypto::{Choice, Cpu};
    use std::fs;

    fn facility(instructions: &[&'static str]) -> Arc<CryptoProviders> {
        Arc::new(CryptoProviders::on(Cpu::with(instructions), Choice::default()))
    }

    const FULL: &[&str] = &["AES-NI", "PCLMULQDQ", "ARMv8 AES", "ARMv8 PMULL"];

    fn start(directory: &Path, instructions: &[&'static str]) -> (Tunables, Vec<String>) {
        let config = Crypto { tunables: directory.join("state/crypto.toml"), ..Crypto::default() };
        Tunables::start(&config, facility(instructions), Some(Workers::default()))
    }

    fn values(tunables: &Tunables) -> Vec<u64> {
        tunables.list().iter().map(|tunable| tunable.value).collect()
    }

    #[test]
    fn a_persistent_tunable_survives_a_restart() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (first, remarks) = start(directory.path(), FULL);
        assert_eq!((values(&first), remarks.len()), (vec![0, 1024, 1], 0));
        first.set("min_sz", Some(64), false).expect("a number of octets");
        first.set("in_core_enabled", Some(0), true).expect("off is always possible");
        assert_eq!(values(&first), [0, 64, 0]);

        let (second, remarks) = start(directory.path(), FULL);
        assert_eq!(values(&second), [0, 1024, 0]);
        assert_eq!(remarks, [OFF]);
        assert_eq!(second.list()[2].persistent, Some(0));
        second.set("in_core_enabled", None, true).expect("the default is possible");

        let (third, remarks) = start(directory.path(), FULL);
        assert_eq!((values(&third), remarks.len()), (vec![0, 1024, 1], 0));
    }

    #[test]
    fn an_impossible_tunable_is_refused_with_the_reason() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (tunables, remarks) = start(directory.path(), &[]);
        assert_eq!((values(&tunables), remarks.len()), (vec![0, 1024, 0], 0));
        for (name, value, expected) in [
            ("in_core_enabled", 1, "in_core_enabled stays 0: this CPU has no instructions"),
            ("in_core_enabled", 2, "in_core_enabled is 0 or 1, not 2"),
            ("nx_enabled", 2, "nx_enabled is 0 or 1, not 2"),
            ("min_sz", 1 << 32, "min_sz is a number of octets below 4294967296"),
            ("in_core", 1, "no tunable \"in_core\"; there are nx_enabled, min_sz, in_core_enabled"),
        ] {
            let error = tunables.set(name, Some(value), true).expect_err("refused").to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(!tunables.file().exists());
    }

    #[test]
    fn the_engine_takes_requests_from_the_size_that_is_set() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (tunables, _) = start(directory.path(), FULL);
        let notes = || tunables.list().into_iter().map(|t| t.note).collect::<Vec<_>>();
        assert!(notes()[1].starts_with("no effect"), "{:?}", notes());
        tunables.set("nx_enabled", Some(1), true).expect("it has threads");
        tunables.set("min_sz", Some(4096), true).expect("a number of octets");
        assert_eq!(values(&tunables), [1, 4096, 1]);
        assert!(notes()[1].starts_with("octets of the smallest"), "{:?}", notes());
        let (again, remarks) = start(directory.path(), FULL);
        assert_eq!((values(&again), remarks.len()), (vec![1, 4096, 1], 0));
        again.set("nx_enabled", None, true).expect("off is always possible");
        assert_eq!(values(&again)[0], 0);
        let config = Crypto { tunables: directory.path().join("none"), ..Crypto::default() };
        let (without, _) = Tunables::start(&config, facility(FULL), None);
        let error = without.set("nx_enabled", Some(1), false).expect_err("no threads").to_string();
        assert!(error.starts_with("nx_enabled stays 0: this daemon has no threads"), "{error}");
    }

    #[test]
    fn a_broken_file_is_told_and_ignored() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(directory.path().join("state")).expect("writable");
        let file = directory.path().join("state/crypto.toml");
        for text in ["in_core_enabled = \"no\"", "in_core = 0"] {
            fs::write(&file, text).expect("writable");
            let (tunables, remarks) = start(directory.path(), FULL);
            assert_eq!(values(&tunables), [0, 1024, 1]);
            assert!(remarks.len() == 1 && remarks[0].contains("are ignored: "), "{remarks:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::write(directory.path().join("state"), "no directory").expect("writable");
        let (tunables, _) = start(directory.path(), FULL);
        let error = tunables.set("min_sz", Some(1), true).expect_err("no directory").to_string();
        assert!(error.contains("state/crypto.toml cannot be written"), "{error}");
        assert_eq!(values(&tunables)[1], 1);
    }
}
