//! Values that may be late.

use super::{Refusal, refusal};
use std::future::Future;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use vpn::GatewayError;

/// A reader waits so long for a new value where there is an older one.
const PATIENCE: Duration = Duration::from_millis(50);

/// A value whose reading can take long, such as one of `nft`, which looks at all its rules for each question. It is read
/// in a task of its own. A reader gets the value before if the new one is late; the next reader gets the new one.
pub(super) struct Late<T>(Mutex<State<T>>);

struct State<T> {
    last: Option<(Instant, T)>,
    reading: Option<JoinHandle<Result<T, Refusal>>>,
}

impl<T> Default for Late<T> {
    fn default() -> Self {
        Self(Mutex::new(State { last: None, reading: None }))
    }
}

impl<T: Clone + Send + 'static> Late<T> {
    /// The value: the last one if it is not older than `fresh`, otherwise that of `read`, or of an earlier `read` that is
    /// still under way.
    pub async fn get(
        &self,
        fresh: Duration,
        read: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        let mut state = self.0.lock().await;
        if let Some(ended) = state.reading.take_if(|reading| reading.is_finished()) {
            state.end(ended.await)?;
        }
        if let Some((at, value)) = &state.last
            && at.elapsed() < fresh
        {
            return Ok(value.clone());
        }
        let mut reading = state.reading.take().unwrap_or_else(|| tokio::spawn(read));
        let outcome = match &state.last {
            None => (&mut reading).await,
            Some((_, value)) => match timeout(PATIENCE, &mut reading).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    let value = value.clone();
                    state.reading = Some(reading);
                    return Ok(value);
                }
            },
        };
        state.end(outcome)
    }
}

impl<T: Clone> State<T> {
    fn end(
        &mut self,
        outcome: Result<Result<T, Refusal>, tokio::task::JoinError>,
    ) -> Result<T, Refusal> {
        let value = match outcome {
            Ok(read) => read?,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return Err(refusal(GatewayError::Stopped)),
            },
        };
        self.last = Some((Instant::now(), value.clone()));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    const OLD: Duration = Duration::ZERO;

    #[tokio::test]
    async fn a_late_value_is_told_to_the_next_reader() {
        let late = Late::default();
        assert_eq!(late.get(OLD, async { Ok(1) }).await.ok(), Some(1));
        assert_eq!(late.get(OLD, async { Ok(2) }).await.ok(), Some(2));
        let (end, ended) = oneshot::channel();
        let slow = async { Ok(ended.await.expect("it is told")) };
        assert_eq!(late.get(OLD, slow).await.ok(), Some(2));
        // Still the same reading.
        assert_eq!(late.get(OLD, async { Ok(99) }).await.ok(), Some(2));
        end.send(3).expect("somebody reads");
        tokio::task::yield_now().await;
        assert_eq!(late.get(Duration::MAX, async { Ok(99) }).await.ok(), Some(3));
    }

    #[tokio::test]
    async fn the_first_reader_waits() {
        let late = Late::default();
        let slow = async {
            tokio::time::sleep(PATIENCE * 3).await;
            Ok(1)
        };
        assert_eq!(late.get(OLD, slow).await.ok(), Some(1));
    }

    #[tokio::test]
    async fn a_value_that_is_fresh_is_not_read_again() {
        let late = Late::default();
        assert_eq!(late.get(Duration::MAX, async { Ok(1) }).await.ok(), Some(1));
        assert_eq!(late.get(Duration::MAX, async { Ok(2) }).await.ok(), Some(1));
        assert_eq!(late.get(OLD, async { Ok(2) }).await.ok(), Some(2));
    }
}
