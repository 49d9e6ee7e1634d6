//! The sockets that protected packets travel on: UDP 4500, protocol 50 and protocol 51, each for IPv4 and IPv6.
//!
//! All carry the mark that the routing rule exempts, or what they send would come back through the tunnel device.

use super::datagrams::{Arena, BATCH, Outgoing, set_option};
use super::dont_fragment::let_fragment;
use super::offering::Offering;
use super::refusal::refused;
use super::steering::{self, SpiAt};
use esp::plane::{Encapsulation, Path, PlaneError};
use esp::queue::{Run, SendQueue};
use host::lacks_family;
use host::netlink::Family;
use host::{decapsulate, let_pass};
use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_UDP};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Octets of socket buffers: about what a 10 Gbit/s link brings in 5 ms.
const SOCKET_BUFFER: usize = 8 << 20;

/// How long a full socket may hold up the traffic before packets are dropped.
const SEND_PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The port of ESP in UDP and what all who send and receive there have in common. Sockets of a family that the host
/// lacks are absent.
pub(super) struct Port {
    number: u16,
    mark: u32,
    /// They take what is not ESP.
    first: [Option<Socket>; 2],
    native: [Option<Socket>; 2],
    /// AH: whole IP packets go out.
    ah: [Option<Socket>; 2],
    /// ESP of IPv4 that routers may fragment. It only sends, and is opened when it is needed first.
    fragmenting: OnceLock<Option<Socket>>,
    /// Where the kernel takes ESP whose SPIs are not this plane's.
    kernel: Option<[Option<Socket>; 2]>,
    steering: Mutex<Steering>,
    /// Whether the kernel segments UDP; given up at the first interface that cannot.
    segments: AtomicBool,
    /// Whether it may hand over datagrams together.
    receives_runs: bool,
    /// ESP packets that the kernel did not take.
    pub unsent: AtomicU64,
}

/// Who gets ESP in UDP.
struct Steering {
    queue_pairs: usize,
    /// SPIs of this plane's SAs; of interest only beside the kernel's.
    own: BTreeSet<u32>,
}

impl Port {
    /// Takes the port, which must be free; `beside_kernel` where the kernel has SAs that share it.
    pub(super) fn open(
        number: u16,
        mark: u32,
        beside_kernel: bool,
        without: &BTreeSet<Offering>,
    ) -> Result<Self, PlaneError> {
        let name = format!("UDP port {number}");
        let first = for_families(&name, |family| {
            let socket = udp(family, number, mark, false)?;
            // Others may join from now on, but whoever held the port before would have been in the way.
            socket.set_reuse_port(true)?;
            Ok(socket)
        })?;
        let native = for_families("the socket of ESP", |family| {
            let socket = marked(family, Type::RAW, Protocol::from(libc::IPPROTO_ESP), mark)?;
            if family == Family::V4 {
                let_fragment(&socket, false)?;
            }
            Ok(socket)
        })?;
        let ah = for_families("the socket of AH", |family| ah(family, mark))?;
        let kernel = beside_kernel.then(|| {
            for_families("the kernel's socket of ESP in UDP", |family| {
                let socket = udp(family, number, mark, true)?;
                decapsulate(socket.as_fd())?;
                Ok(socket)
            })
        });
        let port = Self {
            number,
            mark,
            first,
            native,
            ah,
            fragmenting: OnceLock::new(),
            kernel: kernel.transpose()?,
            steering: Mutex::new(Steering { queue_pairs: 1, own: BTreeSet::new() }),
            segments: AtomicBool::new(!without.contains(&Offering::UdpSegmentation)),
            receives_runs: !without.contains(&Offering::UdpGro),
            unsent: AtomicU64::new(0),
        };
        for socket in port.first.iter().flatten() {
            // A probe for the kernel's support only: 0 sets no segmentation.
            if port.segments.load(Ordering::Relaxed)
                && set_option(socket.as_fd(), SOL_UDP, libc::UDP_SEGMENT, 0).is_err()
            {
                port.segments.store(false, Ordering::Relaxed);
                tracing::info!("this kernel has no UDP segmentation; throughput will be lower");
            }
            if let Err(error) = port.receive_runs(socket) {
                tracing::info!(%error, "this kernel has no UDP GRO; throughput will be lower");
            }
        }
        // Until somebody reads.
        for (socket, loopback) in port.raw() {
            if let Err(error) = steering::seclude(socket, loopback) {
                tracing::debug!(%error, "what comes while no SA is up waits in the socket");
            }
        }
        if beside_kernel {
            port.steer(1)?;
        }
        Ok(port)
    }

