//! The engine outside of the workers: threads that take requests of a size and above, while the thread that reads goes
//! on.
//!
//! A request is what is read at once: a packet or super-packet of the device, or a message of a socket. The threads are
//! those of the pipeline, which keeps the order of requests whoever works on them. An accelerator with queues of its
//! own would stand in the place of the threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The threshold, and the counters of the requests that the engine was given.
#[derive(Debug)]
pub(super) struct CryptoEngine {
    /// Octets of the smallest request that it takes.
    from: AtomicU64,
    sealed: Counter,
    opened: Counter,
}

/// Requests that the engine was given since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CryptoEngineWork {
    /// Packets and super-packets to be sealed.
    pub sealed: Requests,
    /// Messages to be opened.
    pub opened: Requests,
}

/// A number of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Their number.
    pub requests: u64,
    /// Their octets.
    pub octets: u64,
}

#[derive(Debug, Default)]
struct Counter {
    requests: AtomicU64,
    octets: AtomicU64,
}

impl CryptoEngine {
    pub(super) fn new(from: u64) -> Self {
        Self { from: AtomicU64::new(from), sealed: Counter::default(), opened: Counter::default() }
    }

    /// Takes requests of so many octets and above from now on.
    pub(super) fn take_from(&self, octets: u64) {
        self.from.store(octets, Relaxed);
    }

    /// Returns `true` if a request of so many octets is for the engine.
    pub(super) fn takes(&self, octets: usize) -> bool {
        octets as u64 >= self.from.load(Relaxed)
    }

    pub(super) fn count_sealed(&self, requests: usize, octets: usize) {
        self.sealed.add(requests, octets);
    }

    pub(super) fn count_opened(&self, requests: usize, octets: usize) {
        self.opened.add(requests, octets);
    }

    pub(super) fn work(&self) -> CryptoEngineWork {
        CryptoEngineWork { sealed: self.sealed.get(), opened: self.opened.get() }
    }
}

impl Counter {
    fn add(&self, requests: usize, octets: usize) {
        self.requests.fetch_add(requests as u64, Relaxed);
        self.octets.fetch_add(octets as u64, Relaxed);
    }

    fn get(&self) -> Requests {
        Requests { requests: self.requests.load(Relaxed), octets: self.octets.load(Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_from_the_threshold_on_are_for_the_engine() {
        let engine = CryptoEngine::new(1024);
        assert_eq!(
            [0, 1023, 1024, 65_536].map(|octets| engine.takes(octets)),
            [false, false, true, true]
        );
        engine.take_from(0);
        assert!(engine.takes(0));
        engine.count_sealed(3, 4_000);
        engine.count_opened(1, 1_500);
        engine.count_sealed(1, 2_000);
        let work = engine.work();
        assert_eq!(work.sealed, Requests { requests: 4, octets: 6_000 });
        assert_eq!(work.opened, Requests { requests: 1, octets: 1_500 });
    }
}
