//! Run to completion: a thread that moves packets, each to its end before the next is begun.
//!
//! 1. wait until the device, a socket or a command has something;
//! 2. outbound: read super-packets from the device until it is empty or the send queue is full, or a single one where
//!    they come one by one; the datapath cuts and seals each into the queue; send the queue's runs together; with very
//!    many flows some are read before the first is sealed, so that what they need comes from memory together;
//! 3. inbound: receive a batch, or a single message where they come one by one; the datapath opens each packet into the
//!    receive queue, which puts the segments of a flow together again; write them to the device;
//! 4. after a round that moved much, look again for a moment before sleeping: the next packets are near, and a
//!    wake-up costs more than the look.
//!
//! A worker serves both directions of its queue pairs. Everything it owns is its own and everything it shares is
//! lock-free or per SA, so that workers stand beside each other.

use super::ah;
use super::arriving::sort;
use super::hooks::Hooks;
use super::queue_pair::{QueuePair, Wire};
use super::requests::{Orders, Release};
use super::sched_policy::SchedPolicySwitch;
use super::stage::{Stage, StageStats};
use super::tun::Tun;
use super::under_way::{Batches, UnderWay};
use super::waiting::Wait;
use super::watched::{Request, Traffic, Watched};
use esp::datapath::{Datapath, Sender};
use esp::gso::Gso;
use esp::plane::Notice;
use esp::queue::{ReceiveQueue, SendQueue};
use floor::datagrams::{Arena, BATCH, Ring};
use socket2::Socket;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// Octets of a queue: several super-packets, and little enough to stay in a core's cache.
const QUEUE: usize = 1 << 20;

/// Most super-packets from the device before the sockets have their turn.
pub(super) const DEVICE_BATCH: usize = 32;

/// Most octets of packets that are read before the first of them is protected, but for the last.
const AHEAD_OCTETS: usize = LONGEST / 2;

/// The alignment of packets: a cache line.
const ALIGNED: usize = 64;

/// So long without a packet from the device, or from the sockets, is a rest.
const REST: Duration = Duration::from_micros(100);

/// Most messages of one receiving call where each may hold many packets.
const COALESCED_BATCH: usize = 16;

/// Most batches of one source that are drained: as many as a full queue holds. A source that sends faster than that
/// keeps no order.
const DRAINED: usize = 2048;

/// Longest packet the device hands over.
pub(super) const LONGEST: usize = 65_536;

/// The state that all workers of a plane share.
pub(super) struct Shared {
    pub datapath: Datapath,
    pub hooks: Hooks,
    pub release: Arc<Release>,
    pub tun_writer: Arc<TunWriter>,
    pub under_way: UnderWay,
    /// A worker has ended because the device or a socket failed.
    pub failed: AtomicBool,
}

impl Shared {
    /// Takes the outcome of a worker's thread. Routes lead to a device that nobody reads after a failure: the traffic
    /// stops until the plane has [another device](super::Userspace).
    pub(super) fn take_outcome(&self, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            tracing::error!(%error, "a worker has ended: the tunnel device failed");
            self.failed.store(true, Ordering::SeqCst);
            (self.hooks.notice)(Notice::HostChanged);
        }
    }

    /// Hands a packet to the device.
    pub(super) fn write(&self, tun: &Tun, packet: &[u8], gso: Gso) {
        self.tun_writer.write_to(tun, packet, gso);
    }
}

/// The way to the device, for code without a queue pair.
#[derive(Default)]
pub(super) struct TunWriter {
    /// The first one of the device, while there is one.
    queue_pair: RwLock<Weak<QueuePair>>,
    /// Inner packets that the device did not take.
    pub unwritten: AtomicU64,
}

impl TunWriter {
    /// Takes a device's first queue pair from now on.
    pub(super) fn set_queue_pair(&self, queue_pair: &Arc<QueuePair>) {
        *self.queue_pair.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::downgrade(queue_pair);
    }

    /// Hands a packet to the device, if there is one.
    pub(super) fn write(&self, packet: &[u8], gso: Gso) {
        let queue_pair = self.queue_pair.read().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(queue_pair) = queue_pair {
            self.write_to(&queue_pair.tun, packet, gso);
        }
    }

    fn write_to(&self, tun: &Tun, packet: &[u8], gso: Gso) {
        if let Err(error) = tun.write(packet, gso) {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, octets = packet.len(), "writing to the tunnel device");
        }
    }
}

/// The configuration of one worker.
pub(super) struct WorkerConfig {
    pub shared: Arc<Shared>,
    pub queue_pairs: Vec<Arc<QueuePair>>,
    /// It sends the packets that were held for an SA.
    pub releases: bool,
    pub wait: Wait,
    pub orders: Arc<Orders>,
    pub stats: Arc<StageStats>,
    /// Its outbound packets.
    pub batches: Arc<Batches>,
}

