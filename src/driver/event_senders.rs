//! The channels of a gateway's events.

use ike::{Event, EventKind};
use std::sync::OnceLock;
use tokio::sync::broadcast::{Receiver, Sender, WeakSender, channel};

/// Events a slow listener may fall behind.
const RETAINED: usize = 1024;

/// Where a driver sends events.
#[derive(Debug)]
pub struct EventSenders {
    events: Sender<Event>,
    /// For listeners that want the steps of exchanges, too.
    with_exchanges: OnceLock<Sender<Event>>,
}

impl Default for EventSenders {
    fn default() -> Self {
        Self { events: channel(RETAINED).0, with_exchanges: OnceLock::new() }
    }
}

impl EventSenders {
    /// A listener to events without the steps of exchanges.
    pub fn subscribe(&self) -> Receiver<Event> {
        self.events.subscribe()
    }

    /// A listener to all events.
    pub fn subscribe_with_exchanges(&self) -> Receiver<Event> {
        self.with_exchanges.get_or_init(|| channel(RETAINED).0).subscribe()
    }

    /// Returns `true` if anybody wants the steps of exchanges.
    pub fn has_exchanges(&self) -> bool {
        self.with_exchanges.get().is_some()
    }

    pub(crate) fn downgrade(&self) -> WeakSender<Event> {
        self.events.downgrade()
    }

    /// Sends an event to those that want it. Nobody may be listening.
    pub(crate) fn send(&self, event: Event) {
        let is_step = matches!(event.kind, EventKind::Exchange(_));
        if let Some(all) = self.with_exchanges.get() {
            let _ = all.send(event.clone());
        }
        if !is_step {
            let _ = self.events.send(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ike::event::{ExchangeStep, Step};

    #[test]
    fn steps_of_exchanges_go_to_those_that_want_them() {
        let senders = EventSenders::default();
        let mut some = senders.subscribe();
        assert!(!senders.has_exchanges());
        let mut all = senders.subscribe_with_exchanges();
        assert!(senders.has_exchanges());
        let up = Event::new("site", EventKind::Negotiating { initiator: true });
        let step = Event::new("site", EventKind::Exchange(ExchangeStep::first(Step::Sent)));
        senders.send(up.clone());
        senders.send(step.clone());
        assert_eq!([all.try_recv(), all.try_recv()], [Ok(up.clone()), Ok(step)]);
        assert_eq!(some.try_recv(), Ok(up));
        assert!(some.try_recv().is_err());
    }
}
