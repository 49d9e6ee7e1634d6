//! A cursor that cannot overrun, and the errors of everything that parses.

use super::registry::PayloadType;

/// Octets that are not what they claim to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The octets end before what they announce.
    #[error("truncated {0}")]
    Truncated(&'static str),
    /// A field has a value it cannot have.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// More items than this implementation bounds (64 payloads, 64 proposals, 255 transforms, 255 selectors …).
    #[error("too many {0}")]
    TooMany(&'static str),
    /// A payload of unknown type with the critical bit (RFC 7296 §2.5).
    #[error("unsupported critical payload {0}")]
    UnsupportedCritical(PayloadType),
    /// IKE major version above 2 (or below).
    #[error("IKE version {0}.{1}")]
    Version(u8, u8),
}
