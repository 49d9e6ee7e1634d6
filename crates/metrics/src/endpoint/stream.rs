//! The stream of events: it goes on when a request's time is over, and takes none of the connections of others.

use super::{Body, Limits};
use crate::news::{News, Reader};
use futures_util::stream::unfold;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};

/// The type of a stream of events.
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// After this long without an event, a comment is sent: only then is it seen that a browser has gone.
const HEARTBEAT: Duration = Duration::from_secs(15);

struct State {
    reader: Reader,
    /// The browser connects again by itself then: nobody can keep a place for ever.
    ends: Instant,
    #[allow(dead_code, reason = "the place is taken as long as the stream lasts")]
    place: OwnedSemaphorePermit,
}

/// A stream; `None`: there are as many as allowed.
pub(super) fn begin(news: &News, places: &Arc<Semaphore>, limits: Limits) -> Option<Body> {
    let place = Arc::clone(places).try_acquire_owned().ok()?;
    let state = State { reader: news.read(), ends: Instant::now() + limits.stream, place };
    let messages = unfold(state, |mut state| async move {
        let message = tokio::select! {
            message = state.reader.next() => message?,
            () = sleep(HEARTBEAT) => Bytes::from_static(b":\n\n"),
            () = sleep_until(state.ends) => return None,
        };
        Some((Ok::<_, Infallible>(Frame::data(message)), state))
    });
    Some(StreamBody::new(messages).boxed_unsync())
}
