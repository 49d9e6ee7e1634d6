//! The Encrypted payload (RFC 7296 §3.14, RFC 5282).

use super::header::Header;
use super::payload::Payload;
use super::reader::WireError;
use esp::cipher::{Cipher, Suite};

/// Why a protected message was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No SK payload, or its lengths are impossible, or the integrity check failed: nothing in it may be believed.
    #[error("not authentic: {0}")]
    NotAuthentic(&'static str),
    /// Authentic, but malformed inside.
    #[error(transparent)]
    Inside(#[from] WireError),
}

/// Writes a message whose payloads are all inside SK. `iv` has `suite.iv_len()` octets.
pub fn seal(
    header: &Header,
    payloads: &[Payload],
    suite: Suite,
    cipher: &dyn Cipher,
    iv: &[u8],
) -> Vec<u8> {
    let _ = (header, payloads, suite, cipher, iv);
    unimplemented!()
}

/// Checks and reads a message whose header [`Header::parse`] accepted. SK must be the last payload; payloads before
/// it are skipped (RFC 7296 §3.14 has none there).
pub fn open(
    header: &Header,
    datagram: &[u8],
    suite: Suite,
    cipher: &dyn Cipher,
) -> Result<Vec<Payload>, OpenError> {
    let _ = (header, datagram, suite, cipher);
    unimplemented!()
}
