//! Numbered datagrams that are echoed, a few on their way at any time: however slow the guest, none is lost but by what
//! carries them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testkit::Namespace;

/// Datagrams on their way at most.
pub const WINDOW: usize = 4;
/// How long an echo may take before its datagram counts as lost, unless a scenario says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at what has come: the guest's only processor has more to do than this.
const REST: Duration = Duration::from_millis(2);
/// How often threads look whether they are to stop.
const TICK: Duration = Duration::from_millis(20);

/// Counts of the datagrams by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub echoed: u64,
    pub lost: u64,
    /// Echoes that came twice, or of datagrams that were given up.
    pub unexpected: u64,
}

/// A running flow.
pub struct Flow {
    stop: Arc<AtomicBool>,
    echoed: Arc<AtomicU64>,
    sender: JoinHandle<Counts>,
    echo_stop: Arc<AtomicBool>,
    echo: JoinHandle<()>,
}

impl Flow {
    /// Starts to send from an address in `left` to one in `right`, where every datagram is echoed.
    pub fn start(left: (&Namespace, IpAddr), right: (&Namespace, IpAddr)) -> Self {
        Self::with_patience(left, right, PATIENCE)
    }

    /// The same, and an echo that takes longer counts as lost; if it comes after that, it is unexpected, too.
    pub fn with_patience(
        (left, from): (&Namespace, IpAddr),
        (right, to): (&Namespace, IpAddr),
        patience: Duration,
    ) -> Self {
        let bind = |space: &Namespace, address| {
            let socket = space.run(move || UdpSocket::bind((address, 0))).expect("its address");
            socket.set_read_timeout(Some(TICK)).expect("a socket");
            socket
        };
        let (source, target) = (bind(left, from), bind(right, to));
        source.connect(target.local_addr().expect("bound")).expect("a route");
        let [stop, echo_stop] = [(), ()].map(|()| Arc::new(AtomicBool::new(false)));
        let echoed = Arc::new(AtomicU64::new(0));
        let (end, count) = (Arc::clone(&stop), Arc::clone(&echoed));
        let sender = thread::spawn(move || exchange(&source, patience, &end, &count));
        let end = Arc::clone(&echo_stop);
        let echo = thread::spawn(move || reflect(&target, &end));
        Self { stop, echoed, sender, echo_stop, echo }
    }

    /// How many were echoed so far.
    pub fn echoed(&self) -> u64 {
        self.echoed.load(Ordering::Relaxed)
    }

    /// Ends it when everything is echoed or lost.
    pub fn finish(self) -> Counts {
        self.stop.store(true, Ordering::Relaxed);
        let counts = self.sender.join().expect("no panic");
        self.echo_stop.store(true, Ordering::Relaxed);
        self.echo.join().expect("no panic");
        counts
    }
}

fn exchange(
    socket: &UdpSocket,
    patience: Duration,
    stop: &AtomicBool,
    echoed: &AtomicU64,
) -> Counts {
    let mut counts = Counts::default();
    let mut awaited = BTreeMap::new();
    let mut next = 0_u64;
    loop {
        let stopping = stop.load(Ordering::Relaxed);
        while awaited.len() < WINDOW && !stopping {
            // A datagram that the host's own stack refuses is lost, and will be counted so.
            let _ = socket.send(&next.to_be_bytes());
            awaited.insert(next, Instant::now());
            next += 1;
        }
        thread::sleep(REST);
        if awaited.is_empty() {
            return counts;
        }
        let mut packet = [0; 9];
        match socket.recv(&mut packet) {
            Ok(length) => {
                let number = packet[..length].try_into().map(u64::from_be_bytes);
                if number.is_ok_and(|number| awaited.remove(&number).is_some()) {
                    counts.echoed += 1;
                    echoed.store(counts.echoed, Ordering::Relaxed);
                } else {
                    counts.unexpected += 1;
                }
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => panic!("{error}"),
        }
        let before = awaited.len();
        awaited.retain(|_, sent| sent.elapsed() < patience);
        counts.lost += (before - awaited.len()) as u64;
    }
}

fn reflect(socket: &UdpSocket, stop: &AtomicBool) {
    let mut packet = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv_from(&mut packet) {
            // As above.
            Ok((length, from)) => _ = socket.send_to(&packet[..length], from),
            Err(error) if is_passing(&error) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn is_passing(error: &std::io::Error) -> bool {
    use ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), ConnectionRefused | Interrupted | TimedOut | WouldBlock)
}
