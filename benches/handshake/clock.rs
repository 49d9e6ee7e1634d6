//! Processor time of this thread: the work of others on the machine does not count.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Processor time of this thread so far.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Adds the processor time that some work takes.
pub fn charge<T>(spent: &mut Duration, work: impl FnOnce() -> T) -> T {
    let before = now();
    let done = work();
    *spent += now() - before;
    done
}