/// Moves packets until it is told to stop, or the device is gone.
pub(super) fn run(config: &WorkerConfig) -> io::Result<()> {
    Worker::new(config).run()
}

/// Empties the queue pairs, one after the other in their order, which is the order in which flows move when queue pairs
/// are added.
pub(super) fn drain(config: &WorkerConfig) -> io::Result<()> {
    Worker::new(config).drain()
}

struct Worker<'a> {
    config: &'a WorkerConfig,
    /// The packets just read; their octets are scratch space for the datapath.
    packets: Vec<u8>,
    /// The positions of the packets taken.
    taken: Vec<(Range<usize>, Gso)>,
    sender: Sender,
    send: SendQueue,
    receive: ReceiveQueue,
    arena: Arena,
    ring: Ring,
    from_device: Pace,
    from_sockets: Pace,
}

impl<'a> Worker<'a> {
    fn new(config: &'a WorkerConfig) -> Self {
        let coalesce = config
            .queue_pairs
            .first()
            .map(|queue_pair| queue_pair.tun.coalesce())
            .unwrap_or_default();
        Self {
            config,
            packets: vec![0; AHEAD_OCTETS + LONGEST],
            taken: Vec::new(),
            sender: config.shared.datapath.sender(),
            send: SendQueue::new(QUEUE),
            receive: ReceiveQueue::new(QUEUE, coalesce),
            arena: Arena::new(),
            ring: Ring::new(BATCH),
            from_device: Pace::new(),
            from_sockets: Pace::new(),
        }
    }

    fn drain(&mut self) -> io::Result<()> {
        for queue_pair in &self.config.queue_pairs {
            let mut rounds = 0;
            while self.outbound(queue_pair)? > 0 && rounds < DRAINED {
                rounds += 1;
            }
            for (wire, socket) in queue_pair.readable() {
                let mut rounds = 0;
                while self.inbound(queue_pair, wire, socket) > 0 && rounds < DRAINED {
                    rounds += 1;
                }
            }
        }
        Ok(())
    }

    fn run(&mut self) -> io::Result<()> {
        let WorkerConfig { shared, queue_pairs, orders, .. } = self.config;
        let release = self.config.releases.then_some(&*shared.release);
        let mut watched = Watched::new(queue_pairs, self.config.wait, orders, release, None)?;
        let mut sched_policy = SchedPolicySwitch::new();
        loop {
            match watched.wait(true)? {
                Request::End => return Ok(()),
                Request::Release => self.release(),
                Request::Nothing => {}
            }
            let mut moved = 0;
            for (Traffic { queue_pair, socket, .. }, _) in
                watched.traffic().filter(|(_, ready)| *ready)
            {
                moved += match socket {
                    None => self.outbound(queue_pair)?,
                    Some((wire, socket)) => self.inbound(queue_pair, wire, socket),
                };
            }
            watched.moved(moved);
            sched_policy.woken(moved);
        }
    }

    /// Sends the packets that were held for an SA.
    fn release(&mut self) {
        let _under_way = self.config.batches.begin();
        self.config.shared.datapath.flush_held(Instant::now(), &mut self.send);
        if let Some(queue_pair) = self.config.queue_pairs.first() {
            self.flush_send(queue_pair, Instant::now());
        }
    }

    /// Device to sockets; returns how many packets the device had.
    fn outbound(&mut self, queue_pair: &QueuePair) -> io::Result<usize> {
        let (config, mut under_way) = (self.config, None);
        let begun = Instant::now();
        let most = self.from_device.batch(begun, DEVICE_BATCH);
        let (mut read, mut octets) = (0, 0);
        let mut more = true;
        while more && read < most && !self.send.is_full() {
            more = self.take(queue_pair, most - read)?;
            if self.taken.len() > 1 {
                let packets = self.taken.iter().map(|(place, _)| &self.packets[place.clone()]);
                self.sender.prefetch(packets);
            }
            if under_way.is_none() && !self.taken.is_empty() {
                under_way = Some(config.batches.begin());
            }
            for (place, gso) in self.taken.drain(..) {
                read += 1;
                octets += place.len();
                // A discard is counted where it is found.
                let packet = &mut self.packets[place];
                let _ = self.sender.encapsulate(begun, packet, gso, &mut self.send);
            }
        }
        let sealed = Instant::now();
        if read > 0 {
            // Reading and sealing alternate, and a look at the clock between costs as much as a small packet.
            let stats = &self.config.stats;
            stats.count(Stage::Read, read, octets, Default::default());
            stats.looked_up(self.sender.take_lookups(), octets);
            let (packets, octets) = (self.send.packets(), self.send.len());
            stats.count(Stage::Seal, packets, octets, sealed - begun);
        }
        let sent = self.flush_send(queue_pair, sealed);
        drop(under_way);
        if read > 0 {
            self.from_device.passed(sent, read);
        }
        Ok(read)
    }

