//! The ledger of sequence numbers: a line for each key with the last number that may have been used with it. It knows
//! keys by their fingerprints only. One process at a time has it, from before it reads the file until the plane has no
//! SA any more: two that had read the same numbers would use them twice, and each would write over those of the other.

use super::ManualSa;
use crypto::asymmetric::{Hash, digest};
use host::lock::FileLock;
use host::replace::replace;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Numbers below it may have been used.
#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    used: BTreeMap<Fingerprint, u64>,
    _lock: FileLock,
}

/// Tells one key from another and says nothing of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fingerprint(String);

/// The ledger cannot be kept.
#[derive(thiserror::Error)]
pub enum LedgerError {
    /// It cannot be read or written.
    #[error(
        "cannot {what} {}, where vpnd remembers which sequence numbers manual SAs have used: {source}; without it a restart \
         would use them again with the same keys",
        .path.display()
    )]
    System {
        /// The action that the system refused, as an infinitive.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another process has it.
    #[error(
        "another process has {}, where vpnd remembers which sequence numbers manual SAs have used, likely a running \
         vpnd; stop it, or if it has none of these keys, name another file as sequences in [esp]",
        .0.display()
    )]
    InUse(PathBuf),
    /// It is none.
    #[error(
        "{}:{line}: not a fingerprint and a number; the file is damaged: give the manual SAs new keys, and delete it",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its line.
        line: usize,
    },
}

policy::readable_debug!(LedgerError);

impl Fingerprint {
    /// Of an SA's key, whatever the SA is called.
    pub fn of(sa: &ManualSa) -> Self {
        let octets = Zeroizing::new([b"vpnd: key of a manual SA", sa.key.expose()].concat());
        let hash = digest(Hash::Sha256, &octets);
        Self(hash.iter().map(|octet| format!("{octet:02x}")).collect())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Ledger {
    /// Takes the file for this process alone, until the value is dropped, and reads it, where there is one.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(system("make the directory of", path))?;
        }
        // The file itself is replaced, and a lock on it with it.
        let mut beside = path.as_os_str().to_owned();
        beside.push(".lock");
        let beside = PathBuf::from(beside);
        let lock = FileLock::take(&beside).map_err(system("lock", &beside))?;
        let lock = lock.ok_or_else(|| LedgerError::InUse(path.to_owned()))?;
        Ok(Self { path: path.to_owned(), used: Self::look(path)?, _lock: lock })
    }

    /// Reads the file, whoever has it.
    pub fn look(path: &Path) -> Result<BTreeMap<Fingerprint, u64>, LedgerError> {
        let path = path.to_owned();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(LedgerError::System { what: "read", path, source }),
        };
        let mut used = BTreeMap::new();
        for (line, number) in text.lines().zip(1..) {
            let Some((fingerprint, last)) = entry(line) else {
                return Err(LedgerError::Damaged { path, line: number });
            };
            used.insert(fingerprint, last);
        }
        Ok(used)
    }

    /// The last number that may have been used with a key; 0: none.
    pub fn used(&self, key: &Fingerprint) -> u64 {
        self.used.get(key).copied().unwrap_or(0)
    }

    /// Notes numbers, and returns once they are on the disk. Keys that nobody has any more stay: they may come back.
    pub fn write(
        &mut self,
        entries: impl Iterator<Item = (Fingerprint, u64)>,
    ) -> Result<(), LedgerError> {
        let mut used = self.used.clone();
        used.extend(entries);
        let text: String = used.iter().map(|(key, last)| format!("{key} {last}\n")).collect();
        replace(&self.path, text.as_bytes())
            .map_err(|(step, source)| system(step.what(), &self.path)(source))?;
        self.used = used;
        Ok(())
    }
}

fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LedgerError {
    let path = path.to_owned();
    move |source| LedgerError::System { what, path, source }
}

/// A line of the file: the fingerprint of an SA and the last number that it may have used.
fn entry(line: &str) -> Option<(Fingerprint, u64)> {
    let (fingerprint, number) = line.split_once(' ')?;
    let whole = fingerprint.len() == 64 && fingerprint.bytes().all(|b| b.is_ascii_hexdigit());
    Some((Fingerprint(whole.then(|| fingerprint.to_owned())?), number.parse().ok()?))
}
