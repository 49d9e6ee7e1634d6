//! Asking a running `vpnd` about its crypto facility.

use control::client::{Client, ClientError};
use control::protocol::{Command, CryptoState, CryptoStats, Reply};

/// The tunables, and who does what with them.
///
/// # Errors
/// As [`Client::ask`].
pub fn state(client: &mut Client) -> Result<CryptoState, ClientError> {
    match client.ask(Command::Crypto)? {
        Reply::Crypto(state) => Ok(state),
        reply => Err(client.unexpected(&reply)),
    }
}

/// Sets a tunable, or with no value brings it back to its default; with `persist` for good. Running SAs follow at once.
///
/// # Errors
/// As [`Client::ask`].
pub fn set(
    client: &mut Client,
    tunable: &str,
    value: Option<u64>,
    persist: bool,
) -> Result<CryptoState, ClientError> {
    let command = Command::CryptoSet { tunable: tunable.to_owned(), value, persist };
    match client.ask(command)? {
        Reply::Crypto(state) => Ok(state),
        reply => Err(client.unexpected(&reply)),
    }
}

/// Asks for the work of each provider since the daemon's start.
///
/// # Errors
/// As [`Client::ask`].
pub fn stats(client: &mut Client) -> Result<CryptoStats, ClientError> {
    match client.ask(Command::CryptoStats)? {
        Reply::CryptoStats(stats) => Ok(stats),
        reply => Err(client.unexpected(&reply)),
    }
}
