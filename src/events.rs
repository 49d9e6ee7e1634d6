//! The stream of what happens to tunnels.

use futures_util::stream::{Stream, unfold};
use ike::Event;
use std::fmt;
use std::time::SystemTime;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use traces::Operations;

/// Events of one gateway, from the moment of the subscription until the gateway has ended.
///
/// A gateway never waits for its listeners: it retains the latest 1024 events. A listener that falls further behind
/// loses the oldest ones and learns from [`Events::missed`] how many. Listeners do not influence each other.
#[must_use = "a subscription that is dropped receives nothing"]
pub struct Events {
    /// `None` if the gateway had ended before the subscription.
    receiver: Option<Receiver<Event>>,
    missed: u64,
}

impl Events {
    /// A subscription to a gateway that has ended.
    pub(crate) fn ended() -> Self {
        Self { receiver: None, missed: 0 }
    }

    /// Waits for the next event. `None`: the gateway has ended and every retained event has been delivered;
    /// [`Gateway::closed`](crate::Gateway::closed) says why.
    ///
    /// # Cancellation
    /// No event is lost if the returned future is dropped.
    pub async fn recv(&mut self) -> Option<Event> {
        loop {
            match self.receiver.as_mut()?.recv().await {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(count)) => self.missed += count,
                Err(RecvError::Closed) => self.receiver = None,
            }
        }
    }

    /// The next event if one is there already, without waiting.
    pub fn try_recv(&mut self) -> Option<Event> {
        loop {
            match self.receiver.as_mut()?.try_recv() {
                Ok(event) => return Some(event),
                Err(TryRecvError::Lagged(count)) => self.missed += count,
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Closed) => self.receiver = None,
            }
        }
    }

    /// The events as a stream, which ends with the gateway. It skips those that this listener was too slow for.
    pub fn into_stream(self) -> impl Stream<Item = Event> + Send {
        unfold(self, |mut events| async { Some((events.recv().await?, events)) })
    }

    /// Makes spans of the crate `tracing` out of the events: negotiations and rekeys with their fields `vpn.tunnel`, `vpn.child`
    /// and the SPIs, and, for a subscription with exchanges
    /// ([`Builder::subscribe_with_exchanges`](crate::Builder::subscribe_with_exchanges)), each exchange with its
    /// message ID within them. Their target is `vpn`. The future ends with the gateway; spawn it.
    ///
    /// # Cancellation
    /// If the future is dropped, the spans under way end.
    pub async fn record_spans(mut self) {
        let mut operations = Operations::live();
        while let Some(event) = self.recv().await {
            if self.missed() > 0 {
                operations.forget();
            }
            // A span ends when it is dropped.
            drop(operations.see(&event, SystemTime::now()));
        }
    }

    /// The number of events that this listener has lost since the last call because it was too slow.
    pub fn missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }
}

/// For programs that stand in for a gateway, such as tests: the events that such a channel carries.
impl From<Receiver<Event>> for Events {
    fn from(receiver: Receiver<Event>) -> Self {
        Self { receiver: Some(receiver), missed: 0 }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.receiver.as_ref().map(Receiver::len);
        f.debug_struct("Events").field("waiting", &waiting).field("missed", &self.missed).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;
    use ike::EventKind;
    use tokio::sync::broadcast;

    fn event(number: usize) -> Event {
        let kind = EventKind::Warning(number.to_string());
        Event::new("site", kind)
    }

    #[tokio::test]
    async fn a_stream_ends_with_the_gateway() {
        let (sender, receiver) = broadcast::channel(4);
        (0..3).for_each(|number| _ = sender.send(event(number)).expect("a listener"));
        drop(sender);
        let all: Vec<Event> = Events::from(receiver).into_stream().collect().await;
        assert_eq!(all, [0, 1, 2].map(event));
    }

    #[tokio::test]
    async fn a_slow_listener_learns_how_much_it_has_missed() {
        let (sender, receiver) = broadcast::channel(2);
        let mut events = Events::from(receiver);
        (0..5).for_each(|number| _ = sender.send(event(number)).expect("a listener"));
        drop(sender);
        assert_eq!(events.recv().await, Some(event(3)));
        assert_eq!((events.missed(), events.missed()), (3, 0), "told once");
        assert_eq!(events.recv().await, Some(event(4)));
        assert_eq!(events.recv().await, None, "the sender is gone");
        assert_eq!(events.recv().await, None);
    }
}
