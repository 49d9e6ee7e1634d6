//! The port of ESP in UDP: the sockets that all queue pairs share, and the steering of ESP to queue pairs by SPI.

mod open;
mod raw;

pub(super) use open::{for_families, let_fragment, udp};
pub(super) use raw::RawSockets;

use super::datagrams::{Arena, Outgoing, set_option};
use super::kernel_offload::KernelOffload;
use super::refusal::refused;
use super::steering;
use esp::plane::PlaneError;
use host::decapsulate;
use libc::SOL_UDP;
use socket2::Socket;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The port of ESP in UDP, and the sockets that all queue pairs share. Sockets of a family that the host lacks are
/// absent.
pub(super) struct Port {
    pub(super) number: u16,
    pub(super) mark: u32,
    /// The sockets of datagrams that are not ESP.
    first: [Option<Socket>; 2],
    /// The sockets by which the kernel takes ESP of its own SPIs.
    kernel: Option<[Option<Socket>; 2]>,
    steering: Mutex<Steering>,
    /// The kernel segments UDP. Cleared at the first interface that cannot.
    pub(super) segments: AtomicBool,
    /// The kernel may hand over datagrams together (UDP GRO).
    receives_runs: bool,
    /// ESP packets that the kernel did not take.
    pub unsent: AtomicU64,
}

/// The receivers of ESP in UDP.
struct Steering {
    queue_pairs: usize,
    /// SPIs of this plane's SAs; used only beside the kernel's plane.
    own: BTreeSet<u32>,
    /// The receivers of ESP and AH without UDP, while this plane has a device.
    raw: Option<Arc<RawSockets>>,
}

impl Port {
    /// Takes the port, which must be free. With `beside_kernel`, the kernel has SAs that share it.
    pub(super) fn open(
        number: u16,
        mark: u32,
        beside_kernel: bool,
        without: &BTreeSet<KernelOffload>,
    ) -> Result<Self, PlaneError> {
        let name = format!("UDP port {number}");
        let first = for_families(&name, |family| {
            let socket = udp(family, number, mark, false)?;
            // Others may join from now on, but an earlier owner of the port would have been in the way.
            socket.set_reuse_port(true)?;
            Ok(socket)
        })?;
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
            kernel: kernel.transpose()?,
            steering: Mutex::new(Steering { queue_pairs: 1, own: BTreeSet::new(), raw: None }),
            segments: AtomicBool::new(!without.contains(&KernelOffload::UdpSegmentation)),
            receives_runs: !without.contains(&KernelOffload::UdpGro),
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
        if beside_kernel {
            port.steer(1)?;
        }
        Ok(port)
    }

    /// The number of the port.
    pub(super) fn number(&self) -> u16 {
        self.number
    }

    /// The sockets of datagrams that are not ESP, by family.
    pub(super) fn first(&self) -> &[Option<Socket>; 2] {
        &self.first
    }

    /// The sockets of ESP and AH without UDP. They are opened when they are needed first: while the kernel has all
    /// tunnels, it would check each of its packets against them in vain.
    pub(super) fn raw(&self) -> Result<Arc<RawSockets>, PlaneError> {
        let mut steering = self.steering();
        if let Some(raw) = &steering.raw {
            return Ok(Arc::clone(raw));
        }
        let raw = Arc::new(RawSockets::open(self.mark)?);
        if self.kernel.is_some() {
            raw.sift(&steering.own)?;
        }
        steering.raw = Some(Arc::clone(&raw));
        Ok(raw)
    }

    /// Lets the sockets of ESP and AH go, which close with the last queue pair.
    pub(super) fn release_raw(&self) {
        self.steering().raw = None;
    }

    /// Steers ESP to the first so many of the sockets that have joined.
    pub(super) fn steer(&self, queue_pairs: usize) -> Result<(), PlaneError> {
        let mut steering = self.steering();
        steering.queue_pairs = queue_pairs;
        self.attach(&steering)
    }

    /// Steers ESP with this SPI to this plane instead of the kernel.
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

    /// Steers ESP with this SPI to the kernel again.
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
        steering.raw.as_ref().map_or(Ok(()), |raw| raw.sift(own))
    }

    /// Filters packets of the kernel's SAs out again, after raw sockets were opened for all packets.
    pub(super) fn leave_to_kernel(&self) -> Result<(), PlaneError> {
        match &self.kernel {
            Some(_) => self.attach(&self.steering()),
            None => Ok(()),
        }
    }

    fn steering(&self) -> MutexGuard<'_, Steering> {
        self.steering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the kernel hand over datagrams of one flow together (UDP GRO), unless that is switched off. The kernel
    /// checks the option on an arbitrary socket of the port, so every socket has it.
    pub(super) fn receive_runs(&self, socket: &Socket) -> io::Result<()> {
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
