//! The sockets of a queue pair, and sending on them: UDP 4500, and protocols 50 and 51 through the port's shared
//! sockets.
//!
//! All sockets carry the mark that the routing rule exempts. Without it, the packets they send would come back through
//! the TUN device.
//!
//! ESP in UDP is faster than native ESP here, because UDP has segmentation offload and raw sockets have none. IKE
//! agrees on which of them an SA uses (`crates/ike/src/config.rs`, `Encap`).

use super::raw_sockets::RawSockets;
use esp::plane::{Encapsulation, Path, PlaneError};
use esp::queue::{Run, SendQueue};
use floor::datagrams::{Arena, BATCH, Batch, Outgoing};
use floor::port::{Port, let_fragment};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The longest wait for a full socket, after which packets are dropped.
const SEND_PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The sockets of one queue pair.
pub(super) struct Sockets {
    udp: [Option<Socket>; 2],
    /// Routers may fragment the packets that the socket of IPv4 sends now. Only the worker that serves the queue pair
    /// sends.
    fragmenting: AtomicBool,
    port: Arc<Port>,
    raw: Arc<RawSockets>,
}

impl Sockets {
    /// Joins the port, and shares the sockets of ESP and AH without UDP.
    pub(super) fn join(port: &Arc<Port>, raw: &Arc<RawSockets>) -> Result<Self, PlaneError> {
        let (udp, fragmenting) = (port.join()?, AtomicBool::new(false));
        Ok(Self { udp, fragmenting, port: Arc::clone(port), raw: Arc::clone(raw) })
    }

    /// Sockets that another process has joined the port with. `fragmenting`: routers may fragment the packets that the
    /// socket of IPv4 sends now.
    pub(super) fn adopt(
        udp: [Option<Socket>; 2],
        fragmenting: bool,
        port: &Arc<Port>,
        raw: &Arc<RawSockets>,
    ) -> Self {
        let fragmenting = AtomicBool::new(fragmenting);
        Self { udp, fragmenting, port: Arc::clone(port), raw: Arc::clone(raw) }
    }

    /// Returns `true` if routers may fragment the packets that the socket of IPv4 sends now.
    pub(super) fn is_fragmenting(&self) -> bool {
        self.fragmenting.load(Ordering::Relaxed)
    }

    /// The port joined.
    pub(super) fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// The sockets of ESP and AH without UDP.
    pub(super) fn raw(&self) -> &Arc<RawSockets> {
        &self.raw
    }

    /// Filters packets of the kernel's SAs out again, after the raw sockets were opened for all packets.
    pub(super) fn leave_to_kernel(&self) -> Result<(), PlaneError> {
        self.port.follow_spis(|own| self.raw.sift(own))
    }

    /// Those of ESP in UDP, by family.
    pub(super) fn udp(&self) -> &[Option<Socket>; 2] {
        &self.udp
    }

    /// Sends all runs of a queue in order. Packets that the kernel does not take are dropped and counted, as by a
    /// router.
    pub(super) fn send(&self, queue: &SendQueue, arena: &mut Arena) {
        let mut rest = queue.runs();
        while let Some(first) = rest.first() {
            let together = rest
                .iter()
                .take(BATCH)
                .take_while(|run| self.is_one_message(run) && same_socket(run, first))
                .count();
            let (group, tail) = rest.split_at(together.max(1));
            rest = tail;
            let Some(socket) = self.socket(&first.path, first.may_fragment) else {
                self.port.count_unsent(group.iter().map(packets).sum());
                continue;
            };
            if together == 0 {
                self.send_one_by_one(queue, first, arena);
            } else {
                self.send_whole(socket, queue, group, arena);
            }
        }
    }

    /// Sends runs, a message each.
    fn send_whole(&self, socket: &Socket, queue: &SendQueue, runs: &[Run], arena: &mut Arena) {
        let mut refused_runs = Vec::new();
        let mut batch = arena.batch();
        for run in runs {
            let octets = queue.octets(run);
            let cut = (octets.len() > run.segment_len)
                .then(|| u16::try_from(run.segment_len).expect("a segment fits a datagram"));
            batch.push(outgoing(run, octets, cut));
        }
        let mut next = 0;
        while next < batch.len() {
            match send_patiently(&mut batch, socket, next) {
                Ok(sent) => next += sent,
                Err(error) => {
                    if self.may_need_cutting(&error) {
                        refused_runs.push(next);
                    } else {
                        self.count_unsent(&runs[next], packets(&runs[next]), &error);
                    }
                    next += 1;
                }
            }
        }
        for index in refused_runs {
            self.send_one_by_one(queue, &runs[index], arena);
        }
    }

