//! Datagrams between the stack and their socket.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Octets that may wait to be received, with the cost of keeping each datagram.
const WAITING: usize = 1 << 20;
/// The octets that keeping a datagram costs.
const EACH: usize = 128;

/// Datagrams that nobody has received yet.
#[derive(Default)]
pub(crate) struct Datagrams {
    queue: Mutex<Queue>,
    news: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Received>,
    octets: usize,
    /// A peer that has told that nobody takes datagrams there.
    refused: Option<SocketAddr>,
}

/// A datagram, and the addresses that it bore.
pub(crate) struct Received {
    pub to: IpAddr,
    pub from: SocketAddr,
    pub payload: Vec<u8>,
}

impl Datagrams {
    /// Waits until something has come.
    pub fn news(&self) -> Notified<'_> {
        self.news.notified()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a datagram. `false`: too many wait.
    pub fn put(&self, to: IpAddr, from: SocketAddr, payload: &[u8]) -> bool {
        let mut queue = self.lock();
        let cost = payload.len() + EACH;
        if queue.octets + cost > WAITING {
            return false;
        }
        queue.octets += cost;
        queue.waiting.push_back(Received { to, from, payload: payload.to_vec() });
        drop(queue);
        self.news.notify_one();
        true
    }

    /// A peer takes no datagrams.
    pub fn hear(&self, remote: SocketAddr) {
        self.lock().refused = Some(remote);
        self.news.notify_one();
    }

    /// The oldest datagram.
    ///
    /// # Errors
    /// If a peer has told that it takes none.
    pub fn take(&self) -> io::Result<Option<Received>> {
        let mut queue = self.lock();
        if let Some(remote) = queue.refused.take() {
            let text = format!("{remote} takes no datagrams: its port is closed");
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, text));
        }
        let received = queue.waiting.pop_front();
        queue.octets -= received.as_ref().map_or(0, |r| r.payload.len() + EACH);
        let more = !queue.waiting.is_empty();
        drop(queue);
        if more {
            // Another task may wait, too.
            self.news.notify_one();
        }
        Ok(received)
    }
}
