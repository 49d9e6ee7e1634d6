//! Requests to the daemon.

use super::Trouble;
use control::client::Client;
use control::protocol::{Command, Reply, Tunnel};
use std::path::PathBuf;

/// The daemon's control socket.
pub(super) fn socket() -> PathBuf {
    crate::control_socket::of_client(None)
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
