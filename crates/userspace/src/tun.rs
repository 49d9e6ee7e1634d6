//! The TUN device, with a virtio network header before every packet where the kernel takes that.
//!
//! tun-rs opens and configures the device. Its own segmentation and coalescing stay unused: they copy every segment
//! into a buffer of its own, where the datapath seals segments straight into the send buffer.

use esp::gso::{Gso, VIRTIO_LEN};
use esp::plane::PlaneError;
use esp::queue::Coalesce;
use floor::refused;
use host::netlink::Netlink;
use host::tun_file;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use tun_rs::{DeviceBuilder, SyncDevice};

/// An open TUN device.
pub(super) struct Tun {
    device: SyncDevice,
    gso: bool,
    coalesce: Coalesce,
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
        Self::of(device).map_err(|e| refused(format!("setting up the TUN device {name}"), &e))
    }

    /// One more queue of the device.
    pub(super) fn another(&self) -> Result<Self, PlaneError> {
        let queue = self.device.try_clone().and_then(Self::of);
        queue.map_err(|e| refused("opening another queue of the TUN device".into(), &e))
    }

    fn of(device: SyncDevice) -> io::Result<Self> {
        device.set_nonblocking(true)?;
        let gso = device.tcp_gso();
        let coalesce = Coalesce { tcp: gso, udp: gso && device.udp_gso() };
        Ok(Self { device, gso, coalesce })
    }

    /// The protocols whose joined packets the device takes.
    pub(super) fn coalesce(&self) -> Coalesce {
        self.coalesce
    }

    /// Reads a packet or super-packet to `buffer`; `None` if there is none. A packet whose header is not understood
    /// is skipped.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, Gso)>> {
        loop {
            if !self.gso {
                let length = pending(rustix::io::read(&self.device, &mut *buffer))?;
                return Ok(length.map(|l| (l, Gso::NONE)));
            }
            let mut header = [0; VIRTIO_LEN];
            let parts = &mut [IoSliceMut::new(&mut header), IoSliceMut::new(&mut *buffer)];
            let Some(length) = pending(rustix::io::readv(&self.device, parts))? else {
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
        if self.gso {
            let ipv6 = packet.first().is_some_and(|b| b >> 4 == 6);
            let header = gso.to_virtio(ipv6);
            rustix::io::writev(&self.device, &[IoSlice::new(&header), IoSlice::new(packet)])?;
        } else {
            rustix::io::write(&self.device, packet)?;
        }
        Ok(())
    }
}

fn build(name: &str, gso: bool) -> io::Result<SyncDevice> {
    // With several queues, more can be opened while the device is in use.
    let builder = DeviceBuilder::new().name(name).multi_queue(true);
    builder.offload(gso).enable(false).build_sync()
}

fn creating(name: &str, error: &io::Error) -> PlaneError {
    refused(format!("creating the TUN device {name}"), error)
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

fn pending(outcome: rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(length) => Ok(Some(length)),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}
