//! Access to the store: through the daemon that runs from it, or by `vpnd offline` if none does.

use super::CommandError;
use crate::programs::Offline;
use control::client::{Client, ClientError};
use std::path::Path;

/// Asks for the store in the directory that is named, or else the daemon that listens on the socket, or else, where
/// none does, for the directory that a daemon would use.
///
/// # Errors
/// Where a daemon listens but cannot be asked, or `vpnd` cannot be started.
pub fn open(control: &Path, directory: Option<&Path>) -> Result<Client, CommandError> {
    if directory.is_some() {
        return Ok(Offline { directory, ..Offline::default() }.start()?);
    }
    match Client::connect(control) {
        Err(ClientError::NoDaemon(socket)) => {
            Ok(Offline { silent: Some(&socket), ..Offline::default() }.start()?)
        }
        outcome => Ok(outcome?),
    }
}
