//! `vpnctl pki`: a small certificate authority in a directory.
//!
//! ```text
//! DIR/ca.pem, ca.key     the authority's certificate and private key
//! DIR/ca.crl             its current revocation list
//! DIR/index.json         every certificate that it has issued
//! DIR/ends/NAME/         all that the end NAME needs, as /etc/vpnd has it: ca, certs, private, crls
//! ```
//!
//! The index is written before the effect: a certificate is recorded before it is in a file, and a revocation before
//! the list that tells it. After a crash at any moment nothing is valid that the index does not know, and
//! `vpnctl pki crl` writes the list again.

mod error;
mod files;
mod index;
mod issuer;
mod key;
mod making;

pub use error::PkiError;
pub use files::Issued;
pub use index::{Entry, Index, Moment, State};
pub use key::KeyKind;
pub use making::{Alternatives, Wanted};

use files::Files;
use host::lock::FileLock;
use making::Maker;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Certificates and revocation lists are dated this long ago, because the clocks of gateways differ: some peers refuse
/// those that their own clock has in the future.
const BACKDATED: Duration = Duration::from_secs(3600);

/// A new authority.
#[derive(Clone, Debug)]
pub struct NewAuthority {
    /// Its common name.
    pub name: String,
    /// Days until it expires.
    pub days: u32,
    /// Days until each of its revocation lists expires.
    pub crl_days: u32,
    /// The kind of its key.
    pub key: KeyKind,
}

/// An authority, for one process at a time.
pub struct Authority {
    files: Files,
    index: Index,
    maker: Maker,
    _lock: FileLock,
}

impl Authority {
    /// Makes an authority in a directory that is empty or does not exist.
    ///
    /// # Errors
    /// As [`PkiError`].
    pub fn create(
        directory: &Path,
        wanted: &NewAuthority,
        now: SystemTime,
    ) -> Result<Self, PkiError> {
        if wanted.name.trim().is_empty() || wanted.name.chars().any(char::is_control) {
            let why =
                "the name of an authority has at least one character, and no control characters";
            return Err(PkiError::Arguments(why.to_owned()));
        }
        let files = Files::new(directory);
        let lock = files.create()?;
        let until = now + wanted.days * DAY;
        let validity = [now - BACKDATED, until];
        let (maker, certificate, key) = Maker::new(&wanted.name, wanted.key, validity)?;
        let index = Index::new(&wanted.name, Moment::of(until), wanted.crl_days);
        files.write(&files.key(), key.as_bytes())?;
        files.write(&files.certificate(), certificate.as_bytes())?;
        let mut authority = Self { files, index, maker, _lock: lock };
        // Last, so that a directory with an index has all the rest.
        authority.write_crl(now)?;
        Ok(authority)
    }

    /// Opens the authority of a directory.
    ///
    /// # Errors
    /// As [`PkiError`].
    pub fn open(directory: &Path) -> Result<Self, PkiError> {
        let files = Files::new(directory);
        if !files.index().exists() {
            return Err(PkiError::Missing(directory.to_owned()));
        }
        let lock = files.lock()?;
        let index = Index::read(&files.index())?;
        let maker = Maker::open(&files.certificate(), &files.key())?;
        Ok(Self { files, index, maker, _lock: lock })
    }

    /// Reads the index of the authority in a directory. The private key is not needed.
    ///
    /// # Errors
    /// As [`PkiError`].
    pub fn look(directory: &Path) -> Result<Index, PkiError> {
        let path = Files::new(directory).index();
        if !path.exists() {
            return Err(PkiError::Missing(directory.to_owned()));
        }
        Index::read(&path)
    }

    /// The index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Makes a key and a certificate, and the files of the end.
    ///
    /// # Errors
    /// As [`PkiError`].
    pub fn issue(&mut self, wanted: &Wanted, now: SystemTime) -> Result<Issued, PkiError> {
        let Wanted { name, alternatives, .. } = wanted;
        let valid = self.index.ends.iter().find(|e| e.name == *name && e.is_valid(now));
        if let Some(entry) = valid.filter(|_| !wanted.renew) {
            return Err(PkiError::Arguments(format!(
                "{name} has a certificate already (serial {}, until {}); make another one with --renew, or revoke it \
                 first: vpnctl pki revoke {name}",
                entry.serial, entry.not_after
            )));
        }
        let until = self.until(wanted.days, now)?;
        let validity = [now - BACKDATED, until];
        let (key, key_text) = making::key(wanted.key)?;
        let serial = making::serial();
        let entry = Entry {
            name: name.clone(),
            serial: making::hex(&serial),
            identities: alternatives.identities(name),
            not_after: Moment::of(until),
            revoked: None,
        };
        let certificate = self.maker.issue(wanted, &key, &serial, validity)?;
        self.index.ends.push(entry.clone());
        self.files.write_index(&self.index)?;
        let issued = self.files.write_end(&self.index.name, entry, &certificate, &key_text)?;
        // It lasts at least as long as if it were made together with the certificate.
        self.write_crl(now)?;
        Ok(issued)
    }

    /// The end of a certificate's life.
    fn until(&self, days: Option<u32>, now: SystemTime) -> Result<SystemTime, PkiError> {
        let last = self.index.not_after.0;
        if last <= now {
            return Err(PkiError::Arguments(format!(
                "the authority has expired on {}; make another one with: vpnctl pki init --dir DIR",
                self.index.not_after
            )));
        }
        let until = now + days.unwrap_or(365) * DAY;
        match days {
            Some(_) if until > last => Err(PkiError::Arguments(format!(
                "the authority expires on {}, before this certificate would; choose fewer --days",
                self.index.not_after
            ))),
            _ => Ok(until.min(last)),
        }
    }

    /// Revokes the certificates of a name, or the one with a serial number, and writes the list; returns what it has
    /// revoked.
    ///
    /// # Errors
    /// As [`PkiError`].
    pub fn revoke(&mut self, which: &str, now: SystemTime) -> Result<Vec<Entry>, PkiError> {
        let revoked = self.index.revoke(which, Moment::of(now)).map_err(PkiError::Arguments)?;
        self.files.write_index(&self.index)?;
        self.write_crl(now)?;
        Ok(revoked)
    }

    /// Writes the revocation list; `days` is the life of this one and those that follow.
    ///
    /// # Errors
    /// As [`PkiError`].
    pub fn renew_crl(&mut self, days: Option<u32>, now: SystemTime) -> Result<(), PkiError> {
        self.index.crl_days = days.unwrap_or(self.index.crl_days);
        self.write_crl(now)
    }

    /// The file of the revocation list.
    pub fn crl_file(&self) -> PathBuf {
        self.files.crl()
    }

    /// The name that the revocation list has on gateways.
    pub fn crl_name(&self) -> String {
        files::crl_name(&self.index.name)
    }

    /// The file of the authority's certificate.
    pub fn certificate_file(&self) -> PathBuf {
        self.files.certificate()
    }

    /// The file of the authority's private key.
    pub fn key_file(&self) -> PathBuf {
        self.files.key()
    }

    fn write_crl(&mut self, now: SystemTime) -> Result<(), PkiError> {
        let until = now + self.index.crl_days * DAY;
        self.index.crl_number += 1;
        self.index.crl_until = Some(Moment::of(until));
        // First: a number that is used twice would make two lists that differ look alike.
        self.files.write_index(&self.index)?;
        let list = self.maker.list(&self.index, [now - BACKDATED, until])?;
        self.files.write_crl(&self.index.name, &list)
    }
}

#[cfg(test)]
mod tests;
