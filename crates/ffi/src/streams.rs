//! Connections as descriptors.

use crate::calls::STOPPED;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use vpn::net::TcpStream;
use vpn::net::relay::{Limits, Local, RelayError, is_closed, relay};

/// A TCP connection through a tunnel, as one end of a pair of Unix sockets.
pub struct Stream {
    descriptor: OwnedFd,
    end: Arc<End>,
}

/// How a connection has ended: the reason, unless it was in order.
type End = OnceLock<Option<String>>;

/// The other end of the pair.
struct Ours {
    socket: tokio::net::UnixStream,
    end: Arc<End>,
}

/// The half of it that writes. The program sees the end of the connection when this is dropped, and the reason is there
/// before.
struct Writer {
    half: OwnedWriteHalf,
    end: Arc<End>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Nothing is set yet if the runtime has ended before the connection.
        let _ = self.end.set(Some(STOPPED.to_owned()));
    }
}

impl Stream {
    /// Gives a connection a descriptor, with a task that copies. For a task of the runtime.
    ///
    /// # Errors
    /// If there is no descriptor.
    pub fn new(stream: TcpStream) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot make a descriptor: {error}");
        let (theirs, socket) = UnixStream::pair().map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let socket = tokio::net::UnixStream::from_std(socket).map_err(failed)?;
        let end = Arc::new(End::new());
        let ours = Ours { socket, end: Arc::clone(&end) };
        tokio::spawn(relay(ours, stream, Limits::default()));
        Ok(Self { descriptor: theirs.into(), end })
    }

    pub fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Why the connection has ended before its time.
    pub fn error(&self) -> Option<&str> {
        self.end.get()?.as_deref()
    }
}

impl Local for Ours {
    type Reader = OwnedReadHalf;
    type Writer = Writer;

    fn into_halves(self, _: Duration) -> (Self::Reader, Self::Writer) {
        let (reader, half) = self.socket.into_split();
        (reader, Writer { half, end: self.end })
    }

    fn has_said_all(_: &Self::Reader) {}

    fn is_gone(reader: &Self::Reader) -> bool {
        is_closed(reader.as_ref())
    }

    fn end(_: Self::Reader, writer: Self::Writer, why: Option<&RelayError>) {
        let _ = writer.end.set(why.map(ToString::to_string));
    }
}

impl AsyncWrite for Writer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.half).poll_write(cx, octets)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.half).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.half).poll_shutdown(cx)
    }
}
