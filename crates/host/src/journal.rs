//! The record of changes to the host. A change is recorded before it is made, so that it can be undone: at shutdown, or
//! at the next start after a crash.
//!
//! The record is a file per device and network namespace, `DEVICE.NAMESPACE.plane` in the directory of the daemon's
//! state. Its owner holds a lock on it for as long as it runs; a file whose lock can be had is left over from a process
//! that did not get to clean up.

use crate::lock::open_locked;
use crate::netlink::{Family, MarkRule, Netlink};
use crate::nft;
use crate::system::{SystemError, refused};
use rustix::fs::{FlockOperation, flock};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The directory of the settings that the plane changes.
const SETTINGS: &str = "/proc/sys/net/";

/// Something that was changed on the host. A new kind needs its line in the file (`Display`, `parse`) and its `undo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Routes in a table.
    Table(u32),
    /// The rules of both families that lead to it.
    Rules {
        /// Packets with this mark skip the rules.
        mark: u32,
        /// The table they lead to.
        table: u32,
        /// Their place among the rules.
        priority: u32,
    },
    /// A kernel setting.
    Sysctl {
        /// Its file below `/proc/sys/net`.
        path: PathBuf,
        /// The value it had.
        previous: String,
        /// The value it was given.
        set: String,
    },
    /// The table of nftables that filters; it stays after a crash until another takes its place.
    Filter(String),
    /// Routing rules of this priority, which lead some traffic past the tunnels.
    Exceptions(u32),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => write!(f, "table {table}"),
            Self::Rules { mark, table, priority } => write!(f, "rules {mark} {table} {priority}"),
            Self::Sysctl { path, previous, set } => {
                write!(f, "sysctl {previous} {set} {}", path.display())
            }
            Self::Filter(name) => write!(f, "filter {name}"),
            Self::Exceptions(priority) => write!(f, "exceptions {priority}"),
        }
    }
}

impl Change {
    fn parse(line: &str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "table" => Some(Self::Table(rest.parse().ok()?)),
            "filter" => Some(Self::Filter(rest.to_owned())),
            "exceptions" => Some(Self::Exceptions(rest.parse().ok()?)),
            "rules" => {
                let mut numbers = rest.split(' ').map(|number| number.parse().ok());
                let (mark, table) = (numbers.next()??, numbers.next()??);
                Some(Self::Rules { mark, table, priority: numbers.next()?? })
            }
            "sysctl" => {
                let mut parts = rest.splitn(3, ' ');
                let (previous, set, path) = (parts.next()?, parts.next()?, parts.next()?);
                // Root undoes the changes: a record can name settings of the network and no other file.
                let setting = path.starts_with(SETTINGS) && !path.split('/').any(|p| p == "..");
                setting.then(|| Self::Sysctl {
                    previous: previous.to_owned(),
                    set: set.to_owned(),
                    path: path.into(),
                })
            }
            _ => None,
        }
    }

    fn undo(&self, netlink: &mut Netlink) -> io::Result<()> {
        match self {
            Self::Rules { mark, table, priority } => Family::BOTH.iter().try_for_each(|&family| {
                let (mark, table, priority) = (*mark, *table, *priority);
                netlink.delete_rule(&MarkRule { family, mark, table, priority })
            }),
            Self::Table(table) => {
                Family::BOTH.iter().try_for_each(|&family| netlink.flush(family, *table))
            }
            Self::Sysctl { path, previous, set } => match fs::read_to_string(path) {
                // A value that was changed since then stays.
                Ok(now) if now.trim() == set => fs::write(path, previous),
                Ok(_) => Ok(()),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(e) => Err(e),
            },
            Self::Filter(name) => nft::remove(name),
            Self::Exceptions(priority) => Family::BOTH
                .iter()
                .try_for_each(|&family| netlink.remove_exceptions(family, *priority)),
        }
    }
}

