//! The policy as a directory of files, which are read as one.
//!
//! Its files are those whose names end in `.xml`, in the order of the octets of their names: the order of tunnels decides
//! which one gets a packet. Hidden files and those that end in `~` are an editor's. Everything else is told of: an
//! operator may believe that it counts.
//!
//! A program may be about to replace several files. So the files are looked at again after they were read, and are read
//! once more if they have changed meanwhile.

use super::{MAX_SIZE, PolicyFileError, PolicyText, file_text};
use crate::writers::{check_file, check_mode};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files that a directory may have.
pub const MAX_FILES: usize = 1 << 17;

/// Octets that all files of a directory may have.
pub const MAX_TOTAL_SIZE: u64 = policy::xml::MAX_TEXTS_LEN as u64;

/// A directory that changes so often while it is read is refused.
const ATTEMPTS: usize = 3;

/// A mode with this bit lets other users reach the files of a directory.
const OTHERS_SEARCH: u32 = 0o001;

/// The files of a policy, and a warning about entries of the directory that are not read.
pub struct Texts {
    /// In the order in which they are read.
    pub files: Vec<PolicyText>,
    /// A warning with a cure, if some entries are not read.
    pub ignored: Option<String>,
}

/// The files of a directory, by name, and the entries that are not read.
#[derive(PartialEq, Eq)]
struct Listing {
    files: Vec<(OsString, Stamp)>,
    ignored: Vec<OsString>,
}

/// The state of a file by which a change of it is noticed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: [u64; 2],
    changed: [i64; 4],
    size: u64,
    is_link: bool,
}

impl Stamp {
    fn of(metadata: &Metadata, is_link: bool) -> Self {
        Self {
            file: [metadata.dev(), metadata.ino()],
            changed: [
                metadata.mtime(),
                metadata.mtime_nsec(),
                metadata.ctime(),
                metadata.ctime_nsec(),
            ],
            size: metadata.len(),
            is_link,
        }
    }
}

/// Reads the files of a directory. `metadata` is that of the directory.
///
/// # Errors
/// The first file that cannot be read; a directory that others may change, or that has no file.
pub(super) fn texts(directory: &Path, metadata: &Metadata) -> Result<Texts, PolicyFileError> {
    texts_by(directory, metadata, || {})
}

/// As [`texts`]; `read` is called when all files have been read.
fn texts_by(
    directory: &Path,
    metadata: &Metadata,
    mut read: impl FnMut(),
) -> Result<Texts, PolicyFileError> {
    // Also with the sticky bit: every entry counts, and others could add one.
    check_file(directory, metadata)
        .map_err(|problem| PolicyFileError::Changeable { path: directory.to_owned(), problem })?;
    let is_open = metadata.mode() & OTHERS_SEARCH != 0;
    for _ in 0..ATTEMPTS {
        let listing = list(directory)?;
        if listing.files.is_empty() {
            return Err(PolicyFileError::Empty(directory.to_owned()));
        }
        let size: u64 = listing.files.iter().map(|(_, stamp)| stamp.size.min(MAX_SIZE)).sum();
        if size > MAX_TOTAL_SIZE {
            return Err(PolicyFileError::DirectoryTooLarge(directory.to_owned()));
        }
        let texts = listing.files.iter().map(|(name, stamp)| {
            let path = directory.join(name);
            match stamp.is_link {
                true => file_text(&path, check_file),
                // The directory is known to be in order.
                false => file_text(&path, check_mode),
            }
        });
        let texts: Result<Vec<PolicyText>, PolicyFileError> = texts.collect();
        read();
        if list(directory)? != listing {
            continue;
        }
        let mut files = texts?;
        if !is_open {
            files.iter_mut().for_each(|file| file.warning = None);
        }
        warn_once(&mut files);
        return Ok(Texts { files, ignored: ignored(directory, &listing.ignored) });
    }
    Err(PolicyFileError::Changing(directory.to_owned()))
}

