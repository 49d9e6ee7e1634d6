//! The clock.

use std::time::Instant;

/// The time by tokio's clock, which a test can stop and set.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
