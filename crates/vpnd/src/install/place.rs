//! Writing and removing files below the directory that stands for `/`.

use super::error::InstallError;
use host::replace::replace;
use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The outcome for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There was none.
    Installed,
    /// Another one was there.
    Replaced,
    /// The same one was there.
    Unchanged,
    /// It is configuration, which stays.
    Kept,
    /// An older version had installed it.
    Removed,
}

impl Outcome {
    pub const ALL: [Self; 5] =
        [Self::Installed, Self::Replaced, Self::Unchanged, Self::Kept, Self::Removed];
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Installed => "installed",
            Self::Replaced => "replaced",
            Self::Unchanged => "unchanged",
            Self::Kept => "kept",
            Self::Removed => "removed",
        })
    }
}

/// The files below a root.
pub(super) struct Place {
    root: PathBuf,
    dry_run: bool,
    /// Directories that were made, without the root.
    made: Vec<PathBuf>,
}

impl Place {
    pub fn new(root: Option<&Path>, dry_run: bool) -> Self {
        Self { root: root.unwrap_or(Path::new("/")).to_owned(), dry_run, made: Vec::new() }
    }

    /// The path below the root.
    pub fn real(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Directories that were made for files.
    pub fn made(&self) -> &[PathBuf] {
        &self.made
    }

    /// Writes a file, unless it is there already.
    pub fn put(&mut self, path: &Path, mode: u32, octets: &[u8]) -> Result<Outcome, InstallError> {
        let real = self.real(path);
        let outcome = match fs::symlink_metadata(&real) {
            Ok(metadata)
                if metadata.is_file() && fs::read(&real).is_ok_and(|old| old == octets) =>
            {
                Outcome::Unchanged
            }
            Ok(_) => Outcome::Replaced,
            Err(_) => Outcome::Installed,
        };
        if self.dry_run {
            return Ok(outcome);
        }
        self.make_parent(path)?;
        if outcome != Outcome::Unchanged {
            replace(&real, octets).map_err(|(step, error)| system(step.what(), &real)(error))?;
        }
        let permissions = fs::set_permissions(&real, Permissions::from_mode(mode));
        permissions.map_err(system("set the mode of", &real))?;
        Ok(outcome)
    }

    /// Makes the directory of a file, and records it.
    pub fn make_parent(&mut self, path: &Path) -> Result<(), InstallError> {
        if let Some(parent) = path.parent().filter(|_| !self.dry_run) {
            let made = self.make(parent, 0o755)?;
            self.made.extend(made);
        }
        Ok(())
    }

    /// Writes a file if there is none.
    pub fn put_if_missing(
        &mut self,
        path: &Path,
        mode: u32,
        octets: &[u8],
    ) -> Result<Outcome, InstallError> {
        match fs::symlink_metadata(self.real(path)) {
            Ok(_) => Ok(Outcome::Kept),
            Err(_) => self.put(path, mode, octets),
        }
    }

    /// Makes a directory that stays, if there is none.
    pub fn directory(&mut self, path: &Path, mode: u32) -> Result<(), InstallError> {
        if !self.dry_run {
            self.make(path, mode)?;
        }
        Ok(())
    }

    /// Makes a directory with those it is in, whatever the umask; returns the new ones, the outermost first.
    fn make(&self, path: &Path, mode: u32) -> Result<Vec<PathBuf>, InstallError> {
        let mut made = Vec::new();
        let mut missing: Vec<&Path> =
            path.ancestors().take_while(|above| !self.real(above).is_dir()).collect();
        missing.reverse();
        for new in missing {
            let real = self.real(new);
            let mode = if new == path { mode } else { 0o755 };
            fs::create_dir_all(&real).map_err(system("make the directory", &real))?;
            let permissions = fs::set_permissions(&real, Permissions::from_mode(mode));
            permissions.map_err(system("set the mode of", &real))?;
            // The root itself is not part of the installation.
            made.extend((new != Path::new("/")).then(|| new.to_owned()));
        }
        Ok(made)
    }

    /// Removes a file. Returns `false` if there was none.
    pub fn remove(&mut self, path: &Path) -> Result<bool, InstallError> {
        let real = self.real(path);
        if self.dry_run {
            return Ok(fs::symlink_metadata(&real).is_ok());
        }
        match fs::remove_file(&real) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(system("remove", &real)(error)),
        }
    }

    /// Removes a directory, unless it has become another one's, too.
    pub fn remove_if_empty(&mut self, path: &Path) -> Result<(), InstallError> {
        let real = self.real(path);
        if self.dry_run || !real.is_dir() {
            return Ok(());
        }
        match fs::remove_dir(&real) {
            Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => {
                Err(system("remove the directory", &real)(error))
            }
            _ => Ok(()),
        }
    }
}

fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> InstallError + use<> {
    let path = path.to_owned();
    move |source| InstallError::System { what, path, source }
}
