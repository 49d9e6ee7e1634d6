//! The scheduling policy of a worker: SCHED_BATCH, or the normal one if it waits too long for a core.
//!
//! A packet that an application sends wakes the worker while the application is still in its system call. With the
//! normal policy the worker would preempt the application. The core would then have two threads to run, and the
//! scheduler would wake the next thread on the packet's way on another core; if that core sleeps, the wake-up takes
//! several times as long as the packet itself. An application that is not preempted also leaves more packets for one
//! batch. A worker with SCHED_BATCH therefore runs once the sender sleeps.
//!
//! A program that only computes never sleeps. If such programs occupy the cores, a worker with SCHED_BATCH waits for
//! the end of a time slice with every packet. The worker measures this, and uses the normal policy for a while.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Consecutive wake-ups that one measurement covers. A packet behind a whole batch waits for the worker itself, not for
/// a core, so such wake-ups are not measured.
const MEASURED: u32 = 16;

/// A batch of so many packets makes up for the wait.
const MANY: usize = 4;

/// The longest that a wake-up may wait for a core on average. A sender usually sleeps some microseconds after its
/// packet.
const TOLERABLE: Duration = Duration::from_micros(300);

/// The first period with the normal policy. If the wait is too long again afterwards, the next period is twice as long.
const FIRST_PERIOD: Duration = Duration::from_secs(1);

/// The longest period with the normal policy.
const LONGEST_PERIOD: Duration = Duration::from_secs(64);

/// Gives the calling thread SCHED_BATCH (sched(7)): it no longer preempts the thread that wakes it.
pub(super) fn yield_to_wakers() -> io::Result<()> {
    schedule(libc::SCHED_BATCH)
}

fn schedule(policy: libc::c_int) -> io::Result<()> {
    // SAFETY: all-zero octets are a valid sched_param, and the only one that these policies take.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads `parameters` during the call and keeps nothing; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Measures how long the thread that created it waits for a core, and changes that thread's scheduling policy
/// accordingly. The thread begins with SCHED_BATCH.
pub(super) struct SchedPolicySwitch {
    /// The kernel's statistics of this thread. Without them the policy stays.
    statistics: Option<File>,
    decision: Decision,
    /// Consecutive wake-ups for few packets.
    wakes: u32,
    /// The thread's total wait for cores at the first of these wake-ups.
    before: Duration,
}

impl SchedPolicySwitch {
    pub(super) fn new() -> Self {
        let statistics = File::open("/proc/thread-self/schedstat").ok();
        Self { statistics, decision: Decision::new(), wakes: 0, before: Duration::ZERO }
    }

    /// Records a wake-up for so many packets, after they have been processed.
    pub(super) fn woken(&mut self, packets: usize) {
        if packets >= MANY {
            self.wakes = 0;
            return;
        }
        let is_first = self.wakes == 0;
        let is_last = self.wakes == MEASURED;
        self.wakes = if is_last { 0 } else { self.wakes + 1 };
        if !(is_first || is_last) {
            return;
        }
        let Some(waited) = self.statistics.as_ref().and_then(waited) else { return };
        let each = waited.saturating_sub(self.before) / MEASURED;
        self.before = waited;
        if is_last
            && let Some(policy) = self.decision.update(Instant::now(), each)
            && let Err(error) = schedule(policy)
        {
            tracing::debug!(%error, policy, "a worker cannot change its scheduling policy");
        }
    }
}

/// Reads a thread's total wait for cores.
fn waited(statistics: &File) -> Option<Duration> {
    let mut text = [0; 64];
    let length = statistics.read_at(&mut text, 0).ok()?;
    parse(text.get(..length)?)
}

/// Parses `schedstat` (the kernel's Documentation/scheduler/sched-stats.rst): nanoseconds on cores, nanoseconds waiting
/// for a core, and the number of time slices.
fn parse(statistics: &[u8]) -> Option<Duration> {
    let waited = str::from_utf8(statistics).ok()?.split_ascii_whitespace().nth(1)?;
    waited.parse().ok().map(Duration::from_nanos)
}

/// The decision between both policies.
struct Decision {
    /// The end of the period with the normal policy; `None` with SCHED_BATCH.
    normal_until: Option<Instant>,
    /// The length of the next such period.
    period: Duration,
    /// The last measured wait was too long. One long wait may have another cause; two in a row change the policy.
    suspects: bool,
}

impl Decision {
    fn new() -> Self {
        Self { normal_until: None, period: FIRST_PERIOD, suspects: false }
    }

    /// Records the average wait of a measurement. Returns the new policy, if it changes.
    fn update(&mut self, now: Instant, waited: Duration) -> Option<libc::c_int> {
        match self.normal_until {
            None if waited > TOLERABLE => {
                if !std::mem::replace(&mut self.suspects, true) {
                    return None;
                }
                self.suspects = false;
                self.normal_until = Some(now + self.period);
                self.period = LONGEST_PERIOD.min(self.period * 2);
                Some(libc::SCHED_OTHER)
            }
            None => {
                (self.period, self.suspects) = (FIRST_PERIOD, false);
                None
            }
            Some(until) if now >= until => {
                self.normal_until = None;
                Some(libc::SCHED_BATCH)
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_calling_thread_changes() {
        // SAFETY: both take and return plain numbers; 0 is the calling thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        let inside = std::thread::spawn(move || {
            yield_to_wakers().expect("anybody may");
            policy()
        });
        assert_eq!(inside.join().expect("no panic"), libc::SCHED_BATCH);
        assert_eq!(policy(), before);
    }

    #[test]
    fn a_long_wait_ends_sched_batch_for_growing_periods() {
        let (mut decision, mut now) = (Decision::new(), Instant::now());
        assert_eq!(decision.update(now, TOLERABLE), None);
        assert_eq!(decision.update(now, TOLERABLE * 2), None, "once says nothing");
        assert_eq!(decision.update(now, TOLERABLE), None);
        for period in [1, 2, 4, 8, 16, 32, 64, 64].map(Duration::from_secs) {
            assert_eq!(decision.update(now, TOLERABLE * 2), None);
            assert_eq!(decision.update(now, TOLERABLE * 2), Some(libc::SCHED_OTHER));
            now += period;
            assert_eq!(decision.update(now - Duration::from_millis(1), Duration::ZERO), None);
            assert_eq!(decision.update(now, Duration::ZERO), Some(libc::SCHED_BATCH));
        }
        assert_eq!(decision.update(now, Duration::ZERO), None, "whoever had the cores is gone");
        assert_eq!(decision.update(now, TOLERABLE * 2), None);
        assert_eq!(decision.update(now, TOLERABLE * 2), Some(libc::SCHED_OTHER));
        assert_eq!(decision.normal_until, Some(now + FIRST_PERIOD));
    }

    #[test]
    fn small_batches_are_measured_and_large_ones_are_not() {
        let mut switch = SchedPolicySwitch::new();
        (0..MEASURED).for_each(|_| switch.woken(MANY - 1));
        assert_eq!(switch.wakes, MEASURED);
        switch.woken(MANY);
        assert_eq!(switch.wakes, 0);
        (0..=MEASURED).for_each(|_| switch.woken(MANY - 1));
        assert_eq!(switch.wakes, 0, "measured");
    }

    #[test]
    fn the_kernel_tells_how_long_a_thread_has_waited() {
        assert_eq!(parse(b"70000 56253 12\n"), Some(Duration::from_nanos(56_253)));
        assert_eq!([&b"70000\n"[..], b"a b c\n", b"1 \xff\n"].map(parse), [None; 3]);
    }
}
