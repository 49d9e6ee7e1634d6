//! How a worker behaves towards the programs whose packets it carries.

#![allow(unsafe_code)]

use std::io;

/// Has the calling thread run when whoever woke it has come to rest, rather than at once (SCHED_BATCH, sched(7)).
///
/// A packet that an application sends wakes the worker while the application is still in its system call. Were the
/// worker to interrupt it, the core would have two threads to run, and the scheduler would wake whoever takes the packet
/// next on another core, which on a sleeping one takes several times as long as the packet does. And an application that
/// is left to finish leaves more packets for one batch.
pub(super) fn yield_to_wakers() -> io::Result<()> {
    // SAFETY: all-zero octets are a valid sched_param, and the only one that this policy takes.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads `parameters` during the call and keeps nothing; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
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
}
