//! The policy store: a directory that keeps the objects of policies between one start and the next.
//!
//! ```no_run
//! use policy::database::{PutOptions, Selection};
//! use vpn::store::Store;
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut store = Store::open("/var/lib/vpnd".as_ref())?;
//! let text = std::fs::read_to_string("site.xml")?;
//! let put = store.database().put("site.xml", &text, &PutOptions::default())?;
//! for change in &put.changes {
//!     println!("{change}");
//! }
//! let (checked, loaded) = store.check(put.database)?;
//! println!("{} tunnels", loaded.policy.tunnels.len());
//! store.commit(checked)?;
//! print!("{}", *store.database().export(&Selection::default(), false, false)?);
//! # Ok(())
//! # }
//! ```

use host::lock::FileLock;
use host::replace::{Step, replace_by};
use host::writers::{Changeable, check_file, check_mode};
use policy::xml::{Diagnostics, Loaded, MAX_FILE_LEN, Options};
use policy::{Bindings, Database};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Where `vpnd` keeps its policy unless told otherwise.
pub const DEFAULT_DIRECTORY: &str = "/var/lib/vpnd";

/// The file that holds every object, in the directory.
const FILE: &str = "policy.xml";

/// The file that the process which may write has locked.
const LOCK: &str = "lock";

/// A policy store that this process alone may write, until this value is dropped.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    database: Database,
    /// The marks and interfaces that the tunnels have or will have.
    bindings: Bindings,
    _lock: FileLock,
}

/// Objects that [`Store::check`] has found to read back to the same from the text that is stored.
pub struct Checked {
    database: Database,
    text: Zeroizing<String>,
}

