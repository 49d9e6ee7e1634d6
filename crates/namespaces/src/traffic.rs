//! Traffic whose losses can be told: numbered small datagrams that are echoed, and TCP connections with known octets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::isolation::Namespace;

/// Between two small packets.
const INTERVAL: Duration = Duration::from_millis(1);
/// Packets without an echo are lost once no echo has come for this long.
const SILENCE: Duration = Duration::from_secs(10);
/// Packets that may be under way at a time: a sender that was not scheduled for a while must not fill the host's
/// queues.
const WINDOW: u64 = 64;
/// Between two packets beyond the window: they show when the path carries packets again.
const PROBE: Duration = Duration::from_millis(40);
/// A connection that does nothing for this long is broken.
const STALLED: Duration = Duration::from_secs(60);
/// An [`exchange`] that does nothing for this long is broken: its octets all go at once, however slow the host is.
const PATIENCE: Duration = Duration::from_secs(300);
/// Octets of a small packet.
const SMALL: usize = 64;
/// The interval at which threads check whether they shall stop.
const TICK: Duration = Duration::from_millis(50);

/// The counts of small packets.
#[derive(Clone, Debug, Default)]
pub struct Echoes {
    /// Packets sent.
    pub sent: u64,
    /// Numbers of the packets that never reached the far end.
    pub lost_there: Vec<u64>,
    /// Numbers of the packets that reached it, whose echo never came back.
    pub lost_back: Vec<u64>,
    /// Packets and echoes that came twice.
    pub duplicates: u64,
    /// Median round trip.
    pub median: Duration,
    /// The round trip that 99 of 100 did not exceed.
    pub p99: Duration,
}

impl Echoes {
    /// Packets without an echo.
    pub fn lost(&self) -> u64 {
        (self.lost_there.len() + self.lost_back.len()) as u64
    }

    /// Returns `true` if everything came and came back, and nothing twice.
    pub fn is_complete(&self) -> bool {
        self.lost() == 0 && self.duplicates == 0
    }
}

/// The progress of a flow of small packets.
#[derive(Debug, Default)]
struct Progress {
    /// Packets sent.
    sent: AtomicU64,
    /// Echoes received, those that came twice not counted.
    echoed: AtomicU64,
    /// The number after that of the newest packet whose echo has come: those before it are not under way any more.
    past: AtomicU64,
    duplicates: AtomicU64,
    /// Nanoseconds without an echo, after everything is sent, until the missing packets are lost.
    silence: AtomicU64,
}

/// A flow of small packets, of which every octet is checked at either end.
pub struct Pings {
    stop: Arc<AtomicBool>,
    all_sent: Arc<AtomicBool>,
    sender: JoinHandle<io::Result<u64>>,
    receiver: JoinHandle<io::Result<Vec<Option<Duration>>>>,
    progress: Arc<Progress>,
    echo_stop: Arc<AtomicBool>,
    echo: JoinHandle<io::Result<Numbers>>,
}

impl Pings {
    /// Sends a packet every millisecond from `from` in `left` to `to` in `right`, where each is echoed.
    pub fn start(
        (left, from): (&Namespace, IpAddr),
        (right, to): (&Namespace, IpAddr),
    ) -> io::Result<Self> {
        let target = right.run(move || bind(to))?;
        let source = left.run(move || bind(from))?;
        source.connect(target.local_addr()?)?;

        let progress = Arc::new(Progress::default());
        let echo_stop = Arc::new(AtomicBool::new(false));
        let echo = {
            let (stop, progress) = (Arc::clone(&echo_stop), Arc::clone(&progress));
            thread::Builder::new()
                .name("echo".to_owned())
                .spawn(move || echo(&target, &stop, &progress))?
        };
        let stop = Arc::new(AtomicBool::new(false));
        let all_sent = Arc::new(AtomicBool::new(false));
        let start = Instant::now();
        let receiver = {
            let source = source.try_clone()?;
            let (all_sent, progress) = (Arc::clone(&all_sent), Arc::clone(&progress));
            thread::Builder::new()
                .name("echoes".to_owned())
                .spawn(move || collect(&source, start, &all_sent, &progress))?
        };
        let sender = {
            let (stop, progress) = (Arc::clone(&stop), Arc::clone(&progress));
            thread::Builder::new()
                .name("pings".to_owned())
                .spawn(move || send(&source, start, &stop, &progress))?
        };
        Ok(Self { stop, all_sent, sender, receiver, progress, echo_stop, echo })
    }