fn list(directory: &Path) -> Result<Listing, PolicyFileError> {
    let failed = |path: PathBuf| move |source: io::Error| PolicyFileError::Read { path, source };
    let mut listing = Listing { files: Vec::new(), ignored: Vec::new() };
    for entry in fs::read_dir(directory).map_err(failed(directory.to_owned()))? {
        let entry = entry.map_err(failed(directory.to_owned()))?;
        let name = entry.file_name();
        if is_an_editors(&name) {
            continue;
        }
        if !name.as_bytes().ends_with(b".xml") {
            listing.ignored.push(name);
            continue;
        }
        if listing.files.len() == MAX_FILES {
            return Err(PolicyFileError::DirectoryTooLarge(directory.to_owned()));
        }
        let path = entry.path();
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            // It was removed just now. A link that leads nowhere stays.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && fs::symlink_metadata(&path).is_err() =>
            {
                continue;
            }
            Err(error) => return Err(failed(path)(error)),
        };
        let is_link = entry.file_type().map_err(failed(path))?.is_symlink();
        listing.files.push((name, Stamp::of(&metadata, is_link)));
    }
    listing.files.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    listing.ignored.sort_unstable();
    Ok(listing)
}

fn is_an_editors(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b".") || name.ends_with(b"~")
}

/// Leaves one warning about files that other users can read.
fn warn_once(files: &mut [PolicyText]) {
    let mut warnings = files.iter_mut().filter(|file| file.warning.is_some());
    let Some(first) = warnings.next() else { return };
    let mut others = 0;
    for other in warnings {
        other.warning = None;
        others += 1;
    }
    if let Some(warning) = first.warning.as_mut().filter(|_| others > 0) {
        warning.push_str(&format!("; {others} more files of the directory are as open"));
    }
}

