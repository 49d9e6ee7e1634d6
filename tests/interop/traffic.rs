//! Traffic whose losses can be told: pings, a TCP stream of known octets, and numbered datagrams that are echoed.

use crate::{PATIENCE, eventually, world};
use lab::isolation::Namespace;
use socket2::{Domain, SockRef, Socket, Type};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A host: its namespace and its address.
pub type Endpoint<'a> = (&'a Namespace, IpAddr);

/// Pings a host; every ping must be answered.
pub fn ping(from: Endpoint<'_>, to: IpAddr, count: u32) {
    ping_with(from, to, count, 56);
}

/// Pings a host with so many octets.
pub fn ping_with((namespace, from): Endpoint<'_>, to: IpAddr, count: u32, octets: u32) {
    let [from, to, octets] = [from.to_string(), to.to_string(), octets.to_string()];
    for _ in 0..count {
        // One at a time: after a first answer, ping waits for the others no longer than two round trips.
        let arguments = ["-n", "-W", "120", "-c", "1", "-s", &octets, "-I", &from, &to];
        let printed = world::run(namespace, "ping", &arguments);
        let printed = printed.unwrap_or_else(|error| panic!("{error}"));
        assert!(printed.contains(" 0% packet loss"), "{printed}");
    }
}

/// Whether a host answers within a second.
pub fn answers((namespace, from): Endpoint<'_>, to: IpAddr) -> bool {
    let (from, to) = (from.to_string(), to.to_string());
    world::run(namespace, "ping", &["-n", "-W", "1", "-c", "1", "-I", &from, &to]).is_ok()
}

/// The octet at a place of a stream; no shift by a packet goes unnoticed.
fn octet(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Sends that many octets over TCP and compares what arrives.
pub fn stream(
    (client, from): Endpoint<'_>,
    (server, to): Endpoint<'_>,
    octets: u64,
) -> io::Result<()> {
    const TIMEOUT: Option<Duration> = Some(PATIENCE);
    let listener = server.run(move || TcpListener::bind((to, 0)))?;
    let target = listener.local_addr()?;
    let mut sender: TcpStream = client.run(move || {
        let socket = Socket::new(Domain::for_address(target), Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(from, 0).into())?;
        socket.connect_timeout(&target.into(), PATIENCE)?;
        io::Result::Ok(socket.into())
    })?;
    let (mut receiver, _) = listener.accept()?;
    sender.set_write_timeout(TIMEOUT)?;
    receiver.set_read_timeout(TIMEOUT)?;
    let sending = thread::spawn(move || {
        let data: Vec<u8> = (0..octets).map(octet).collect();
        sender.write_all(&data)?;
        sender.shutdown(std::net::Shutdown::Write)
    });
    let mut data = Vec::new();
    receiver.read_to_end(&mut data)?;
    sending.join().expect("it does not panic")?;
    let right = data.iter().zip(0..).all(|(found, at)| *found == octet(at));
    if right && data.len() as u64 == octets {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::InvalidData, "other octets than were sent"))
}

/// Octets of a numbered datagram.
const SIZE: usize = 200;
/// How often threads look whether they are to stop.
const TICK: Duration = Duration::from_millis(20);
/// Datagrams without an echo are lost once nothing has come for this long.
const SILENCE: Duration = Duration::from_secs(10);
/// Datagrams that may be under way at a time: a sender that was not scheduled for a while must not fill the host's queues.
const WINDOW: u64 = 64;
/// Between two datagrams beyond the window: they show when the path carries datagrams again.
const PROBE: Duration = Duration::from_millis(40);

/// What became of the datagrams.
#[derive(Clone, Debug)]
pub struct Counts {
    pub sent: u64,
    /// Numbers that never reached the far end.
    pub lost_there: Vec<u64>,
    /// Numbers that reached it, whose echo never came back.
    pub lost_back: Vec<u64>,
}

impl Counts {
    /// Whether everything came and came back.
    pub fn is_complete(&self) -> bool {
        self.lost_there.is_empty() && self.lost_back.is_empty()
    }
}

/// How far a flow is.
#[derive(Debug, Default)]
struct Progress {
    /// Datagrams sent.
    sent: AtomicU64,
    /// Echoes received.
    echoed: AtomicU64,
    /// The number after that of the newest datagram whose echo has come: those before it are not under way any more.
    past: AtomicU64,
}

/// A datagram a millisecond, echoed at the far end.
pub struct Flow {
    stop: Arc<AtomicBool>,
    echo_stop: Arc<AtomicBool>,
    progress: Arc<Progress>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<BTreeSet<u64>>,
    echo: JoinHandle<BTreeSet<u64>>,
}

fn fill(number: u64) -> [u8; SIZE] {
    let mut packet = [0; SIZE];
    for (at, place) in (0..).zip(&mut packet) {
        *place = octet(number.wrapping_mul(1009).wrapping_add(at));
    }
    packet[..8].copy_from_slice(&number.to_be_bytes());
    packet
}

