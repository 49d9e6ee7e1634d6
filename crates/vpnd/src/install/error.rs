//! The reasons why an installation fails.

use std::io;
use std::path::PathBuf;

/// An installation failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The prefix cannot stand in a unit.
    #[error("{} cannot be the prefix: give a path that begins with / and has no blanks, .. or signs such as % and $", .0.display())]
    Prefix(PathBuf),
    /// The other program is missing.
    #[error("{} is missing, which is installed together with vpnd; build both with: cargo build --release", .0.display())]
    Incomplete(PathBuf),
    /// A program did not do what it was asked for.
    #[error("{}: {why}", .program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// The reason.
        why: String,
    },
    /// Nothing was installed.
    #[error(
        "{} does not exist: vpnd install has installed nothing below this prefix; name another with --prefix", .0.display()
    )]
    NotInstalled(PathBuf),
    /// The list of files is damaged.
    #[error("{}: {why}; remove the files by hand, or install again first", .path.display())]
    Manifest {
        /// The list.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The system refused.
    #[error("cannot {what} {}: {source}{}", .path.display(), advice(.source))]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run this with sudo, or choose another --prefix or --root"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; choose another --prefix or --root",
        _ => "",
    }
}
