//! The source of the daemon's policy.

use crate::config::Config;
use crate::preflight::Refused;
use host::policy_file::{self, PolicyFile, PolicyFileError};
use policy::Bindings;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vpn::store::{Store, StoreError};

/// The daemon cannot run the policy.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The policy file cannot be used.
    #[error(transparent)]
    File(#[from] PolicyFileError),
    /// The policy store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The policy and the configuration do not go together.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// The source from which the daemon reads its policy at the start and at each reload.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file that somebody else writes, or a directory of such files.
    File {
        /// The file or directory.
        path: PathBuf,
        /// Unknown names in it cause a warning, not an error.
        lenient: bool,
        /// The marks and interfaces that its tunnels will have.
        bindings: Bindings,
    },
    /// The policy store, which only this daemon writes.
    Store(Arc<Mutex<Store>>),
}

impl Source {
    /// The policy file or directory of the command line, or else the policy store of the configuration, which is opened.
    ///
    /// # Errors
    /// As [`Source::open_store`].
    pub fn find(file: Option<&Path>, lenient: bool, config: &Config) -> Result<Self, SourceError> {
        let bindings = config.planes().bindings();
        if let Some(path) = file {
            return Ok(Self::File { path: path.to_owned(), lenient, bindings });
        }
        let source = Self::open_store(&config.policy.directory)?;
        if let Self::Store(store) = &source {
            lock(store).bind(bindings);
        }
        Ok(source)
    }

    /// Opens the policy store in a directory, for as long as the daemon runs.
    ///
    /// # Errors
    /// Where another daemon has it, or it cannot be read.
    pub fn open_store(directory: &Path) -> Result<Self, SourceError> {
        Ok(Self::Store(Arc::new(Mutex::new(Store::open(directory)?))))
    }

    /// Reads the policy.
    ///
    /// # Errors
    /// As [`SourceError`], all errors of a file at once.
    pub fn read(&self) -> Result<PolicyFile, SourceError> {
        match self {
            Self::File { path, lenient, bindings } => {
                Ok(policy_file::read_with(path, *lenient, bindings)?)
            }
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
        Self::File { path, lenient: false, bindings: Bindings::default() }
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
