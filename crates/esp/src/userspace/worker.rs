//! The thread that moves packets, each to its end before the next is begun:
//!
//! 1. sleep until the device, a socket or a command has something;
//! 2. outbound: read super-packets from the device until it is empty or the send queue is full; the datapath cuts and
//!    seals each into the queue; send the queue's runs together;
//! 3. inbound: receive a batch; the datapath opens each packet into the receive queue, which puts the segments of a
//!    flow together again; write them to the device;
//! 4. after a round that moved much, look again for a moment before sleeping: the next packets are near, and a
//!    wake-up costs more than the look.
//!
//! One worker serves both directions. Everything it owns is its own and everything it shares is lock-free or per SA,
//! so that workers with a device queue and sockets each can stand beside it.

use super::datagrams::{Arena, BATCH, Incoming, Ring};
use super::socket::Sockets;
use super::tun::Tun;
use super::{IkeDatagram, ah};
use crate::datapath::{Arrival, Datapath};
use crate::plane::{Encapsulation, Path};
use crate::queue::{ReceiveQueue, SendQueue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Octets of a queue: several super-packets, and little enough to stay in a core's cache.
const QUEUE: usize = 1 << 20;

/// Most super-packets from the device before the sockets have their turn.
const DEVICE_BATCH: usize = 32;

/// Most messages of one receiving call where each may hold many packets.
const COALESCED_BATCH: usize = 16;

/// How long a worker under load looks for more before it sleeps.
const SPIN: Duration = Duration::from_micros(60);

/// Packets (or super-packets) of one round that count as load.
const LOAD: usize = 4;

/// Longest packet the device hands over.
const LONGEST: usize = 65_536;

/// What a worker shares with the rest of the plane.
pub(super) struct Shared {
    pub tun: Tun,
    pub sockets: Arc<Sockets>,
    pub datapath: Datapath,
    pub ike: Arc<dyn Fn(IkeDatagram) + Send + Sync>,
    pub signal: Arc<Signal>,
    /// Inner packets that the device did not take.
    pub unwritten: AtomicU64,
}

/// How the plane calls a worker.
pub(super) struct Signal {
    event: OwnedFd,
    stop: AtomicBool,
    release: AtomicBool,
}

impl Signal {
    pub(super) fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self {
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            stop: AtomicBool::new(false),
            release: AtomicBool::new(false),
        })
    }

    /// Ends the worker after its current round.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }

    /// Has the worker send the packets that were kept for an SA.
    pub(super) fn release(&self) {
        self.release.store(true, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        // It fails only when the counter is full, and then the worker is awake anyway.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    fn quieten(&self) {
        let _ = rustix::io::read(&self.event, &mut [0u8; 8][..]);
    }
}

/// Which socket a batch comes from.
#[derive(Clone, Copy)]
enum Wire {
    Udp,
    Raw4,
    Raw6,
    Ah4,
    Ah6,
}

/// Sources of work, in the order they are polled.
const DEVICE: usize = 0;
const COMMANDS: usize = 1;
const SOCKETS: [(Wire, usize); 6] = [
    (Wire::Udp, 0),
    (Wire::Udp, 1),
    (Wire::Raw4, 0),
    (Wire::Raw6, 1),
    (Wire::Ah4, 0),
    (Wire::Ah6, 1),
];

/// Moves packets until it is told to stop, or the device is gone.
pub(super) fn run(shared: &Shared) {
    let mut worker = Worker {
        shared,
        packet: vec![0; LONGEST],
        send: SendQueue::new(QUEUE),
        receive: ReceiveQueue::new(QUEUE, shared.tun.coalesce()),
        arena: Arena::new(),
        ring: Ring::new(),
    };
    if let Err(error) = worker.run() {
        // Routes lead to a device nobody reads now: traffic stops rather than leaks.
        tracing::error!(%error, "the tunnel device failed; no traffic passes until a restart");
    }
}

struct Worker<'a> {
    shared: &'a Shared,
    /// The packet just read; its octets are scratch space for the datapath.
    packet: Vec<u8>,
    send: SendQueue,
    receive: ReceiveQueue,
    arena: Arena,
    ring: Ring,
}

