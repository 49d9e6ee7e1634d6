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
/// A value that is older is never told: a reader waits for the new one.
const OLDEST: Duration = Duration::from_secs(120);

/// A value whose reading can take long, such as one of `nft`, which looks at all its rules for each question. It is read
/// in a task of its own. A reader gets the previous value if the new one is late; the next reader gets the new one.
pub(super) struct Late<T>(Mutex<State<T>>);

struct State<T> {
    last: Option<Value<T>>,
    reading: Option<JoinHandle<Result<Value<T>, Refusal>>>,
}

/// A value, and when it was read.
type Value<T> = (Instant, T);

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
        let State { last, reading } = &mut *state;
        if let Some(ended) = reading.take_if(|reading| reading.is_finished())
            && let Ok(Ok(value)) = ended.await
        {
            *last = Some(value);
        }
        let kept = last.as_ref().filter(|(at, _)| at.elapsed() < OLDEST);
        if let Some((at, value)) = kept
            && at.elapsed() < fresh
        {
            return Ok(value.clone());
        }
        // It stays in its place while it is waited for: a reader that goes away leaves it to the next one.
        let under_way = reading.get_or_insert_with(|| {
            tokio::spawn(async { read.await.map(|value| (Instant::now(), value)) })
        });
        let outcome = match kept {
            None => under_way.await,
            Some((_, value)) => match timeout(PATIENCE, under_way).await {
                Ok(outcome) => outcome,
                Err(_) => return Ok(value.clone()),
            },
        };
        *reading = None;
        let (at, value) = match outcome {
            Ok(read) => read?,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return Err(refusal(GatewayError::Stopped)),
            },
        };
        *last = Some((at, value.clone()));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;
    use tokio::time::sleep;

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

    #[tokio::test(start_paused = true)]
    async fn a_value_is_as_old_as_its_reading() {
        let late = Late::default();
        let minute = Duration::from_secs(60);
        assert_eq!(late.get(OLD, async { Ok(1) }).await.ok(), Some(1));
        let slow = async {
            sleep(PATIENCE * 2).await;
            Ok(2)
        };
        assert_eq!(late.get(OLD, slow).await.ok(), Some(1));
        sleep(minute).await;
        // The reading of a minute ago is not fresh because somebody asks now.
        assert_eq!(late.get(minute / 2, async { Ok(3) }).await.ok(), Some(3));
        sleep(OLDEST).await;
        let slow = async {
            sleep(PATIENCE * 2).await;
            Ok(4)
        };
        assert_eq!(late.get(OLD, slow).await.ok(), Some(4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_goes_away_leaves_its_reading_to_the_next() {
        let late = Late::default();
        let slow = async {
            sleep(PATIENCE * 2).await;
            Ok(1)
        };
        assert!(timeout(PATIENCE, late.get(OLD, slow)).await.is_err());
        assert_eq!(late.get(OLD, async { Ok(99) }).await.ok(), Some(1));
    }

    #[tokio::test]
    async fn the_first_reader_waits() {
        let late = Late::default();
        let slow = async {
            sleep(PATIENCE * 3).await;
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
