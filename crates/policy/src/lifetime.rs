//! The lifetime of a security association, by time and volume.

use std::time::Duration;

/// Limits of one security association. Lifetimes are local and never negotiated in IKEv2 (RFC 7296 §2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Lifetime {
    /// Age at which the SA is deleted whatever happens; `Duration::MAX` means no limit.
    pub hard: Duration,
    /// Octets after which the SA is deleted; `None` means no volume limit.
    pub bytes: Option<u64>,
    /// Share of the lifetime, in percent (1 to 50), during which the old and the new SA may coexist: the rekey
    /// starts at `hard × (100 − overlap) / 100`.
    pub overlap_percent: u8,
}

impl Default for Lifetime {
    /// Eight hours, any volume, a rekey at nine tenths of it.
    fn default() -> Self {
        Self::new(Duration::from_secs(8 * 3600))
    }
}

impl Lifetime {
    /// The shortest that a policy may name.
    pub const SHORTEST: Duration = Duration::from_secs(1);

    /// The smallest volume that a policy may name, in octets.
    pub const SMALLEST: u64 = 1024;

    /// No limit by time or volume.
    pub const UNLIMITED: Self = Self::new(Duration::MAX);

    /// A limit by time alone; the rekey starts at nine tenths of it. `Duration::MAX` means no limit.
    pub const fn new(hard: Duration) -> Self {
        Self { hard, bytes: None, overlap_percent: 10 }
    }

    /// Sets a limit by volume, in octets.
    #[must_use]
    pub const fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// Sets the overlap, 1 to 50 percent.
    #[must_use]
    pub const fn with_overlap(self, overlap_percent: u8) -> Self {
        Self { overlap_percent, ..self }
    }

    /// Age at which a rekey starts.
    pub fn soft(&self) -> Duration {
        let percent = u32::from(100 - self.overlap_percent.min(99));
        // Division first where the product would overflow: a lifetime that long is none.
        self.hard.checked_mul(percent).map_or_else(|| self.hard / 100 * percent, |p| p / 100)
    }

    /// Octets after which a rekey starts.
    pub fn soft_bytes(&self) -> Option<u64> {
        self.bytes.map(|b| b / 100 * u64::from(100 - self.overlap_percent.min(99)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rekey_starts_before_the_end_of_any_lifetime() {
        assert_eq!(Lifetime::new(Duration::from_secs(100)).soft(), Duration::from_secs(90));
        for hard in [Duration::MAX, Duration::MAX - Duration::from_secs(1), Duration::ZERO] {
            for overlap in [0, 1, 50, 99, 255] {
                assert!(Lifetime::new(hard).with_overlap(overlap).soft() <= hard);
            }
        }
        assert!(Lifetime::UNLIMITED.soft() > Duration::from_secs(u64::MAX / 2));
    }
}
