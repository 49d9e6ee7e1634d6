//! Datagrams of one size: at a rate, or as many as arrive. Each begins with its number, so that the sender knows which
//! are still under way: those to one target overtake each other nowhere, and what a later one has passed is lost.

use super::{End, failed, join};
use nix::sys::prctl::set_timerslack;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, SndBuf, SndBufForce};
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrIn, SockaddrStorage, recvmmsg, sendmmsg, setsockopt,
};
use nix::sys::time::TimeSpec;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Datagrams of one system call.
const BATCH: usize = 32;
/// Octets of the largest.
const LARGEST: usize = 2048;
/// Octets of a datagram's number.
const NUMBER: usize = size_of::<u64>();
/// A sender that was not scheduled does not catch up by a burst longer than this.
const BURST: Duration = Duration::from_millis(1);
/// Between two looks at the clock, or at what has arrived.
const PAUSE: Duration = Duration::from_micros(30);
/// A datagram counts as lost if it is under way for so long after another has arrived.
const LOST: Duration = Duration::from_millis(20);
/// After this long without a datagram, a receiver looks whether there will be more.
const SILENCE: Duration = Duration::from_millis(25);

/// The pace at which datagrams are sent.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// So many in a second.
    Rate(f64),
    /// As many as arrive: so many are under way at a time, and one that has arrived makes room for the next. It finds
    /// what a path carries without filling its queues until they overflow.
    UnderWay(u64),
}

/// Counts since the start, or over an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that have arrived.
    pub received: u64,
}

impl Shared {
    /// A datagram has arrived; the number counts those to all targets, which take turns.
    fn arrived(&self, number: u64) {
        let targets = self.past.len() as u64;
        if let Some(past) = self.past.get((number % targets.max(1)) as usize) {
            past.fetch_max(number / targets + 1, Relaxed);
        }
    }

    /// Datagrams to all targets that are not under way any more.
    fn past(&self) -> u64 {
        self.past.iter().map(|past| past.load(Relaxed)).sum()
    }
}

/// A flow of datagrams in one direction, until it is dropped.
pub struct Flow {
    shared: Arc<Shared>,
    sender: Option<JoinHandle<io::Result<()>>>,
    receiver: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Default)]
struct Shared {
    sent: AtomicU64,
    received: AtomicU64,
    /// Of each target's datagrams, how many are not under way any more: the last that has arrived and all before it.
    past: Vec<AtomicU64>,
    stop: AtomicBool,
    all_sent: AtomicBool,
}

impl Flow {
    /// Sends datagrams with so many octets of payload, eight at least, from an end to these addresses of the other, in
    /// turn.
    ///
    /// # Errors
    /// Where the system gives no sockets.
    pub fn start(
        from: End<'_>,
        to: End<'_>,
        targets: &[Ipv4Addr],
        octets: usize,
        pace: Pace,
    ) -> Result<Self, String> {
        let bind = |end: End<'_>| {
            let address = end.address;
            end.space.run(move || UdpSocket::bind((address, 0))).map_err(failed)
        };
        let (source, sink) = (bind(from)?, bind(to)?);
        enlarge(&source, &sink).map_err(|errno| failed(errno.into()))?;
        sink.set_read_timeout(Some(SILENCE)).map_err(failed)?;
        let port = sink.local_addr().map_err(failed)?.port();
        let targets: Vec<SockaddrIn> =
            targets.iter().map(|target| SocketAddrV4::new(*target, port).into()).collect();
        let past = targets.iter().map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared { past, ..Shared::default() });
        let receiver = {
            let shared = Arc::clone(&shared);
            to.spawn(move || absorb(&sink, &shared))
        };
        let sender = {
            let shared = Arc::clone(&shared);
            from.spawn(move || pour(&source, &targets, octets, pace, &shared))
        };
        Ok(Self { shared, sender: Some(sender), receiver: Some(receiver) })
    }

    /// The counts since the start.
    pub fn count(&self) -> Count {
        let Shared { sent, received, .. } = &*self.shared;
        Count { sent: sent.load(Relaxed), received: received.load(Relaxed) }
    }

    /// Stops sending; does not wait.
    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
    }

    /// Stops sending, waits for what is under way, and counts.
    ///
    /// # Errors
    /// Where sending or receiving failed.
    pub fn finish(mut self) -> Result<Count, String> {
        self.end().map_err(failed)?;
        Ok(self.count())
    }

    fn end(&mut self) -> io::Result<()> {
        self.shared.stop.store(true, Relaxed);
        let sent = self.sender.take().map_or(Ok(()), join);
        self.shared.all_sent.store(true, Relaxed);
        let received = self.receiver.take().map_or(Ok(()), join);
        sent.and(received)
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        // A caller that wants to know of errors has called `finish`.
        let _ = self.end();
    }
}

/// Room for bursts; where the system's limit may not be exceeded, as much as it allows.
fn enlarge(source: &UdpSocket, sink: &UdpSocket) -> nix::Result<()> {
    setsockopt(sink, RcvBufForce, &(32 << 20))
        .or_else(|_| setsockopt(sink, RcvBuf, &(32 << 20)))?;
    setsockopt(source, SndBufForce, &(4 << 20)).or_else(|_| setsockopt(source, SndBuf, &(4 << 20)))
}

