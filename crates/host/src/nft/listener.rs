//! A thread that reads the datagrams of a netlink socket.

use netlink_sys::Socket;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

/// The thread. Dropping this ends it.
pub(super) struct Listener {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Calls `heard` with every datagram of a socket that does not block, in a thread of this name; `None`: some were
    /// lost. The log says `lost` if the kernel refuses to send more.
    pub(super) fn start(
        name: &str,
        socket: Socket,
        lost: &'static str,
        mut heard: impl FnMut(Option<&[u8]>) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            if let Err(error) = listen(&socket, &stopped, &mut heard) {
                tracing::error!(%error, "{lost}");
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Returns `true` if the kernel has refused to send more.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It has no result.
            let _ = thread.join();
        }
    }
}

fn listen(
    socket: &Socket,
    stopped: &UnixStream,
    heard: &mut dyn FnMut(Option<&[u8]>),
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(1 << 16);
    loop {
        let mut watched = [PollFd::new(socket, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut watched, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        if !watched[1].revents().is_empty() {
            return Ok(());
        }
        buffer.clear();
        match socket.recv_from(&mut buffer, 0) {
            Ok(_) => heard(Some(&buffer)),
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => heard(None),
            Err(e)
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
}
