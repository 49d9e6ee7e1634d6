//! The record of changes to the host. A change is recorded before it is made, so that it can be undone: at shutdown, or
//! at the next start after a crash.
//!
//! The record is a file per device and network namespace, `DEVICE.NAMESPACE.plane` in the directory of the daemon's
//! state. Its owner holds a lock on it for as long as it runs; a file whose lock can be had is left over from a process
//! that did not get to clean up.

mod change;

pub use change::Change;

use crate::lock::{open_locked, succeed_to};
use crate::netlink::Netlink;
use crate::system::{SystemError, refused};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{self, Write};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

    /// Takes over the lock of another process, which has sent the descriptor of its [journal](Journal). `None` if it is no
    /// lock on this device.
    ///
    /// # Errors
    /// If the state directory or its file cannot be used.
    pub fn succeed(
        state_dir: &Path,
        device: &str,
        descriptor: OwnedFd,
    ) -> Result<Option<Self>, SystemError> {
        let suffix = suffix("plane")?;
        let path = state_dir.join(format!("{device}{suffix}"));
        let file = succeed_to(&path, descriptor).map_err(|e| not_opened(&path, &e))?;
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
    /// Another process may go on with the record.
    is_frozen: bool,
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
            is_frozen: false,
        };
        let left_over = read(&journal.file).map_err(|e| not_opened(&path, &e))?;
        // Blocked traffic stays blocked until it is known what this start wants.
        let (held, settings) =
            left_over.into_iter().partition(|change| !matches!(change, Change::Sysctl { .. }));
        journal.left = held;
        undo(settings, &mut journal.netlink, &path);
        journal.rewrite().map_err(|e| not_opened(&path, &e))?;
        Ok(journal)
    }

    /// The record of another process, whose changes stay in force; it is [frozen](Self::freeze).
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn succeed(lock: DeviceLock) -> Result<Self, SystemError> {
        let netlink = Netlink::open().map_err(|e| refused("opening netlink".to_owned(), &e))?;
        let DeviceLock { file, path, suffix } = lock;
        let changes = read(&file).map_err(|e| not_opened(&path, &e))?;
        let left = Vec::new();
        Ok(Self { netlink, file, path, suffix, changes, left, kept: false, is_frozen: true })
    }

    /// Dropping this leaves everything as it is from now on, for the other process that has the record.
    pub fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// This process goes on with the record, and no other.
    pub fn thaw(&mut self) {
        self.is_frozen = false;
    }

    /// The descriptor of the lock and the record, of which a successor gets a copy.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
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
        self.kept || self.is_frozen || std::thread::panicking()
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
                Ok(Some(file)) => {
                    let changes = read(&file).unwrap_or_default();
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
                    let in_use = File::open(&path).and_then(|file| read(&file));
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

/// Reads from the beginning, whatever a process that has the same open file has read or written.
fn read(file: &File) -> io::Result<Vec<Change>> {
    let (mut octets, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match file.read_at(&mut part, octets.len() as u64)? {
            0 => break,
            more => octets.extend_from_slice(&part[..more]),
        }
    }
    let text = String::from_utf8(octets).map_err(|_| io::ErrorKind::InvalidData)?;
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
    fn a_record_passes_to_a_successor_with_its_lock() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let state_dir = directory.path();
        let take = || DeviceLock::take(state_dir, "vpn7").expect("usable");
        let mut first = Journal::open(take().expect("nobody has it")).expect("readable");
        first.record(&Change::Table(4501)).expect("writable");
        first.record(&Change::Exceptions(4499)).expect("writable");
        let sent = || first.descriptor().try_clone_to_owned().expect("a descriptor");
        let succeed = |device, descriptor| {
            DeviceLock::succeed(state_dir, device, descriptor).expect("usable")
        };
        assert!(succeed("vpn8", sent()).is_none(), "another device");
        let lock = succeed("vpn7", sent()).expect("the same");
        let mut second = Journal::succeed(lock).expect("readable");
        assert_eq!(second.changes, [Change::Table(4501), Change::Exceptions(4499)]);
        // One that gives up undoes nothing.
        let gives_up = succeed("vpn7", sent()).expect("the same");
        drop(Journal::succeed(gives_up).expect("readable"));
        assert!(take().is_none(), "the predecessor has it");
        first.freeze();
        drop(first);
        assert!(take().is_none(), "the successor has it");
        second.thaw();
        second.forget(&Change::Table(4501));
        second.rewrite().expect("writable");
        assert_eq!(read(&second.file).expect("readable"), [Change::Exceptions(4499)]);
        // It undoes what it has inherited; these are changes that were never made.
        second.changes.clear();
        drop(second);
        assert!(take().is_some_and(|lock| !lock.has_record()));
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
