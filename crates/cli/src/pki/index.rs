//! The record of an authority: its name, its certificates, the number of its last list.

use super::DAY;
use super::error::PkiError;
use control::protocol::certificate::{NOTICE, notice_of_list};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The version of the format.
const VERSION: u32 = 1;

/// The record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// The version of this format.
    pub version: u32,
    /// The common name of the authority.
    pub name: String,
    /// The end of the authority's life.
    pub not_after: Moment,
    /// The number of the last revocation list.
    pub crl_number: u64,
    /// The life of a list, in days.
    pub crl_days: u32,
    /// The end of the last list's life.
    pub crl_until: Option<Moment>,
    /// All certificates, the oldest first.
    pub ends: Vec<Entry>,
}

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The common name of its subject, and the name of its files.
    pub name: String,
    /// The serial number, in hexadecimal digits.
    pub serial: String,
    /// The identities that it proves.
    pub identities: Vec<String>,
    /// The end of its life.
    pub not_after: Moment,
    /// The moment of its revocation; `None`: it is not revoked.
    pub revoked: Option<Moment>,
}

/// A moment, to the second, as RFC 3339 writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub SystemTime);

/// The state of a certificate, or of a revocation list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Valid, and not to expire soon.
    Valid,
    /// Valid, and expires within a month; of a list with a short life, within a third of that.
    Expiring,
    /// Its life is over.
    Expired,
    /// Revoked.
    Revoked,
}

impl Index {
    /// The record of a new authority.
    pub fn new(name: &str, not_after: Moment, crl_days: u32) -> Self {
        let (name, ends) = (name.to_owned(), Vec::new());
        let (crl_number, crl_until) = (0, None);
        Self { version: VERSION, name, not_after, crl_number, crl_days, crl_until, ends }
    }

    /// The state of the last revocation list; `None` if there is none.
    pub fn crl_state(&self, now: SystemTime) -> Option<State> {
        let notice = notice_of_list(self.crl_days * DAY);
        self.crl_until.map(|until| until.state(notice, now))
    }

    /// Reads the file.
    ///
    /// # Errors
    /// Where it cannot be read, or is of a newer version.
    pub fn read(path: &Path) -> Result<Self, PkiError> {
        let text = fs::read(path).map_err(|source| {
            let path = path.to_owned();
            PkiError::System { what: "read", path, source }
        })?;
        let index: Self = serde_json::from_slice(&text)
            .map_err(|error| Self::damaged(path, error.to_string()))?;
        match index.version {
            VERSION => Ok(index),
            other => Err(Self::damaged(path, format!("version {other} is not known here"))),
        }
    }

    fn damaged(path: &Path, why: String) -> PkiError {
        PkiError::Index { path: path.to_owned(), why }
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("only strings and numbers");
        text + "\n"
    }

    /// Notes the revocation of the certificates of a name, or of the one with a serial number; returns them.
    ///
    /// # Errors
    /// A text for people, if there is none, or none that is not revoked.
    pub fn revoke(&mut self, which: &str, now: Moment) -> Result<Vec<Entry>, String> {
        let serial = which.replace(':', "").to_ascii_lowercase();
        let named = self.ends.iter().any(|entry| entry.name == which);
        let meant: Vec<&mut Entry> = self
            .ends
            .iter_mut()
            .filter(|entry| if named { entry.name == which } else { entry.serial == serial })
            .collect();
        if meant.is_empty() {
            let known: Vec<&str> = self.ends.iter().map(|entry| entry.name.as_str()).collect();
            let near = nearest(which, &known).map(|name| format!("; did you mean {name:?}?"));
            let near = near.unwrap_or_else(|| "; vpnctl pki list shows all".to_owned());
            return Err(format!("no certificate has the name or serial number {which:?}{near}"));
        }
        let fresh = meant.into_iter().filter(|entry| entry.revoked.is_none());
        let revoked: Vec<Entry> = fresh
            .map(|entry| {
                entry.revoked = Some(now);
                entry.clone()
            })
            .collect();
        if revoked.is_empty() {
            return Err(format!("{which} is revoked already"));
        }
        Ok(revoked)
    }
}

fn nearest<'n>(wanted: &str, known: &[&'n str]) -> Option<&'n str> {
    known
        .iter()
        .map(|name| ((strsim::jaro_winkler(wanted, name) * 1000.0) as u32, *name))
        .filter(|(likeness, _)| *likeness > 800)
        .max_by_key(|(likeness, _)| *likeness)
        .map(|(_, name)| name)
}

impl Entry {
    /// Returns `true` if it is neither expired nor revoked.
    pub fn is_valid(&self, now: SystemTime) -> bool {
        matches!(self.state(now), State::Valid | State::Expiring)
    }

    /// The state of the certificate.
    pub fn state(&self, now: SystemTime) -> State {
        match self.revoked {
            Some(_) => State::Revoked,
            None => self.not_after.state(NOTICE, now),
        }
    }
}

impl Moment {
    /// A moment without the parts of a second, which no certificate and no record keeps.
    pub fn of(moment: SystemTime) -> Self {
        let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs()))
    }

    /// The state of an item that expires at this moment.
    fn state(self, notice: Duration, now: SystemTime) -> State {
        match self.0.duration_since(now) {
            Err(_) => State::Expired,
            Ok(left) if left.is_zero() => State::Expired,
            Ok(left) if left < notice => State::Expiring,
            Ok(_) => State::Valid,
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_seconds(self.0).fmt(f)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_rfc3339(&text).map(Self).map_err(de::Error::custom)
    }
}
