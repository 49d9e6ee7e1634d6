//! Requests to a worker that may sleep: a flag, and a bell that wakes it.

use crate::event_fd::EventFd;
use crate::sync::{AtomicBool, Ordering};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The request to a worker to send the packets that were held for an SA.
pub(crate) struct Release {
    pub bell: EventFd,
    wanted: AtomicBool,
}

impl Release {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { bell: EventFd::new()?, wanted: AtomicBool::new(false) })
    }

    pub(crate) fn want(&self) {
        self.wanted.swap(true, Ordering::AcqRel);
        self.bell.ring();
    }

    /// Returns `true` if it was wanted since the last call.
    pub(crate) fn take(&self) -> bool {
        self.bell.quieten();
        self.wanted.swap(false, Ordering::AcqRel)
    }
}

/// Orders to one worker: to end, and to show that it is not stuck.
pub(crate) struct Orders {
    pub bell: EventFd,
    end: AtomicBool,
    /// It was called, and has not answered yet.
    called: AtomicBool,
    /// It need not answer: it waits for a job, or has ended.
    rests: AtomicBool,
}

impl Orders {
    pub(crate) fn new() -> io::Result<Self> {
        let [end, called, rests] = [(); 3].map(|()| AtomicBool::new(false));
        Ok(Self { bell: EventFd::new()?, end, called, rests })
    }

    /// Ends the worker after its current round.
    pub(crate) fn end(&self) {
        self.end.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Calls the worker, which answers in its next round. Returns `false` if it has not answered the last call.
    pub(crate) fn call(&self) -> bool {
        if self.rests.load(Ordering::Acquire) {
            return true;
        }
        let answered = !self.called.swap(true, Ordering::AcqRel);
        self.bell.ring();
        answered
    }

    /// Answers a call. Returns `true` if the worker is to end.
    pub(crate) fn answer_call(&self) -> bool {
        self.bell.quieten();
        self.called.store(false, Ordering::Release);
        self.end.load(Ordering::Acquire)
    }

    /// Takes note that the worker waits for a job, or works on one. It hears no bell meanwhile: a job that takes from
    /// one call to the next is not answered.
    pub(crate) fn rest(&self, rests: bool) {
        self.called.store(false, Ordering::Release);
        self.rests.store(rests, Ordering::Release);
    }
}

impl AsFd for Orders {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_does_not_answer_a_call_is_found_by_the_next() {
        let worker = Orders::new().expect("a bell");
        assert!(worker.call(), "it was not called before");
        assert!(!worker.call() && !worker.call());
        assert!(!worker.answer_call(), "it goes on");
        assert!(worker.call());
        worker.end();
        assert!(worker.answer_call());
    }

    #[test]
    fn a_waiting_worker_need_not_answer_and_a_long_busy_one_is_found() {
        let worker = Orders::new().expect("a bell");
        worker.rest(true);
        assert!(worker.call() && worker.call());
        worker.rest(false);
        assert!(worker.call());
        // The next job.
        worker.rest(true);
        worker.rest(false);
        assert!(worker.call() && !worker.call());
    }
}
