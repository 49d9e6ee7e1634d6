//! Warnings that clients cause, of which a client must not cause any number.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{debug, warn};

/// Warnings at once.
const BURST: u32 = 10;
/// The time after which one more is written.
const EVERY: Duration = Duration::from_secs(10);

/// Writes so many warnings, and counts the others.
pub struct Warnings(Mutex<State>);

struct State {
    /// Warnings that may be written now.
    left: u32,
    /// Since then, time counts for the next one.
    since: Instant,
    hidden: u64,
}

impl Warnings {
    pub fn new() -> Self {
        Self(Mutex::new(State { left: BURST, since: Instant::now(), hidden: 0 }))
    }

    /// Writes a warning, or counts it. All are in the log at the level `debug`.
    pub fn write(&self, text: fmt::Arguments<'_>) {
        match self.admits() {
            None => debug!("{text}"),
            Some(0) => warn!("{text}"),
            Some(hidden) => warn!("{text} ({hidden} more warnings of clients are left out)"),
        }
    }

    /// The warnings that were left out since the last one; `None`: this one is left out, too.
    fn admits(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let gained = now.duration_since(state.since).as_secs() / EVERY.as_secs();
        let gained = u32::try_from(gained).unwrap_or(BURST).min(BURST);
        if state.left + gained >= BURST {
            (state.left, state.since) = (BURST, now);
        } else {
            state.left += gained;
            state.since += EVERY * gained;
        }
        if state.left == 0 {
            state.hidden += 1;
            return None;
        }
        state.left -= 1;
        Some(std::mem::take(&mut state.hidden))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn warnings_come_in_a_burst_and_then_one_by_one_with_the_number_left_out() {
        let warnings = Warnings::new();
        let written = |number| (0..number).filter_map(|_| warnings.admits()).collect::<Vec<_>>();
        assert_eq!(written(100), vec![0_u64; 10]);
        tokio::time::advance(EVERY - Duration::from_millis(1)).await;
        assert!(written(5).is_empty());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(written(5), vec![95_u64]);
        tokio::time::advance(EVERY * 2).await;
        assert_eq!(written(5), vec![4_u64, 0]);
        tokio::time::advance(EVERY * 1000).await;
        assert_eq!(written(50).len(), 10);
    }
}
