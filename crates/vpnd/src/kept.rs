//! Files of settings that outlive a restart, in TOML. A command writes them, and they go before the settings of
//! `vpnd.toml`.

use serde::de::DeserializeOwned;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// The settings of a file; those by default if there is no such file.
///
/// # Errors
/// The reason why the file cannot be used.
pub(crate) fn read<T: DeserializeOwned + Default>(path: &Path) -> Result<T, String> {
    match fs::read_to_string(path) {
        Ok(text) => toml::from_str(&text).map_err(|error| error.to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(error.to_string()),
    }
}

/// Replaces a file, whose directory is made if it is missing. A reader, even after a crash, finds the old text or the
/// new one.
///
/// # Errors
/// If the system refuses.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    host::replace::replace(path, text.as_bytes()).map_err(|(_, error)| error)
}
