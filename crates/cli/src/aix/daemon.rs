//! The way to the daemon, and to its settings while it does not run.

use super::Trouble;
use crate::programs::Offline;
use control::client::{Client, ClientError};
use control::protocol::{Command, Reply, Tunnel};
use std::path::{Path, PathBuf};
use terminal::control_socket::{DEFAULT_CONFIGURATION, NO_CONFIGURATION};

/// The configuration file that the environment names, which `startsrc` has the daemon read.
pub(super) fn named_configuration() -> Option<PathBuf> {
    let named = std::env::var_os("VPND_CONFIG").filter(|value| !value.is_empty());
    named.map(PathBuf::from)
}

/// The configuration that the daemon is started with, as an argument. It is the daemon that tells of a file that it
/// cannot use.
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
        Some(named) => terminal::control_socket::of_client_with(None, &named),
        None => terminal::control_socket::of_client(None),
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

/// The settings of a running daemon, or those with which the next one starts.
pub(super) struct Settings {
    /// The daemon, or `vpnd offline` in its place.
    pub client: Client,
    command: &'static str,
    is_running: bool,
}

impl Settings {
    /// Those that a command of AIX shows or changes.
    pub(super) fn open(command: &'static str) -> Result<Self, Trouble> {
        if let Some(client) = find()? {
            return Ok(Self { client, command, is_running: true });
        }
        let config = started_with();
        let (config, name) = (Some(config.as_path()), Some(Path::new(command)));
        let client = Offline { config, command: name, ..Offline::default() }.start()?;
        Ok(Self { client, command, is_running: false })
    }

    /// Fails if no daemon runs, which alone can do what is wanted.
    pub(super) fn need_daemon(&self, instead: &str) -> Result<(), Trouble> {
        if self.is_running {
            return Ok(());
        }
        Err(Trouble::new(format!(
            "vpnd is not running, so that only settings of its next start can be changed; {instead}"
        )))
    }

    /// Says what has become of a setting, if no daemon runs.
    pub(super) fn tell_kept(&self, file: &str) {
        if !self.is_running {
            eprintln!(
                "{}: vpnd is not running; {file} keeps this for its next start",
                self.command
            );
        }
    }
}

pub(super) fn tunnels(client: &mut Client, all: bool) -> Result<Vec<Tunnel>, Trouble> {
    Ok(client.tunnels(all)?)
}

pub(super) fn done(client: &mut Client, command: Command) -> Result<(), Trouble> {
    match client.ask(command)? {
        Reply::Done => Ok(()),
        reply => Err(client.unexpected(&reply).into()),
    }
}
