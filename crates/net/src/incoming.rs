//! Connections between their SYN and `accept`.

use crate::connection::Connection;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// A peer that has not answered the SYN's answer by then keeps others out no longer, if there is no other place (RFC 4987
/// §3.4). The answer was repeated meanwhile.
const PRECEDENCE: Duration = Duration::from_secs(3);

/// Connections that nobody has accepted yet.
pub(crate) struct Incoming {
    backlog: usize,
    queue: Mutex<Queue>,
    news: Notify,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Arc<Connection>>,
    /// Connections of which only the SYN has come, and when; the oldest first.
    half_open: VecDeque<(Instant, Weak<Connection>)>,
    /// The listener is gone.
    closed: bool,
}

impl Queue {
    fn forget(&mut self, connection: &Arc<Connection>) {
        self.half_open.retain(|(_, one)| one.as_ptr() != Arc::as_ptr(connection));
    }
}

impl Incoming {
    pub fn new(backlog: usize) -> Self {
        Self { backlog, queue: Mutex::default(), news: Notify::new() }
    }

    /// Waits until a connection is established.
    pub fn news(&self) -> Notified<'_> {
        self.news.notified()
    }

    /// The connection that has waited longest.
    pub fn take(&self) -> Option<Arc<Connection>> {
        self.lock().ready.pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if one more connection may begin.
    pub fn has_room(&self) -> bool {
        let queue = self.lock();
        queue.ready.len() + queue.half_open.len() < self.backlog
    }

    /// The connection that has to make room for another one.
    pub fn yields(&self, now: Instant) -> Option<Arc<Connection>> {
        let queue = self.lock();
        let (since, oldest) = queue.half_open.front()?;
        oldest.upgrade().filter(|_| now.duration_since(*since) >= PRECEDENCE)
    }

    /// A SYN has come.
    pub fn expects(&self, now: Instant, connection: &Arc<Connection>) {
        self.lock().half_open.push_back((now, Arc::downgrade(connection)));
    }

    /// A connection has come to nothing before it was established.
    pub fn expects_no_more(&self, connection: &Arc<Connection>) {
        self.lock().forget(connection);
    }

    /// A connection is established. `false`: nobody is going to accept it.
    pub fn put(&self, connection: Arc<Connection>) -> bool {
        let mut queue = self.lock();
        queue.forget(&connection);
        if queue.closed {
            return false;
        }
        queue.ready.push_back(connection);
        drop(queue);
        self.news.notify_one();
        true
    }

    /// The listener is gone. Returns the connections that it has not accepted.
    pub fn close(&self) -> VecDeque<Arc<Connection>> {
        let mut queue = self.lock();
        queue.closed = true;
        std::mem::take(&mut queue.ready)
    }
}