    /// Its number.
    pub(super) fn number(&self) -> u16 {
        self.number
    }

    /// The sockets that take what is not ESP, by family.
    pub(super) fn first(&self) -> &[Option<Socket>; 2] {
        &self.first
    }

    /// The sockets of ESP without UDP, by family.
    pub(super) fn native(&self) -> &[Option<Socket>; 2] {
        &self.native
    }

    /// The sockets of AH, by family.
    pub(super) fn ah(&self) -> &[Option<Socket>; 2] {
        &self.ah
    }

    /// The sockets of ESP and AH, and the loopback address of their family.
    fn raw(&self) -> impl Iterator<Item = (&Socket, IpAddr)> {
        let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let sockets = self.native.iter().zip(loopback).chain(self.ah.iter().zip(loopback));
        sockets.filter_map(|(socket, loopback)| Some((socket.as_ref()?, loopback)))
    }

    /// The socket of native ESP of IPv4 that routers may fragment.
    fn fragmenting(&self) -> Option<&Socket> {
        let open = || {
            let socket =
                marked(Family::V4, Type::RAW, Protocol::from(libc::IPPROTO_ESP), self.mark)?;
            let_fragment(&socket, true)?;
            // Nothing comes there, and every packet says where it is from.
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
            Ok(socket)
        };
        let opened = self.fragmenting.get_or_init(|| {
            open().inspect_err(|error: &io::Error| tracing::warn!(%error, "no fragmenting")).ok()
        });
        opened.as_ref()
    }

    /// Has ESP go to so many of the sockets that have joined, the earliest ones.
    pub(super) fn steer(&self, queue_pairs: usize) -> Result<(), PlaneError> {
        let mut steering = self.steering();
        steering.queue_pairs = queue_pairs;
        self.attach(&steering)
    }

    /// Has ESP with this SPI come to this plane, and not to the kernel.
    pub(super) fn claim(&self, spi: u32) -> Result<(), PlaneError> {
        let mut steering = self.steering();
        if self.kernel.is_none() || !steering.own.insert(spi) {
            return Ok(());
        }
        let room = steering.own.len() <= steering::MOST_SPIS;
        let full = || PlaneError::System {
            what: format!("sharing UDP port {} with the kernel", self.number),
            why: "more SAs than that cannot be in the userspace plane beside the kernel's"
                .to_owned(),
        };
        let claimed = if room { self.attach(&steering) } else { Err(full()) };
        claimed.inspect_err(|_| {
            steering.own.remove(&spi);
        })
    }

    /// Leaves ESP with this SPI to the kernel again.
    pub(super) fn disclaim(&self, spi: u32) {
        let mut steering = self.steering();
        if steering.own.remove(&spi)
            && let Err(error) = self.attach(&steering)
        {
            tracing::debug!(%error, "an SPI that is gone still comes to the userspace plane");
        }
    }

    fn attach(&self, steering: &Steering) -> Result<(), PlaneError> {
        let own = self.kernel.as_ref().map(|_| &steering.own);
        for socket in self.first.iter().flatten() {
            steering::steer(socket, steering.queue_pairs as u32, own)
                .map_err(|e| refused(format!("steering UDP port {} by SPI", self.number), &e))?;
        }
        let Some(own) = own else { return Ok(()) };
        // Behind the header of IPv4; in AH behind four octets of its own (RFC 4302 §2).
        for (sockets, offset) in [(&self.native, 0), (&self.ah, 4)] {
            for (socket, behind_header) in sockets.iter().zip([true, false]) {
                let Some(socket) = socket else { continue };
                steering::sift(socket, SpiAt { behind_header, offset }, own)
                    .map_err(|e| refused("leaving the kernel's packets to it".to_owned(), &e))?;
            }
        }
        Ok(())
    }

