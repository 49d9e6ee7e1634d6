//! The handle of a TCP connection.

use crate::connection::{Connection, stack_duration};
use crate::end::End;
use smoltcp::socket::tcp::State;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A TCP connection through a tunnel.
///
/// Octets that were written are still sent after the stream was dropped, for at most 60 seconds. If octets were
/// received that were not read, the connection is reset instead.
///
/// `flush` and `shutdown` return at once: octets leave without the one, and the peer sees the end of the stream behind
/// all that was written before the other. The stack sends from its own task, so nothing needs to be polled meanwhile.
///
/// # Cancellation
/// A `read` or `write` that is dropped before it is ready has taken no octet. `read_exact`, `write_all` and their like
/// of tokio are several of these, so they may have taken some.
pub struct TcpStream(Arc<Connection>);

/// The half of a [`TcpStream`] that reads. The peer does not notice when it is dropped: a peer that goes on sending
/// waits for room. The connection ends with the other half, too.
#[derive(Debug)]
pub struct ReadHalf(Arc<TcpStream>);

/// The half of a [`TcpStream`] that writes. The peer sees the end of the stream when it is dropped.
#[derive(Debug)]
pub struct WriteHalf(Arc<TcpStream>);

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut inner = self.0.lock();
        let state = inner.state();
        let socket = inner.socket();
        let (unread, unacknowledged) = (socket.recv_queue(), socket.send_queue());
        f.debug_struct("TcpStream")
            .field("local", &self.0.flow.local)
            .field("remote", &self.0.flow.remote)
            .field("state", &state)
            .field("unread", &unread)
            .field("unacknowledged", &unacknowledged)
            .finish_non_exhaustive()
    }
}

impl TcpStream {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self(connection)
    }

    /// Waits until the connection is established.
    pub(crate) fn poll_established(&self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let mut inner = self.0.lock();
        if let Some(end) = inner.end {
            return Poll::Ready(Err(end));
        }
        match inner.state() {
            State::SynSent | State::SynReceived => {}
            State::Closed if inner.before.is_none() => {}
            State::Closed => return Poll::Ready(Err(End::Refused)),
            _ => return Poll::Ready(Ok(())),
        }
        inner.socket().register_send_waker(cx.waker());
        Poll::Pending
    }

    /// The address and port of this end.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.flow.local
    }

    /// The address and port of the peer.
    pub fn peer_addr(&self) -> SocketAddr {
        self.0.flow.remote
    }

    /// Whether a little is sent at once, although something sent before is not acknowledged. Default: no
    /// (RFC 9293 §3.7.4).
    /// A little is less than one real segment, not less than one super-packet.
    pub fn set_nodelay(&self, nodelay: bool) {
        self.0.lock().corrections.nodelay = nodelay;
        self.0.call();
    }

    /// Returns `true` after [`set_nodelay(true)`](Self::set_nodelay).
    pub fn nodelay(&self) -> bool {
        self.0.lock().corrections.nodelay
    }

    /// The time of silence after which the peer is asked whether it lives. If it has not answered
    /// [`dead_after`](crate::Settings::dead_after) later, the connection ends. `None`, which is the default: it is
    /// never asked, and a stream on which neither end has anything to say lives on.
    pub fn set_keep_alive(&self, interval: Option<Duration>) {
        self.0.lock().socket().set_keep_alive(interval.map(stack_duration));
        self.0.call();
    }

    /// Resets the connection: the peer sees that it is broken, and octets that the peer has not acknowledged may be lost.
    pub fn reset(&self) {
        self.0.lock().socket().abort();
        self.0.call();
    }

    /// Two halves that different tasks may have.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        let whole = Arc::new(self);
        (ReadHalf(Arc::clone(&whole)), WriteHalf(whole))
    }

    fn read(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut inner = self.0.lock();
        if inner.socket().can_recv() {
            let read = inner.socket().recv_slice(buffer.initialize_unfilled()).unwrap_or(0);
            buffer.advance(read);
            let room = inner.room();
            let tell = inner.corrections.has_read(read, room);
            drop(inner);
            if tell {
                self.0.call();
            }
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = inner.end {
            return Poll::Ready(Err(end.into()));
        }
        if !inner.socket().may_recv() {
            return Poll::Ready(Ok(()));
        }
        inner.socket().register_recv_waker(cx.waker());
        Poll::Pending
    }

    fn write(&self, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.0.lock();
        if let Some(end) = inner.end {
            return Poll::Ready(Err(end.into()));
        }
        if !inner.socket().may_send() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let written = inner.put(octets);
        if written == 0 && !octets.is_empty() {
            inner.socket().register_send_waker(cx.waker());
            return Poll::Pending;
        }
        drop(inner);
        self.0.call();
        Poll::Ready(Ok(written))
    }

    fn shut_down(&self) {
        let mut inner = self.0.lock();
        if inner.socket().may_send() {
            inner.socket().close();
        }
        drop(inner);
        self.0.call();
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}

impl ReadHalf {
    /// The whole stream, for its addresses and settings.
    pub fn stream(&self) -> &TcpStream {
        &self.0
    }
}

impl WriteHalf {
    /// The whole stream, for its addresses and settings.
    pub fn stream(&self) -> &TcpStream {
        &self.0
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.read(cx, buffer)
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.read(cx, buffer)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, octets)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shut_down();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.write(cx, octets)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.shut_down();
        Poll::Ready(Ok(()))
    }
}
