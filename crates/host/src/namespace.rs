//! The network namespace a plane lives in: sockets and queues that are opened later belong there, whichever thread
//! asks.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// A network namespace, kept open.
pub struct Namespace(File);

impl Namespace {
    /// The calling thread's.
    pub fn current() -> io::Result<Self> {
        File::open("/proc/thread-self/ns/net").map(Self)
    }

    /// Does something there. A thread of another namespace cannot come back once it has left; one of its own goes.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        if identity(&self.0)? == identity(&Self::current()?.0)? {
            return Ok(work());
        }
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(self.0.as_fd(), kind)?;
                Ok(work())
            });
            there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}