    /// Leaves to the kernel again what is not this plane's, after raw sockets were opened for all.
    pub(super) fn leave_to_kernel(&self) -> Result<(), PlaneError> {
        match &self.kernel {
            Some(_) => self.attach(&self.steering()),
            None => Ok(()),
        }
    }

    fn steering(&self) -> MutexGuard<'_, Steering> {
        self.steering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the kernel hand over datagrams of one flow together, if it may. It asks any of a port's sockets whether it
    /// may.
    fn receive_runs(&self, socket: &Socket) -> io::Result<()> {
        if !self.receives_runs {
            return Ok(());
        }
        set_option(socket.as_fd(), SOL_UDP, libc::UDP_GRO, 1)
    }

    /// Sends a datagram that is not ESP.
    pub(super) fn send_datagram(
        &self,
        source: IpAddr,
        destination: SocketAddr,
        octets: &[u8],
    ) -> io::Result<()> {
        let socket = self.first[usize::from(destination.is_ipv6())]
            .as_ref()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
        let mut arena = Arena::new();
        let mut batch = arena.batch();
        batch.push(Outgoing { octets, destination, source, segment_len: None, tos: 0 });
        batch.send(socket.as_fd(), 0).map(drop)
    }
}

/// One queue_pair's sockets.
pub(super) struct Sockets {
    udp: [Option<Socket>; 2],
    /// Whether routers may now fragment what the one of IPv4 sends; only who serves the queue_pair sends.
    fragmenting: AtomicBool,
    port: Arc<Port>,
}

impl Sockets {
    /// Joins the port.
    pub(super) fn join(port: &Arc<Port>) -> Result<Self, PlaneError> {
        let name = format!("another socket on UDP port {}", port.number);
        let udp = for_families(&name, |family| {
            let socket = udp(family, port.number, port.mark, true)?;
            if family == Family::V4 {
                let_fragment(&socket, false)?;
            }
            // The port's first sockets have told already if the kernel lacks it.
            let _ = port.receive_runs(&socket);
            Ok(socket)
        })?;
        Ok(Self { udp, fragmenting: AtomicBool::new(false), port: Arc::clone(port) })
    }

    /// The port joined.
    pub(super) fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// Those of ESP in UDP, by family.
    pub(super) fn udp(&self) -> &[Option<Socket>; 2] {
        &self.udp
    }

    /// Sends all runs of a queue in order. What the kernel does not take is dropped and counted, as a router would.
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
                self.port.unsent.fetch_add(group.iter().map(packets).sum(), Ordering::Relaxed);
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

