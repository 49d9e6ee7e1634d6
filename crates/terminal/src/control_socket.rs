//! The control socket: one rule for `vpnd`, `vpnctl`, the AIX commands and the completion of shells.
//!
//! It is the first of these: the option `--control`, the environment variable `VPND_CONTROL`, the setting `socket` of
//! the configuration, and `/run/vpnd/control.sock`.

use settings::{Control, Declared, Section};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The environment variable that names the socket.
pub const VARIABLE: &str = "VPND_CONTROL";

/// The configuration that a daemon reads if no other one is named.
pub const DEFAULT_CONFIGURATION: &str = "/etc/vpnd/vpnd.toml";

/// The name that stands for no configuration at all.
pub const NO_CONFIGURATION: &str = "none";

/// The socket of a daemon whose configuration names this one.
pub fn of_daemon(option: Option<&Path>, configured: &Path) -> PathBuf {
    choose(option, std::env::var_os(VARIABLE), || configured.to_owned())
}

/// The socket on which a client of this machine reaches the daemon. A configuration that cannot be read counts as
/// absent: the daemon itself tells what is wrong with it.
pub fn of_client(option: Option<&Path>) -> PathBuf {
    of_client_with(option, Path::new(DEFAULT_CONFIGURATION))
}

/// As [`of_client`], of a daemon that reads this configuration.
pub fn of_client_with(option: Option<&Path>, configuration: &Path) -> PathBuf {
    choose(option, std::env::var_os(VARIABLE), || {
        let is_file = configuration != Path::new(NO_CONFIGURATION);
        let text = is_file.then(|| std::fs::read_to_string(configuration).ok()).flatten();
        named_in(&text.unwrap_or_default())
    })
}

/// The socket that a configuration names. A name that the section does not have is ignored, so that a running daemon
/// is reached after such a mistake, too.
fn named_in(text: &str) -> PathBuf {
    let Section { name, keys, .. } = Control::SECTION;
    let mut sections: Table = text.parse().unwrap_or_default();
    let section = match sections.remove(name) {
        Some(Value::Table(section)) => section,
        _ => Table::new(),
    };
    let known = section.into_iter().filter(|(name, _)| keys.iter().any(|key| key.name == name));
    let control: Control = Value::Table(known.collect()).try_into().unwrap_or_default();
    control.socket
}

fn choose(
    option: Option<&Path>,
    variable: Option<OsString>,
    configured: impl FnOnce() -> PathBuf,
) -> PathBuf {
    let named = option.map(Path::to_owned);
    let named = named.or_else(|| variable.filter(|value| !value.is_empty()).map(PathBuf::from));
    named.unwrap_or_else(configured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_comes_before_the_variable_and_that_before_the_configuration() {
        let (option, variable) = (Path::new("/o"), || Some(OsString::from("/v")));
        let configured = || PathBuf::from("/c");
        assert_eq!(choose(Some(option), variable(), configured), option);
        assert_eq!(choose(None, variable(), configured), Path::new("/v"));
        assert_eq!(choose(None, Some(OsString::new()), configured), Path::new("/c"));
        assert_eq!(choose(None, None, configured), Path::new("/c"));
    }

    #[test]
    fn a_configuration_names_the_socket() {
        let of = |text: &str| named_in(text);
        assert_eq!(of("[control]\nsocket = \"/c\"\n[esp]\nx = 1"), Path::new("/c"));
        assert_eq!(of("[control]\nsocket = \"/c\"\nsockets = 1"), Path::new("/c"));
        for text in ["", "[control]", "[control]\nsocket = 1", "control = 1", "[control", "x"] {
            assert_eq!(of(text), Control::default().socket, "{text}");
        }
    }
}
