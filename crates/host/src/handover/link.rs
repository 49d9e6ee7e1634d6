//! The connection between both processes: frames, some with descriptors.
//!
//! ```text
//! frame   kind: 1 octet │ descriptors: 1 │ zero: 2 │ length: 4 │ text
//! ```
//!
//! Numbers are in network order. The descriptors come with the first octet. A text is no secret.

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Most descriptors of one frame; the kernel's bound is 253.
pub(super) const TOGETHER: usize = 64;
/// Octets of the longest text: the names of the descriptors of one frame, or a reason.
const LONGEST: usize = 64 << 10;
const HEAD: usize = 8;

/// A frame as it was received.
pub(super) struct Frame {
    pub kind: u8,
    pub text: String,
    pub descriptors: Vec<OwnedFd>,
}

/// One end of the connection. Its calls block, each for a bounded time.
#[derive(Debug)]
pub(super) struct Link(UnixStream);

impl Link {
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        Ok(Self(stream))
    }

    /// Sends a frame. After an error, the other end may have a part of it, and nothing more is to be sent.
    pub fn send(
        &self,
        limit: Duration,
        kind: u8,
        text: &str,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        if descriptors.len() > TOGETHER || text.len() > LONGEST {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let deadline = Instant::now() + limit;
        let mut head = [0; HEAD];
        head[0] = kind;
        head[1] = descriptors.len() as u8;
        head[4..].copy_from_slice(&(text.len() as u32).to_be_bytes());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.0.set_write_timeout(Some(left(deadline)?))?;
        let parts = [IoSlice::new(&head)];
        let sent = retry_on_intr(|| sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL));
        // The kernel takes so few octets as a whole.
        if sent.map_err(timed)? != HEAD {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            self.0.set_write_timeout(Some(left(deadline)?))?;
            let sent = retry_on_intr(|| send(&self.0, rest, SendFlags::NOSIGNAL)).map_err(timed)?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    /// Receives a frame. All descriptors of one that is refused are closed.
    ///
    /// # Errors
    /// `UnexpectedEof` if the other end is gone, `TimedOut` after `limit`, and `InvalidData` for what is no frame.
    pub fn receive(&self, limit: Duration) -> io::Result<Frame> {
        let deadline = Instant::now() + limit;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut head = [0; HEAD];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
        let received = loop {
            self.0.set_read_timeout(Some(left(deadline)?))?;
            let parts = &mut [IoSliceMut::new(&mut head)];
            match recvmsg(&self.0, parts, &mut control, flags) {
                Err(Errno::INTR) => {}
                outcome => break outcome.map_err(timed)?,
            }
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        match received.bytes {
            HEAD => {}
            // Of an end that has closed, or that sends octet by octet.
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        let [kind, count, 0, 0, l0, l1, l2, l3] = head else { return Err(no_frame()) };
        let len = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        // The kernel leaves out the descriptors for which this process has no room.
        let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
        if is_cut || descriptors.len() != usize::from(count) || len > LONGEST {
            return Err(no_frame());
        }
        let mut text = vec![0; len];
        let mut filled = 0;
        while filled < len {
            self.0.set_read_timeout(Some(left(deadline)?))?;
            match (&self.0).read(&mut text[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
        let text = String::from_utf8(text).map_err(|_| no_frame())?;
        Ok(Frame { kind, text, descriptors })
    }
}

/// The time that is left; a system call takes no time of zero.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn timed(errno: Errno) -> io::Error {
    match errno {
        Errno::AGAIN => io::ErrorKind::TimedOut.into(),
        errno => errno.into(),
    }
}

fn no_frame() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other vpnd does not keep to the protocol")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    const LONG: Duration = Duration::from_secs(60);

    fn links() -> (Link, Link) {
        let (here, there) = UnixStream::pair().expect("sockets");
        (Link::new(here).expect("a link"), Link::new(there).expect("a link"))
    }

    #[test]
    fn frames_bring_their_own_descriptors() {
        let (here, there) = links();
        let files: Vec<File> =
            (0..TOGETHER).map(|_| tempfile::tempfile().expect("a file")).collect();
        let inode = |file: &File| rustix::fs::fstat(file).expect("open").st_ino;
        let all: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        here.send(LONG, 1, "first", &all[..1]).expect("sent");
        here.send(LONG, 2, "", &[]).expect("sent");
        here.send(LONG, 3, "all", &all).expect("sent");
        for (kind, text, count) in [(1, "first", 1), (2, "", 0), (3, "all", TOGETHER)] {
            let frame = there.receive(LONG).expect("a frame");
            assert_eq!((frame.kind, frame.text.as_str()), (kind, text));
            let received: Vec<u64> =
                frame.descriptors.into_iter().map(|fd| inode(&File::from(fd))).collect();
            assert_eq!(received, files[..count].iter().map(inode).collect::<Vec<_>>());
        }
        drop(here);
        assert!(matches!(there.receive(LONG), Err(e) if e.kind() == io::ErrorKind::UnexpectedEof));
    }

    #[test]
    fn received_descriptors_are_for_no_program_that_is_started() {
        let (here, there) = links();
        here.send(LONG, 1, "", &[tempfile::tempfile().expect("a file").as_fd()]).expect("sent");
        let frame = there.receive(LONG).expect("a frame");
        let flags = rustix::io::fcntl_getfd(&frame.descriptors[0]).expect("open");
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn more_than_a_frame_has_room_for_is_not_sent() {
        let (here, _there) = links();
        let file = tempfile::tempfile().expect("a file");
        assert!(here.send(LONG, 1, "", &vec![file.as_fd(); TOGETHER + 1]).is_err());
        assert!(here.send(LONG, 1, &"x".repeat(LONGEST + 1), &[]).is_err());
    }

    #[test]
    fn other_octets_are_no_frame() {
        let whole = |octets: &[u8]| {
            let (mut here, there) = UnixStream::pair().expect("sockets");
            here.write_all(octets).expect("room");
            drop(here);
            Link::new(there).expect("a link").receive(LONG).map(|frame| frame.text)
        };
        assert_eq!(whole(b"\x01\0\0\0\0\0\0\x02ok").expect("a frame"), "ok");
        assert!(whole(b"{\"command\":\"status\"}\n").is_err());
        assert!(whole(b"\x01\x01\0\0\0\0\0\0").is_err(), "a descriptor is missing");
        assert!(whole(b"\x01\0\0\0\xff\0\0\0").is_err(), "longer than any");
        assert!(whole(b"\x01\0\0\0\0\0\0\x03ok").is_err(), "cut short");
        assert!(whole(b"\x01\0\0").is_err());
        assert!(whole(b"\x01\0\0\0\0\0\0\x02\xff\xff").is_err(), "no text");
    }

    #[test]
    fn an_end_that_says_nothing_is_waited_for_no_longer_than_the_limit() {
        let (here, there) = links();
        let limit = Duration::from_millis(20);
        assert!(matches!(there.receive(limit), Err(e) if e.kind() == io::ErrorKind::TimedOut));
        assert!(
            matches!(there.receive(Duration::ZERO), Err(e) if e.kind() == io::ErrorKind::TimedOut)
        );
        // Nor is one that takes nothing.
        let text = "x".repeat(LONGEST);
        let refused = (0..1000).find_map(|_| here.send(limit, 1, &text, &[]).err());
        assert_eq!(refused.expect("it is full").kind(), io::ErrorKind::TimedOut);
    }
}
