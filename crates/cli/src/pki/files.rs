//! The directory of an authority, and those of its ends.

use super::error::PkiError;
use super::index::{Entry, Index};
use host::lock::FileLock;
use host::replace::replace;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Files of one end, relative to the directory that is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The record of the certificate.
    pub entry: Entry,
    /// The directory that is copied.
    pub directory: PathBuf,
    /// The files in it: authority, certificate, private key, revocation list.
    pub files: [PathBuf; 4],
}

/// Directories of one end, as `/etc/vpnd` has them.
const CA: &str = "ca";
const CERTS: &str = "certs";
const PRIVATE: &str = "private";
const CRLS: &str = "crls";

/// The paths of an authority's files.
pub(super) struct Files(PathBuf);

impl Files {
    pub fn new(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    pub fn index(&self) -> PathBuf {
        self.0.join("index.json")
    }

    pub fn certificate(&self) -> PathBuf {
        self.0.join("ca.pem")
    }

    pub fn key(&self) -> PathBuf {
        self.0.join("ca.key")
    }

    pub fn crl(&self) -> PathBuf {
        self.0.join("ca.crl")
    }

    fn ends(&self) -> PathBuf {
        self.0.join("ends")
    }

    /// Makes the directory, which only its owner can read, and locks it.
    pub fn create(&self) -> Result<FileLock, PkiError> {
        if self.index().exists() {
            return Err(PkiError::Exists(self.0.clone()));
        }
        directory(&self.0)?;
        let mut entries = fs::read_dir(&self.0).map_err(system("read", &self.0))?;
        // A lock is all that an attempt which has failed early may have left.
        let other = entries.find(|e| e.as_ref().is_ok_and(|e| e.file_name() != LOCK));
        if other.is_some() {
            return Err(PkiError::NotEmpty(self.0.clone()));
        }
        // It may have existed.
        let private = fs::set_permissions(&self.0, Permissions::from_mode(0o700));
        private.map_err(system("set the mode of", &self.0))?;
        self.lock()
    }

    /// Keeps other processes out.
    pub fn lock(&self) -> Result<FileLock, PkiError> {
        let path = self.0.join(LOCK);
        let lock = FileLock::take(&path).map_err(system("lock", &path))?;
        lock.ok_or_else(|| PkiError::Busy(self.0.clone()))
    }

    /// Replaces a file, with mode 0600, and returns once it is on the disk.
    pub fn write(&self, path: &Path, octets: &[u8]) -> Result<(), PkiError> {
        replace(path, octets).map_err(|(step, error)| system(step.what(), path)(error))
    }

    pub fn write_index(&self, index: &Index) -> Result<(), PkiError> {
        self.write(&self.index(), index.text().as_bytes())
    }

    /// Writes all files of an end but the revocation list, and names that, too.
    pub fn write_end(
        &self,
        authority: &str,
        entry: Entry,
        certificate: &str,
        key: &str,
    ) -> Result<Issued, PkiError> {
        let end = self.ends().join(&entry.name);
        for part in [CA, CERTS, PRIVATE, CRLS] {
            directory(&end.join(part))?;
        }
        let authority_stem = stem(authority);
        let files = [
            Path::new(CA).join(format!("{authority_stem}.pem")),
            Path::new(CERTS).join(format!("{}.pem", entry.name)),
            Path::new(PRIVATE).join(format!("{}.key", entry.name)),
            Path::new(CRLS).join(crl_name(authority)),
        ];
        let path = self.certificate();
        let above = fs::read(&path).map_err(system("read", &path))?;
        let contents: [&[u8]; 3] = [&above, certificate.as_bytes(), key.as_bytes()];
        for (file, octets) in files.iter().zip(contents) {
            self.write(&end.join(file), octets)?;
        }
        Ok(Issued { entry, directory: end, files })
    }

    /// Writes the revocation list, also for every end.
    pub fn write_crl(&self, authority: &str, list: &str) -> Result<(), PkiError> {
        self.write(&self.crl(), list.as_bytes())?;
        let ends = match fs::read_dir(self.ends()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            ends => ends.map_err(system("read", &self.ends()))?,
        };
        for end in ends.flatten() {
            let lists = end.path().join(CRLS);
            // An operator may have removed the files of an end.
            if lists.is_dir() {
                self.write(&lists.join(crl_name(authority)), list.as_bytes())?;
            }
        }
        Ok(())
    }
}

/// The file that a process locks.
const LOCK: &str = "lock";

/// Makes a directory that only its owner can read.
fn directory(path: &Path) -> Result<(), PkiError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(system("make the directory", path))
}

fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PkiError + use<> {
    let path = path.to_owned();
    move |source| PkiError::System { what, path, source }
}

/// The beginning of a file's name for an authority: gateways may trust several.
fn stem(authority: &str) -> String {
    let signs = authority
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    let text: String = signs.collect();
    let words: Vec<&str> = text.split('-').filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "authority".to_owned() } else { words.join("-") }
}

/// The name that a revocation list has on gateways: always the same, so that the next list replaces it.
pub(super) fn crl_name(authority: &str) -> String {
    format!("{}.crl", stem(authority))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_names_its_files() {
        assert_eq!(stem("Example VPN CA (2026)"), "example-vpn-ca-2026");
        assert_eq!(stem("../..//ca"), "ca");
        assert_eq!(stem("認証局"), "authority");
    }
}
