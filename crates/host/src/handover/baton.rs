//! The right to go on: one octet in a pipe, which the kernel gives to one process.

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::io::{read, retry_on_intr, write};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The right to go on with what was handed over. Two processes have the end of the pipe from which it is read, and none
/// has the end into which it was written, so that nobody makes a second one.
///
/// Whichever process asks first has the right, for good. The other one learns that it has not, whenever it asks: also
/// after it was stopped for a minute, and if the first one was killed since.
#[derive(Debug)]
pub struct Baton(OwnedFd);

/// The answer to the question who has the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// This process.
    Ours,
    /// The other one: this process must not go on.
    Theirs,
}

impl Baton {
    /// Makes a right that nobody has taken.
    ///
    /// # Errors
    /// If the system has no more descriptors.
    pub fn new() -> io::Result<Self> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        match retry_on_intr(|| write(&theirs, &[0]))? {
            1 => Ok(Self(ours)),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// The right that another process has sent.
    ///
    /// # Errors
    /// If the descriptor is no pipe that is only read, without waiting.
    pub fn of(descriptor: OwnedFd) -> io::Result<Self> {
        let is_pipe = FileType::from_raw_mode(fstat(&descriptor)?.st_mode) == FileType::Fifo;
        let flags = fcntl_getfl(&descriptor)?;
        let is_read = flags & OFlags::RWMODE == OFlags::RDONLY;
        if is_pipe && is_read && flags.contains(OFlags::NONBLOCK) {
            return Ok(Self(descriptor));
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "the right to go on is no pipe"))
    }

    /// Takes the right, unless the other process has it.
    ///
    /// # Errors
    /// If the system does not say who has it: then this process must not go on.
    pub fn take(self) -> io::Result<Taken> {
        let mut octet = [0];
        match retry_on_intr(|| read(&self.0, &mut octet))? {
            0 => Ok(Taken::Theirs),
            _ => Ok(Taken::Ours),
        }
    }
}

impl AsFd for Baton {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::Barrier;

    /// The copy that another process gets.
    fn copy(of: &Baton) -> Baton {
        Baton::of(of.0.try_clone().expect("a descriptor")).expect("it is one")
    }

    #[test]
    fn one_of_two_has_it_and_the_other_learns_that_at_any_time() {
        for first in [true, false] {
            let ours = Baton::new().expect("a pipe");
            let theirs = copy(&ours);
            let (one, other) = if first { (ours, theirs) } else { (theirs, ours) };
            assert_eq!(one.take().expect("known"), Taken::Ours);
            // Its process has ended since.
            assert_eq!(other.take().expect("known"), Taken::Theirs);
        }
    }

    #[test]
    fn the_end_of_the_other_process_leaves_it() {
        let ours = Baton::new().expect("a pipe");
        drop(copy(&ours));
        assert_eq!(ours.take().expect("known"), Taken::Ours);
        let ours = Baton::new().expect("a pipe");
        let theirs = copy(&ours);
        drop(ours);
        assert_eq!(theirs.take().expect("known"), Taken::Ours);
    }

    #[test]
    fn of_threads_that_ask_at_once_one_has_it() {
        for _ in 0..200 {
            let batons: Vec<Baton> = {
                let first = Baton::new().expect("a pipe");
                let copies = [copy(&first), copy(&first), copy(&first)];
                copies.into_iter().chain([first]).collect()
            };
            let start = Barrier::new(batons.len());
            let owners = std::thread::scope(|scope| {
                let asking: Vec<_> = (batons.into_iter())
                    .map(|baton| {
                        scope.spawn(|| {
                            start.wait();
                            baton.take().expect("known")
                        })
                    })
                    .collect();
                let taken = asking.into_iter().map(|thread| thread.join().expect("no panic"));
                taken.filter(|taken| *taken == Taken::Ours).count()
            });
            assert_eq!(owners, 1);
        }
    }

    #[test]
    fn it_is_a_pipe_without_an_end_to_write_to() {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        assert!(Baton::of(write).is_err());
        // Somebody could still write: while nothing is there, it is nobody's.
        let (open, _write) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        assert!(Baton::of(open).expect("a pipe").take().is_err());
        assert_eq!(Baton::of(read).expect("a pipe").take().expect("known"), Taken::Theirs);
        let (waits, _write) = pipe_with(PipeFlags::empty()).expect("a pipe");
        assert!(Baton::of(waits).is_err());
        assert!(Baton::of(File::open("/dev/null").expect("there").into()).is_err());
    }
}