impl Worker<'_> {
    fn run(&mut self) -> io::Result<()> {
        let shared = self.shared;
        let mut sources = vec![
            PollFd::new(&shared.tun, PollFlags::IN),
            PollFd::new(&shared.signal.event, PollFlags::IN),
        ];
        let mut wires = Vec::new();
        for (wire, family) in SOCKETS {
            let socket = match wire {
                Wire::Udp => &shared.sockets.udp[family],
                Wire::Raw4 | Wire::Raw6 => &shared.sockets.raw[family],
                Wire::Ah4 | Wire::Ah6 => &shared.sockets.ah[family],
            };
            if let Some(socket) = socket {
                sources.push(PollFd::new(socket, PollFlags::IN));
                wires.push((wire, socket));
            }
        }

        // Until when to look for work without sleeping.
        let mut awake_until = None;
        loop {
            let patience = awake_until.map(|_| Timespec::default());
            match poll(&mut sources, patience.as_ref()) {
                Ok(0) => {
                    if awake_until.is_some_and(|until| Instant::now() >= until) {
                        awake_until = None;
                    } else {
                        std::thread::yield_now();
                    }
                    continue;
                }
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            if !sources[COMMANDS].revents().is_empty() {
                shared.signal.quieten();
                if shared.signal.stop.load(Ordering::Acquire) {
                    return Ok(());
                }
                if shared.signal.release.swap(false, Ordering::AcqRel) {
                    shared.datapath.flush_held(Instant::now(), &mut self.send);
                    self.flush_send();
                }
            }
            let mut moved = 0;
            if !sources[DEVICE].revents().is_empty() {
                moved += self.outbound()?;
            }
            for (source, (wire, socket)) in sources[COMMANDS + 1..].iter().zip(&wires) {
                if !source.revents().is_empty() {
                    moved += self.inbound(*wire, socket);
                }
            }
            if moved >= LOAD {
                awake_until = Some(Instant::now() + SPIN);
            }
        }
    }

    /// Device to sockets; returns how many packets the device had.
    fn outbound(&mut self) -> io::Result<usize> {
        let now = Instant::now();
        let mut read = 0;
        while read < DEVICE_BATCH && !self.send.is_full() {
            let Some((length, offload)) = self.shared.tun.read(&mut self.packet)? else { break };
            read += 1;
            // A discard is counted where it is found.
            let packet = &mut self.packet[..length];
            let _ = self.shared.datapath.encapsulate(now, packet, offload, &mut self.send);
        }
        self.flush_send();
        Ok(read)
    }

    fn flush_send(&mut self) {
        if !self.send.is_empty() {
            self.shared.sockets.send(&self.send, &mut self.arena);
            self.send.clear();
        }
    }

    /// One socket to the device; returns how many messages the socket had.
    fn inbound(&mut self, wire: Wire, socket: &socket2::Socket) -> usize {
        let limit = match wire {
            Wire::Udp => COALESCED_BATCH,
            Wire::Raw4 | Wire::Raw6 | Wire::Ah4 | Wire::Ah6 => BATCH,
        };
        let received = match self.ring.receive(socket.as_fd(), limit) {
            Ok(received) => received,
            // Errors of single datagrams (an ICMP answer to an earlier one) are the sender's news, not ours.
            Err(error) => {
                tracing::debug!(%error, "receiving");
                return 0;
            }
        };
        let now = Instant::now();
        for index in 0..received {
            let Some(incoming) = self.ring.datagram(index) else { continue };
            match wire {
                Wire::Udp => from_udp(self.shared, now, &incoming, &mut self.receive),
                Wire::Raw4 => from_raw4(self.shared, now, &incoming, &mut self.receive),
                Wire::Raw6 => from_raw6(self.shared, now, &incoming, &mut self.receive),
                Wire::Ah4 => ah::from_v4(self.shared, now, &incoming, &mut self.receive),
                Wire::Ah6 => ah::from_v6(self.shared, now, &incoming, &mut self.receive),
            }
            if self.receive.is_full() {
                write_out(self.shared, &mut self.receive);
            }
        }
        write_out(self.shared, &mut self.receive);
        received
    }
}

