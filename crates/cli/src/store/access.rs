//! Access to the store: through the daemon that runs from it, or directly if none does.

use super::without_daemon;
use crate::config::Config;
use control::client::{Client, ClientError};
use control::protocol::{Command, Refusal, Reply};
use std::path::{Path, PathBuf};

/// A way to the policy store.
pub enum Access {
    /// Through a daemon, which puts in force what is stored.
    Daemon(Client),
    /// In a directory, for the next start of a daemon.
    Directory {
        /// The directory.
        path: PathBuf,
        /// The socket on which no daemon answered.
        silent: Option<PathBuf>,
        /// The configuration of a daemon that is started here.
        config: Box<Config>,
    },
}

impl Access {
    /// Takes the directory that is named, or else the daemon that listens on the socket, or else, where none does, the
    /// directory that a daemon would use.
    ///
    /// # Errors
    /// Where a daemon listens but cannot be asked.
    pub fn open(control: &Path, directory: Option<&Path>) -> Result<Self, ClientError> {
        let config = || Box::new(Config::find(None).unwrap_or_default().config);
        if let Some(directory) = directory {
            let (path, config) = (directory.to_owned(), config());
            return Ok(Self::Directory { path, silent: None, config });
        }
        match Client::connect(control) {
            Ok(client) => Ok(Self::Daemon(client)),
            Err(ClientError::NoDaemon(socket)) => {
                // The directory that a daemon with the default configuration would use.
                let config = config();
                let path = config.policy.directory.clone();
                Ok(Self::Directory { path, silent: Some(socket), config })
            }
            Err(error) => Err(error),
        }
    }

    /// Carries out a command on the store.
    ///
    /// # Errors
    /// As the daemon refuses it, or where the store cannot be used.
    pub fn ask(&mut self, command: Command) -> Result<Reply, ClientError> {
        match self {
            Self::Daemon(client) => client.ask(command),
            Self::Directory { path, silent, config } => {
                let outcome = without_daemon(path, config, &command);
                let explained = |refusal| explain(refusal, silent.as_deref(), path);
                outcome.map_err(|refusal| ClientError::Refused(explained(refusal)))
            }
        }
    }

    /// The error for a reply that does not fit the command.
    pub fn unexpected(&self, reply: &Reply) -> ClientError {
        match self {
            Self::Daemon(client) => client.unexpected(reply),
            Self::Directory { path, .. } => ClientError::Protocol {
                path: path.clone(),
                why: format!("the reply does not fit the command: {reply:?}"),
            },
        }
    }
}

/// Says why the directory was tried at all.
fn explain(mut refusal: Refusal, silent: Option<&Path>, directory: &Path) -> Refusal {
    if let Some(socket) = silent {
        let why = format!(
            "\n  (no vpnd is listening on {}, so this was tried in {})",
            socket.display(),
            directory.display()
        );
        refusal.message.push_str(&why);
    }
    refusal
}
