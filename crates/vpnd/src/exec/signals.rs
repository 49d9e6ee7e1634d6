//! Signals for the command that were sent to this process.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io;
use tokio::sync::mpsc::{Receiver, channel};

/// The signals that are handed on.
const HANDED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// The code of a signal that the kernel has sent, as it does for a terminal (sigaction(2): SI_KERNEL).
const SI_KERNEL: i32 = 0x80;
/// Signals that wait.
const WAITING: usize = 16;

/// The signals wait instead of ending this process.
pub struct Forwarding(SignalFd);

/// A signal that has come.
#[derive(Clone, Copy, Debug)]
pub struct Signalled {
    /// Its number.
    pub number: u8,
    /// The kernel has sent it to all processes of the terminal.
    pub from_terminal: bool,
}

impl Signalled {
    /// Returns `true` if it is meant to end a program.
    pub fn terminates(self) -> bool {
        let keep = [Signal::SIGUSR1, Signal::SIGUSR2].map(|signal| signal as i32);
        !keep.contains(&self.number.into())
    }
}

impl Forwarding {
    /// Blocks the signals in the calling thread and those that it starts.
    pub fn begin() -> io::Result<Self> {
        let set: SigSet = HANDED_ON.into_iter().collect();
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?))
    }

    /// Starts a thread that hands them over. It ends with the process.
    pub fn listen(self) -> io::Result<Receiver<Signalled>> {
        let (give, take) = channel(WAITING);
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(move || {
            while let Ok(signal) = self.0.read_signal() {
                let Some(signal) = signal else { continue };
                let number = u8::try_from(signal.ssi_signo).unwrap_or_default();
                let from_terminal = signal.ssi_code == SI_KERNEL;
                if give.blocking_send(Signalled { number, from_terminal }).is_err() {
                    return;
                }
            }
        })?;
        Ok(take)
    }
}