    /// Packets sent so far.
    pub fn sent(&self) -> u64 {
        self.progress.sent.load(Ordering::Relaxed)
    }

    /// Packets whose echo has come so far.
    pub fn echoed(&self) -> u64 {
        self.progress.echoed.load(Ordering::Relaxed)
    }

    /// Stops sending, waits for the last echoes and counts.
    ///
    /// # Errors
    /// Where a socket failed, or a packet or an echo has other octets than were sent.
    pub fn finish(self) -> io::Result<Echoes> {
        self.finish_after(SILENCE)
    }

    /// The same; packets without an echo are lost once no echo has come for so long.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_after(self, silence: Duration) -> io::Result<Echoes> {
        let silence = u64::try_from(silence.as_nanos()).unwrap_or(u64::MAX);
        self.progress.silence.store(silence, Ordering::Relaxed);
        self.stop.store(true, Ordering::Relaxed);
        let sent = join(self.sender)?;
        self.all_sent.store(true, Ordering::Release);
        let trips = join(self.receiver)?;
        self.echo_stop.store(true, Ordering::Relaxed);
        let arrived = join(self.echo)?;
        let without =
            (0..sent).filter(|number| !matches!(trips.get(*number as usize), Some(Some(_))));
        let (lost_back, lost_there) = without.partition(|number| arrived.has(*number));
        let mut times: Vec<Duration> = trips.into_iter().flatten().collect();
        times.sort_unstable();
        let [median, p99] = [50, 99].map(|percent| {
            let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
            times.get(at).copied().unwrap_or_default()
        });
        Ok(Echoes {
            sent,
            lost_there,
            lost_back,
            duplicates: self.progress.duplicates.load(Ordering::Relaxed),
            median,
            p99,
        })
    }
}

fn bind(address: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(address, 0))?;
    socket.set_read_timeout(Some(TICK))?;
    // Losses are to be those of the tunnel, not of a program that was not scheduled for a while.
    socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20)?;
    Ok(socket)
}

fn send(
    socket: &UdpSocket,
    start: Instant,
    stop: &AtomicBool,
    progress: &Progress,
) -> io::Result<u64> {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        // By the clock, not by the last packet: a delayed thread catches up.
        let due = INTERVAL * u32::try_from(number).unwrap_or(u32::MAX);
        thread::sleep(due.saturating_sub(start.elapsed()));
        if number >= progress.past.load(Ordering::Relaxed) + WINDOW {
            thread::sleep(PROBE);
        }
        let now = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let packet = small(number, now);
        number += 1;
        progress.sent.store(number, Ordering::Relaxed);
        match socket.send(&packet) {
            // Refused by this host's own stack: the packet is lost, and will be counted so.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(number)
}

/// A packet with a number and a time, and octets that follow from both.
fn small(number: u64, time: u64) -> [u8; SMALL] {
    let mut packet = [0; SMALL];
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ time;
    for place in &mut packet {
        // Knuth's multiplier for MMIX; the highest bits are the most mixed ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *place = (state >> 56) as u8;
    }
    packet[..8].copy_from_slice(&number.to_be_bytes());
    packet[8..16].copy_from_slice(&time.to_be_bytes());
    packet
}

/// Reads the number and the time of a packet, if it is one as it was sent.
fn read_small(packet: &[u8]) -> io::Result<(u64, u64)> {
    let packet: &[u8; SMALL] = packet.try_into().map_err(|_| altered())?;
    let [number, time] =
        [0, 8].map(|at| u64::from_be_bytes(std::array::from_fn(|i| packet[at + i])));
    if *packet == small(number, time) { Ok((number, time)) } else { Err(altered()) }
}

fn altered() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "other octets than were sent")
}

/// A set of numbers of packets.
#[derive(Default)]
struct Numbers(Vec<bool>);

impl Numbers {
    /// Adds a number; `false` if it is already there.
    fn add(&mut self, number: u64) -> io::Result<bool> {
        let index = usize::try_from(number).map_err(io::Error::other)?;
        if index >= self.0.len() {
            self.0.resize(index + 1, false);
        }
        Ok(!std::mem::replace(&mut self.0[index], true))
    }

    fn has(&self, number: u64) -> bool {
        self.0.get(number as usize).copied().unwrap_or(false)
    }
}