    /// Sends each packet of a run as a message of its own. A packet that turns out to be longer than the interface
    /// carries, or than the kernel knows of the path, is fragmented.
    fn send_one_by_one(&self, queue: &SendQueue, run: &Run, arena: &mut Arena) {
        let Some(socket) = self.socket(&run.path, run.may_fragment) else { return };
        let mut segments = queue.octets(run).chunks(run.segment_len.max(1));
        let mut done = 0;
        loop {
            let mut batch = arena.batch();
            for octets in segments.by_ref().take(BATCH) {
                batch.push(outgoing(run, octets, None));
            }
            if batch.is_empty() {
                return;
            }
            let mut next = 0;
            while next < batch.len() {
                match send_patiently(&mut batch, socket, next) {
                    Ok(sent) => next += sent,
                    Err(error) if !run.may_fragment && self.may_need_cutting(&error) => {
                        let start = run.range.start + (done + next) * run.segment_len;
                        let rest = Run {
                            may_fragment: true,
                            packets: run.packets - (done + next),
                            range: start..run.range.end,
                            ..run.clone()
                        };
                        return self.send_one_by_one(queue, &rest, arena);
                    }
                    Err(error) => {
                        self.count_unsent(run, 1, &error);
                        next += 1;
                    }
                }
            }
            done += next;
        }
    }

    /// Returns `true` if an error may mean that the kernel cannot cut this message, here or ever.
    fn may_need_cutting(&self, error: &io::Error) -> bool {
        match error.raw_os_error() {
            // The interface cannot fill in checksums, so the kernel cannot segment for it.
            Some(libc::EIO) => {
                if self.port.stop_segmenting() {
                    tracing::warn!(
                        "the interface takes no UDP segmentation; throughput will be lower"
                    );
                }
                true
            }
            // Longer than the interface's MTU, or, of IPv6, than the path's: the kernel fragments them one by one.
            Some(libc::EINVAL | libc::EMSGSIZE) => true,
            _ => false,
        }
    }

    fn count_unsent(&self, run: &Run, packets: u64, error: &io::Error) {
        self.port.count_unsent(packets);
        tracing::debug!(%error, remote = %run.path.remote, packets, "sending ESP");
    }

    fn is_one_message(&self, run: &Run) -> bool {
        packets(run) == 1 || (run.path.encapsulation == Encapsulation::Udp && self.port.segments())
    }

    /// The socket for a run. `may_fragment` matters for IPv4 only: IPv6 has no such bit, and only the sender fragments.
    fn socket(&self, path: &Path, may_fragment: bool) -> Option<&Socket> {
        let family = usize::from(path.remote.is_ipv6());
        match path.encapsulation {
            Encapsulation::Udp => {
                let socket = self.udp[family].as_ref()?;
                if family == 0 && self.fragmenting.load(Ordering::Relaxed) != may_fragment {
                    self.fragmenting.store(may_fragment, Ordering::Relaxed);
                    if let Err(error) = let_fragment(socket, may_fragment) {
                        tracing::debug!(%error, may_fragment, "setting Don't Fragment");
                    }
                }
                Some(socket)
            }
            Encapsulation::Native if family == 0 && may_fragment => self.raw.fragmenting(),
            Encapsulation::Native => self.raw.esp()[family].as_ref(),
            Encapsulation::Ah => self.raw.ah()[family].as_ref(),
        }
    }
}

/// Returns `true` if two runs take the same socket, in the same state.
fn same_socket(a: &Run, b: &Run) -> bool {
    a.path.encapsulation == b.path.encapsulation
        && a.path.remote.is_ipv6() == b.path.remote.is_ipv6()
        && a.may_fragment == b.may_fragment
}

fn packets(run: &Run) -> u64 {
    run.packets as u64
}

fn outgoing<'a>(run: &Run, octets: &'a [u8], segment_len: Option<u16>) -> Outgoing<'a> {
    let mut destination = run.path.remote;
    if run.path.encapsulation != Encapsulation::Udp {
        // A raw socket takes a port for a protocol number, and IPv6 refuses one that differs.
        destination.set_port(0);
    }
    Outgoing { octets, destination, source: run.path.local.ip(), segment_len, tos: run.tos }
}

/// Sends what the socket takes, and waits a little for one that is full.
fn send_patiently(batch: &mut Batch<'_>, socket: &Socket, from: usize) -> io::Result<usize> {
    loop {
        match batch.send(socket.as_fd(), from) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let mut full = [PollFd::new(socket, PollFlags::OUT)];
                if poll(&mut full, Some(&SEND_PATIENCE))? == 0 {
                    return Err(e);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
