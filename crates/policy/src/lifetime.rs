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
    /// Bounds of the limits where the peer asks for the SA. Left out of what is serialized if there are none.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "LifetimeBounds::is_unbounded"))]
    pub as_responder: LifetimeBounds,
}

/// Bounds of the limits of SAs that the peer asks for: this side is the responder of the exchange that creates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LifetimeBounds {
    /// The shortest and the longest age.
    pub age: [Duration; 2],
    /// The smallest and the largest volume, in octets. An SA without a limit by volume stays without one.
    pub bytes: [u64; 2],
}

impl LifetimeBounds {
    /// All limits are within these.
    pub const NONE: Self = Self { age: [Duration::ZERO, Duration::MAX], bytes: [0, u64::MAX] };

    /// Returns `true` if all limits are within these.
    pub fn is_unbounded(&self) -> bool {
        *self == Self::NONE
    }
}

impl Default for LifetimeBounds {
    fn default() -> Self {
        Self::NONE
    }
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
        Self { hard, bytes: None, overlap_percent: 10, as_responder: LifetimeBounds::NONE }
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

    /// Sets the bounds that hold where the peer asks for the SA.
    #[must_use]
    pub const fn with_bounds_as_responder(self, bounds: LifetimeBounds) -> Self {
        Self { as_responder: bounds, ..self }
    }

    /// The lifetime of an SA that this side has asked for, or that the peer has: its limits are within the bounds then.
    #[must_use]
    pub fn of(self, initiator: bool) -> Self {
        if initiator {
            return self;
        }
        // Not `clamp`, which panics if the bounds cross.
        let LifetimeBounds { age: [shortest, longest], bytes: [smallest, largest] } =
            self.as_responder;
        let bytes = self.bytes.map(|bytes| bytes.max(smallest).min(largest));
        Self { hard: self.hard.max(shortest).min(longest), bytes, ..self }
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
    fn bounds_hold_for_sas_of_the_peer_only() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let bounds = LifetimeBounds { age: [minutes(5), minutes(480)], bytes: [1024, 200 * 1024] };
        let life = |age| Lifetime::new(minutes(age)).with_bounds_as_responder(bounds);
        for (own, peers) in [(3, 5), (5, 5), (60, 60), (480, 480), (600, 480)] {
            assert_eq!(life(own).of(true), life(own));
            assert_eq!(life(own).of(false), life(peers));
        }
        let volume = |bytes| life(60).with_bytes(bytes);
        for (own, peers) in [(1, 1024), (2048, 2048), (u64::MAX, 200 * 1024)] {
            assert_eq!(volume(own).of(true), volume(own));
            assert_eq!(volume(own).of(false), volume(peers));
        }
        assert_eq!(life(60).of(false).bytes, None, "no limit by volume appears");
        assert_eq!(Lifetime::UNLIMITED.of(false), Lifetime::UNLIMITED);
    }

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
