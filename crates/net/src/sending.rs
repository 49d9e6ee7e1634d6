//! The octets that all connections together have under way.
//!
//! Octets that are not acknowledged stand in the queues between the ends, where each connection gets on in proportion to
//! its own. So connections that send as much as they can share these octets equally, though the first ones have longer
//! buffers. Connections that have nothing to send take no share.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The part of the memory of all buffers that may be under way. Of 1 GiB it fills a path of 5 Gbit/s and 50 ms.
const PART: usize = 32;
/// Octets that every connection may have in its send buffer.
const LEAST: usize = 32 << 10;
/// Less than this part of its share is not worth a turn of a connection: it would leave in short packets.
const WORTH: usize = 4;

/// The connections that have something to send.
#[derive(Debug)]
pub(crate) struct Sending {
    together: usize,
    connections: AtomicUsize,
}

impl Sending {
    /// `memory`: octets of the buffers of all connections.
    pub fn new(memory: usize) -> Self {
        Self { together: memory / PART, connections: AtomicUsize::new(0) }
    }

    /// One more has something to send.
    pub fn begins(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// One of them has nothing to send any more.
    pub fn ends(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// The number of those that have something to send.
    #[cfg(test)]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Octets that a connection may put into its send buffer beside those that are there. If it is none, more of them
    /// are acknowledged first.
    pub fn room(&self, queued: usize) -> usize {
        let share = self.together / self.connections.load(Ordering::Relaxed).max(1);
        let share = share.max(LEAST);
        let room = share.saturating_sub(queued);
        if room < share / WORTH { 0 } else { room }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_send_have_equal_shares() {
        let sending = Sending::new(1 << 30);
        (0..32).for_each(|_| sending.begins());
        let share = sending.room(0);
        assert_eq!(share, 1 << 20);
        assert_eq!(sending.room(share / 2), share / 2);
        assert_eq!(sending.room(share - 1), 0);
        (0..32).for_each(|_| sending.begins());
        assert_eq!(sending.room(0), share / 2);
        assert_eq!(sending.room(share), 0);
        (0..100_000).for_each(|_| sending.begins());
        assert_eq!(sending.room(0), LEAST);
        (0..100_063).for_each(|_| sending.ends());
        assert_eq!(sending.room(0), 1 << 25);
    }
}
