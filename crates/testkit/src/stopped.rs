//! One thread of a process that is stopped while the others run.

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often it is looked whether the process has ended.
const LOOK: Duration = Duration::from_millis(20);

/// A thread that is stopped, as if it were stuck, until this value is dropped or its process ends. It needs the rights
/// of root.
pub struct Stopped {
    go_on: Sender<()>,
    tracer: Option<JoinHandle<()>>,
}

impl Stopped {
    /// Stops the thread of a process that has this name.
    pub fn new(process: i32, name: &str) -> Self {
        let thread = thread_of(process, name);
        let (stopped, is_stopped) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        // Only the thread that stops another one can let it go on, and must take note of its end.
        let tracer = thread::spawn(move || {
            ptrace::seize(thread, ptrace::Options::empty()).expect("root may");
            ptrace::interrupt(thread).expect("it is traced");
            waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it stops");
            stopped.send(()).expect("the test waits");
            while let Err(RecvTimeoutError::Timeout) = goes_on.recv_timeout(LOOK) {
                let ended = waitpid(thread, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG));
                if let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(_) = ended {
                    return;
                }
            }
            ptrace::detach(thread, None).expect("it is stopped");
        });
        is_stopped.recv().expect("it stops");
        Self { go_on, tracer: Some(tracer) }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Its process may have ended.
        let _ = self.go_on.send(());
        let went_on = self.tracer.take().is_none_or(|tracer| tracer.join().is_ok());
        assert!(went_on || thread::panicking(), "the thread does not go on");
    }
}

fn thread_of(process: i32, name: &str) -> Pid {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs").flatten();
    let is_it = |thread: &fs::DirEntry| {
        fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let thread = threads.into_iter().find(is_it).unwrap_or_else(|| panic!("no thread is {name}"));
    let number = thread.file_name().into_string().ok().and_then(|number| number.parse().ok());
    Pid::from_raw(number.expect("a number"))
}