/// The lock on a device. Its holder runs the device's plane, or cleans up after one that has ended.
pub struct DeviceLock {
    file: File,
    path: PathBuf,
    /// The suffix of the names of records in this namespace.
    suffix: String,
}

impl DeviceLock {
    /// Takes the lock on a device of the calling thread's network namespace; `None` if another process has it.
    ///
    /// # Errors
    /// If the state directory or its file cannot be used.
    pub fn take(state_dir: &Path, device: &str) -> Result<Option<Self>, SystemError> {
        fs::create_dir_all(state_dir)
            .map_err(|e| refused(format!("creating {}", state_dir.display()), &e))?;
        let suffix = suffix("plane")?;
        let path = state_dir.join(format!("{device}{suffix}"));
        let file = locked(&path).map_err(|e| not_opened(&path, &e))?;
        Ok(file.map(|file| Self { file, path, suffix }))
    }

    /// Returns `true` if a process has the lock on a device. Nothing is made.
    ///
    /// # Errors
    /// See [`take`](Self::take).
    pub fn is_taken(state_dir: &Path, device: &str) -> Result<bool, SystemError> {
        let path = file_of(state_dir, device, "plane")?;
        match File::open(&path) {
            Ok(file) => Ok(flock(&file, FlockOperation::NonBlockingLockShared).is_err()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(refused(format!("opening the state file {}", path.display()), &e)),
        }
    }

    /// Returns `true` if a former owner has left changes on record.
    pub fn has_record(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|text| !changes_of(&text).is_empty())
    }

    /// As [`take`](Self::take), and an error if another process has it.
    ///
    /// # Errors
    /// See [`take`](Self::take).
    pub fn require(state_dir: &Path, device: &str) -> Result<Self, SystemError> {
        Self::take(state_dir, device)?.ok_or_else(|| SystemError {
            what: format!("starting the userspace plane on {device}"),
            why: format!(
                "another process uses the device (it has locked its state file in {}); stop it, or give this one another \
                 device and table",
                state_dir.display()
            ),
        })
    }
}

/// The path of a file about a device of the calling thread's network namespace, which is none of the journal.
///
/// # Errors
/// If the namespace cannot be found.
pub fn file_of(state_dir: &Path, device: &str, kind: &str) -> Result<PathBuf, SystemError> {
    Ok(state_dir.join(format!("{device}{}", suffix(kind)?)))
}

/// The end of the names of the files of a kind, with the number of the calling thread's network namespace.
fn suffix(kind: &str) -> Result<String, SystemError> {
    let namespace = fs::metadata("/proc/thread-self/ns/net")
        .map_err(|e| refused("finding this thread's network namespace".to_owned(), &e))?;
    Ok(format!(".{}.{kind}", namespace.ino()))
}

fn not_opened(path: &Path, error: &io::Error) -> SystemError {
    refused(format!("opening the state file {}", path.display()), error)
}

/// The record of one running plane. Dropping it undoes everything, unless that was
/// [switched off](Journal::keep_on_drop).
pub struct Journal {
    netlink: Netlink,
    file: File,
    path: PathBuf,
    /// The suffix of the names of records in this namespace.
    suffix: String,
    changes: Vec<Change>,
    /// The changes of a crashed owner that hold traffic back. They stay until this start has made its own, and for good
    /// if it fails.
    left: Vec<Change>,
    kept: bool,
}

impl Journal {
    /// Opens the record of a device, and undoes what a crashed owner left, except what holds traffic back: routes,
    /// routing rules and the filter stay until [`Journal::forget_left_filter`] and [`Journal::undo_left_routes`].
    pub fn open(lock: DeviceLock) -> Result<Self, SystemError> {
        let netlink = Netlink::open().map_err(|e| refused("opening netlink".to_owned(), &e))?;
        let DeviceLock { file, path, suffix } = lock;
        let mut journal = Self {
            netlink,
            file,
            path: path.clone(),
            suffix,
            changes: Vec::new(),
            left: Vec::new(),
            kept: false,
        };
        let left_over = read(&mut journal.file).map_err(|e| not_opened(&path, &e))?;
        // Blocked traffic stays blocked until it is known what this start wants.
        let (held, settings) =
            left_over.into_iter().partition(|change| !matches!(change, Change::Sysctl { .. }));
        journal.left = held;
        undo(settings, &mut journal.netlink, &path);
        journal.rewrite().map_err(|e| not_opened(&path, &e))?;
        Ok(journal)
    }

