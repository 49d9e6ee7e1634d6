//! Requests to the daemon.

use super::Trouble;
use control::client::Client;
use control::protocol::{Command, DEFAULT_SOCKET, Reply, Tunnel};
use std::path::{Path, PathBuf};

/// The daemon's control socket.
pub(super) fn socket() -> PathBuf {
    let named = std::env::var_os("VPND_CONTROL").filter(|value| !value.is_empty());
    named.map_or_else(|| Path::new(DEFAULT_SOCKET).to_owned(), PathBuf::from)
}

pub(super) fn connect() -> Result<Client, Trouble> {
    Ok(Client::connect(&socket())?)
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
