//! Replacing a file as a whole: whoever reads it, even after a crash, finds the old text or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Octets written at a time.
const PIECE: usize = 4096;

/// A step of replacing a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Makes the new file beside the old one.
    Create,
    /// Writes a piece of it.
    Write,
    /// Waits until it is on the disk, so that it is not empty when its name is.
    SyncFile,
    /// Gives it the name of the old one.
    Rename,
    /// Waits until that is on the disk.
    SyncDirectory,
}

impl Step {
    /// The action that was tried, for an error message that continues with the file's name.
    pub fn what(self) -> &'static str {
        match self {
            Self::Create | Self::Write | Self::SyncFile => "write the successor of",
            Self::Rename | Self::SyncDirectory => "replace",
        }
    }
}

/// Replaces a file, or makes it, with mode 0600; `before` is called before every step, and may let it fail. What an
/// attempt that failed leaves behind, the next one overwrites.
pub(crate) fn replace(
    path: &Path,
    octets: &[u8],
    before: &mut dyn FnMut(Step) -> io::Result<()>,
) -> Result<(), (Step, io::Error)> {
    let successor = path.with_extension("new");
    let at = |step: Step| move |error: io::Error| (step, error);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file =
        before(Step::Create).and_then(|()| options.open(&successor)).map_err(at(Step::Create))?;
    for piece in octets.chunks(PIECE) {
        before(Step::Write).and_then(|()| file.write_all(piece)).map_err(at(Step::Write))?;
    }
    before(Step::SyncFile).and_then(|()| file.sync_all()).map_err(at(Step::SyncFile))?;
    before(Step::Rename).and_then(|()| fs::rename(&successor, path)).map_err(at(Step::Rename))?;
    let directory = path.parent().unwrap_or(Path::new("."));
    before(Step::SyncDirectory)
        .and_then(|()| File::open(directory)?.sync_all())
        .map_err(at(Step::SyncDirectory))
}
