//! The operator's wish that the guard outlives every gateway on its device: a file beside the journal.

#![forbid(unsafe_code)]

use host::SystemError;
use host::journal::file_of;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The file. It is there while the guard is held.
#[derive(Clone, Debug)]
pub struct Hold(PathBuf);

impl Hold {
    /// The hold on the guard of a device in the calling thread's network namespace.
    pub fn of(state_dir: &Path, device: &str) -> Result<Self, SystemError> {
        Ok(Self(file_of(state_dir, device, "guard")?))
    }

    /// The time since which the guard is held; `None` if it is not.
    pub fn since(&self) -> Option<SystemTime> {
        fs::symlink_metadata(&self.0).and_then(|file| file.modified()).ok()
    }

    /// Holds the guard from now on, unless it is held already.
    pub fn set(&self) -> Result<(), SystemError> {
        if self.since().is_some() {
            return Ok(());
        }
        let directory = self.0.parent().map_or(Ok(()), fs::create_dir_all);
        let made = directory
            .and_then(|()| host::replace::replace(&self.0, b"").map_err(|(_, error)| error));
        made.map_err(|e| host::refused(format!("making {}", self.0.display()), &e))
    }

    /// Ends the hold. Returns `true` if there was one.
    pub fn clear(&self) -> Result<bool, SystemError> {
        match fs::remove_file(&self.0) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(host::refused(format!("removing {}", self.0.display()), &e)),
        }
    }
}
