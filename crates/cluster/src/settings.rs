//! Durations that decide how fast a cluster reacts. All nodes must have the same `hold` and `waiver`.

use std::time::Duration;

/// The durations of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The time for which an owner may go on after a read that showed its claim, and for which another node waits before it
    /// claims.
    pub hold: Duration,
    /// The time for which a waiver lasts.
    pub waiver: Duration,
    /// The pause between two reads.
    pub read_every: Duration,
    /// The store counts as away if it has answered no request that was sent within this time.
    pub away_after: Duration,
    /// A claim without an answer is withdrawn after this.
    pub claim_patience: Duration,
    /// The time to live of the node's lease, in whole seconds. The store may give more.
    pub lease: Duration,
    /// Putting a backup in place of the store takes at least this long, during which it answers nothing.
    pub restore: Duration,
    /// By how much longer the second node in the order of a service waits, and the third again.
    pub rank_step: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            hold: ms(1500),
            waiver: ms(1500),
            read_every: ms(300),
            away_after: ms(500),
            claim_patience: ms(1000),
            lease: ms(2000),
            restore: ms(10_000),
            rank_step: ms(100),
        }
    }
}

/// Settings that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    /// The fence would pass between two reads.
    #[error("hold is shorter than three times the pause between two reads")]
    HoldTooShort,
    /// The fence would pass before the other members are asked.
    #[error("the store counts as away only after more than half of hold")]
    AwayTooLong,
    /// A waiver would end before the next is asked for.
    #[error("waiver is shorter than 300 ms")]
    WaiverTooShort,
    /// A restored store could not be told from a slow one.
    #[error("restore is shorter than twice the time of hold")]
    RestoreTooShort,
    /// No store gives such a lease.
    #[error("lease is shorter than a second")]
    Lease,
}

impl Settings {
    /// Checks that the durations fit each other.
    ///
    /// # Errors
    /// If they do not.
    pub fn validate(&self) -> Result<(), InvalidSettings> {
        if self.hold < self.read_every.saturating_mul(3) {
            return Err(InvalidSettings::HoldTooShort);
        }
        if self.away_after > self.hold / 2 {
            return Err(InvalidSettings::AwayTooLong);
        }
        if self.waiver < Duration::from_millis(300) {
            return Err(InvalidSettings::WaiverTooShort);
        }
        if self.restore < self.hold * 2 {
            return Err(InvalidSettings::RestoreTooShort);
        }
        if self.lease < Duration::from_secs(1) {
            return Err(InvalidSettings::Lease);
        }
        Ok(())
    }

    /// The time for which an owner relies on a read or a waiver that it asked for at some moment.
    pub(crate) fn relied(duration: Duration) -> Duration {
        duration.saturating_sub(margin(duration))
    }

    /// The time that the other side lets pass, on its own clock.
    pub(crate) fn awaited(duration: Duration) -> Duration {
        duration.saturating_add(margin(duration))
    }

    /// The pause between two rounds of asking for waivers.
    pub(crate) fn ask_every(&self) -> Duration {
        self.waiver / 10
    }
}

/// Both sides add it, so that clocks whose rates differ by up to two percent agree. NTP changes the rate of a clock by at
/// most 0.05 percent. The rest covers timers that fire early.
fn margin(duration: Duration) -> Duration {
    duration / 100 + Duration::from_millis(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_each_other() {
        assert_eq!(Settings::default().validate(), Ok(()));
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let good = Settings::default();
        let ms = Duration::from_millis;
        for (settings, reason) in [
            (Settings { hold: ms(899), ..good }, InvalidSettings::HoldTooShort),
            (Settings { away_after: ms(751), ..good }, InvalidSettings::AwayTooLong),
            (Settings { waiver: ms(299), ..good }, InvalidSettings::WaiverTooShort),
            (Settings { restore: ms(2999), ..good }, InvalidSettings::RestoreTooShort),
            (Settings { lease: ms(999), ..good }, InvalidSettings::Lease),
        ] {
            assert_eq!(settings.validate(), Err(reason), "{reason}");
        }
    }

    #[test]
    fn the_margins_cover_clocks_that_differ_by_two_percent() {
        for ms in [300, 600, 1500, 60_000] {
            let duration = Duration::from_millis(ms);
            // The owner's clock is slow, so that its time is long for the other node.
            let owner = Settings::relied(duration).mul_f64(1.01);
            let other = Settings::awaited(duration).mul_f64(0.99);
            assert!(owner < other, "{ms} ms");
        }
    }
}