/// Round trips by number, `None` for packets without an echo.
fn collect(
    socket: &UdpSocket,
    start: Instant,
    all_sent: &AtomicBool,
    progress: &Progress,
) -> io::Result<Vec<Option<Duration>>> {
    let mut trips: Vec<Option<Duration>> = Vec::new();
    let mut missing = 0;
    let mut deadline = None;
    let mut packet = [0; 2 * SMALL];
    loop {
        if all_sent.load(Ordering::Acquire) {
            let silence = Duration::from_nanos(progress.silence.load(Ordering::Relaxed));
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + silence);
            let all = trips.len() as u64 == progress.sent.load(Ordering::Relaxed) && missing == 0;
            if all || Instant::now() >= deadline {
                return Ok(trips);
            }
        }
        let length = match socket.recv(&mut packet) {
            Ok(length) => length,
            Err(error) if is_timeout(&error) => continue,
            // An ICMP error for one packet; the packet itself is counted as lost.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error),
        };
        let (number, time) = read_small(&packet[..length])?;
        if number >= progress.sent.load(Ordering::Relaxed) {
            return Err(io::Error::new(ErrorKind::InvalidData, "an echo of what was never sent"));
        }
        let index = usize::try_from(number).map_err(io::Error::other)?;
        if index >= trips.len() {
            missing += index - trips.len() + 1;
            trips.resize(index + 1, None);
        }
        let trip = start.elapsed().saturating_sub(Duration::from_nanos(time));
        if trips[index].replace(trip).is_some() {
            progress.duplicates.fetch_add(1, Ordering::Relaxed);
        } else {
            missing -= 1;
            progress.echoed.fetch_add(1, Ordering::Relaxed);
        }
        progress.past.fetch_max(number + 1, Ordering::Relaxed);
        deadline = None;
    }
}

