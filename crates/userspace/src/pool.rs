//! Batches that are used again and again, and bound what is under way.

#![forbid(unsafe_code)]

use crate::sync::Mutex;

/// Batches that nobody uses now.
pub(crate) struct Pool<T>(Mutex<Free<T>>);

struct Free<T> {
    batches: Vec<Box<T>>,
    size: usize,
    /// A thread has found no buffer.
    wanted: bool,
}

impl<T> Pool<T> {
    pub(crate) fn new(size: usize, make: impl Fn() -> T) -> Self {
        let batches = (0..size).map(|_| Box::new(make())).collect();
        Self(Mutex::new(Free { batches, size, wanted: false }))
    }

    /// A batch that is free. A caller that gets none is to be told when there is one again.
    pub(crate) fn take(&self) -> Option<Box<T>> {
        self.with(|free| {
            let batch = free.batches.pop();
            free.wanted = batch.is_none();
            batch
        })
    }

    /// Takes a batch back. Says whether somebody is to be told.
    pub(crate) fn give(&self, batch: Box<T>) -> bool {
        self.with(|free| {
            free.batches.push(batch);
            std::mem::take(&mut free.wanted)
        })
    }

    /// Batches in use, and how many there are.
    pub(crate) fn used(&self) -> (usize, usize) {
        self.with(|free| (free.size - free.batches.len(), free.size))
    }

    fn with<R>(&self, work: impl FnOnce(&mut Free<T>) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taker_that_found_none_is_told_once() {
        let pool = Pool::new(1, || 7);
        let batch = pool.take().expect("one is free");
        assert_eq!(pool.used(), (1, 1));
        assert!(pool.take().is_none());
        assert!(pool.give(batch));
        let batch = pool.take().expect("it is free again");
        assert!(!pool.give(batch), "nobody waits");
    }
}