/// The store cannot be used, or not be changed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process writes it.
    #[error(
        "another process has the policy store {}, likely a running vpnd\n  \
         change it through that one (vpnctl policy without --directory), or name another directory",
        .0.display()
    )]
    InUse(PathBuf),
    /// Others may change what is in it.
    #[error("the policy store {}: {problem}", .path.display())]
    Changeable {
        /// The directory or its file.
        path: PathBuf,
        /// The users who may change it, and the cure.
        problem: Changeable,
    },
    /// Its content is no policy.
    #[error(
        "{0}\nthe policy store has been changed by hand: mend the file, or remove it to start with an empty policy"
    )]
    Damaged(Diagnostics),
    /// Its content is no text, or is too long.
    #[error("the policy store {} {what}: mend the file, or remove it to start with an empty policy", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The problem, as a verb with its object.
        what: &'static str,
    },
    /// It would hold more than is read.
    #[error("the policy store would have {0} octets, more than {MAX_FILE_LEN}: nothing is changed")]
    Full(usize),
    /// The new policy does not read back as the same.
    #[error(
        "{0}\nwhat was to be stored does not read back to the same, so nothing is changed; please report this"
    )]
    Unfaithful(Diagnostics),
    /// It is stored, but not known to be on the disk.
    #[error("{} is written, but may not survive a failure of power: {source}", .path.display())]
    Unsure {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The system refused; nothing is changed.
    #[error("cannot {what} {}: {source}", .path.display())]
    System {
        /// The action that the system refused, as an infinitive.
        what: &'static str,
        /// Of which file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

policy::readable_debug!(StoreError);

impl Store {
    /// Opens the store in a directory, which is made with mode 0700 where there is none, and keeps others from writing.
    ///
    /// # Errors
    /// [`StoreError::InUse`] where another process has it open; otherwise where it cannot be read.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(system("make the directory", directory))?;
        let path = directory.join(LOCK);
        let lock = FileLock::take(&path).map_err(system("lock", &path))?;
        let lock = lock.ok_or_else(|| StoreError::InUse(directory.to_owned()))?;
        let database = Self::look(directory)?;
        let bindings = Bindings::default();
        Ok(Self { directory: directory.to_owned(), database, bindings, _lock: lock })
    }

    /// Reads a store without keeping others from writing it. A directory without a store, or none, is an empty one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn look(directory: &Path) -> Result<Database, StoreError> {
        let path = directory.join(FILE);
        match fs::metadata(directory) {
            Ok(metadata) => check_mode(directory, &metadata).map_err(changeable(directory))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Database::default()),
            Err(error) => return Err(system("look at", directory)(error)),
        }
        let Some(text) = read(&path)? else { return Ok(Database::default()) };
        Database::read(&path.display().to_string(), &text).map_err(StoreError::Damaged)
    }

    /// Has its tunnels judged with the marks and interfaces that they have on the host.
    pub fn bind(&mut self, bindings: Bindings) {
        self.bindings = bindings;
    }

    /// Every object in it.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file that holds them; lines of [`Loaded::definitions`] are this file's.
    pub fn path(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// Reads the file again, which somebody may have changed by hand.
    ///
    /// # Errors
    /// If it cannot be read; then the objects stay as they were.
    pub fn refresh(&mut self) -> Result<Loaded, StoreError> {
        let database = Self::look(&self.directory)?;
        let loaded = self.load(&database)?;
        self.database = database;
        Ok(loaded)
    }

    /// Checks objects that are to be stored. Returns them with the policy that they are; its places are those in the
    /// file once they are committed.
    ///
    /// # Errors
    /// If they are too many, or do not read back from their own text.
    pub fn check(&self, database: Database) -> Result<(Checked, Loaded), StoreError> {
        let text = database.to_xml();
        if text.len() > MAX_FILE_LEN {
            return Err(StoreError::Full(text.len()));
        }
        let loaded = self.load(&database)?;
        Ok((Checked { database, text }, loaded))
    }

    /// Stores other objects in the place of these. After a crash, or after an error, the file has the old ones or the
    /// new ones, and nothing in between.
    ///
    /// # Errors
    /// If they cannot be written. The old ones stay, except with [`StoreError::Unsure`].
    pub fn commit(&mut self, checked: Checked) -> Result<(), StoreError> {
        self.commit_by(checked, |_| Ok(()))
    }

    /// As [`Store::commit`]; `before` is called before every step, and may let it fail.
    fn commit_by(
        &mut self,
        Checked { database, text }: Checked,
        mut before: impl FnMut(Step) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        match replace_by(&self.path(), text.as_bytes(), &mut before) {
            Ok(()) => {
                self.database = database;
                Ok(())
            }
            Err((Step::SyncDirectory, source)) => {
                self.database = database;
                Err(StoreError::Unsure { path: self.path(), source })
            }
            Err((step, source)) => Err(system(step.what(), &self.path())(source)),
        }
    }

    /// The policy that these objects are, with places as in the file if they were committed.
    fn load(&self, database: &Database) -> Result<Loaded, StoreError> {
        if database.is_empty() {
            return Ok(Loaded::default());
        }
        let options = Options { bindings: Some(&self.bindings), ..Options::default() };
        let name = self.path().display().to_string();
        database.load_with(&name, &options).map_err(StoreError::Unfaithful)
    }
}

fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::System { what, path, source }
}

fn changeable(path: &Path) -> impl FnOnce(Changeable) -> StoreError {
    let path = path.to_owned();
    move |problem| StoreError::Changeable { path, problem }
}

/// The text of the store's file; `None` if there is none.
fn read(path: &Path) -> Result<Option<Zeroizing<String>>, StoreError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(system("read", path)(error)),
    };
    let metadata = file.metadata().map_err(system("look at", path))?;
    check_file(path, &metadata).map_err(changeable(path))?;
    let size = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    if size > MAX_FILE_LEN {
        return Err(StoreError::Unreadable { path: path.to_owned(), what: "is too long" });
    }
    // Reserved in one piece: a buffer that grows leaves copies of the keys in freed memory.
    let mut text = Zeroizing::new(String::with_capacity(size + 1));
    match file.by_ref().take(MAX_FILE_LEN as u64).read_to_string(&mut text) {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(StoreError::Unreadable { path: path.to_owned(), what: "is not UTF-8" })
        }
        Err(error) => Err(system("read", path)(error)),
    }
}

#[cfg(test)]
mod tests;