/// Sends every packet back; the numbers of those that came.
fn echo(socket: &UdpSocket, stop: &AtomicBool, progress: &Progress) -> io::Result<Numbers> {
    let mut arrived = Numbers::default();
    let mut packet = [0; 2 * SMALL];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv_from(&mut packet) {
            Ok((length, from)) => {
                let (number, _) = read_small(&packet[..length])?;
                if number >= progress.sent.load(Ordering::Relaxed) {
                    return Err(altered());
                }
                if !arrived.add(number)? {
                    progress.duplicates.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                // As above: a packet that is refused here is missing at the other end.
                let _ = socket.send_to(&packet[..length], from);
            }
            Err(error) if is_timeout(&error) || error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
    }
    Ok(arrived)
}

/// Sends these octets through one TCP connection from `from` in `left` to `to` in `right`, which sends them all back.
///
/// # Errors
/// Where the connection fails, or other octets come or come back than were sent.
pub fn exchange(
    (left, from): (&Namespace, IpAddr),
    (right, to): (&Namespace, IpAddr),
    octets: &[u8],
) -> io::Result<()> {
    let listener = right.run(move || TcpListener::bind(SocketAddr::new(to, 0)))?;
    let target = listener.local_addr()?;
    let mut near = left.run(move || dial(from, target, PATIENCE))?;
    let (mut far, _) = listener.accept()?;
    for end in [&near, &far] {
        end.set_read_timeout(Some(PATIENCE))?;
        end.set_write_timeout(Some(PATIENCE))?;
    }
    let right = thread::spawn(move || {
        let mut request = Vec::new();
        far.read_to_end(&mut request)?;
        far.write_all(&request)?;
        Ok(request)
    });
    near.write_all(octets)?;
    near.shutdown(std::net::Shutdown::Write)?;
    let mut answer = Vec::new();
    near.read_to_end(&mut answer)?;
    let request = join(right)?;
    if request == octets && answer == octets { Ok(()) } else { Err(altered()) }
}

/// Length of the pattern a stream repeats; no power of two, so that no shift by a packet goes unnoticed.
const PATTERN: usize = 65_521;

fn pattern() -> Vec<u8> {
    let mut state = 1_u32;
    let octets = (0..PATTERN).map(|_| {
        // Marsaglia's xorshift with his triple 13, 17, 5.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    });
    octets.collect()
}

/// A TCP connection that carries as much as it is allowed to.
pub struct Stream {
    stop: Arc<AtomicBool>,
    rate: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    sender: JoinHandle<io::Result<u64>>,
    receiver: JoinHandle<io::Result<u64>>,
}

impl Stream {
    /// Connects from `from` in `left` to `to` in `right` and sends `rate` octets per second; 0: as fast as it goes.
    pub fn start(
        (left, from): (&Namespace, IpAddr),
        (right, to): (&Namespace, IpAddr),
        rate: u64,
    ) -> io::Result<Self> {
        let listener = right.run(move || TcpListener::bind(SocketAddr::new(to, 0)))?;
        let target = listener.local_addr()?;
        let sender = left.run(move || dial(from, target, STALLED))?;
        let (receiver, _) = listener.accept()?;
        receiver.set_read_timeout(Some(STALLED))?;
        sender.set_write_timeout(Some(STALLED))?;
        // Closing waits until the other end knows of it: nothing of the connection is sent after the end of the stream,
        // when the tunnel may be gone.
        socket2::SockRef::from(&receiver).set_linger(Some(STALLED))?;

        let stop = Arc::new(AtomicBool::new(false));
        let rate = Arc::new(AtomicU64::new(rate));
        let received = Arc::new(AtomicU64::new(0));
        let sender = {
            let (stop, rate) = (Arc::clone(&stop), Arc::clone(&rate));
            thread::Builder::new()
                .name("stream".to_owned())
                .spawn(move || fill(sender, &stop, &rate))?
        };
        let receiver = {
            let received = Arc::clone(&received);
            thread::Builder::new()
                .name("sink".to_owned())
                .spawn(move || drain(receiver, &received))?
        };
        Ok(Self { stop, rate, received, sender, receiver })
    }

    /// Changes the rate.
    pub fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// Octets that have arrived and were right.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Ends the stream; the octets that arrived.
    ///
    /// # Errors
    /// Where the connection broke, or octets were wrong or missing.
    pub fn finish(self) -> io::Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = join(self.sender)?;
        let received = join(self.receiver)?;
        if sent == received {
            Ok(received)
        } else {
            Err(io::Error::other(format!("{sent} octets were sent, {received} arrived")))
        }
    }
}

fn dial(from: IpAddr, to: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let socket =
        socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&to.into(), patience)?;
    Ok(socket.into())
}

fn fill(mut stream: TcpStream, stop: &AtomicBool, rate: &AtomicU64) -> io::Result<u64> {
    let pattern = pattern();
    let (mut sent, mut at) = (0_u64, 0_usize);
    while !stop.load(Ordering::Relaxed) {
        let rate = rate.load(Ordering::Relaxed);
        // Paced in pieces of ten milliseconds.
        let most = if rate == 0 { PATTERN } else { usize::try_from(rate / 100).unwrap_or(PATTERN) };
        let piece = &pattern[at..PATTERN.min(at + most.max(1))];
        let written = stream.write(piece)?;
        sent += written as u64;
        at = (at + written) % PATTERN;
        if let Some(nanoseconds) = (written as u64 * 1_000_000_000).checked_div(rate) {
            thread::sleep(Duration::from_nanos(nanoseconds));
        }
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    Ok(sent)
}

fn drain(mut stream: TcpStream, received: &AtomicU64) -> io::Result<u64> {
    let pattern = pattern();
    let mut at = 0;
    let mut buffer = vec![0; 1 << 18];
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(received.load(Ordering::Relaxed));
        }
        let mut octets = &buffer[..length];
        while !octets.is_empty() {
            let (piece, rest) = octets.split_at(octets.len().min(PATTERN - at));
            if piece != &pattern[at..at + piece.len()] {
                return Err(altered());
            }
            at = (at + piece.len()) % PATTERN;
            octets = rest;
        }
        received.fetch_add(length as u64, Ordering::Relaxed);
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn join<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a traffic thread panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_packet_is_as_it_was_sent() {
        let packet = small(7, 1_000_000);
        assert_eq!(read_small(&packet).expect("as it was sent"), (7, 1_000_000));
        for at in 0..SMALL {
            let mut other = packet;
            other[at] ^= 1;
            assert!(read_small(&other).is_err(), "octet {at}");
        }
        assert!(read_small(&packet[1..]).is_err());
    }

    #[test]
    fn numbers_are_added_once() {
        let mut numbers = Numbers::default();
        assert!(numbers.add(3).expect("a small number"));
        assert!(!numbers.add(3).expect("a small number"));
        assert!(numbers.has(3) && !numbers.has(2) && !numbers.has(4));
    }
}
