//! How long a security association may live, by time and volume.

use std::time::Duration;

/// Limits of one security association. Lifetimes are local and never negotiated in IKEv2 (RFC 7296 §2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Age at which the SA is deleted whatever happens.
    pub hard: Duration,
    /// Octets after which the SA is deleted; `None` means no volume limit.
    pub bytes: Option<u64>,
    /// Share of the lifetime, in percent (1 to 50), during which the old and the new SA may coexist: the rekey
    /// starts at `hard × (100 − overlap) / 100`.
    pub overlap_percent: u8,
}

impl Lifetime {
    /// Age at which a rekey starts.
    pub fn soft(&self) -> Duration {
        self.hard * u32::from(100 - self.overlap_percent.min(99)) / 100
    }

    /// Octets after which a rekey starts.
    pub fn soft_bytes(&self) -> Option<u64> {
        self.bytes.map(|b| b / 100 * u64::from(100 - self.overlap_percent.min(99)))
    }
}