    /// Puts a change on record; to be called before it is made.
    pub fn record(&mut self, change: &Change) -> Result<(), SystemError> {
        if self.changes.contains(change) {
            return Ok(());
        }
        self.changes.push(change.clone());
        let line = format!("{change}\n");
        self.file
            .write_all(line.as_bytes())
            .map_err(|e| refused(format!("writing the state file {}", self.path.display()), &e))
    }

    /// Sets a kernel setting after its former value is on record.
    pub fn set_sysctl(&mut self, path: PathBuf, value: &str) -> Result<(), SystemError> {
        let what = format!("setting {} to {value}", path.display());
        let previous = fs::read_to_string(&path);
        let previous = previous.map_err(|e| refused(what.clone(), &e))?.trim().to_owned();
        if previous == value {
            return Ok(());
        }
        self.record(&Change::Sysctl { path: path.clone(), previous, set: value.to_owned() })?;
        fs::write(&path, value).map_err(|e| refused(what, &e))
    }

    /// Takes back that a change is going to be made.
    pub fn forget(&mut self, change: &Change) {
        self.changes.retain(|c| c != change);
    }

    /// Undoes everything but what the filter has changed, and what a crashed owner has left.
    pub fn undo_device(&mut self) {
        let left = &self.left;
        let (kept, gone) = mem::take(&mut self.changes).into_iter().partition(|change| {
            matches!(change, Change::Filter(_) | Change::Exceptions(_)) || left.contains(change)
        });
        self.changes = kept;
        undo(gone, &mut self.netlink, &self.path);
        if let Err(error) = self.rewrite() {
            tracing::warn!(%error, file = %self.path.display(), "writing the state file");
        }
    }

    /// The device's owner ends: as [`undo_device`](Self::undo_device), unless dropping this leaves everything as it is.
    pub fn end_device(&mut self) {
        if !self.is_kept() {
            self.undo_device();
        }
    }

    /// Says whether dropping this leaves everything as it is, on record for the next start, as if the process had been
    /// killed.
    pub fn keep_on_drop(&mut self, kept: bool) {
        self.kept = kept;
    }

    /// Undoes the changes of the device's settings, which go with it. Routes and routing rules stay.
    pub fn undo_settings(&mut self) {
        let (gone, kept) = mem::take(&mut self.changes)
            .into_iter()
            .partition(|change| matches!(change, Change::Sysctl { .. }));
        self.changes = kept;
        undo(gone, &mut self.netlink, &self.path);
        if let Err(error) = self.rewrite() {
            tracing::warn!(%error, file = %self.path.display(), "writing the state file");
        }
    }

    /// Undoes everything that a crashed owner has left.
    pub fn undo_left(&mut self) {
        undo(mem::take(&mut self.left), &mut self.netlink, &self.path);
    }

    /// Removes the exceptions that a crashed owner has left. They stay on record: if this start fails, its own stay.
    pub fn replace_exceptions(&mut self) {
        let exceptions = self.left.iter().filter(|change| matches!(change, Change::Exceptions(_)));
        undo(exceptions.cloned().collect(), &mut self.netlink, &self.path);
    }

    /// Takes note that the filter which a crashed owner left is replaced or gone.
    pub fn forget_left_filter(&mut self) {
        self.left.retain(|change| !matches!(change, Change::Filter(_)));
    }

