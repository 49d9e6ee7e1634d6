//! Traffic between the hosts' inner addresses beside streams of TCP: datagrams at a rate, and echoes.

use benchkit::Host;
use nix::sys::prctl::set_timerslack;
use nix::sys::socket::sockopt::{RcvBufForce, SndBufForce};
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrIn, SockaddrStorage, recvmmsg, sendmmsg, setsockopt,
};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Datagrams of one system call.
const BATCH: usize = 32;
/// A datagram that arrives later than this after the last one was sent counts as lost. It waits in queues that a longer
/// run would have filled.
const GRACE: Duration = Duration::from_millis(20);
/// All datagrams have left the queues after this further time.
const DRAIN: Duration = Duration::from_millis(30);
/// How often a receiver to whom nothing comes looks whether that is the end.
const LOOK: Duration = Duration::from_millis(5);
/// A sender that was not scheduled does not catch up by a burst longer than this.
const BURST: Duration = Duration::from_millis(1);
/// Between two bursts.
const BETWEEN: Duration = Duration::from_micros(100);

fn text(error: io::Error) -> String {
    format!("traffic: {error}")
}

/// Counts of the datagrams of a run.
#[derive(Clone, Copy, Debug)]
pub struct Datagrams {
    pub sent: u64,
    pub received: u64,
    /// How long it took to send them.
    pub lasted: Duration,
}

impl Datagrams {
    /// The share that did not arrive.
    pub fn loss(&self) -> f64 {
        1.0 - self.received as f64 / self.sent.max(1) as f64
    }

    pub fn offered(&self) -> f64 {
        self.sent as f64 / self.lasted.as_secs_f64()
    }

    pub fn delivered(&self) -> f64 {
        self.received as f64 / self.lasted.as_secs_f64()
    }
}

/// Sends datagrams of `octets` at `rate` per second (none: as many as there is time for), in turn to each of `targets`.
pub fn datagrams(
    from: &Host,
    to: &Host,
    targets: &[Ipv4Addr],
    octets: usize,
    rate: Option<f64>,
    lasting: Duration,
) -> Result<Datagrams, String> {
    let sink = to.space.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))).map_err(text)?;
    let port = sink.local_addr().map_err(text)?.port();
    setsockopt(&sink, RcvBufForce, &(32 << 20)).map_err(|errno| text(errno.into()))?;
    let inner = from.inner;
    let source = from.space.run(move || UdpSocket::bind((inner, 0))).map_err(text)?;
    setsockopt(&source, SndBufForce, &(4 << 20)).map_err(|errno| text(errno.into()))?;
    let all_sent = Arc::new(AtomicBool::new(false));
    let receiver = {
        let all_sent = Arc::clone(&all_sent);
        to.space.run(move || std::thread::spawn(move || absorb(&sink, &all_sent)))
    };
    let targets: Vec<SockaddrIn> =
        targets.iter().map(|target| SocketAddrV4::new(*target, port).into()).collect();
    let sender = from.space.run(move || {
        std::thread::spawn(move || {
            let done = pour(&source, &targets, octets, rate, lasting);
            all_sent.store(true, Relaxed);
            done
        })
    });
    let (sent, lasted) = sender.join().expect("no panic").map_err(text)?;
    let received = receiver.join().expect("no panic").map_err(text)?;
    std::thread::sleep(DRAIN);
    Ok(Datagrams { sent, received, lasted })
}

