//! The log level of the configuration, which `ike cmd=log` reads again.

use host::writers::check_file;
use serde::Deserialize;
use settings::Log;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use zeroize::Zeroizing;

/// The section that is read here; the daemon reads all of them.
#[derive(Default, Deserialize)]
struct Sections {
    #[serde(default)]
    log: Log,
}

/// The level of a configuration that names none.
pub(super) fn default() -> String {
    Log::default().level.to_string()
}

/// The level in a configuration file. The error is for the operator.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text).map_err(|error| unreadable(path, &error))?;
    check_file(path, &file.metadata().map_err(|error| unreadable(path, &error))?)
        .map_err(|problem| format!("the configuration {}: {problem}", path.display()))?;
    let sections: Sections = toml::from_str(&text).map_err(|error| {
        // Without the line itself, which may hold a key.
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        format!("{}:{line}: {}", path.display(), error.message())
    })?;
    Ok(sections.log.level.to_string())
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("cannot read the configuration {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_level_is_read_and_an_error_shows_no_key() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("vpnd.toml");
        let of = |text: &str| {
            fs::write(&path, text).expect("writable");
            read(&path)
        };
        assert_eq!(of(""), Ok("info".to_owned()));
        assert_eq!(of("[log]\nformat = \"json\"\n[esp]\ndevice = \"v\""), Ok("info".to_owned()));
        assert_eq!(of("[log]\nlevel = \"info,ike=debug\""), Ok("info,ike=debug".to_owned()));
        let error = of("[log]\nlevel = \"loud\"\n").expect_err("no level");
        assert!(error.contains("vpnd.toml:2: \"loud\" is no log level"), "{error}");
        let error = of("[log]\nlevel = 5\n").expect_err("no text");
        assert!(error.contains("vpnd.toml:2: invalid type"), "{error}");
        let error = of("\n\nkey = \"000102\" x\n").expect_err("no TOML");
        assert!(error.contains("vpnd.toml:3: ") && !error.contains("000102"), "{error}");
        fs::remove_file(&path).expect("it is there");
        assert!(read(&path).expect_err("no file").contains("cannot read the configuration"));
    }
}
