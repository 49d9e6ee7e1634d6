//! Sockets of this host at the end of a relay.

use super::{CHECK, Local, RelayError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{SockRef, TcpKeepalive};
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream, tcp};

/// Questions that stay unanswered before an end is given up.
const QUESTIONS: u32 = 3;
/// The time between questions to an end that has said all. Its system answers as long as the program has the socket, and
/// for a minute more (`net.ipv4.tcp_fin_timeout`).
const SOON: Duration = Duration::from_secs(5);

/// Returns `true` if the socket is closed in both directions, or broken.
fn is_over(socket: impl AsFd) -> bool {
    let mut looked_at = [PollFd::new(&socket, PollFlags::empty())];
    // These two are told unasked.
    let over = PollFlags::HUP | PollFlags::ERR;
    poll(&mut looked_at, Some(&Timespec::default())).is_ok()
        && looked_at[0].revents().intersects(over)
}

fn ask(socket: &TcpStream, after: Duration, every: Duration) {
    let asks = TcpKeepalive::new().with_time(after).with_interval(every).with_retries(QUESTIONS);
    if let Err(error) = SockRef::from(socket).set_tcp_keepalive(&asks) {
        tracing::debug!(%error, "keep-alive of a socket");
    }
}

/// Waits until the program at the other end of a socket of this host is gone. It is there as long as it can receive.
pub async fn closed(socket: &TcpStream) {
    ask(socket, SOON, SOON);
    let mut checks = tokio::time::interval(CHECK);
    loop {
        checks.tick().await;
        if is_over(socket) {
            return;
        }
    }
}

impl Local for TcpStream {
    type Reader = tcp::OwnedReadHalf;
    type Writer = tcp::OwnedWriteHalf;

    fn into_halves(self, keep_alive: Duration) -> (Self::Reader, Self::Writer) {
        let _ = self.set_nodelay(true);
        ask(&self, keep_alive, keep_alive / QUESTIONS);
        self.into_split()
    }

    fn has_said_all(reader: &Self::Reader) {
        // A program that has closed its socket and one that has only said all look the same, until the system of the
        // first one answers no more.
        ask(reader.as_ref(), SOON, SOON);
    }

    fn is_gone(reader: &Self::Reader) -> bool {
        is_over(reader.as_ref())
    }

    fn end(reader: Self::Reader, writer: Self::Writer, why: Option<&RelayError>) {
        if why.is_some() {
            let socket: &TcpStream = reader.as_ref();
            let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
            // It would send the end of the stream before the reset.
            writer.forget();
        }
    }
}

/// Returns `true` if the program at the other end of a Unix socket has closed it.
pub fn is_closed(socket: &UnixStream) -> bool {
    is_over(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_socket_that_is_closed_is_told_from_one_that_has_said_all() {
        let (mut theirs, ours) = UnixStream::pair().expect("a pair");
        theirs.shutdown().await.expect("shut down");
        assert!(!is_closed(&ours));
        drop(theirs);
        assert!(is_closed(&ours));
    }
}
