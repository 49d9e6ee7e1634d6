//! Keys of WireGuard.

use std::io::{self, Write};
use std::process::{Command, Stdio};

/// A private key and its public key, in the letters of `wg`.
pub struct Keys {
    /// The private key.
    pub private: String,
    /// The public key.
    pub public: String,
}

impl Keys {
    /// Makes them with `wg`.
    ///
    /// # Errors
    /// Where `wg` is not installed.
    pub fn make() -> Result<Self, String> {
        make().map_err(|error| format!("wg: {error}"))
    }
}

fn make() -> io::Result<Keys> {
    let made = Command::new("wg").arg("genkey").output()?;
    let private = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    let mut wg = Command::new("wg");
    let mut process = wg.arg("pubkey").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut input) = process.stdin.take() {
        input.write_all(private.as_bytes())?;
    }
    let made = process.wait_with_output()?;
    Ok(Keys { private, public: String::from_utf8_lossy(&made.stdout).trim().to_owned() })
}
