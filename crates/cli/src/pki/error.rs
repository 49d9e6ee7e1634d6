//! The reasons why a command on an authority fails.

use std::io;
use std::path::PathBuf;

/// A command on an authority has failed.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The directory has an authority already.
    #[error("{} has an authority already; choose another directory with --dir", .0.display())]
    Exists(PathBuf),
    /// The directory is not for a new authority.
    #[error("{} is not empty; choose another directory with --dir", .0.display())]
    NotEmpty(PathBuf),
    /// The directory has no authority.
    #[error("{} has no authority; make one with: vpnctl pki init --dir {}", .0.display(), .0.display())]
    Missing(PathBuf),
    /// Another process works on it.
    #[error("another vpnctl pki is working in {}; try again when it has ended", .0.display())]
    Busy(PathBuf),
    /// The index cannot be used.
    #[error("{}: {why}; restore the file from a backup", .path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The serial number of a revoked certificate cannot be read: the list would lack it.
    #[error(
        "the serial number {serial:?} of {name} in the index is not hexadecimal; restore the index from a backup"
    )]
    Serial {
        /// The name of the certificate.
        name: String,
        /// Its serial number in the index.
        serial: String,
    },
    /// The system refused.
    #[error("cannot {what} {}: {source}", .path.display())]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A key or certificate cannot be made or read.
    #[error("{what}: {source}")]
    Making {
        /// The object, and its file if it is read.
        what: String,
        /// The reason.
        source: rcgen::Error,
    },
    /// The arguments do not fit the authority.
    #[error("{0}")]
    Arguments(String),
}
