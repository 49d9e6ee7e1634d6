//! The archive itself.

use super::Member;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;
use tar::{Builder, Header};

/// Makes a file that only its owner may read. It must not exist.
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Writes the members below a directory of the archive, all of this time.
pub(super) fn write(
    file: impl io::Write,
    directory: &str,
    members: &[Member],
    time: SystemTime,
) -> io::Result<()> {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut archive = Builder::new(GzEncoder::new(file, Compression::default()));
    for Member { name, text } in members {
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(seconds);
        archive.append_data(&mut header, format!("{directory}/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.flush()
}
