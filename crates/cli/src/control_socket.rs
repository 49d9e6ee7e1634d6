//! The control socket: one rule for `vpnd`, `vpnctl`, the AIX commands and the completion of shells.
//!
//! It is the first of these: the option `--control`, the environment variable `VPND_CONTROL`, the setting `socket` of
//! the configuration, and `/run/vpnd/control.sock`.

use crate::config::Config;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The environment variable that names the socket.
pub const VARIABLE: &str = "VPND_CONTROL";

/// The socket of a daemon with this configuration.
pub fn of_daemon(option: Option<&Path>, config: &Config) -> PathBuf {
    choose(option, std::env::var_os(VARIABLE), || config.control.socket.clone())
}

/// The socket on which a client of this machine reaches the daemon. A configuration that cannot be read counts as
/// absent: the daemon itself tells what is wrong with it.
pub fn of_client(option: Option<&Path>) -> PathBuf {
    let configured = || Config::find(None).unwrap_or_default().config.control.socket;
    choose(option, std::env::var_os(VARIABLE), configured)
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
}
