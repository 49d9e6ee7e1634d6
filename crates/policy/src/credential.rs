//! How a side proves who it is, and the type every secret lives in.

use std::fmt;
use zeroize::Zeroizing;

/// Secret octets: wiped when dropped, redacted when printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes ownership of secret octets.
    pub fn new(octets: Vec<u8>) -> Self {
        Self(Zeroizing::new(octets))
    }

    /// The octets themselves; the only way to read them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Number of octets.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no octets.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} octets)", self.0.len())
    }
}

/// How both sides of a tunnel authenticate (RFC 7296 §2.15).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// A preshared key, the same for both sides.
    PresharedKey(Secret),
}
