//! Keys in the two tables from which Wireshark decrypts IKE and ESP.
//!
//! The columns are those that every version reads; one that does not know a name in a table reads nothing of it.

use ike::key_log::{DirectionKeys, EspKeys, IkeKeys, LoggedKeys, Sink};
use policy::{Integrity, Protection, Secret};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tracing::{error, warn};

/// Wireshark's name of the table for IKE.
pub const IKE_TABLE: &str = "ikev2_decryption_table";
/// Wireshark's name of the table for ESP.
pub const ESP_TABLE: &str = "esp_sa";

/// Octets that a table may have: some ten thousand SAs. Peers that come again and again are not to fill the disk.
const LONGEST: u64 = 16 << 20;
/// Octets that every line fits into, so that no part of a key is left behind where a string has grown.
const LINE: usize = 1024;

/// The directory for the keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyDirectoryError {
    /// The system refused.
    #[error("cannot write keys to {path}: {source}", path = path.display())]
    System {
        /// The directory or the file in it.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Something else has the name.
    #[error("cannot write keys to {}: it is no directory; name one, or a path that does not exist yet", .0.display())]
    NoDirectory(PathBuf),
    /// It is somebody else's.
    #[error("will not write keys to {}: it belongs to another user; name a directory of one's own", .0.display())]
    Foreign(PathBuf),
    /// Others may look into it.
    #[error(
        "will not write keys to {path}: others may use it (mode {mode:04o}); close it first: chmod 700 {path}",
        path = path.display()
    )]
    Open {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// Both tables, open.
struct Tables {
    ike: File,
    esp: File,
}

/// Opens the tables in a directory that is only for this user, which is made if need be; their contents stay.
/// The sink appends to them.
///
/// # Errors
/// Where the directory is not private, or the system refuses.
pub fn export_to(directory: &Path) -> Result<Sink, KeyDirectoryError> {
    prepare(directory)?;
    let tables = Tables { ike: open(directory, IKE_TABLE)?, esp: open(directory, ESP_TABLE)? };
    Ok(Sink::new(move |keys| tables.append(&keys)))
}

fn prepare(directory: &Path) -> Result<(), KeyDirectoryError> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(system_error(directory, error));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(directory).map_err(|error| system_error(directory, error))?;
    if !found.is_dir() {
        return Err(KeyDirectoryError::NoDirectory(directory.to_owned()));
    }
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(KeyDirectoryError::Foreign(directory.to_owned()));
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyDirectoryError::Open { path: directory.to_owned(), mode });
    }
    Ok(())
}

fn system_error(directory: &Path, source: io::Error) -> KeyDirectoryError {
    KeyDirectoryError::System { path: directory.to_owned(), source }
}

fn open(directory: &Path, table: &str) -> Result<File, KeyDirectoryError> {
    let path = directory.join(table);
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
        .open(&path)
        .and_then(|file| file.set_permissions(Permissions::from_mode(0o600)).map(|()| file));
    opened.map_err(|source| KeyDirectoryError::System { path, source })
}

impl Tables {
    fn append(&self, keys: &LoggedKeys) {
        let (table, name, sa, line) = match keys {
            LoggedKeys::Ike(keys) => {
                let sa = format!("IKE SA {} {}", keys.initiator_spi, keys.responder_spi);
                (&self.ike, IKE_TABLE, sa, ike_line(keys))
            }
            LoggedKeys::Esp(keys) => {
                let (from, to) = (keys.source, keys.destination);
                let sa = format!("ESP SA {} from {from} to {to}", keys.spi);
                (&self.esp, ESP_TABLE, sa, esp_line(keys))
            }
        };
        let line = match line {
            Ok(line) => line,
            Err(Unknown(algorithms)) => {
                return warn!("keys not exported of {sa}: Wireshark does not decrypt {algorithms}");
            }
        };
        match append(table, &line) {
            Ok(()) => warn!("keys exported to {name}: {sa}"),
            Err(error) => error!(%error, "keys not exported to {name}: {sa}"),
        }
    }
}

/// In one call, so that a reader meanwhile sees whole lines.
fn append(mut table: &File, line: &Secret) -> io::Result<()> {
    if table.metadata()?.len() > LONGEST {
        return Err(io::Error::other("the file is full; remove it and restart vpnd"));
    }
    table.write_all(line.expose())
}

/// Algorithms for which Wireshark has no name in every version that is in use.
#[derive(Debug, PartialEq, Eq)]
struct Unknown(String);

fn ike_line(keys: &IkeKeys) -> Result<Secret, Unknown> {
    let suite = &keys.suite;
    let encryption = suite.encryption.row().wireshark_ike;
    let encryption = encryption.ok_or_else(|| Unknown(suite.to_string()))?;
    let integrity = suite.integrity.map_or("NONE [RFC4306]", |integrity| {
        integrity.row().wireshark_ike.unwrap_or("ANY 96-bits of Authentication [No Checking]")
    });
    let (initiator, responder) = (&keys.initiator, &keys.responder);
    let mut line = String::with_capacity(LINE);
    let _ = write!(line, "{},{},", keys.initiator_spi, keys.responder_spi);
    hex(&mut line, &initiator.encryption);
    line.push(',');
    hex(&mut line, &responder.encryption);
    let _ = write!(line, ",\"{encryption}\",");
    hex(&mut line, &initiator.integrity);
    line.push(',');
    hex(&mut line, &responder.integrity);
    let _ = writeln!(line, ",\"{integrity}\"");
    Ok(Secret::new(line.into_bytes()))
}

/// The SPI is enough to find the SA: addresses are others in front of a NAT, and change.
fn esp_line(keys: &EspKeys) -> Result<Secret, Unknown> {
    let Protection::Esp { encryption, integrity } = keys.suite.protection() else {
        return Err(Unknown(keys.suite.to_string()));
    };
    let encryption = encryption.row().wireshark_esp;
    let encryption = encryption.ok_or_else(|| Unknown(keys.suite.to_string()))?;
    let integrity = integrity.map_or(Cow::Borrowed("NULL"), |integrity| {
        // The ICV covers the upper half of the sequence number, which these columns have no place for.
        match integrity.row().wireshark_esp.filter(|_| !keys.esn) {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(unchecked(integrity)),
        }
    });
    let version = if matches!(keys.source, IpAddr::V4(_)) { "IPv4" } else { "IPv6" };
    let DirectionKeys { encryption: key, integrity: mac_key } = &keys.keys;
    let mut line = String::with_capacity(LINE);
    let _ = write!(line, "\"{version}\",\"*\",\"*\",\"0x{}\",\"{encryption}\",", keys.spi);
    quoted_key(&mut line, key);
    let _ = write!(line, ",\"{integrity}\",");
    quoted_key(&mut line, mac_key);
    line.push('\n');
    Ok(Secret::new(line.into_bytes()))
}

/// An ICV of the same length that is not checked.
fn unchecked(integrity: Integrity) -> String {
    format!("ANY {} bit authentication [no checking]", integrity.row().icv_len * 8)
}

fn quoted_key(line: &mut String, key: &Secret) {
    line.push('"');
    if !key.is_empty() {
        line.push_str("0x");
        hex(line, key);
    }
    line.push('"');
}

fn hex(line: &mut String, key: &Secret) {
    for octet in key.expose() {
        // Writing to a String cannot fail.
        let _ = write!(line, "{octet:02x}");
    }
}

#[cfg(test)]
mod tests;