/// Tells ESP, IKE and keepalives apart (RFC 3948 §2).
fn from_udp(shared: &Shared, now: Instant, incoming: &Incoming<'_>, queue: &mut ReceiveQueue) {
    // Without its own address a packet has no path.
    let Some(local) = incoming.local else { return };
    let path = Path {
        local: SocketAddr::new(local, shared.sockets.port()),
        remote: incoming.remote,
        encapsulation: Encapsulation::Udp,
    };
    let arrival = Arrival { path, tos: incoming.tos, ttl: None };
    let segment_len = incoming.segment_len.max(1);
    if incoming.octets.chunks(segment_len).all(is_esp) {
        shared.datapath.decapsulate_run(now, incoming.octets, segment_len, arrival, queue);
        return;
    }
    for datagram in incoming.octets.chunks(segment_len) {
        if is_esp(datagram) {
            let _ = shared.datapath.decapsulate(now, datagram, arrival, queue);
        } else if let Some(message) = datagram.strip_prefix(&NON_ESP_MARKER) {
            let (local, remote) = (path.local, path.remote);
            (shared.ike)(IkeDatagram { local, remote, octets: message.to_vec() });
        }
    }
}

/// What precedes IKE on the port that ESP uses, too (RFC 3948 §2.2).
pub(super) const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// A keepalive has one octet (RFC 3948 §2.3), and no SPI is zero.
fn is_esp(datagram: &[u8]) -> bool {
    datagram.len() > NON_ESP_MARKER.len() && !datagram.starts_with(&NON_ESP_MARKER)
}

/// A raw IPv4 socket hands over the IP header, too.
fn from_raw4(shared: &Shared, now: Instant, incoming: &Incoming<'_>, queue: &mut ReceiveQueue) {
    let octets = incoming.octets;
    let [first, tos, _, _, _, _, _, _, ttl, _, _, _, s0, s1, s2, s3, d0, d1, d2, d3, ..] = *octets
    else {
        return;
    };
    let header_len = usize::from(first & 0x0f) * 4;
    let Some(esp) = octets.get(header_len..) else { return };
    let path = Path {
        local: (Ipv4Addr::new(d0, d1, d2, d3), 0).into(),
        remote: (Ipv4Addr::new(s0, s1, s2, s3), 0).into(),
        encapsulation: Encapsulation::Native,
    };
    let arrival = Arrival { path, tos: Some(tos), ttl: Some(ttl) };
    let _ = shared.datapath.decapsulate(now, esp, arrival, queue);
}

/// A raw IPv6 socket hands over what follows the IP header.
fn from_raw6(shared: &Shared, now: Instant, incoming: &Incoming<'_>, queue: &mut ReceiveQueue) {
    let Some(local @ IpAddr::V6(_)) = incoming.local else { return };
    let mut remote = incoming.remote;
    remote.set_port(0);
    let path =
        Path { local: SocketAddr::new(local, 0), remote, encapsulation: Encapsulation::Native };
    let arrival = Arrival { path, tos: incoming.tos, ttl: None };
    let _ = shared.datapath.decapsulate(now, incoming.octets, arrival, queue);
}

fn write_out(shared: &Shared, queue: &mut ReceiveQueue) {
    for (packet, offload) in queue.packets() {
        if let Err(error) = shared.tun.write(packet, offload) {
            shared.unwritten.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, octets = packet.len(), "writing to the tunnel device");
        }
    }
    queue.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keepalives_and_ike_are_not_esp() {
        assert!(!is_esp(&[]));
        assert!(!is_esp(&[0xff]));
        assert!(!is_esp(&[0, 0, 0, 0, 1, 2, 3]));
        assert!(!is_esp(&[0, 0, 1, 0]));
        assert!(is_esp(&[0, 0, 1, 0, 0]));
    }
}
