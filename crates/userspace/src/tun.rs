//! The TUN device, with a virtio network header before every packet where the kernel takes that.
//!
//! tun-rs opens and configures the device, and only the descriptor is kept of its value: a queue that another process has
//! opened is one, too. Segmentation and coalescing of tun-rs stay unused: they copy every segment into a buffer of its
//! own, where the datapath seals segments straight into the send buffer.

use esp::gso::{Gso, VIRTIO_LEN};
use esp::plane::PlaneError;
use esp::queue::Coalesce;
use floor::refused;
use host::netlink::Netlink;
use host::tun_file;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use tun_rs::{DeviceBuilder, SyncDevice};

/// A queue of a TUN device.
pub(super) struct Tun {
    queue: OwnedFd,
    name: String,
    framing: Framing,
}

/// The form of the packets of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// A virtio network header stands before every packet.
    pub gso: bool,
    /// The protocols whose joined packets the device takes.
    pub coalesce: Coalesce,
}

impl Tun {
    /// Creates the device, which is down and disappears with the returned value; if it may, one that takes
    /// super-packets.
    pub(super) fn create(name: &str, gso: bool) -> Result<Self, PlaneError> {
        // A device with several queues would let us in beside its owner.
        let there = Netlink::open().and_then(|mut n| n.link_index(name));
        if there.map_err(|error| creating(name, &error))?.is_some() {
            return Err(creating(name, &io::Error::from_raw_os_error(libc::EBUSY)));
        }
        let device = match gso {
            true => build(name, true).or_else(|error| {
                tracing::info!(%error, "the tunnel device takes no offloads; throughput will be lower");
                build(name, false)
            }),
            false => build(name, false),
        };
        // A library's error tells neither whether the file or the device was refused, nor what to do about the file.
        let device = device.map_err(|error| match tun_file::check() {
            Ok(()) => creating(name, &error),
            Err(closed) => {
                let what = format!("creating the TUN device {name}");
                PlaneError::System { what, why: closed.to_string() }
            }
        })?;
        Self::of(device, name).map_err(|e| refused(format!("setting up the TUN device {name}"), &e))
    }

    /// One more queue of the device.
    pub(super) fn another(&self) -> Result<Self, PlaneError> {
        let Self { name, framing, .. } = self;
        let queue = build(name, framing.gso).and_then(|device| Self::of(device, name));
        let queue = queue.and_then(|queue| match queue.framing == *framing {
            true => Ok(queue),
            false => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "its packets have another form"))
            }
        });
        queue.map_err(|e| refused("opening another queue of the TUN device".into(), &e))
    }

    /// A queue that another process has opened.
    ///
    /// # Errors
    /// If the descriptor is no queue of the device.
    pub(super) fn adopt(name: &str, queue: OwnedFd, framing: Framing) -> Result<Self, PlaneError> {
        match device_of(&queue) {
            Ok(Some(device)) if device == name => Ok(Self { queue, name: device, framing }),
            Ok(device) => Err(PlaneError::System {
                what: format!("taking over a queue of the TUN device {name}"),
                why: format!("it is one of {}", device.as_deref().unwrap_or("no device")),
            }),
            Err(error) => {
                Err(refused(format!("taking over a queue of the TUN device {name}"), &error))
            }
        }
    }

    fn of(device: SyncDevice, name: &str) -> io::Result<Self> {
        device.set_nonblocking(true)?;
        let gso = device.tcp_gso();
        let coalesce = Coalesce { tcp: gso, udp: gso && device.udp_gso() };
        let queue = device.as_fd().try_clone_to_owned()?;
        Ok(Self { queue, name: name.to_owned(), framing: Framing { gso, coalesce } })
    }

    /// The form of the packets.
    pub(super) fn framing(&self) -> Framing {
        self.framing
    }

    /// The protocols whose joined packets the device takes.
    pub(super) fn coalesce(&self) -> Coalesce {
        self.framing.coalesce
    }

    /// Reads a packet or super-packet to `buffer`; `None` if there is none. A packet whose header is not understood
    /// is skipped.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, Gso)>> {
        loop {
            if !self.framing.gso {
                let length = pending(rustix::io::read(&self.queue, &mut *buffer))?;
                return Ok(length.map(|l| (l, Gso::NONE)));
            }
            let mut header = [0; VIRTIO_LEN];
            let parts = &mut [IoSliceMut::new(&mut header), IoSliceMut::new(&mut *buffer)];
            let Some(length) = pending(rustix::io::readv(&self.queue, parts))? else {
                return Ok(None);
            };
            match (length.checked_sub(VIRTIO_LEN), Gso::from_virtio(&header)) {
                (Some(length), Some(gso)) => return Ok(Some((length, gso))),
                _ => tracing::debug!(?header, length, "a packet the tunnel device should not send"),
            }
        }
    }

    /// Hands a packet or super-packet to the kernel.
    pub(super) fn write(&self, packet: &[u8], gso: Gso) -> io::Result<()> {
        if self.framing.gso {
            let ipv6 = packet.first().is_some_and(|b| b >> 4 == 6);
            let header = gso.to_virtio(ipv6);
            rustix::io::writev(&self.queue, &[IoSlice::new(&header), IoSlice::new(packet)])?;
        } else {
            rustix::io::write(&self.queue, packet)?;
        }
        Ok(())
    }
}

fn build(name: &str, gso: bool) -> io::Result<SyncDevice> {
    // With several queues, more can be opened while the device is in use. A new one is down.
    let builder = DeviceBuilder::new().name(name).multi_queue(true);
    builder.offload(gso).inherit_enable_state().build_sync()
}

/// The name of the device of which a descriptor is a queue; `None` if it is of none.
fn device_of(queue: &OwnedFd) -> io::Result<Option<String>> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", queue.as_raw_fd()))?;
    let name = about.lines().find_map(|line| line.strip_prefix("iff:"));
    Ok(name.map(|name| name.trim().to_owned()))
}

fn creating(name: &str, error: &io::Error) -> PlaneError {
    refused(format!("creating the TUN device {name}"), error)
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

fn pending(outcome: rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(length) => Ok(Some(length)),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}