    /// Takes note that the start has succeeded, and its routes and routing rules are there: undoes those that a crashed
    /// owner left and this one does not have.
    pub fn undo_left_routes(&mut self) {
        let changes = &self.changes;
        let (filter, left): (Vec<_>, Vec<_>) = mem::take(&mut self.left)
            .into_iter()
            .partition(|change| matches!(change, Change::Filter(_)));
        let gone = left.into_iter().filter(|change| !changes.contains(change)).collect();
        self.left = filter;
        undo(gone, &mut self.netlink, &self.path);
        if let Err(error) = self.rewrite() {
            tracing::warn!(%error, file = %self.path.display(), "writing the state file");
        }
    }

    /// Returns `true` if the changes stay as if the process had been killed: traffic stops rather than leaks, and the next
    /// start cleans up.
    fn is_kept(&self) -> bool {
        self.kept || std::thread::panicking()
    }

    /// Leaves on record what is in force. Should this process be killed meanwhile, the former record counts.
    fn rewrite(&mut self) -> io::Result<()> {
        let made = self.changes.iter().filter(|change| !self.left.contains(change));
        let changes: String = self.left.iter().chain(made).map(|c| format!("{c}\n")).collect();
        let before = self.file.metadata()?.len();
        // A line before it may lack its end.
        let record = format!("\n{BEGUN}\n{changes}{COMPLETE}\n");
        self.file.write_all(record.as_bytes()).inspect_err(|_| {
            // Later lines are not to be taken for its own.
            let _ = self.file.set_len(before);
        })
    }

    /// Makes sure that no other plane of this namespace uses the table, and clears it of what a crashed one left.
    pub fn claim(&mut self, state_dir: &Path, table: u32) -> Result<(), SystemError> {
        let entries = fs::read_dir(state_dir)
            .map_err(|e| refused(format!("reading {}", state_dir.display()), &e))?;
        for path in entries.flatten().map(|e| e.path()) {
            if path == self.path || !path.to_string_lossy().ends_with(&self.suffix) {
                continue;
            }
            match locked(&path) {
                Ok(Some(mut file)) => {
                    let changes = read(&mut file).unwrap_or_default();
                    if changes.contains(&Change::Table(table)) || changes.is_empty() {
                        undo(changes, &mut self.netlink, &path);
                        remove(&path);
                    } else {
                        tracing::warn!(
                            file = %path.display(),
                            "another plane did not shut down, and its traffic stays blocked until it starts again"
                        );
                    }
                }
                Ok(None) => {
                    let in_use = File::open(&path).and_then(|mut f| read(&mut f));
                    if in_use.unwrap_or_default().contains(&Change::Table(table)) {
                        return Err(SystemError {
                            what: format!("using routing table {table}"),
                            why: format!(
                                "another process uses it (see {}); choose another table",
                                path.display()
                            ),
                        });
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, file = %path.display(), "reading a state file")
                }
            }
        }
        Ok(())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.is_kept() {
            return;
        }
        self.changes.retain(|change| !self.left.contains(change));
        undo(mem::take(&mut self.changes), &mut self.netlink, &self.path);
        if !self.left.is_empty() {
            // The start has failed: the next one decides.
            if let Err(error) = self.rewrite() {
                tracing::warn!(%error, file = %self.path.display(), "writing the state file");
            }
            return;
        }
        // Removed while still locked: a process that waits for the lock finds the name gone and makes a new file.
        remove(&self.path);
    }
}

/// A journal for several parts of a gateway. It is dropped with the last clone.
#[derive(Clone)]
pub struct SharedJournal(Arc<Mutex<Journal>>);

impl SharedJournal {
    /// Shares a journal.
    pub fn new(journal: Journal) -> Self {
        Self(Arc::new(Mutex::new(journal)))
    }

    /// The journal, which no other thread uses meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Journal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lines around a new record, which follows the former one in the file.
const BEGUN: &str = "a new record";
const COMPLETE: &str = "in place of the former";

fn read(file: &mut File) -> io::Result<Vec<Change>> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(changes_of(&text))
}

