//! The scheduling policy of a worker: SCHED_BATCH, or the normal one if it waits too long for a core.
//!
//! A packet that an application sends wakes the worker while the application is still in its system call. Were the worker
//! to interrupt it, the core would have two threads to run, and the scheduler would wake whoever takes the packet next on
//! another core, which on a sleeping one takes several times as long as the packet does. And an application that is left
//! to finish leaves more packets for one batch. A polite worker therefore runs when whoever had the core has come to rest.
//!
//! A program that computes and sends nothing never comes to rest. If such programs have the cores, a polite worker waits for
//! the end of a time slice with every packet. It notices that, and uses the normal policy for a while.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Wake-ups in a row by which a worker judges. What waits behind a whole batch waits for the worker's own work.
const JUDGED: u32 = 16;

/// So many packets at once are worth having waited for.
const MANY: usize = 4;

/// The longest that a wake-up may wait for a core on average. Who sends a packet rests after some microseconds.
const TOLERABLE: Duration = Duration::from_micros(300);

/// How long a worker is not polite, at first; each time that it was in vain it is twice as long.
const LAPSE: Duration = Duration::from_secs(1);

/// And at most.
const LONGEST_LAPSE: Duration = Duration::from_secs(64);

/// Has the calling thread run when whoever woke it has come to rest, rather than at once (SCHED_BATCH, sched(7)).
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

/// Watches how long the thread that made it waits for a core, and has it behave accordingly. It is polite at first.
pub(super) struct Manners {
    /// What the kernel says of this thread; where it says nothing, the thread stays polite.
    account: Option<File>,
    opinion: Opinion,
    /// Wake-ups for few packets, in a row.
    wakes: u32,
    /// How long the thread had waited for cores in all when the first of them was over.
    before: Duration,
}

impl Manners {
    pub(super) fn new() -> Self {
        let account = File::open("/proc/thread-self/schedstat").ok();
        Self { account, opinion: Opinion::new(), wakes: 0, before: Duration::ZERO }
    }

    /// Takes note of a wake-up for so many packets, which are on their way.
    pub(super) fn woken(&mut self, packets: usize) {
        if packets >= MANY {
            self.wakes = 0;
            return;
        }
        let is_first = self.wakes == 0;
        let is_last = self.wakes == JUDGED;
        self.wakes = if is_last { 0 } else { self.wakes + 1 };
        if !(is_first || is_last) {
            return;
        }
        let Some(waited) = self.account.as_ref().and_then(waited) else { return };
        let each = waited.saturating_sub(self.before) / JUDGED;
        self.before = waited;
        if is_last
            && let Some(policy) = self.opinion.form(Instant::now(), each)
            && let Err(error) = schedule(policy)
        {
            tracing::debug!(%error, policy, "a worker cannot change its sched_policy");
        }
    }
}

/// How long a thread has waited for cores.
fn waited(account: &File) -> Option<Duration> {
    let mut text = [0; 64];
    let length = account.read_at(&mut text, 0).ok()?;
    parse(text.get(..length)?)
}

/// The kernel's Documentation/scheduler/sched-stats.rst: nanoseconds on cores, nanoseconds waiting for one, and how often.
fn parse(account: &[u8]) -> Option<Duration> {
    let waited = str::from_utf8(account).ok()?.split_ascii_whitespace().nth(1)?;
    waited.parse().ok().map(Duration::from_nanos)
}

/// Whether to be polite.
struct Opinion {
    /// When to be polite again; `None` while it is.
    rude_until: Option<Instant>,
    /// How long the next lapse will be.
    lapse: Duration,
    /// The last wait was too long. One may have been a disturbance of another kind: two in a row are a reason.
    doubts: bool,
}

impl Opinion {
    fn new() -> Self {
        Self { rude_until: None, lapse: LAPSE, doubts: false }
    }

    /// Takes note of how long a wake-up has waited on average. The policy to change to, if it is another.
    fn form(&mut self, now: Instant, waited: Duration) -> Option<libc::c_int> {
        match self.rude_until {
            None if waited > TOLERABLE => {
                if !std::mem::replace(&mut self.doubts, true) {
                    return None;
                }
                self.doubts = false;
                self.rude_until = Some(now + self.lapse);
                self.lapse = LONGEST_LAPSE.min(self.lapse * 2);
                Some(libc::SCHED_OTHER)
            }
            None => {
                (self.lapse, self.doubts) = (LAPSE, false);
                None
            }
            Some(until) if now >= until => {
                self.rude_until = None;
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
    fn who_waits_long_is_polite_no_more_and_tries_again() {
        let (mut opinion, mut now) = (Opinion::new(), Instant::now());
        assert_eq!(opinion.form(now, TOLERABLE), None);
        assert_eq!(opinion.form(now, TOLERABLE * 2), None, "once says nothing");
        assert_eq!(opinion.form(now, TOLERABLE), None);
        for lapse in [1, 2, 4, 8, 16, 32, 64, 64].map(Duration::from_secs) {
            assert_eq!(opinion.form(now, TOLERABLE * 2), None);
            assert_eq!(opinion.form(now, TOLERABLE * 2), Some(libc::SCHED_OTHER));
            now += lapse;
            assert_eq!(opinion.form(now - Duration::from_millis(1), Duration::ZERO), None);
            assert_eq!(opinion.form(now, Duration::ZERO), Some(libc::SCHED_BATCH));
        }
        assert_eq!(opinion.form(now, Duration::ZERO), None, "whoever had the cores is gone");
        assert_eq!(opinion.form(now, TOLERABLE * 2), None);
        assert_eq!(opinion.form(now, TOLERABLE * 2), Some(libc::SCHED_OTHER));
        assert_eq!(opinion.rude_until, Some(now + LAPSE));
    }

    #[test]
    fn few_packets_at_a_time_are_judged_and_many_are_not() {
        let mut sched_policy = Manners::new();
        (0..JUDGED).for_each(|_| sched_policy.woken(MANY - 1));
        assert_eq!(sched_policy.wakes, JUDGED);
        sched_policy.woken(MANY);
        assert_eq!(sched_policy.wakes, 0);
        (0..=JUDGED).for_each(|_| sched_policy.woken(MANY - 1));
        assert_eq!(sched_policy.wakes, 0, "judged");
    }

    #[test]
    fn the_kernel_tells_how_long_a_thread_has_waited() {
        assert_eq!(parse(b"70000 56253 12\n"), Some(Duration::from_nanos(56_253)));
        assert_eq!([&b"70000\n"[..], b"a b c\n", b"1 \xff\n"].map(parse), [None; 3]);
    }
}
