//! The facts about an ESP packet that its own octets do not tell.

#![forbid(unsafe_code)]

use crate::sa::Path;

/// The outer fields with which an ESP packet arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Between which addresses, and how.
    pub path: Path,
    /// DSCP and ECN of the outer header, where the socket tells.
    pub tos: Option<u8>,
    /// TTL or hop limit of the outer header, where the socket tells.
    pub ttl: Option<u8>,
}