fn ignored(directory: &Path, names: &[OsString]) -> Option<String> {
    let first = directory.join(names.first()?);
    let first = first.display();
    let what = match names.len() {
        1 => format!("{first} is not read"),
        2 => format!("{first} and another entry of the directory are not read"),
        more => format!("{first} and {} more entries of the directory are not read", more - 1),
    };
    Some(format!(
        "{what}: a directory's policy is in its files whose names end in .xml; rename or move the others"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{PolicyFile, read, texts as read_texts};
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    const SAMPLE: &str = include_str!("../../../../tests/policies/site/left.xml");

    /// The sample's elements before its tunnel, and the others.
    fn halves() -> [String; 2] {
        let at = SAMPLE.find("<IKETunnel").expect("the sample has one");
        let [common, site] = [&SAMPLE[..at], &SAMPLE[at..]];
        [format!("{common}</AIX_VPN>"), format!("<AIX_VPN Version=\"2.1\">\n{site}")]
    }

    fn directory(files: &[(&str, &str)]) -> TempDir {
        let directory = tempfile::tempdir().expect("a temporary directory");
        files.iter().for_each(|(name, text)| write(&directory, name, text));
        directory
    }

    fn write(directory: &TempDir, name: &str, text: &str) {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("writable");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
    }

    fn error(directory: &TempDir) -> PolicyFileError {
        read(directory.path()).expect_err("no policy")
    }

    #[test]
    fn the_files_of_a_directory_are_one_policy() {
        let [common, site] = halves();
        // Whatever the order: an object may refer to those of later files.
        for names in [["00-common.xml", "site.xml"], ["zz-common.xml", "site.xml"]] {
            let directory = directory(&[(names[0], &common), (names[1], &site)]);
            let PolicyFile { policy, warnings, definitions, .. } =
                read(directory.path()).expect("both together are the sample");
            assert_eq!(warnings, Vec::<String>::new());
            assert_eq!(policy, policy::xml::read("left.xml", SAMPLE).expect("valid").policy);
            let files = definitions.of("site").map(|d| Path::new(&*d.file).file_name());
            let expected = [names[1], names[0], names[1]].map(|name| Some(OsStr::new(name)));
            assert_eq!(files.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn an_error_names_its_file() {
        let [common, site] = halves();
        let site = site.replace("192.0.2.2", "192.0.2.300");
        let directory = directory(&[("00-common.xml", &common), ("site.xml", &site)]);
        let told = error(&directory).to_string();
        assert!(told.contains("/site.xml:") && told.contains("192.0.2.300"), "{told}");
        write(&directory, "site.xml", &halves()[1]);
        write(&directory, "twice.xml", &halves()[1]);
        let told = error(&directory).to_string();
        assert!(told.contains("/twice.xml:") && told.contains("site.xml"), "{told}");
    }

    #[test]
    fn files_come_in_the_order_of_their_names() {
        let [common, site] = halves();
        let directory = directory(&[("b.xml", &site), ("a.xml", &common), ("B.xml", "<AIX_VPN/>")]);
        let texts = read_texts(directory.path()).expect("they can be read");
        let names = texts.files.iter().map(|f| Path::new(&f.name).file_name());
        assert_eq!(names.flatten().collect::<Vec<_>>(), ["B.xml", "a.xml", "b.xml"]);
    }

    #[test]
    fn entries_that_are_not_read_are_told_of() {
        let directory =
            directory(&[("site.xml", SAMPLE), ("other.conf", ""), (".site.xml.swp", "")]);
        write(&directory, "site.xml~", "");
        let warnings = read(directory.path()).expect("the sample is valid").warnings;
        let [one] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(one.contains("/other.conf is not read"), "{one}");
        fs::create_dir(directory.path().join("more")).expect("writable");
        let warnings = read(directory.path()).expect("the sample is valid").warnings;
        let [one] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(one.contains("/more and another entry"), "{one}");
    }

    #[test]
    fn a_directory_without_a_file_is_refused() {
        assert!(matches!(error(&directory(&[])), PolicyFileError::Empty(_)));
        let told = error(&directory(&[("site.XML", SAMPLE)])).to_string();
        assert!(told.contains("has no file whose name ends in .xml"), "{told}");
        let empty = directory(&[("none.xml", "<AIX_VPN Version=\"2.1\"/>")]);
        assert!(read(empty.path()).expect("it says so").policy.tunnels.is_empty());
    }

    #[test]
    fn a_directory_in_which_others_may_write_is_refused() {
        let directory = directory(&[("site.xml", SAMPLE)]);
        for mode in [0o777, 0o1777] {
            fs::set_permissions(directory.path(), Permissions::from_mode(mode)).expect("ours");
            assert!(matches!(error(&directory), PolicyFileError::Changeable { .. }), "{mode:o}");
        }
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("ours");
        let path = directory.path().join("site.xml");
        fs::set_permissions(&path, Permissions::from_mode(0o602)).expect("ours");
        assert!(matches!(error(&directory), PolicyFileError::Changeable { .. }));
        // Others can read the keys.
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("ours");
        let warnings = |directory: &TempDir| read(directory.path()).expect("valid").warnings;
        assert!(warnings(&directory)[0].contains("chmod 600"));
        fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).expect("ours");
        assert_eq!(warnings(&directory), Vec::<String>::new());
    }

    #[test]
    fn a_link_is_judged_by_its_target() {
        let elsewhere = directory(&[("site.xml", SAMPLE)]);
        let linked = directory(&[]);
        let link = linked.path().join("site.xml");
        symlink(elsewhere.path().join("site.xml"), &link).expect("writable");
        assert_eq!(read(linked.path()).expect("it is ours").policy.tunnels.len(), 1);
        fs::remove_file(elsewhere.path().join("site.xml")).expect("ours");
        assert!(matches!(error(&linked), PolicyFileError::Read { path, .. } if path == link));
    }

    #[test]
    fn a_directory_that_changes_while_it_is_read_is_read_again() {
        let directory = directory(&[("site.xml", SAMPLE)]);
        let metadata = fs::metadata(directory.path()).expect("it is there");
        let mut reads = 0;
        let texts = texts_by(directory.path(), &metadata, || {
            reads += 1;
            if reads == 1 {
                write(&directory, "added.xml", "<AIX_VPN Version=\"2.1\"/>");
            }
        });
        assert_eq!(texts.expect("it has settled").files.len(), 2);
        assert_eq!(reads, 2);
        let mut number = 0;
        let texts = texts_by(directory.path(), &metadata, || {
            number += 1;
            write(&directory, "added.xml", &"\n".repeat(number));
        });
        assert!(matches!(texts.err(), Some(PolicyFileError::Changing(_))));
        assert_eq!(number, ATTEMPTS);
    }

    #[test]
    fn a_directory_of_too_many_octets_is_refused_before_it_is_read() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for number in 0..=MAX_TOTAL_SIZE / MAX_SIZE {
            let file = fs::File::create(directory.path().join(format!("{number}.xml")));
            file.and_then(|file| file.set_len(MAX_SIZE)).expect("a file of holes");
        }
        assert!(matches!(error(&directory), PolicyFileError::DirectoryTooLarge(_)));
    }
}