fn changes_of(text: &str) -> Vec<Change> {
    let (mut changes, mut new) = (Vec::new(), None);
    for line in text.lines() {
        match line {
            BEGUN => new = Some(Vec::new()),
            COMPLETE => changes = new.take().unwrap_or(changes),
            _ => new.as_mut().unwrap_or(&mut changes).extend(Change::parse(line)),
        }
    }
    // A new record that is not complete counts as not written.
    changes
}

/// Undoes changes, latest first.
fn undo(changes: Vec<Change>, netlink: &mut Netlink, record: &Path) {
    for change in changes.into_iter().rev() {
        if let Err(error) = change.undo(netlink) {
            tracing::warn!(%error, record = %record.display(), "cannot undo \"{change}\"; undo it by hand");
        }
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(%error, file = %path.display(), "removing the state file");
    }
}

/// Opens a file and locks it; `None` if another process has locked it. A file that another user has put there is
/// refused: it would say what is to be undone as root.
fn locked(path: &Path) -> io::Result<Option<File>> {
    open_locked(path, |file| {
        let owner = file.metadata()?.uid();
        if owner == rustix::process::geteuid().as_raw() {
            return Ok(());
        }
        let text = format!(
            "it belongs to user {owner}; remove it, and let no other user write its directory"
        );
        Err(io::Error::other(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_survive_the_file() {
        for change in [
            Change::Table(4500),
            Change::Rules { mark: 7, table: 4500, priority: 100 },
            Change::Sysctl {
                path: "/proc/sys/net/ipv4/conf/a b/rp_filter".into(),
                previous: "1".to_owned(),
                set: "2".to_owned(),
            },
            Change::Filter("vpn_filter".to_owned()),
            Change::Exceptions(4499),
        ] {
            assert_eq!(Change::parse(&change.to_string()), Some(change));
        }
    }

    #[test]
    fn a_new_record_counts_once_it_is_complete() {
        let former = "table 1\nexceptions 2\n";
        let new = format!("{former}{BEGUN}\ntable 3\n{COMPLETE}\nexceptions 4\n");
        for cut in 0..new.len() {
            let found = changes_of(&new[..cut]);
            let expected = match cut {
                _ if cut < former.len() => continue,
                _ if cut < new.len() - "exceptions 4\n".len() - 1 => changes_of(former),
                _ if cut < new.len() - 1 => vec![Change::Table(3)],
                _ => vec![Change::Table(3), Change::Exceptions(4)],
            };
            assert_eq!(found, expected, "{:?}", &new[..cut]);
        }
        assert_eq!(changes_of(&format!("{former}{BEGUN}\n{COMPLETE}\n")), []);
    }

    #[test]
    fn unknown_lines_are_ignored() {
        for line in [
            "",
            "table",
            "table x",
            "rules 1 2",
            "rules 1 2 x",
            "sysctl 1 2",
            "sysctl 1 2 /etc/passwd",
            "sysctl 1 2 /proc/sys/net/../kernel/core_pattern",
            "else 1",
        ] {
            assert_eq!(Change::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let path = std::env::temp_dir().join(format!("planted-{}.plane", std::process::id()));
        fs::write(&path, "table 4500\n").expect("written");
        std::os::unix::fs::chown(&path, Some(65_534), None).expect("given away");
        let refused = locked(&path).expect_err("refused").to_string();
        fs::remove_file(&path).expect("remove");
        assert!(refused.contains("65534"), "{refused}");
    }

    #[test]
    fn a_locked_file_has_one_owner() {
        let path = std::env::temp_dir().join(format!("lock-{}.plane", std::process::id()));
        let first = locked(&path).expect("open").expect("lock");
        assert!(locked(&path).expect("open").is_none());
        fs::remove_file(&path).expect("remove");
        let second = locked(&path).expect("open");
        assert!(second.is_some(), "a removed file does not stand in the way");
        drop(first);
        fs::remove_file(&path).expect("remove");
    }
}
