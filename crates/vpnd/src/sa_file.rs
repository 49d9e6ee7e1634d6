//! A file with `[[sa]]` tables and nothing else, for SAs that are added at run time.

mod ip_xfrm;
mod mirror;

pub use mirror::MirrorError;
pub(crate) use mirror::{Mirrored, mirror_file};

use crate::config::{ConfigError, Sa, read_key};
use serde::Deserialize;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, TableLike, Value};
use zeroize::Zeroizing;

/// Octets of the longest file.
const MAX_FILE: u64 = 8 << 20;

/// The fields that have a key.
const KEYS: [&str; 3] = ["key", "encryption_key", "integrity_key"];

/// The tables of a text; `path` is for messages only.
///
/// # Errors
/// Where a field is wrong, or there is something else in the text.
pub fn tables(path: &Path, text: &str) -> Result<Vec<Sa>, ConfigError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Tables {
        #[serde(default)]
        sa: Vec<Sa>,
    }
    let Tables { sa } =
        toml::from_str(text).map_err(|source| ConfigError::syntax(path, text, source))?;
    if sa.is_empty() {
        return Err(ConfigError::NoSa(path.to_owned()));
    }
    Ok(sa)
}

/// Reads a file with such tables, or with lines of `ip xfrm`; `-` is standard input. Returns the text of the tables, too.
/// `shared_key`: SAs of lines may have one key.
///
/// # Errors
/// As [`tables`], or where the file cannot be read, or holds keys that others may read.
pub(crate) fn read_tables(
    path: &Path,
    shared_key: bool,
) -> Result<(Zeroizing<String>, Vec<Sa>), ConfigError> {
    let (text, mode) = read(path, shared_key)?;
    let sas = tables(named(path), &text)?;
    if mode & 0o077 != 0 && sas.iter().any(Sa::has_key) {
        return Err(ConfigError::Open(path.to_owned()));
    }
    Ok((text, sas))
}

/// The name of a file in messages.
fn named(path: &Path) -> &Path {
    if path == Path::new("-") { Path::new("standard input") } else { path }
}

/// The tables of a file, also of one with lines of `ip xfrm`, and the rights of others to it.
fn read(path: &Path, shared_key: bool) -> Result<(Zeroizing<String>, u32), ConfigError> {
    let (text, mode) =
        contents(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    if !ip_xfrm::are_lines(&text) {
        return Ok((text, mode));
    }
    let tables = ip_xfrm::tables(&text, shared_key).map_err(|error| ConfigError::Lines {
        path: named(path).to_owned(),
        why: error.to_string(),
    })?;
    Ok((tables, mode))
}

/// The text of a file, and the rights of others to it; nobody has any to standard input.
fn contents(path: &Path) -> io::Result<(Zeroizing<String>, u32)> {
    // In one piece from the beginning: a growing buffer leaves copies behind.
    let mut text = Zeroizing::new(String::new());
    let (mut source, mode, len): (Box<dyn Read>, u32, u64) = match path == Path::new("-") {
        true => (Box::new(io::stdin()), 0o600, 64 * 1024),
        false => {
            let file = fs::File::open(path)?;
            let metadata = file.metadata()?;
            (Box::new(file), metadata.mode(), metadata.len())
        }
    };
    text.reserve_exact(usize::try_from(len.min(MAX_FILE)).unwrap_or(0) + 1);
    (&mut source).take(MAX_FILE + 1).read_to_string(&mut text)?;
    // Never a part of it: the rest would be left out in silence.
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("it is longer than {MAX_FILE} octets")));
    }
    Ok((text, mode))
}

/// The text with the keys of files in it, as the daemon takes it: it reads no file for a client.
///
/// # Errors
/// Where a key file cannot be read; the text says which.
pub(crate) fn inlined(text: &str) -> Result<Zeroizing<String>, String> {
    let mut document: DocumentMut = text.parse().map_err(|_| "no TOML".to_owned())?;
    for table in tables_of(&mut document) {
        for name in KEYS {
            let Some(item) = table.get_mut(name) else { continue };
            let Some(path) = file_of(item) else { continue };
            let octets =
                read_key(&path).map_err(|why| format!("the key file {}: {why}", path.display()))?;
            let mut digits = String::with_capacity(2 + 2 * octets.len());
            digits.push_str("0x");
            octets.expose().iter().for_each(|octet| digits += &format!("{octet:02x}"));
            *item = Item::Value(Value::from(digits));
        }
    }
    Ok(Zeroizing::new(document.to_string()))
}

/// The tables of the SAs, in either form that TOML has for them.
fn tables_of(document: &mut DocumentMut) -> Vec<&mut dyn TableLike> {
    match document.get_mut("sa") {
        Some(Item::ArrayOfTables(tables)) => {
            tables.iter_mut().map(|table| table as &mut dyn TableLike).collect()
        }
        Some(Item::Value(Value::Array(values))) => values
            .iter_mut()
            .filter_map(Value::as_inline_table_mut)
            .map(|table| table as &mut dyn TableLike)
            .collect(),
        _ => Vec::new(),
    }
}

/// The file that a key is in.
fn file_of(item: &Item) -> Option<PathBuf> {
    Some(PathBuf::from(item.as_table_like()?.get("file")?.as_str()?))
}
