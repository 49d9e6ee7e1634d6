//! The way to the daemon, and to its settings while it does not run.

use super::Trouble;
use crate::config::{Config, Found};
use crate::control_socket::{DEFAULT_CONFIGURATION, NO_CONFIGURATION};
use control::client::{Client, ClientError};
use control::protocol::{Command, Reply, Tunnel};
use std::path::{Path, PathBuf};

/// The configuration file that the environment names, which `startsrc` has the daemon read.
pub(super) fn named_configuration() -> Option<PathBuf> {
    let named = std::env::var_os("VPND_CONFIG").filter(|value| !value.is_empty());
    named.map(PathBuf::from)
}

/// The configuration that the daemon is started with.
pub(super) fn configuration() -> Result<Found, Trouble> {
    Config::find(named_configuration().as_deref()).map_err(|error| Trouble::new(error.to_string()))
}

/// As [`configuration`], for `vpnd offline`, which tells of a file that it cannot use.
pub(super) fn started_with() -> PathBuf {
    named_configuration().unwrap_or_else(|| match Path::new(DEFAULT_CONFIGURATION).try_exists() {
        Ok(false) => NO_CONFIGURATION.into(),
        _ => DEFAULT_CONFIGURATION.into(),
    })
}

/// The daemon's control socket. A configuration that cannot be read counts as absent: the daemon itself tells what is
/// wrong with it.
pub(super) fn socket() -> PathBuf {
    match named_configuration() {
        Some(named) => crate::control_socket::of_client_with(None, &named),
        None => crate::control_socket::of_client(None),
    }
}

pub(super) fn connect() -> Result<Client, Trouble> {
    Ok(Client::connect(&socket())?)
}

/// Connects to the daemon; `None` if none runs.
pub(super) fn find() -> Result<Option<Client>, Trouble> {
    match Client::connect(&socket()) {
        Ok(client) => Ok(Some(client)),
        Err(ClientError::NoDaemon(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Says what has become of a setting while no daemon runs.
pub(super) fn tell_kept(command: &str, file: &Path) {
    eprintln!("{command}: vpnd is not running; {} keeps this for its next start", file.display());
}

/// The failure of a command that changes only a running daemon.
pub(super) fn needs_daemon(instead: &str) -> Trouble {
    Trouble::new(format!(
        "vpnd is not running, so that only settings of its next start can be changed; {instead}"
    ))
}

/// The failure to keep a setting.
pub(super) fn not_kept(file: &Path, error: &std::io::Error) -> Trouble {
    let cure = match error.kind() {
        std::io::ErrorKind::PermissionDenied => "; run this command as root",
        _ => "",
    };
    Trouble::new(format!("{} cannot be written: {error}{cure}", file.display()))
}

pub(super) fn tunnels(client: &mut Client, all: bool) -> Result<Vec<Tunnel>, Trouble> {
    match client.ask(Command::List { all })? {
        Reply::Tunnels(tunnels) => Ok(tunnels),
        reply => Err(client.unexpected(&reply).into()),
    }
}

pub(super) fn done(client: &mut Client, command: Command) -> Result<(), Trouble> {
    match client.ask(command)? {
        Reply::Done => Ok(()),
        reply => Err(client.unexpected(&reply).into()),
    }
}
