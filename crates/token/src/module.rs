//! Modules: the shared libraries of tokens' drivers. Each is loaded once in a process, and never unloaded.

use crate::error::{Kind, TokenError, described};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A module that is initialized.
pub(crate) struct Module {
    pub path: PathBuf,
    pub calls: Pkcs11,
    /// Held during each piece of work, if the module cannot be called by several threads.
    turn: Option<Mutex<()>>,
}

type Slot = Arc<Mutex<Option<Arc<Module>>>>;

static MODULES: Mutex<BTreeMap<PathBuf, Slot>> = Mutex::new(BTreeMap::new());

impl Module {
    /// The module of this file. The calling thread loads it if no other one has, and waits for one that does.
    pub fn get(path: &Path) -> Result<Arc<Self>, TokenError> {
        // Two names of one file are one library, which can be initialized once.
        let name = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        // A module may hang while it is initialized: others must not wait for it.
        let slot = Arc::clone(lock(&MODULES).entry(name).or_default());
        let mut slot = lock(&slot);
        if let Some(module) = &*slot {
            return Ok(Arc::clone(module));
        }
        let module = Arc::new(Self::load(path)?);
        *slot = Some(Arc::clone(&module));
        Ok(module)
    }

    fn load(path: &Path) -> Result<Self, TokenError> {
        let calls = Pkcs11::new(path).map_err(|error| unloadable(path, &error))?;
        let several = CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK);
        let turn = match calls.initialize(several) {
            // Already: by another part of this process, as through p11-kit.
            Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => None,
            Err(Error::Pkcs11(RvError::CantLock, _)) => {
                let single = calls.initialize(CInitializeArgs::new(CInitializeFlags::empty()));
                single.map_err(|error| uninitialized(path, &error))?;
                Some(Mutex::new(()))
            }
            Err(error) => return Err(uninitialized(path, &error)),
        };
        Ok(Self { path: path.to_owned(), calls, turn })
    }

    /// Waits until no other thread uses the module, if it is one that only one thread may use at a time.
    pub fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.turn.as_ref().map(lock)
    }

    /// Initializes it again, after it has said that it is not initialized.
    pub fn initialize_again(&self) {
        // If that fails, the next call says why.
        let _ = self.calls.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK));
    }
}

fn unloadable(path: &Path, error: &Error) -> TokenError {
    let cause = match error {
        Error::LibraryLoading(error) => error.to_string(),
        error => described(error),
    };
    let cure = if path.exists() {
        "see whether it is a PKCS#11 module of this machine's architecture and root may read it; vpnd loads modules at its \
         start, from the directories of libraries and from those that token_files in [certificates] names: restart it"
    } else {
        "install the package with the module of the token, or correct module-path in the URI (or token_module in \
         [certificates]); then restart vpnd, if it runs"
    };
    TokenError::new(
        Kind::Module,
        format!("the PKCS#11 module {} cannot be loaded: {cause}", path.display()),
        cure,
    )
}

fn uninitialized(path: &Path, error: &Error) -> TokenError {
    TokenError::new(
        Kind::Module,
        format!(
            "the PKCS#11 module {} does not start: it answers {}",
            path.display(),
            described(error)
        ),
        "see whether its configuration is there and right; a running vpnd lets it open the files and directories that \
         token_files in [certificates] names: then restart vpnd",
    )
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