    /// Reads the packets that are protected next, and says whether the device may have more.
    fn take(&mut self, queue_pair: &QueuePair, most: usize) -> io::Result<bool> {
        let most = most.min(self.sender.ahead());
        let mut at = 0;
        while self.taken.len() < most && at < AHEAD_OCTETS {
            let space = &mut self.packets[at..at + LONGEST];
            let Some((length, gso)) = queue_pair.tun.read(space)? else { return Ok(false) };
            self.taken.push((at..at + length, gso));
            at += length.next_multiple_of(ALIGNED);
        }
        Ok(true)
    }

    /// Sends what is in the queue, and says when that was done.
    fn flush_send(&mut self, queue_pair: &QueuePair, begun: Instant) -> Instant {
        if self.send.is_empty() {
            return begun;
        }
        queue_pair.sockets.send(&self.send, &mut self.arena);
        let sent = Instant::now();
        let (packets, octets) = (self.send.packets(), self.send.len());
        self.config.stats.count(Stage::Send, packets, octets, sent - begun);
        self.send.clear();
        sent
    }

    /// One socket to the device; returns how many messages the socket had.
    fn inbound(&mut self, queue_pair: &QueuePair, wire: Wire, socket: &Socket) -> usize {
        let begun = Instant::now();
        let most = if wire.coalesces() { COALESCED_BATCH } else { BATCH };
        let limit = self.from_sockets.batch(begun, most);
        let received = match self.ring.receive(socket.as_fd(), limit) {
            Ok(received) => received,
            // Errors of single datagrams (an ICMP answer to an earlier one) are the sender's news, not ours.
            Err(error) => {
                tracing::debug!(%error, "receiving");
                return 0;
            }
        };
        if received == 0 {
            return 0;
        }
        let now = Instant::now();
        self.from_sockets.passed(now, received);
        let mut since = now;
        let (mut packets, mut octets) = (0, 0);
        let shared = &*self.config.shared;
        let port = queue_pair.sockets.port().number();
        for index in 0..received {
            let Some(incoming) = self.ring.datagram(index) else { continue };
            packets += incoming.packets();
            octets += incoming.octets.len();
            let receive = &mut self.receive;
            match wire {
                Wire::Ah4 => ah::from_v4(shared, now, &incoming, receive),
                Wire::Ah6 => ah::from_v6(shared, now, &incoming, receive),
                wire => sort(wire, &incoming, port, &shared.hooks, &mut |esp| {
                    let (octets, len) = (esp.octets, esp.segment_len);
                    shared.datapath.decapsulate_run(now, octets, len, esp.arrival, receive);
                }),
            }
            if receive.is_full() {
                write_out(self.config, queue_pair, since, receive);
                since = Instant::now();
            }
        }
        write_out(self.config, queue_pair, since, &mut self.receive);
        self.config.stats.looked_up_inbound(self.receive.take_lookups(), octets);
        self.config.stats.count(Stage::Receive, packets, octets, now - begun);
        received
    }
}

/// The pace of packets from one side.
///
/// A look for a second packet takes time, for which the first would wait. So if packets come one by one, the first
/// after a pause is passed on at once; if there is another one, the next wait ends at once.
struct Pace {
    /// The time when packets were last passed on.
    last: Instant,
    /// It was one packet.
    alone: bool,
}

impl Pace {
    fn new() -> Self {
        Self { last: Instant::now(), alone: true }
    }

    /// The number of packets, at most `most`, to take before they are passed on.
    fn batch(&self, now: Instant, most: usize) -> usize {
        if self.alone && now.saturating_duration_since(self.last) >= REST { 1 } else { most }
    }

    /// Takes note of a batch.
    fn passed(&mut self, now: Instant, packets: usize) {
        *self = Self { last: now, alone: packets == 1 };
    }
}

/// Writes everything to the device; it was opened since `begun`.
fn write_out(
    config: &WorkerConfig,
    queue_pair: &QueuePair,
    begun: Instant,
    queue: &mut ReceiveQueue,
) {
    let opened = Instant::now();
    let (mut packets, mut octets) = (0, 0);
    for (packet, gso) in queue.packets() {
        packets += 1;
        octets += packet.len();
        config.shared.write(&queue_pair.tun, packet, gso);
    }
    config.stats.count(Stage::Open, queue.accepted(), octets, opened - begun);
    if packets > 0 {
        config.stats.count(Stage::Write, packets, octets, opened.elapsed());
    }
    queue.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_after_a_rest_and_a_packet_alone_the_next_goes_alone() {
        let (mut pace, now) = (Pace::new(), Instant::now());
        for (packets, rest, batch) in
            [(1, REST, 1), (1, REST / 2, DEVICE_BATCH), (2, REST, DEVICE_BATCH)]
        {
            pace.passed(now, packets);
            assert_eq!(pace.batch(now + rest, DEVICE_BATCH), batch, "{packets} {rest:?}");
        }
    }
}
