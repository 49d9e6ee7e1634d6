//! The configuration file that is read if the command line names none.

use super::{Config, ConfigError};
use std::io;
use std::path::{Path, PathBuf};

/// The file that is read if it exists and no other is named.
pub const DEFAULT_FILE: &str = terminal::control_socket::DEFAULT_CONFIGURATION;

/// The value of `--config` that reads no file.
pub const NO_FILE: &str = terminal::control_socket::NO_CONFIGURATION;

/// A configuration, and the file that it comes from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The file; `None`: the built-in defaults.
    pub file: Option<PathBuf>,
    /// Its settings.
    pub config: Config,
}

impl Config {
    /// Reads the file that the command line names, otherwise [`DEFAULT_FILE`] if it exists. The name [`NO_FILE`] stands
    /// for the built-in defaults.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn find(named: Option<&Path>) -> Result<Found, ConfigError> {
        find(named, Path::new(DEFAULT_FILE))
    }

    /// As [`Config::find`], for a command that needs no privilege: if this user cannot read [`DEFAULT_FILE`], the
    /// defaults count, and a text says so.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn find_unprivileged(
        named: Option<&Path>,
    ) -> Result<(Config, Option<String>), ConfigError> {
        without_privilege(Self::find(named), named.is_some())
    }
}

fn find(named: Option<&Path>, default: &Path) -> Result<Found, ConfigError> {
    let read = |path: &Path| Ok(Found { file: Some(path.to_owned()), config: Config::read(path)? });
    match named {
        Some(path) if path == Path::new(NO_FILE) => Ok(Found::default()),
        Some(path) => read(path),
        None => match read(default) {
            Err(ConfigError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(Found::default())
            }
            outcome => outcome,
        },
    }
}

fn without_privilege(
    found: Result<Found, ConfigError>,
    is_named: bool,
) -> Result<(Config, Option<String>), ConfigError> {
    match found {
        Err(ConfigError::Read { path, source })
            if !is_named && source.kind() == io::ErrorKind::PermissionDenied =>
        {
            let remark = format!(
                "note: only root can read {}, so the built-in defaults are used; run this with sudo to use the file",
                path.display()
            );
            Ok((Config::default(), Some(remark)))
        }
        found => found.map(|found| (found.config, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_named_file_comes_before_the_default_one() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [default, other] = ["vpnd.toml", "other.toml"].map(|name| directory.path().join(name));
        assert_eq!(find(None, &default).expect("no file is needed"), Found::default());
        assert!(find(Some(&other), &default).is_err(), "a file that is named must exist");

        fs::write(&default, "[esp]\ndevice = \"vpn7\"\n").expect("writable");
        fs::write(&other, "[esp]\ndevice = \"vpn8\"\n").expect("writable");
        let device = |named: Option<&Path>| {
            let found = find(named, &default).expect("both are good");
            (found.file, found.config.esp.device)
        };
        assert_eq!(device(None), (Some(default.clone()), "vpn7".to_owned()));
        assert_eq!(device(Some(&other)), (Some(other.clone()), "vpn8".to_owned()));
        assert_eq!(device(Some(Path::new(NO_FILE))), (None, Config::default().esp.device));

        fs::write(&default, "[esp]\ndevise = 1\n").expect("writable");
        let error = find(None, &default).expect_err("it has an error").to_string();
        assert!(error.contains("vpnd.toml") && error.contains("devise"), "{error}");
    }

    #[test]
    fn a_user_who_cannot_read_the_default_file_is_told() {
        let denied = |path: &str| {
            let source = io::ErrorKind::PermissionDenied.into();
            Err(ConfigError::Read { path: path.into(), source })
        };
        let (config, remark) =
            without_privilege(denied(DEFAULT_FILE), false).expect("the defaults");
        assert_eq!(config, Config::default());
        assert!(remark.expect("a remark").contains(DEFAULT_FILE));
        assert!(without_privilege(denied("other.toml"), true).is_err(), "it was named");
    }
}
