//! The users who may change a file that decides: a policy, a configuration, a certificate, the module of a token.
//!
//! Root and the user of this process may. So may the group of root and the group of this process: Debian and others
//! give a user a group of its own, to which new files belong. Everybody else could make themselves a peer, take the
//! guard away, or have this process run a module of theirs.
//!
//! A directory in which others may write holds their files, too: there, the owner of a file decides
//! ([`check_file`]). A directory of which every file counts is refused, unless it has the sticky bit: without the bit,
//! others can remove a file of root from it, such as a revocation list.
//!
//! Access lists (`setfacl`) with other users have the write bit of the group, too.

#![forbid(unsafe_code)]

use rustix::process::{getegid, geteuid};
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const EVERYBODY_WRITES: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;
const STICKY: u32 = 0o1000;

/// Others may change a file that decides. As text, a clause about "it", the file, with the cure.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Changeable {
    /// The mode of a file or directory lets them.
    #[error("{writers} may change it; close it with: chmod go-w {}", .path.display())]
    ByMode {
        /// The file or directory.
        path: PathBuf,
        /// The others.
        writers: Writers,
    },
    /// It lies in a directory in which they write, and is theirs.
    #[error(
        "it belongs to user {user}, and {writers} may put files into {}; give it to root (chown root {}), and close the \
         directory (chmod go-w {})",
        .directory.display(), .path.display(), .directory.display()
    )]
    ByPlace {
        /// The file, or a directory above it.
        path: PathBuf,
        /// Its owner.
        user: u32,
        /// The directory that holds it.
        directory: PathBuf,
        /// The others.
        writers: Writers,
    },
    /// It is code, and theirs.
    #[error("it is code, and belongs to user {user}; give it to root: chown root {}", .path.display())]
    ByOwner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        user: u32,
    },
}

policy::readable_debug!(Changeable);

/// Users other than root and the user of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Every user of this machine.
    Everybody,
    /// The members of a group, by its number.
    Group(u32),
}

impl fmt::Display for Writers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everybody => f.write_str("every user of this machine"),
            Self::Group(number) => write!(f, "every member of group {number}"),
        }
    }
}

/// Checks that others can neither change a file nor put another one in its place. `metadata` is that of the open file.
///
/// # Errors
/// If they can.
pub fn check_file(path: &Path, metadata: &Metadata) -> Result<(), Changeable> {
    check_mode(path, metadata)?;
    check_place(path)
}

/// As [`check_file`], for a file with code that this process is going to run: it must also belong to root or to the
/// user of this process. A file that is absent is for the caller to tell.
///
/// # Errors
/// If others can change it.
pub fn check_code(path: &Path) -> Result<(), Changeable> {
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    if !is_trusted(metadata.uid()) {
        return Err(Changeable::ByOwner { path: path.to_owned(), user: metadata.uid() });
    }
    check_file(path, &metadata)
}

/// Checks that others cannot change which files are in a directory of which every file counts. If it has the sticky
/// bit, [`check_file`] finds their files in it.
///
/// # Errors
/// If they can.
pub fn check_directory(path: &Path, metadata: &Metadata) -> Result<(), Changeable> {
    if metadata.mode() & STICKY == 0 {
        check_mode(path, metadata)?;
    }
    check_place(path)
}

/// Checks the permissions of a file or directory alone.
///
/// # Errors
/// If they let others write.
pub fn check_mode(path: &Path, metadata: &Metadata) -> Result<(), Changeable> {
    // Everybody may write to /dev/null, and nobody reads it there.
    if metadata.file_type().is_char_device() {
        return Ok(());
    }
    match writers(metadata.mode(), metadata.gid(), getegid().as_raw()) {
        Some(writers) => Err(Changeable::ByMode { path: path.to_owned(), writers }),
        None => Ok(()),
    }
}

fn writers(mode: u32, group: u32, own_group: u32) -> Option<Writers> {
    if mode & EVERYBODY_WRITES != 0 {
        return Some(Writers::Everybody);
    }
    let is_trusted = group == 0 || group == own_group;
    (mode & GROUP_WRITES != 0 && !is_trusted).then_some(Writers::Group(group))
}

