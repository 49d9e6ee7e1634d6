//! The port of ESP in UDP, which IKE shares (RFC 3948), whichever plane protects the packets.
//!
//! ```text
//!  UDP 4500 ──► steering: first four octets
//!                 ├─ non-ESP marker, keepalive ──► first sockets ──► IkeReceiver ──► Strays::ike
//!                 ├─ SPI of the kernel ──────────► sockets of the kernel
//!                 └─ other SPI ──────────────────► sockets of a plane that have joined
//! ```
//!
//! The port has no thread. A plane reads the sockets that it has [joined](Port::join), and the driver of IKE those of its
//! [receivers](IkeReceiver).

mod arriving;
mod frozen;
mod ike;
mod open;
mod routers;
mod steering;
mod strays;

pub use arriving::{Arrived, IkeDatagram, sort};
pub use frozen::{FrozenPort, SocketKind, give, take};
pub use ike::{IkeReceiver, IkeSender};
pub use open::{for_families, let_fragment, marked};
pub use strays::Strays;

use crate::config::Config;
use crate::datagrams::{Arena, Outgoing, set_option};
use crate::kernel_offload::KernelOffload;
use crate::refusal::refused;
use esp::plane::PlaneError;
use host::decapsulate;
use host::handover::Descriptors;
use host::netlink::Family;
use libc::SOL_UDP;
use open::udp;
use socket2::{Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The port of ESP in UDP. Sockets of a family that the host lacks are absent.
pub struct Port {
    number: u16,
    mark: u32,
    /// The sockets of datagrams that are not ESP.
    first: [Option<Socket>; 2],
    /// The sockets by which the kernel takes ESP of its own SPIs.
    kernel: Option<[Option<Socket>; 2]>,
    steering: Mutex<Steering>,
    /// The kernel segments UDP. Cleared at the first interface that cannot.
    segments: AtomicBool,
    /// The kernel may hand over datagrams together (UDP GRO).
    receives_runs: bool,
    /// ESP packets that the kernel did not take.
    unsent: AtomicU64,
}

/// The receivers of ESP in UDP.
struct Steering {
    joined: usize,
    /// SPIs of the plane that has joined; used only beside the kernel's plane.
    own: BTreeSet<u32>,
}

impl Port {
    /// Takes the port, which must be free.
    ///
    /// # Errors
    /// If another program has the port, or the system refuses something.
    pub fn open(config: &Config) -> Result<Self, PlaneError> {
        let Config { settings, natt_port: number, beside_kernel } = config;
        let (number, mark, beside_kernel) = (*number, settings.mark, *beside_kernel);
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
            steering: Mutex::new(Steering { joined: 1, own: BTreeSet::new() }),
            segments: AtomicBool::new(settings.uses(KernelOffload::UdpSegmentation)),
            receives_runs: settings.uses(KernelOffload::UdpGro),
            unsent: AtomicU64::new(0),
        };
        for socket in port.first.iter().flatten() {
            // A probe for the kernel's support only: 0 sets no segmentation.
            if port.segments() && set_option(socket.as_fd(), SOL_UDP, libc::UDP_SEGMENT, 0).is_err()
            {
                port.stop_segmenting();
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

    /// The state of the port. Nobody changes it meanwhile.
    pub fn frozen(&self) -> FrozenPort {
        let Steering { joined, own } = &*self.steering();
        FrozenPort {
            joined: *joined,
            claimed: own.clone(),
            segments: self.segments(),
            receives_runs: self.receives_runs,
            unsent: self.unsent(),
        }
    }

    /// Gives copies of the sockets away, but for those that have joined.
    ///
    /// # Errors
    /// If the system has no more descriptors.
    pub fn give(&self, to: &mut Descriptors) -> io::Result<()> {
        give(to, "port.first", &self.first)?;
        self.kernel.iter().try_for_each(|sockets| give(to, "port.kernel", sockets))
    }

    /// The port of another process, with its sockets. Nothing is changed about them.
    ///
    /// # Errors
    /// If a socket is missing, or is not one of this port.
    pub fn adopt(
        config: &Config,
        frozen: &FrozenPort,
        from: &mut Descriptors,
    ) -> Result<Self, PlaneError> {
        let Config { settings, natt_port: number, beside_kernel } = config;
        let FrozenPort { joined, claimed, segments, receives_runs, unsent } = frozen;
        let port = Self {
            number: *number,
            mark: settings.mark,
            first: [None, None],
            kernel: None,
            steering: Mutex::new(Steering { joined: *joined, own: claimed.clone() }),
            segments: AtomicBool::new(*segments && settings.uses(KernelOffload::UdpSegmentation)),
            receives_runs: *receives_runs,
            unsent: AtomicU64::new(*unsent),
        };
        let first = take(from, "port.first", port.socket_kind())?;
        let kernel = match beside_kernel {
            true => Some(take(from, "port.kernel", port.socket_kind())?),
            false => None,
        };
        Ok(Self { first, kernel, ..port })
    }

    /// The kind of its sockets.
    pub fn socket_kind(&self) -> SocketKind {
        SocketKind {
            kind: Type::DGRAM,
            protocol: Protocol::UDP,
            port: Some(self.number),
            mark: self.mark,
        }
    }

    /// The number of the port.
    #[inline]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Opens another socket of each family on the port, for ESP. It receives what is [steered](Self::steer) to it.
    ///
    /// # Errors
    /// If the system refuses something.
    pub fn join(&self) -> Result<[Option<Socket>; 2], PlaneError> {
        let name = format!("another socket on UDP port {}", self.number);
        for_families(&name, |family| {
            let socket = udp(family, self.number, self.mark, true)?;
            if family == Family::V4 {
                let_fragment(&socket, false)?;
            }
            // The port's first sockets have told already if the kernel lacks it.
            let _ = self.receive_runs(&socket);
            Ok(socket)
        })
    }

    /// Steers ESP to the first so many of the sockets that have joined.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn steer(&self, joined: usize) -> Result<(), PlaneError> {
        let mut steering = self.steering();
        steering.joined = joined;
        self.attach(&steering)
    }

    /// Steers ESP with this SPI to the sockets that have joined instead of the kernel.
    ///
    /// # Errors
    /// If there are too many SPIs to tell apart, or the system refuses it.
    pub fn claim(&self, spi: u32) -> Result<(), PlaneError> {
        let mut steering = self.steering();
        if self.kernel.is_none() || !steering.own.insert(spi) {
            return Ok(());
        }
        let claimed = if steering.own.len() <= steering::MOST_SPIS {
            self.attach(&steering)
        } else {
            Err(PlaneError::System {
                what: format!("sharing UDP port {} with the kernel", self.number),
                why: "more SAs than that cannot be in the userspace plane beside the kernel's"
                    .to_owned(),
            })
        };
        claimed.inspect_err(|_| {
            steering.own.remove(&spi);
        })
    }

    /// Steers ESP with this SPI to the kernel again.
    pub fn disclaim(&self, spi: u32) {
        let mut steering = self.steering();
        if steering.own.remove(&spi)
            && let Err(error) = self.attach(&steering)
        {
            tracing::debug!(%error, "an SPI that is gone still comes to the userspace plane");
        }
    }

    /// Beside the kernel, has other sockets of the plane follow the SPIs that it has claimed. No thread changes these
    /// meanwhile. Without the kernel, all SPIs are the plane's, and nothing happens.
    ///
    /// # Errors
    /// Those of `follow`.
    pub fn follow_spis(
        &self,
        follow: impl FnOnce(&BTreeSet<u32>) -> Result<(), PlaneError>,
    ) -> Result<(), PlaneError> {
        match &self.kernel {
            Some(_) => follow(&self.steering().own),
            None => Ok(()),
        }
    }

    fn attach(&self, steering: &Steering) -> Result<(), PlaneError> {
        let own = self.kernel.as_ref().map(|_| &steering.own);
        self.first.iter().flatten().try_for_each(|socket| {
            steering::steer(socket, steering.joined as u32, own)
                .map_err(|e| refused(format!("steering UDP port {} by SPI", self.number), &e))
        })
    }

    fn steering(&self) -> MutexGuard<'_, Steering> {
        self.steering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if the kernel segments sent datagrams.
    #[inline]
    pub fn segments(&self) -> bool {
        self.segments.load(Ordering::Relaxed)
    }

    /// Has every datagram sent by itself from now on. Returns `true` if the kernel segmented them until now.
    pub fn stop_segmenting(&self) -> bool {
        self.segments.swap(false, Ordering::Relaxed)
    }

    /// Counts ESP packets that a socket did not take.
    pub fn count_unsent(&self, packets: u64) {
        self.unsent.fetch_add(packets, Ordering::Relaxed);
    }

    /// The number of ESP packets that no socket took.
    pub fn unsent(&self) -> u64 {
        self.unsent.load(Ordering::Relaxed)
    }

    /// Lets the kernel hand over datagrams of one flow together (UDP GRO), unless that is switched off. The kernel
    /// checks the option on an arbitrary socket of the port, so every socket has it.
    fn receive_runs(&self, socket: &Socket) -> io::Result<()> {
        if !self.receives_runs {
            return Ok(());
        }
        set_option(socket.as_fd(), SOL_UDP, libc::UDP_GRO, 1)
    }

    /// The socket of datagrams that are not ESP, for a family that the host has.
    fn first(&self, family: usize) -> Option<&Socket> {
        self.first[family].as_ref()
    }

    /// Sends a datagram that is not ESP.
    fn send_datagram(
        &self,
        source: IpAddr,
        destination: SocketAddr,
        octets: &[u8],
    ) -> io::Result<()> {
        let socket = self
            .first(usize::from(destination.is_ipv6()))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
        let mut arena = Arena::new();
        let mut batch = arena.batch();
        batch.push(Outgoing { octets, destination, source, segment_len: None, tos: 0 });
        batch.send(socket.as_fd(), 0).map(drop)
    }
}
