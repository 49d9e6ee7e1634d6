//! The state that is handed over: memory without a name, which nobody can change once it is written.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use zeroize::Zeroizing;

/// Octets of the longest state: several times what 100,000 tunnels need.
const LONGEST: u64 = 1 << 30;

/// The seals of a state that is written.
const SEALED: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// Memory for a state. The successor makes it before it is confined: a confined process makes no file without a name.
#[derive(Debug)]
pub struct BlankState(File);

/// A state that nobody can change any more. Its memory goes with the last descriptor.
#[derive(Debug)]
pub struct SealedState {
    file: File,
    len: u64,
}

impl BlankState {
    /// Makes the memory, which nobody can execute.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn new() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Linux before 6.3 does not know that nobody is to execute it.
        let made = memfd_create("vpn-state", flags | MemfdFlags::NOEXEC_SEAL);
        let made = made.or_else(|error| match error {
            Errno::INVAL => memfd_create("vpn-state", flags),
            error => Err(error),
        });
        Ok(Self(made?.into()))
    }

    /// The memory that a successor has sent. The keys of all SAs are written to it, so that it must be no file with a
    /// name, on a disk or elsewhere.
    ///
    /// # Errors
    /// If it is anything but empty memory.
    pub fn of(descriptor: OwnedFd) -> io::Result<Self> {
        let file = File::from(descriptor);
        // A file system has no seals, and a file in a tmpfs cannot be sealed.
        let seals = fcntl_get_seals(&file);
        let is_open = seals.is_ok_and(|seals| SealFlags::EXEC.contains(seals));
        let metadata = file.metadata()?;
        if is_open && metadata.nlink() == 0 && metadata.len() == 0 {
            return Ok(Self(file));
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "the state has no empty memory to go to"))
    }

    /// Writes the state, and seals it.
    ///
    /// # Errors
    /// If there is no memory left. Nothing of the state is there then.
    pub fn fill(self, octets: &[u8]) -> io::Result<SealedState> {
        let Self(file) = self;
        let len = octets.len() as u64;
        if len > LONGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let written = file.write_all_at(octets, 0);
        let sealed = written.and_then(|()| Ok(fcntl_add_seals(&file, SEALED)?));
        sealed.inspect_err(|_| {
            // The other process may have the memory for long.
            let _ = file.set_len(0);
        })?;
        Ok(SealedState { file, len })
    }
}

impl SealedState {
    /// The state that a predecessor has sent.
    ///
    /// # Errors
    /// If somebody could still change it, or it is too long.
    pub fn of(descriptor: OwnedFd) -> io::Result<Self> {
        let file = File::from(descriptor);
        let seals = fcntl_get_seals(&file)?;
        let len = file.metadata()?.len();
        if !seals.contains(SEALED) || len > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the state is not sealed"));
        }
        Ok(Self { file, len })
    }

    /// Octets.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads the state, into memory that is wiped when it is dropped.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn read(&self) -> io::Result<Zeroizing<Vec<u8>>> {
        // It has been bounded.
        let mut octets = Zeroizing::new(vec![0; self.len as usize]);
        self.file.read_exact_at(&mut octets, 0)?;
        Ok(octets)
    }
}

impl AsFd for BlankState {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for SealedState {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(of: impl AsFd) -> OwnedFd {
        of.as_fd().try_clone_to_owned().expect("a descriptor")
    }

    #[test]
    fn a_state_is_read_as_it_was_written_and_changed_by_nobody() {
        let blank = BlankState::new().expect("memory");
        let made = File::from(copy(&blank));
        let theirs = BlankState::of(copy(&blank)).expect("it is blank");
        let octets: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
        let sealed = theirs.fill(&octets).expect("there is memory");
        let read = SealedState::of(copy(&sealed)).expect("it is sealed");
        assert_eq!((read.len(), read.is_empty()), (300_000, false));
        assert_eq!(*read.read().expect("readable"), octets);
        // The process that has made the memory has no other access than the one that has filled it.
        assert!(made.write_all_at(b"x", 0).is_err());
        assert!(made.set_len(7).is_err() && made.set_len(400_000).is_err());
        assert!(fcntl_add_seals(&made, SealFlags::FUTURE_WRITE).is_err());
        assert!(BlankState::of(made.into()).is_err(), "it is written");
    }

    #[test]
    fn a_state_is_written_to_no_file_with_a_name() {
        let of = |file: File| BlankState::of(file.into()).map(drop);
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state");
        assert!(of(File::create_new(&path).expect("a file")).is_err());
        // Without a name, but it was a file of a file system.
        assert!(of(tempfile::tempfile_in(directory.path()).expect("a file")).is_err());
        if let Ok(in_memory) = tempfile::tempfile_in("/dev/shm") {
            assert!(of(in_memory).is_err());
        }
        assert!(of(File::options().write(true).open("/dev/null").expect("there")).is_err());
        let full = File::from(copy(BlankState::new().expect("memory")));
        full.set_len(1).expect("not sealed yet");
        assert!(of(full).is_err());
        let unsealable = memfd_create("x", MemfdFlags::CLOEXEC).expect("memory");
        assert!(BlankState::of(unsealable).is_err());
    }

    #[test]
    fn a_state_that_can_change_is_not_read() {
        let blank = BlankState::new().expect("memory");
        assert!(SealedState::of(copy(&blank)).is_err());
        for missing in [SealFlags::WRITE, SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            let blank = BlankState::new().expect("memory");
            fcntl_add_seals(&blank, SEALED.difference(missing)).expect("not sealed yet");
            assert!(SealedState::of(copy(&blank)).is_err(), "{missing:?}");
        }
        assert!(SealedState::of(File::open("/dev/null").expect("there").into()).is_err());
    }

    #[test]
    fn an_empty_state_is_one() {
        let sealed = BlankState::new().expect("memory").fill(&[]).expect("nothing to write");
        assert!(sealed.is_empty() && sealed.read().expect("readable").is_empty());
    }
}
