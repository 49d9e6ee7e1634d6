//! Connections between their SYN and `accept`.

use crate::connection::Connection;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Connections that nobody has accepted yet.
pub(crate) struct Incoming {
    backlog: usize,
    queue: Mutex<Queue>,
    news: Notify,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Arc<Connection>>,
    /// Connections of which only the SYN has come.
    half_open: usize,
    /// The listener is gone.
    closed: bool,
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
        queue.ready.len() + queue.half_open < self.backlog
    }

    /// A SYN has come.
    pub fn expects_one(&self) {
        self.lock().half_open += 1;
    }

    /// A connection has come to nothing before it was established.
    pub fn expects_one_less(&self) {
        self.lock().half_open -= 1;
    }

    /// A connection is established. `false`: nobody is going to accept it.
    pub fn put(&self, connection: Arc<Connection>) -> bool {
        let mut queue = self.lock();
        queue.half_open -= 1;
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