fn is_trusted(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

/// Checks the way to a file as it is named, and the one that links lead to.
fn check_place(path: &Path) -> Result<(), Changeable> {
    let named = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    check_way(&named)?;
    // If it has gone meanwhile, the reader says so.
    match fs::canonicalize(&named) {
        Ok(real) if real != named => check_way(&real),
        _ => Ok(()),
    }
}

/// A file, or a directory above it, that lies in a directory in which others write must be root's or this user's own.
fn check_way(path: &Path) -> Result<(), Changeable> {
    for (entry, directory) in path.ancestors().zip(path.ancestors().skip(1)) {
        // Of a link, the owner of the link itself.
        let (Ok(of_entry), Ok(around)) = (fs::symlink_metadata(entry), fs::metadata(directory))
        else {
            continue;
        };
        let Err(Changeable::ByMode { writers, .. }) = check_mode(directory, &around) else {
            continue;
        };
        if !is_trusted(of_entry.uid()) {
            let (path, directory) = (entry.to_owned(), directory.to_owned());
            return Err(Changeable::ByPlace { path, user: of_entry.uid(), directory, writers });
        }
    }
    Ok(())
}

impl From<Changeable> for io::Error {
    fn from(error: Changeable) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use tempfile::TempDir;

    #[test]
    fn the_group_of_root_and_that_of_the_process_may_write() {
        assert_eq!(writers(0o664, 0, 1000), None);
        assert_eq!(writers(0o664, 1000, 1000), None);
        assert_eq!(writers(0o664, 1001, 1000), Some(Writers::Group(1001)));
        assert_eq!(writers(0o644, 1001, 1000), None);
        assert_eq!(writers(0o642, 0, 0), Some(Writers::Everybody));
    }

    /// A directory of this mode with a file of this owner in it.
    fn place(mode: u32, owner: Option<u32>) -> (TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("file");
        fs::write(&file, "text").expect("writable");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
        fs::set_permissions(directory.path(), Permissions::from_mode(mode)).expect("ours");
        chown(&file, owner, None).expect("as root");
        (directory, file)
    }

    fn check(file: &Path) -> Result<(), Changeable> {
        check_file(file, &fs::metadata(file).expect("it is there"))
    }

    #[test]
    fn a_file_in_a_directory_of_everybody_must_have_a_trusted_owner() {
        for mode in [0o755, 0o777, 0o1777] {
            let (directory, file) = place(mode, None);
            assert_eq!(check(&file), Ok(()), "{mode:o}");
            assert_eq!(check_code(&file), Ok(()));
            let whole =
                check_directory(directory.path(), &fs::metadata(&directory).expect("there"));
            assert_eq!(whole.is_err(), mode == 0o777, "{whole:?}");
        }
        if !geteuid().is_root() {
            return;
        }
        let (_alone, file) = place(0o755, Some(65_534));
        assert_eq!(check(&file), Ok(()), "its directory is root's");
        assert!(matches!(check_code(&file), Err(Changeable::ByOwner { user: 65_534, .. })));
        for mode in [0o777, 0o1777] {
            let (directory, file) = place(mode, Some(65_534));
            let error = check(&file).expect_err("another user may have put it there").to_string();
            assert!(error.contains("chown root") && error.contains("user 65534"), "{error}");
            // A link of the other user leads to a file of root.
            let (_elsewhere, target) = place(0o755, None);
            let link = directory.path().join("link");
            symlink(&target, &link).expect("writable");
            assert_eq!(check(&link), Ok(()));
            std::os::unix::fs::lchown(&link, Some(65_534), None).expect("as root");
            assert!(matches!(check(&link), Err(Changeable::ByPlace { .. })));
        }
    }

    #[test]
    fn a_directory_further_up_counts_too() {
        if !geteuid().is_root() {
            return;
        }
        let (top, _) = place(0o777, None);
        let below = top.path().join("below");
        fs::create_dir(&below).expect("writable");
        let file = below.join("file");
        fs::write(&file, "text").expect("writable");
        assert_eq!(check(&file), Ok(()));
        chown(&below, Some(65_534), None).expect("as root");
        let error = check(&file).expect_err("another user may have made it");
        assert!(matches!(error, Changeable::ByPlace { path, .. } if path == below));
    }
}