    /// Sends each packet of a run as a message of its own. What turns out to be longer than the interface carries, or than
    /// the kernel knows of the path, is fragmented.
    fn send_one_by_one(&self, queue: &SendQueue, run: &Run, arena: &mut Arena) {
        let Some(socket) = self.socket(&run.path, run.may_fragment) else { return };
        let mut segments = queue.octets(run).chunks(run.segment_len.max(1));
        let mut done = 0;
        loop {
            let mut batch = arena.batch();
            for octets in segments.by_ref().take(BATCH) {
                batch.push(outgoing(run, octets, None));
            }
            if batch.len() == 0 {
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

    /// Whether an error may be the kernel's way to say that it cannot cut this message, here or ever.
    fn may_need_cutting(&self, error: &io::Error) -> bool {
        match error.raw_os_error() {
            // The interface cannot fill in checksums, so the kernel cannot segment for it.
            Some(libc::EIO) => {
                if self.port.segments.swap(false, Ordering::Relaxed) {
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
        self.port.unsent.fetch_add(packets, Ordering::Relaxed);
        tracing::debug!(%error, remote = %run.path.remote, packets, "sending ESP");
    }

    fn is_one_message(&self, run: &Run) -> bool {
        packets(run) == 1
            || (run.path.encapsulation == Encapsulation::Udp
                && self.port.segments.load(Ordering::Relaxed))
    }

    /// Where a run goes. Of IPv4 only: IPv6 has no bit for it, and fragments at the sender alone.
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
            Encapsulation::Native if family == 0 && may_fragment => self.port.fragmenting(),
            Encapsulation::Native => self.port.native[family].as_ref(),
            Encapsulation::Ah => self.port.ah[family].as_ref(),
        }
    }
}

/// Whether two runs take the same socket, in the same state.
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
fn send_patiently(
    batch: &mut super::datagrams::Batch<'_>,
    socket: &Socket,
    from: usize,
) -> io::Result<usize> {
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

/// Opens a socket for each family that the host has.
fn for_families(
    what: &str,
    open: impl Fn(Family) -> io::Result<Socket>,
) -> Result<[Option<Socket>; 2], PlaneError> {
    let open = |family| match open(family) {
        Ok(socket) => Ok(Some(socket)),
        Err(e) if family == Family::V6 && lacks_family(&e) => Ok(None),
        Err(e) => Err(refused(format!("opening {what} for {family:?}"), &e)),
    };
    Ok([open(Family::V4)?, open(Family::V6)?])
}

fn udp(family: Family, port: u16, mark: u32, joins: bool) -> io::Result<Socket> {
    let socket = marked(family, Type::DGRAM, Protocol::UDP, mark)?;
    let any: IpAddr = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    if family == Family::V6 {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(joins)?;
    socket.bind(&SocketAddr::new(any, port).into())?;
    Ok(socket)
}

/// Sends whole packets, so that their headers are those that AH covers, and tells of the extension headers that the
/// kernel takes off a packet of IPv6.
fn ah(family: Family, mark: u32) -> io::Result<Socket> {
    let socket = marked(family, Type::RAW, Protocol::from(libc::IPPROTO_AH), mark)?;
    let fd = socket.as_fd();
    match family {
        Family::V4 => {
            set_option(fd, IPPROTO_IP, libc::IP_HDRINCL, 1)?;
            let_fragment(&socket, false)?;
        }
        Family::V6 => {
            set_option(fd, IPPROTO_IPV6, libc::IPV6_HDRINCL, 1)?;
            for told in [libc::IPV6_RECVHOPOPTS, libc::IPV6_RECVDSTOPTS, libc::IPV6_RECVRTHDR] {
                set_option(fd, IPPROTO_IPV6, told, 1)?;
            }
        }
    }
    Ok(socket)
}

fn marked(family: Family, kind: Type, protocol: Protocol, mark: u32) -> io::Result<Socket> {
    let domain = match family {
        Family::V4 => Domain::IPV4,
        Family::V6 => Domain::IPV6,
    };
    let socket = Socket::new(domain, kind, Some(protocol))?;
    socket.set_mark(mark)?;
    socket.set_nonblocking(true)?;
    let fd = socket.as_fd();
    // The kernel's own policies are not for what this plane protects, nor for IKE.
    let_pass(fd, family == Family::V6)?;
    // As WANT lets it, the kernel fragments what exceeds the path's MTU rather than refusing it.
    match family {
        Family::V4 => {
            set_option(fd, IPPROTO_IP, libc::IP_PKTINFO, 1)?;
            set_option(fd, IPPROTO_IP, libc::IP_RECVTOS, 1)?;
            set_option(fd, IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_WANT)?;
        }
        Family::V6 => {
            set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
            set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            set_option(fd, IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_WANT)?;
        }
    }
    for (forced, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        // Forcing needs a right over the initial user namespace; without it the host's limit applies.
        if set_option(fd, libc::SOL_SOCKET, forced, SOCKET_BUFFER as _).is_err() {
            set_option(fd, libc::SOL_SOCKET, plain, SOCKET_BUFFER as _)?;
        }
    }
    Ok(socket)
}