fn pour(
    socket: &UdpSocket,
    targets: &[SockaddrIn],
    octets: usize,
    rate: Option<f64>,
    lasting: Duration,
) -> io::Result<(u64, Duration)> {
    set_timerslack(1_000)?;
    let payload = vec![0xa5; octets];
    let slices = [[IoSlice::new(&payload)]; BATCH];
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let mut turn = targets.iter().copied().cycle();
    let (begun, mut slipped, mut sent) = (Instant::now(), Duration::ZERO, 0_u64);
    while begun.elapsed() < lasting {
        let mut due = match rate {
            None => BATCH as u64,
            Some(rate) => {
                let due = ((begun.elapsed().saturating_sub(slipped)).as_secs_f64() * rate) as u64;
                let due = due.saturating_sub(sent);
                let burst = ((rate * BURST.as_secs_f64()) as u64).max(2 * BATCH as u64);
                if due > burst {
                    slipped += Duration::from_secs_f64((due - burst) as f64 / rate);
                }
                due.min(burst)
            }
        };
        while due > 0 {
            let now = due.min(BATCH as u64) as usize;
            let to: Vec<Option<SockaddrIn>> = turn.by_ref().take(now).map(Some).collect();
            let done = sendmmsg(
                socket.as_raw_fd(),
                &mut headers,
                &slices[..now],
                &to,
                [],
                MsgFlags::empty(),
            );
            match done.map(|results| results.count()) {
                Ok(count) => {
                    sent += count as u64;
                    due -= count as u64;
                }
                // The host's own queue is full: that is no datagram offered.
                Err(nix::Error::ENOBUFS | nix::Error::EAGAIN) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        if rate.is_some() {
            std::thread::sleep(BETWEEN);
        }
    }
    Ok((sent, begun.elapsed()))
}

/// Counts what comes in time.
fn absorb(socket: &UdpSocket, all_sent: &AtomicBool) -> io::Result<u64> {
    socket.set_read_timeout(Some(LOOK))?;
    let mut buffers = vec![[0; 2048]; 2 * BATCH];
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(buffers.len(), None);
    let (mut received, mut end) = (0, None);
    loop {
        if end.is_none() && all_sent.load(Relaxed) {
            end = Some(Instant::now() + GRACE);
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(received);
        }
        let mut slices: Vec<_> = buffers.iter_mut().map(|b| [IoSliceMut::new(b)]).collect();
        let flags = MsgFlags::MSG_WAITFORONE;
        let fd = socket.as_raw_fd();
        match recvmmsg(fd, &mut headers, slices.iter_mut(), flags, None::<TimeSpec>) {
            Ok(messages) => {
                let count = messages.count();
                received += count as u64;
                if count < BATCH {
                    // Few at a time would cost the machine more than the VPN does.
                    std::thread::sleep(BETWEEN);
                }
            }
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Round trips of so many ICMP echoes, one every `interval`; those that came back, sorted.
pub fn echoes(
    from: &Host,
    to: &Host,
    number: u16,
    interval: Duration,
) -> Result<Vec<Duration>, String> {
    let (source, target) = (from.inner, to.inner);
    let thread =
        from.space.run(move || std::thread::spawn(move || echo(source, target, number, interval)));
    let mut trips = thread.join().expect("no panic").map_err(text)?;
    trips.sort_unstable();
    Ok(trips)
}

fn echo(
    source: Ipv4Addr,
    target: Ipv4Addr,
    number: u16,
    interval: Duration,
) -> io::Result<Vec<Duration>> {
    const IDENTIFIER: u16 = 0x7670;
    set_timerslack(1_000)?;
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
    socket.bind(&SockAddr::from(SocketAddrV4::new(source, 0)))?;
    socket.connect(&SockAddr::from(SocketAddrV4::new(target, 0)))?;
    let begun = Instant::now();
    let mut trips = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); 2048];
    for sequence in 0..number {
        std::thread::sleep((interval * sequence.into()).saturating_sub(begun.elapsed()));
        let mut packet = [0; 64];
        packet[0] = 8;
        packet[4..6].copy_from_slice(&IDENTIFIER.to_be_bytes());
        packet[6..8].copy_from_slice(&sequence.to_be_bytes());
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
        let sent = Instant::now();
        socket.send(&packet)?;
        let deadline = sent + Duration::from_secs(1);
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let Ok(length) = socket.recv(&mut buffer) else { break };
            // SAFETY: the kernel has written so many octets.
            let octets =
                unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), length) };
            // An IPv4 header without options comes along.
            if octets.get(20) == Some(&0) && octets.get(24..28) == Some(&packet[4..8]) {
                trips.push(sent.elapsed());
                break;
            }
        }
    }
    Ok(trips)
}

/// RFC 1071.
fn checksum(octets: &[u8]) -> u16 {
    let words =
        octets.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
