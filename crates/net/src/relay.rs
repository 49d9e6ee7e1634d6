//! Copies between a connection through a tunnel and a socket of this host, and ends when one of the ends is gone.
//!
//! An end that says nothing may still be there. These signs tell that it is not:
//!
//! | sign | limit |
//! |---|---|
//! | The socket of this host is closed in both directions ([`Local::is_gone`]). | a second for a Unix socket; a minute for TCP, whose system answers so long for a closed socket |
//! | One end has said all, and the other says nothing. | [`Limits::half_closed`] |
//! | The peer's host does not answer. | [`Limits::keep_alive`], and [`Settings::dead_after`](crate::Settings::dead_after) |
//! | Neither end says anything. | [`Limits::idle`] |

#[cfg(feature = "host")]
mod host;

#[cfg(feature = "host")]
pub use host::{closed, is_closed};

use crate::tcp::{ReadHalf, TcpStream, WriteHalf};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf, copy_buf};
use tokio::time::Instant;

/// Octets that are copied at once.
const COPIED: usize = 64 << 10;
/// A socket of this host that has said all is looked at again after this time.
const CHECK: Duration = Duration::from_secs(1);

/// How long a relay waits for ends that say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Neither end says anything. Default: two hours, as NATs keep a connection (RFC 5382, REQ-5).
    pub idle: Duration,
    /// One end has said all, and the other says nothing. Default: five minutes.
    pub half_closed: Duration,
    /// The silence after which an end is asked whether it lives. Default: one minute.
    pub keep_alive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(7200),
            half_closed: Duration::from_secs(300),
            keep_alive: Duration::from_secs(60),
        }
    }
}

/// Why a relay has ended before both ends had said all.
#[derive(thiserror::Error)]
pub enum RelayError {
    /// An end is broken.
    #[error(transparent)]
    Broken(#[from] io::Error),
    /// The socket of this host is closed.
    #[error("the program of this host has closed its socket")]
    Gone,
    /// One end has said all, and the other says nothing.
    #[error("one end has said all, and the other has said nothing for {} s", .0.as_secs())]
    HalfClosed(Duration),
    /// Neither end says anything.
    #[error("neither end has said anything for {} s", .0.as_secs())]
    Idle(Duration),
}

policy::readable_debug!(RelayError);

/// A socket of this host.
pub trait Local: Send + Sized {
    /// The half that reads.
    type Reader: AsyncRead + Unpin + Send;
    /// The half that writes.
    type Writer: AsyncWrite + Unpin + Send;

    /// Two halves. The system asks the other end whether it lives after so much silence, if it can be on another host.
    fn into_halves(self, keep_alive: Duration) -> (Self::Reader, Self::Writer);

    /// The other end has said all. From here on, the system finds out soon whether it still listens.
    fn has_said_all(reader: &Self::Reader);

    /// Returns `true` if the other end can neither send nor receive any more.
    fn is_gone(reader: &Self::Reader) -> bool;

    /// Ends the socket. With a reason, the other end is to take it for broken, and not for an orderly end.
    fn end(reader: Self::Reader, writer: Self::Writer, why: Option<&RelayError>);
}

/// Copies both ways until both ends have said all. After an error, both ends see that the connection is broken.
///
/// # Errors
/// If an end is broken, or has been silent for longer than the limits.
pub async fn relay<L: Local>(
    local: L,
    stream: TcpStream,
    limits: Limits,
) -> Result<(), RelayError> {
    // Octets that one end sends at once are to reach the other one at once.
    stream.set_nodelay(true);
    stream.set_keep_alive(Some(limits.keep_alive));
    let (mut reader, mut writer) = local.into_halves(limits.keep_alive);
    let (mut from_tunnel, mut to_tunnel) = stream.into_split();
    let outcome =
        both_ways::<L>((&mut reader, &mut writer), (&mut from_tunnel, &mut to_tunnel), limits)
            .await;
    // If the program has gone, all that it has said is on its way, and nobody is there for an answer.
    let broken = outcome.as_ref().err().filter(|error| !matches!(error, RelayError::Gone));
    if broken.is_some() {
        to_tunnel.stream().reset();
    }
    L::end(reader, writer, broken);
    outcome
}

async fn both_ways<L: Local>(
    (reader, writer): (&mut L::Reader, &mut L::Writer),
    (from_tunnel, to_tunnel): (&mut ReadHalf, &mut WriteHalf),
    limits: Limits,
) -> Result<(), RelayError> {
    let activity = Activity::new();
    let half_closed = limits.half_closed.min(limits.idle);
    // Boxed, so that the reader is free again once all is read.
    let mut out = Box::pin(copy(&mut *reader, to_tunnel, &activity));
    let mut back = pin!(copy(from_tunnel, writer, &activity));
    tokio::select! {
        said = &mut out => {
            said?;
            drop(out);
            tokio::select! {
                copied = &mut back => Ok(copied?),
                () = gone::<L>(reader) => Err(RelayError::Gone),
                () = activity.silence(half_closed) => Err(RelayError::HalfClosed(half_closed)),
            }
        }
        said = &mut back => {
            said?;
            tokio::select! {
                copied = &mut out => Ok(copied?),
                () = activity.silence(half_closed) => Err(RelayError::HalfClosed(half_closed)),
            }
        }
        () = activity.silence(limits.idle) => Err(RelayError::Idle(limits.idle)),
    }
}

/// Copies one way, up to and including the end.
async fn copy(
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
    activity: &Activity,
) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(COPIED, Noted { end: reader, activity });
    let mut writer = Noted { end: writer, activity };
    copy_buf(&mut reader, &mut writer).await?;
    writer.shutdown().await?;
    activity.note();
    Ok(())
}

/// Waits until the socket of this host, which has said all, is gone.
async fn gone<L: Local>(reader: &L::Reader) {
    L::has_said_all(reader);
    let mut checks = tokio::time::interval(CHECK);
    loop {
        checks.tick().await;
        if L::is_gone(reader) {
            return;
        }
    }
}

/// When an end last sent or took octets.
struct Activity(Mutex<Instant>);

impl Activity {
    fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Waits until there was no activity for this time.
    async fn silence(&self, limit: Duration) {
        loop {
            let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if last.elapsed() >= limit {
                return;
            }
            tokio::time::sleep_until(last + limit).await;
        }
    }
}

/// An end whose activity is noted.
struct Noted<'a, E> {
    end: E,
    activity: &'a Activity,
}

impl<E: AsyncRead + Unpin> AsyncRead for Noted<'_, E> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.end).poll_read(cx, buffer);
        if outcome.is_ready() {
            self.activity.note();
        }
        outcome
    }
}

impl<E: AsyncWrite + Unpin> AsyncWrite for Noted<'_, E> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.end).poll_write(cx, octets);
        if outcome.is_ready() {
            self.activity.note();
        }
        outcome
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.end).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.end).poll_shutdown(cx)
    }
}
