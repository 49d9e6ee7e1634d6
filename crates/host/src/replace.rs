//! Replacing a file atomically: a reader, even after a crash, finds the old text or the new one.
//!
//! The new text is written to a file of its own beside the old one, which then takes the old one's name. The process
//! that replaces a file has made this successor itself. Another user may have put a link, a pipe, or an open file
//! there: such an object is removed, and never written to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Octets written at a time.
const PIECE: usize = 4096;

/// A step of replacing a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
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

/// Replaces a file, or makes it, with mode 0600, and returns once the new text is on the disk. The successor has the
/// file's name with the extension `new`; an attempt that fails may leave it behind, and the next attempt removes it.
///
/// # Errors
/// The step that the system refused, and its answer. Before [`Step::SyncDirectory`] the file is as it was.
pub fn replace(path: &Path, octets: &[u8]) -> Result<(), (Step, io::Error)> {
    replace_by(path, octets, &mut |_| Ok(()))
}

/// As [`replace`]; `before` is called before every step, and may let it fail.
///
/// # Errors
/// As [`replace`], and where `before` returns one.
pub fn replace_by(
    path: &Path,
    octets: &[u8],
    before: &mut dyn FnMut(Step) -> io::Result<()>,
) -> Result<(), (Step, io::Error)> {
    let successor = path.with_extension("new");
    let mut file =
        before(Step::Create).and_then(|()| create(&successor)).map_err(at(Step::Create))?;
    for piece in octets.chunks(PIECE) {
        before(Step::Write).and_then(|()| file.write_all(piece)).map_err(at(Step::Write))?;
    }
    before(Step::SyncFile).and_then(|()| file.sync_all()).map_err(at(Step::SyncFile))?;
    before(Step::Rename).and_then(|()| fs::rename(&successor, path)).map_err(at(Step::Rename))?;
    let directory = path.parent().filter(|d| !d.as_os_str().is_empty());
    before(Step::SyncDirectory)
        .and_then(|()| File::open(directory.unwrap_or(Path::new(".")))?.sync_all())
        .map_err(at(Step::SyncDirectory))
}

fn at(step: Step) -> impl FnOnce(io::Error) -> (Step, io::Error) {
    move |error| (step, error)
}

/// Makes a file that did not exist: open(2) follows no link with O_EXCL, and nobody else has the file open.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    /// A directory that goes with the value.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("replace-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("a new directory");
            Self(path)
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).expect("readable")
    }

    #[test]
    fn a_link_in_the_place_of_the_successor_is_not_followed() {
        for hard in [false, true] {
            let place = Place::new(if hard { "hard" } else { "soft" });
            let (path, other) = (place.file("policy.xml"), place.file("shadow"));
            fs::write(&other, "precious").expect("writable");
            let planted = place.file("policy.new");
            match hard {
                true => fs::hard_link(&other, &planted).expect("a link"),
                false => symlink(&other, &planted).expect("a link"),
            }
            replace(&path, b"secret").expect("the link is no obstacle");
            assert_eq!((text(&other), text(&path)), ("precious".to_owned(), "secret".to_owned()));
            let metadata = fs::symlink_metadata(&path).expect("there");
            assert!(metadata.is_file());
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_link_to_nothing_makes_no_file_elsewhere() {
        let place = Place::new("dangling");
        let (path, other) = (place.file("policy.xml"), place.file("nologin"));
        symlink(&other, place.file("policy.new")).expect("a link");
        replace(&path, b"secret").expect("the link is no obstacle");
        assert!(!other.exists());
        assert_eq!(text(&path), "secret");
    }

    #[test]
    fn a_file_that_another_process_has_open_gets_no_secret() {
        let place = Place::new("open");
        let planted = place.file("policy.new");
        fs::write(&planted, "").expect("writable");
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o666)).expect("ours");
        let mut watched = File::open(&planted).expect("readable");
        replace(&place.file("policy.xml"), b"secret").expect("nothing is in the way");
        let mut seen = String::new();
        watched.read_to_string(&mut seen).expect("readable");
        assert_eq!(seen, "");
    }

    #[test]
    fn an_object_that_cannot_be_removed_is_an_error() {
        let place = Place::new("directory");
        let path = place.file("policy.xml");
        fs::write(&path, "old").expect("writable");
        fs::create_dir(place.file("policy.new")).expect("a directory");
        let (step, _) = replace(&path, b"new").expect_err("a directory is in the way");
        assert_eq!((step, text(&path)), (Step::Create, "old".to_owned()));
    }
}
