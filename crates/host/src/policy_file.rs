//! The policy as a file, or as a directory of files: who may have written it, who may read it, what is in it.

mod directory;

pub use directory::{MAX_FILES, MAX_TOTAL_SIZE, Texts};

use crate::writers::{Changeable, check_file};
use policy::xml::{Definitions, Diagnostic, Diagnostics, Loaded, Options, Text};
use policy::{Bindings, Policy};
use rustix::fs::OFlags;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Largest file that is read, in octets.
pub const MAX_SIZE: u64 = policy::xml::MAX_FILE_LEN as u64;

/// A policy that was read, and what was remarked on the way.
#[derive(Debug)]
pub struct PolicyFile {
    /// The policy.
    pub policy: Policy,
    /// Each a text of one or more lines for the operator.
    pub warnings: Vec<String>,
    /// Those of them that concern a place in the text.
    pub diagnostics: Vec<Diagnostic>,
    /// The lines at which its tunnels are defined.
    pub definitions: Definitions,
}

/// The help behind the error of a file that cannot be read.
fn help(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "\n  name another file, or make one with: vpnctl policy new --help"
        }
        // Without CAP_DAC_OVERRIDE, as in a container.
        io::ErrorKind::PermissionDenied if rustix::process::geteuid().is_root() => {
            "\n  it belongs to another user, and this root may not override that: give it to root (chown root FILE)"
        }
        io::ErrorKind::PermissionDenied => {
            "\n  read it as root or as its owner: it may hold keys, and should have mode 0600"
        }
        _ => "",
    }
}

/// A policy file cannot be used.
#[derive(thiserror::Error)]
pub enum PolicyFileError {
    /// It cannot be read.
    #[error("cannot read the policy {}: {source}{}", .path.display(), help(source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is no file.
    #[error("the policy {} is a directory; name an AIX_VPN XML file", .0.display())]
    Directory(PathBuf),
    /// It is a directory without a policy. One whose files are away for a moment must not end all tunnels.
    #[error(
        "the policy directory {} has no file whose name ends in .xml\n  to run without tunnels, put one there that \
         holds <AIX_VPN Version=\"2.1\"/>",
        .0.display()
    )]
    Empty(PathBuf),
    /// It is a directory with too much in it.
    #[error(
        "the policy directory {} has more than {MAX_FILES} files, or more than {MAX_TOTAL_SIZE} octets in them",
        .0.display()
    )]
    DirectoryTooLarge(PathBuf),
    /// Others replace its files at this moment.
    #[error(
        "the policy directory {} changed whenever it was read\n  try again when the program that writes it has ended",
        .0.display()
    )]
    Changing(PathBuf),
    /// It is a pipe, a device or the like.
    #[error("the policy {} is no regular file; name the AIX_VPN XML file itself", .0.display())]
    Irregular(PathBuf),
    /// It is too large to be a policy.
    #[error("the policy {} is larger than {MAX_SIZE} octets", .0.display())]
    TooLarge(PathBuf),
    /// It is no text.
    #[error(
        "{}:{line}: error: the policy is not in UTF-8 here, octet {at} of the file\n  = help: convert it: iconv -f \
         ISO-8859-1 -t UTF-8",
        .path.display()
    )]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// Octets before it.
        at: usize,
    },
    /// Others may change it.
    #[error("the policy {}: {problem}", .path.display())]
    Changeable {
        /// The file.
        path: PathBuf,
        /// The users who may change it, and the cure.
        problem: Changeable,
    },
    /// It has errors, listed here.
    #[error("{0}")]
    Invalid(Diagnostics),
}

policy::readable_debug!(PolicyFileError);

/// The text of a policy file, whatever it may be worth.
pub struct PolicyText {
    /// The name of the file in messages.
    pub name: String,
    /// The text of the file.
    pub text: Zeroizing<String>,
    /// A warning with a cure, if other users can read the file.
    pub warning: Option<String>,
}

impl PolicyText {
    /// The text with the name of its file.
    pub fn text(&self) -> Text<'_> {
        Text { name: &self.name, text: &self.text }
    }
}

/// Reads a policy file, or a directory of policy files.
///
/// # Errors
/// As [`PolicyFileError`], all errors of a file at once.
pub fn read(path: &Path) -> Result<PolicyFile, PolicyFileError> {
    read_with(path, false, &Bindings::default())
}

/// Reads a policy file, or a directory of policy files; with `lenient` elements and attributes of unknown names are warned of instead of refused.
/// `bindings`: the marks and interfaces that its tunnels will have.
///
/// # Errors
/// As [`read`].
pub fn read_with(
    path: &Path,
    lenient: bool,
    bindings: &Bindings,
) -> Result<PolicyFile, PolicyFileError> {
    let Texts { files, ignored } = texts(path)?;
    let options = Options { lenient, bindings: Some(bindings), ..Options::default() };
    let texts: Vec<Text<'_>> = files.iter().map(PolicyText::text).collect();
    let loaded = policy::xml::read_all(&texts, &options);
    let mut file = PolicyFile::from(loaded.map_err(PolicyFileError::Invalid)?);
    file.warnings.extend(ignored);
    if !file.policy.tunnels.is_empty() {
        file.warnings.extend(files.into_iter().filter_map(|file| file.warning));
    }
    Ok(file)
}

