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

/// The request to one worker to stop.
pub(crate) struct Stop {
    pub bell: EventFd,
    wanted: AtomicBool,
}

impl Stop {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { bell: EventFd::new()?, wanted: AtomicBool::new(false) })
    }

    /// Ends the worker after its current round.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::Release);
        self.bell.ring();
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