/// The number of a datagram that is as it was sent.
fn number(packet: &[u8]) -> u64 {
    let number = u64::from_be_bytes(packet[..8].try_into().expect("eight octets"));
    assert_eq!(packet, fill(number), "datagram {number} has other octets than were sent");
    number
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

impl Flow {
    /// Starts to send from one host to another.
    pub fn start((left, from): Endpoint<'_>, (right, to): Endpoint<'_>) -> Self {
        let bind = |namespace: &Namespace, address| {
            let socket = namespace.run(move || UdpSocket::bind((address, 0))).expect("its address");
            socket.set_read_timeout(Some(TICK)).expect("a socket");
            // Losses are to be those of the tunnel, not of a test that was not scheduled for a while.
            SockRef::from(&socket).set_recv_buffer_size(4 << 20).expect("a socket");
            socket
        };
        let (source, target) = (bind(left, from), bind(right, to));
        source.connect(target.local_addr().expect("it is bound")).expect("a route");
        let progress = Arc::<Progress>::default();
        let [stop, echo_stop] = [(), ()].map(|()| Arc::new(AtomicBool::new(false)));
        let echo = {
            let stop = Arc::clone(&echo_stop);
            thread::spawn(move || reflect(&target, &stop))
        };
        let receiver = {
            let source = source.try_clone().expect("a descriptor is free");
            let (stop, progress) = (Arc::clone(&echo_stop), Arc::clone(&progress));
            thread::spawn(move || collect(&source, &stop, &progress))
        };
        let sender = {
            let (stop, progress) = (Arc::clone(&stop), Arc::clone(&progress));
            thread::spawn(move || send(&source, &stop, &progress))
        };
        Self { stop, echo_stop, progress, sender, receiver, echo }
    }

    /// Datagrams sent so far, which is the number of the next.
    pub fn sent(&self) -> u64 {
        self.progress.sent.load(Ordering::Relaxed)
    }

    /// Waits until so many more datagrams have come back.
    pub fn pass(&self, more: u64) {
        let echoed = || self.progress.echoed.load(Ordering::Relaxed);
        let target = echoed() + more;
        eventually("datagrams are echoed", || (echoed() >= target).then_some(()));
    }

    /// Ends it and counts.
    pub fn finish(self) -> Counts {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().expect("sending does not panic");
        let (mut echoed, mut since) = (0, Instant::now());
        while echoed < sent && since.elapsed() < SILENCE {
            thread::sleep(TICK);
            let now = self.progress.echoed.load(Ordering::Relaxed);
            if now > echoed {
                (echoed, since) = (now, Instant::now());
            }
        }
        self.echo_stop.store(true, Ordering::Relaxed);
        let there = self.echo.join().expect("every datagram is as it was sent");
        let back = self.receiver.join().expect("every echo is as it was sent");
        let lost_there: Vec<u64> = (0..sent).filter(|n| !there.contains(n)).collect();
        let lost_back = there.difference(&back).copied().collect();
        Counts { sent, lost_there, lost_back }
    }
}

fn send(socket: &UdpSocket, stop: &AtomicBool, progress: &Progress) -> u64 {
    let start = Instant::now();
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        // By the clock, not by the last datagram: a delayed thread catches up.
        let due = Duration::from_millis(next);
        thread::sleep(due.saturating_sub(start.elapsed()));
        if next >= progress.past.load(Ordering::Relaxed) + WINDOW {
            thread::sleep(PROBE);
        }
        // What the host's own stack refuses is lost, and will be counted so.
        let _ = socket.send(&fill(next));
        next += 1;
        progress.sent.store(next, Ordering::Relaxed);
    }
    next
}

/// Calls for every datagram, until `stop`.
fn receive(socket: &UdpSocket, stop: &AtomicBool, mut take: impl FnMut(&[u8], SocketAddr)) {
    let mut packet = [0; 2 * SIZE];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv_from(&mut packet) {
            Ok((SIZE, from)) => take(&packet[..SIZE], from),
            Ok((length, _)) => panic!("a datagram of {length} octets"),
            Err(error) if is_timeout(&error) || error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn reflect(socket: &UdpSocket, stop: &AtomicBool) -> BTreeSet<u64> {
    let mut seen = BTreeSet::new();
    receive(socket, stop, |packet, from| {
        assert!(seen.insert(number(packet)), "a datagram came twice");
        // As in `send`.
        let _ = socket.send_to(packet, from);
    });
    seen
}

fn collect(socket: &UdpSocket, stop: &AtomicBool, progress: &Progress) -> BTreeSet<u64> {
    let mut seen = BTreeSet::new();
    receive(socket, stop, |packet, _| {
        let number = number(packet);
        assert!(seen.insert(number), "an echo came twice");
        progress.past.fetch_max(number + 1, Ordering::Relaxed);
        progress.echoed.store(seen.len() as u64, Ordering::Relaxed);
    });
    seen
}
