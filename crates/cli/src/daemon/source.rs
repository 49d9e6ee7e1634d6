//! The source of the daemon's policy.

use crate::policy_file::{self, PolicyFile, PolicyFileError};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vpn::store::Store;

/// The source from which the daemon reads its policy at the start and at each reload.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file that somebody else writes.
    File {
        /// The file.
        path: PathBuf,
        /// Unknown names in it cause a warning, not an error.
        lenient: bool,
    },
    /// The policy store, which only this daemon writes.
    Store(Arc<Mutex<Store>>),
}

impl Source {
    /// Opens the policy store in a directory, for as long as the daemon runs.
    ///
    /// # Errors
    /// Where another daemon has it, or it cannot be read.
    pub fn open_store(directory: &Path) -> Result<Self, PolicyFileError> {
        Ok(Self::Store(Arc::new(Mutex::new(Store::open(directory)?))))
    }

    /// Reads the policy.
    ///
    /// # Errors
    /// As [`PolicyFileError`], all errors at once.
    pub fn read(&self) -> Result<PolicyFile, PolicyFileError> {
        match self {
            Self::File { path, lenient } => policy_file::read_with(path, *lenient),
            Self::Store(store) => Ok(lock(store).refresh()?.into()),
        }
    }
}

/// The store, for a moment.
pub(super) fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Self {
        Self::File { path, lenient: false }
    }
}

impl fmt::Display for Source {
    /// The file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => path.display().fmt(f),
            Self::Store(store) => lock(store).path().display().fmt(f),
        }
    }
}
