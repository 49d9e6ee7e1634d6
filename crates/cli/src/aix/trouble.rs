//! The failure of a command of AIX, as it is printed.

use crate::programs::ProgramError;
use control::client::ClientError;
use std::io;

/// The reason for a failure, and the command's usage if the arguments were wrong.
#[derive(Debug)]
pub(super) struct Trouble {
    pub message: String,
    pub usage: Option<&'static str>,
    pub is_broken_pipe: bool,
}

impl Trouble {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: None, is_broken_pipe: false }
    }

    pub(super) fn usage(message: impl Into<String>, usage: &'static str) -> Self {
        Self { usage: (!usage.is_empty()).then_some(usage), ..Self::new(message) }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        let is_broken_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        Self { is_broken_pipe, ..Self::new(format!("cannot write: {error}")) }
    }
}

impl From<ProgramError> for Trouble {
    fn from(error: ProgramError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::NoDaemon(path) => Self::new(format!(
                "vpnd is not running (nobody listens on {}); start it with: startsrc -g ike\n  \
                 or name its socket in the environment variable VPND_CONTROL",
                path.display()
            )),
            other => Self::new(other.to_string()),
        }
    }
}
