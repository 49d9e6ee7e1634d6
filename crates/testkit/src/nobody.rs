//! An ordinary user: programs and files of [`NOBODY`], as whom a test runs them.

use crate::daemon::write_secret;
use crate::{NOBODY, output};
use nix::unistd::chown;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command of that user, who has no capability and can get none.
pub fn as_nobody(program: impl AsRef<OsStr>) -> Command {
    let user = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
        .args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"])
        .arg(program);
    command
}

/// A directory that belongs to that user.
pub struct Home(tempfile::TempDir);

impl Home {
    /// An empty one, into which everybody may look. It goes with this value.
    pub fn make() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("ours");
        // In a user namespace without root's number, a directory of root below /tmp could be anybody's.
        give(directory.path());
        Self(directory)
    }

    /// Its path.
    pub fn directory(&self) -> &Path {
        self.0.path()
    }

    /// A file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Puts a copy of a program there, which the user may read.
    pub fn copy(&self, program: &Path, name: &str) -> PathBuf {
        let copy = self.path(name);
        // Not written by this process: another test's child could still hold it open when it is to be run.
        let mut cp = Command::new("cp");
        cp.arg(program).arg(&copy);
        output(cp);
        copy
    }

    /// Writes a file that the user alone may read.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        write_secret(&path, text);
        give(&path);
        path
    }
}

/// Gives a file to the user.
fn give(path: &Path) {
    chown(path, Some(NOBODY.into()), Some(NOBODY.into())).expect("given away");
}