/// Reads the text of a policy file, or the texts of a directory of policy files.
///
/// # Errors
/// As [`PolicyFileError`].
pub fn texts(path: &Path) -> Result<Texts, PolicyFileError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => directory::texts(path, &metadata),
        // If it cannot be read, the reader says so.
        _ => Ok(Texts { files: vec![text(path)?], ignored: None }),
    }
}

/// Reads the text of a policy file; `-` is standard input.
///
/// # Errors
/// As [`PolicyFileError`].
pub fn text(path: &Path) -> Result<PolicyText, PolicyFileError> {
    if path == Path::new("-") {
        let text = octets(path, 0, io::stdin().lock())?;
        return Ok(PolicyText { name: "standard input".to_owned(), text, warning: None });
    }
    file_text(path, check_file)
}

/// Reads the text of a policy file; `check` finds others who may change it.
fn file_text(
    path: &Path,
    check: fn(&Path, &Metadata) -> Result<(), Changeable>,
) -> Result<PolicyText, PolicyFileError> {
    let name = path.display().to_string();
    // Nobody may be there to write into a pipe: opening it is not to wait for that.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let opened = File::options().read(true).custom_flags(nonblocking).open(path);
    let (file, metadata) = opened
        .and_then(|file| file.metadata().map(|metadata| (file, metadata)))
        .map_err(|source| PolicyFileError::Read { path: path.to_owned(), source })?;
    if metadata.is_dir() {
        return Err(PolicyFileError::Directory(path.to_owned()));
    }
    if !metadata.is_file() {
        return Err(PolicyFileError::Irregular(path.to_owned()));
    }
    check(path, &metadata)
        .map_err(|problem| PolicyFileError::Changeable { path: path.to_owned(), problem })?;
    let size = usize::try_from(metadata.len().min(MAX_SIZE)).unwrap_or(0);
    let text = octets(path, size, file)?;
    let open = metadata.mode() & 0o004 != 0;
    let warning = open.then(|| {
        format!(
            "{name}: every user of this machine can read the keys in it; close it with: chmod 600 {name}"
        )
    });
    Ok(PolicyText { name, text, warning })
}

fn octets(path: &Path, size: usize, from: impl Read) -> Result<Zeroizing<String>, PolicyFileError> {
    // Reserved in one piece: a buffer that grows leaves copies of the keys in freed memory.
    let mut octets = Zeroizing::new(Vec::with_capacity(size + 1));
    from.take(MAX_SIZE + 1)
        .read_to_end(&mut octets)
        .map_err(|source| PolicyFileError::Read { path: path.to_owned(), source })?;
    if octets.len() as u64 > MAX_SIZE {
        return Err(PolicyFileError::TooLarge(path.to_owned()));
    }
    let octets = std::mem::take(&mut *octets);
    String::from_utf8(octets).map(Zeroizing::new).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let octets = Zeroizing::new(error.into_bytes());
        let line = 1 + octets[..at].iter().filter(|octet| **octet == b'\n').count();
        PolicyFileError::NotUtf8 { path: path.to_owned(), line, at }
    })
}

impl From<Loaded> for PolicyFile {
    fn from(loaded: Loaded) -> Self {
        let Loaded { policy, warnings: diagnostics, definitions } = loaded;
        let warnings = diagnostics.iter().map(ToString::to_string).collect();
        Self { policy, warnings, diagnostics, definitions }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    const SAMPLE: &str = include_str!("../../../tests/policies/site/left.xml");

    fn file(directory: &Path, text: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = directory.join("policy.xml");
        fs::write(&path, text).expect("writable");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
        path
    }

    #[test]
    fn both_samples_are_read_without_a_warning() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for text in [SAMPLE, include_str!("../../../tests/policies/site/right.xml")] {
            let read = read(&file(directory.path(), text, 0o600)).expect("the sample is valid");
            assert_eq!(read.policy.tunnels.len(), 1);
            assert_eq!(read.warnings, Vec::<String>::new());
        }
    }

    #[test]
    fn a_policy_that_others_can_read_is_warned_of_and_one_they_can_write_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let warnings = |mode| read(&file(directory.path(), SAMPLE, mode)).map(|f| f.warnings);
        let readable = warnings(0o644).expect("a warning only");
        assert!(readable.len() == 1 && readable[0].contains("chmod 600"), "{readable:?}");
        assert!(matches!(warnings(0o602), Err(PolicyFileError::Changeable { .. })));
        assert!(warnings(0o640).expect("for a group, as its owner wants").is_empty());
    }

    #[test]
    fn each_defect_of_a_policy_file_has_its_own_error() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path();
        let error = |text: &[u8]| read(&file(path, text, 0o600)).expect_err("no policy");
        assert!(matches!(text(path), Err(PolicyFileError::Directory(_))));
        let pipe = path.join("pipe");
        mkfifoat(CWD, &pipe, Mode::RUSR).expect("pipes can be made");
        assert!(matches!(read(&pipe), Err(PolicyFileError::Irregular(_))));
        assert!(matches!(read(&path.join("none")), Err(PolicyFileError::Read { .. })));
        assert!(matches!(error(b"<AIX_VPN>\xff"), PolicyFileError::NotUtf8 { at: 9, .. }));
        assert!(matches!(
            error(&vec![b' '; policy::xml::MAX_FILE_LEN + 1]),
            PolicyFileError::TooLarge(_)
        ));
        let told = error(b"<AIX_VPN Version=\"2.1\"><IKETunel/></AIX_VPN>").to_string();
        assert!(told.contains("policy.xml:1:") && told.contains("IKETunnel"), "{told}");
    }
}