fn pour(
    socket: &UdpSocket,
    targets: &[SockaddrIn],
    octets: usize,
    pace: Pace,
    shared: &Shared,
) -> io::Result<()> {
    set_timerslack(1_000)?;
    let mut payloads = vec![vec![0xa5; octets.max(NUMBER)]; BATCH];
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let mut sent = 0_u64;
    let mut due = Due::new(pace);
    while !shared.stop.load(Relaxed) {
        let mut now = due.now(sent, shared.past());
        if now == 0 {
            std::thread::sleep(PAUSE);
        }
        while now > 0 {
            let batch = usize::try_from(now).unwrap_or(BATCH).min(BATCH);
            for (number, payload) in (sent..).zip(&mut payloads[..batch]) {
                payload[..NUMBER].copy_from_slice(&number.to_be_bytes());
            }
            let turn =
                targets.iter().copied().cycle().skip((sent % targets.len().max(1) as u64) as usize);
            let to: Vec<Option<SockaddrIn>> = turn.take(batch).map(Some).collect();
            let slices: Vec<_> = payloads[..batch].iter().map(|p| [IoSlice::new(p)]).collect();
            let flags = MsgFlags::empty();
            match sendmmsg(socket.as_raw_fd(), &mut headers, &slices, &to, [], flags) {
                Ok(results) => {
                    let count = results.count() as u64;
                    sent += count;
                    now -= count;
                    shared.sent.store(sent, Relaxed);
                }
                // The host's own queue is full: that is no datagram offered.
                Err(nix::Error::ENOBUFS | nix::Error::EAGAIN) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(())
}

/// The computation of the number to send now.
struct Due {
    pace: Pace,
    begun: Instant,
    slipped: Duration,
    /// The number sent when those under way were last given up for lost.
    given_up: u64,
    /// The number that were no longer under way at its last change, and the time of that.
    past: u64,
    at: Instant,
}

impl Due {
    fn new(pace: Pace) -> Self {
        let now = Instant::now();
        Self { pace, begun: now, slipped: Duration::ZERO, given_up: 0, past: 0, at: now }
    }

    fn now(&mut self, sent: u64, past: u64) -> u64 {
        match self.pace {
            Pace::Rate(rate) => {
                let due = self.begun.elapsed().saturating_sub(self.slipped).as_secs_f64() * rate;
                let due = (due as u64).saturating_sub(sent);
                let burst = ((rate * BURST.as_secs_f64()) as u64).max(2 * BATCH as u64);
                if due > burst {
                    self.slipped += Duration::from_secs_f64((due - burst) as f64 / rate);
                }
                due.min(burst)
            }
            Pace::UnderWay(most) => {
                let under_way = sent.saturating_sub(past.max(self.given_up));
                if past != self.past {
                    (self.past, self.at) = (past, Instant::now());
                } else if under_way >= most && self.at.elapsed() > LOST {
                    (self.given_up, self.at) = (sent, Instant::now());
                    return most;
                }
                most.saturating_sub(under_way)
            }
        }
    }
}

/// Counts until nothing comes any more.
fn absorb(socket: &UdpSocket, shared: &Shared) -> io::Result<()> {
    let mut buffers = vec![[0; LARGEST]; 2 * BATCH];
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(buffers.len(), None);
    loop {
        let mut slices: Vec<_> = buffers.iter_mut().map(|b| [IoSliceMut::new(b)]).collect();
        let flags = MsgFlags::MSG_WAITFORONE;
        let fd = socket.as_raw_fd();
        let arrived = recvmmsg(fd, &mut headers, slices.iter_mut(), flags, None::<TimeSpec>)
            .map(Iterator::count);
        match arrived {
            Ok(count) => {
                shared.received.fetch_add(count as u64, Relaxed);
                for number in buffers[..count].iter().filter_map(|b| b.first_chunk()) {
                    shared.arrived(u64::from_be_bytes(*number));
                }
            }
            Err(nix::Error::EAGAIN) if shared.all_sent.load(Relaxed) => return Ok(()),
            Err(nix::Error::EAGAIN | nix::Error::EINTR | nix::Error::ECONNREFUSED) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overtaken_datagram_is_not_under_way() {
        let past = vec![AtomicU64::new(0), AtomicU64::new(0)];
        let shared = Shared { past, ..Shared::default() };
        let mut due = Due::new(Pace::UnderWay(8));
        assert_eq!(due.now(0, shared.past()), 8);
        // Targets take turns: 0, 2, 4 and 6 are the first's, and 4 has passed 0 and 2.
        shared.arrived(4);
        assert_eq!(due.now(8, shared.past()), 3);
        // A late datagram has been settled, and the other target's are under way as before.
        shared.arrived(0);
        assert_eq!(due.now(8, shared.past()), 3);
        shared.arrived(7);
        assert_eq!(due.now(8, shared.past()), 7);
    }
}
