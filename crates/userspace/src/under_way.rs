//! Outbound packets between the look-up of their SA and the socket. A peer removes an SA as soon as both sides have
//! agreed to delete it: key management first waits until no packet is under way on it.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two looks at a worker that has not been done at once.
const PAUSE: Duration = Duration::from_micros(50);
/// So often a worker is only given the processor.
const YIELDS: u32 = 20;

/// The packets of all workers.
#[derive(Default)]
pub(super) struct UnderWay {
    generation: Arc<AtomicUsize>,
    workers: Mutex<Vec<Weak<Batches>>>,
}

/// The batches of one worker, by the generation in which they were begun.
pub(super) struct Batches {
    generation: Arc<AtomicUsize>,
    begun: [AtomicUsize; 2],
}

/// A batch whose packets have not all been sent yet.
pub(super) struct Batch<B: AsRef<Batches>> {
    batches: B,
    generation: usize,
}

impl UnderWay {
    /// Counts the batches of one more worker.
    pub(super) fn worker(&self) -> Arc<Batches> {
        let generation = Arc::clone(&self.generation);
        let batches = Arc::new(Batches { generation, begun: Default::default() });
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.retain(|worker| worker.strong_count() > 0);
        workers.push(Arc::downgrade(&batches));
        batches
    }

    /// Waits until every batch that has been begun before is sent. Returns `false` if that takes longer than `limit`.
    pub(super) fn wait_until_sent(&self, limit: Duration) -> bool {
        // A worker that begins a batch after this finds the present SA.
        fence(Ordering::SeqCst);
        let workers: Vec<Arc<Batches>> = {
            let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            workers.iter().filter_map(Weak::upgrade).collect()
        };
        let (deadline, mut looks) = (Instant::now() + limit, 0);
        let mut are_sent = |generation: usize| {
            workers.iter().all(|worker| {
                while worker.begun[generation].load(Ordering::SeqCst) > 0 {
                    if Instant::now() >= deadline {
                        return false;
                    }
                    looks += 1;
                    if looks < YIELDS { thread::yield_now() } else { thread::sleep(PAUSE) }
                }
                true
            })
        };
        let present = self.generation.load(Ordering::SeqCst) % 2;
        // Batches for which an earlier call did not wait to the end.
        let are_old_ones_sent = are_sent(1 - present);
        self.generation.fetch_add(1, Ordering::SeqCst);
        are_old_ones_sent && are_sent(present)
    }
}

impl Batches {
    /// Begins a batch, before the SA of its first packet is looked up.
    pub(super) fn begin(self: &Arc<Self>) -> Batch<&Arc<Self>> {
        Batch { generation: self.count(), batches: self }
    }

    /// The same for a batch that other threads send.
    pub(super) fn begin_for_others(self: &Arc<Self>) -> Batch<Arc<Self>> {
        Batch { generation: self.count(), batches: Arc::clone(self) }
    }

    fn count(&self) -> usize {
        let generation = self.generation.load(Ordering::Relaxed) % 2;
        self.begun[generation].fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        generation
    }
}

impl<B: AsRef<Batches>> Drop for Batch<B> {
    fn drop(&mut self) {
        self.batches.as_ref().begun[self.generation].fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const LONG: Duration = Duration::from_secs(300);

    #[test]
    fn nothing_is_waited_for_unless_a_batch_is_under_way() {
        let all = UnderWay::default();
        assert!(all.wait_until_sent(Duration::ZERO));
        let worker = all.worker();
        assert!(all.wait_until_sent(Duration::ZERO));
        drop(worker.begin());
        assert!(all.wait_until_sent(Duration::ZERO));
        let batch = worker.begin();
        assert!(!all.wait_until_sent(Duration::ZERO), "it has not been sent");
        drop(batch);
        assert!(all.wait_until_sent(Duration::ZERO) && all.wait_until_sent(Duration::ZERO));
    }

    #[test]
    fn a_batch_for_which_one_wait_was_too_short_is_waited_for_again() {
        let all = UnderWay::default();
        let worker = all.worker();
        let batch = worker.begin();
        for _ in 0..3 {
            assert!(!all.wait_until_sent(Duration::ZERO), "it has not been sent");
        }
        drop(batch);
        assert!(all.wait_until_sent(Duration::ZERO));
    }

    #[test]
    fn a_batch_that_begins_later_is_not_waited_for() {
        let all = UnderWay::default();
        let [first, second] = [all.worker(), all.worker()];
        let batch = first.begin();
        let sent = AtomicBool::new(false);
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                assert!(all.wait_until_sent(LONG));
                assert!(sent.load(Ordering::SeqCst), "it has waited for the batch");
            });
            // The other thread has turned the generation.
            while all.generation.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            let later = second.begin_for_others();
            sent.store(true, Ordering::SeqCst);
            drop(batch);
            waits.join().expect("it ends although the later batch goes on");
            drop(later);
        });
    }
}
