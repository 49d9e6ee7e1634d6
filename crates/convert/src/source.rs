//! The files of a configuration, and locations in them.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Octets of the largest file that is read.
pub const MAX_FILE: u64 = 1 << 20;

/// Files that one configuration may include, directly or through others.
pub const MAX_FILES: usize = 256;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The name under which the file was read.
    pub file: Arc<str>,
    /// From 1; 0 stands for the whole file.
    pub line: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A word of a file and where it stands. It may be a key, and is wiped.
#[derive(Clone)]
pub(super) struct Value {
    pub text: Zeroizing<String>,
    pub location: Location,
}

impl Value {
    pub fn new(text: impl Into<String>, location: &Location) -> Self {
        Self { text: Zeroizing::new(text.into()), location: location.clone() }
    }

    /// The setting as a finding shows it, cut to a readable length; not for keys.
    pub fn shown(&self, name: &str) -> String {
        let short: String = self.text.chars().take(40).collect();
        let rest = if short.len() < self.text.len() { "…" } else { "" };
        format!("{name} = {short}{rest}")
    }

    /// Parts of a list, without blanks around them and without empty ones.
    pub fn list(&self) -> impl Iterator<Item = &str> {
        self.text.split(',').map(str::trim).filter(|part| !part.is_empty())
    }
}

/// A file's text.
#[derive(Clone, Debug)]
pub struct File {
    /// For findings, and to find what it includes.
    pub name: Arc<str>,
    /// Its text.
    pub text: Zeroizing<String>,
}

/// Gives the files that a configuration includes.
pub trait Files {
    /// The files of a pattern, in order, as seen from the file that includes them; none where none matches.
    ///
    /// # Errors
    /// The reason why a file cannot be read.
    fn include(&mut self, pattern: &str, from: &str) -> Result<Vec<File>, String>;
}

/// Files of this machine.
#[derive(Debug, Default)]
pub struct Disk {
    read: usize,
}

impl Files for Disk {
    fn include(&mut self, pattern: &str, from: &str) -> Result<Vec<File>, String> {
        let directory = Path::new(from).parent().unwrap_or(Path::new(""));
        // An absolute pattern replaces the directory.
        let pattern = directory.join(pattern);
        let pattern = pattern.to_str().ok_or("the pattern is not UTF-8")?;
        let mut files = Vec::new();
        for path in glob::glob(pattern).map_err(|error| error.to_string())? {
            let path: PathBuf = path.map_err(|error| error.to_string())?;
            self.read += 1;
            if self.read > MAX_FILES {
                return Err(format!("more than {MAX_FILES} files are included"));
            }
            files.push(read(&path).map_err(|error| error.to_string())?);
        }
        Ok(files)
    }
}

/// A file cannot be converted.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}", .path.display())]
pub struct ReadError {
    path: PathBuf,
    source: io::Error,
}

/// Reads a file; `-` is standard input.
///
/// # Errors
/// Returns an error if it cannot be read, has more than [`MAX_FILE`] octets, or is no text.
pub fn read(path: &Path) -> Result<File, ReadError> {
    let text = text(path).map_err(|source| ReadError { path: path.to_owned(), source })?;
    let name =
        if path == Path::new("-") { "standard input".into() } else { path.display().to_string() };
    Ok(File { name: name.into(), text })
}

fn text(path: &Path) -> io::Result<Zeroizing<String>> {
    let mut octets = Zeroizing::new(Vec::new());
    // One octet more than the limit tells a file that is too large from one that just fits.
    if path == Path::new("-") {
        io::stdin().lock().take(MAX_FILE + 1).read_to_end(&mut octets)?;
    } else {
        let file = std::fs::File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(invalid("it is no regular file"));
        }
        file.take(MAX_FILE + 1).read_to_end(&mut octets)?;
    }
    if octets.len() as u64 > MAX_FILE {
        return Err(invalid("it is larger than a mebibyte"));
    }
    let text = std::str::from_utf8(&octets).map_err(|_| invalid("it is not UTF-8"))?;
    Ok(Zeroizing::new(text.to_owned()))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
