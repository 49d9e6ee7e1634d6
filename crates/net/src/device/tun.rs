//! A TUN device of Linux.

use super::PacketDevice;
use esp::gso::{Gso, VIRTIO_LEN};
use esp::queue::Coalesce;
use rustix::io::{Errno, readv, writev};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;

/// A TUN device of Linux, by its descriptor. The namespace in which it was made need not be the one of this process.
pub struct Tun {
    descriptor: AsyncFd<OwnedFd>,
    headers: bool,
    coalesce: Coalesce,
}

impl fmt::Debug for Tun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tun")
            .field("headers", &self.headers)
            .field("coalesce", &self.coalesce)
            .finish()
    }
}

impl Tun {
    /// Takes a descriptor, which must be in nonblocking mode and have `IFF_NO_PI`. `offloads`: it has `IFF_VNET_HDR`,
    /// and takes super-packets of these protocols; `None`: it has not.
    ///
    /// # Errors
    /// If the reactor of the current tokio runtime refuses it.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub fn new(descriptor: OwnedFd, offloads: Option<Coalesce>) -> io::Result<Self> {
        #[allow(
            deprecated,
            reason = "an OwnedFd keeps its descriptor, as the successor of this function demands"
        )]
        let descriptor = AsyncFd::new(descriptor)?;
        Ok(Self { descriptor, headers: offloads.is_some(), coalesce: offloads.unwrap_or_default() })
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<(usize, Gso)> {
        if !self.headers {
            return Ok((rustix::io::read(&self.descriptor, buffer)?, Gso::NONE));
        }
        let mut header = [0; VIRTIO_LEN];
        let parts = &mut [IoSliceMut::new(&mut header), IoSliceMut::new(buffer)];
        let read = readv(&self.descriptor, parts)?;
        let gso = Gso::from_virtio(&header);
        // A packet whose header says something that was never asked for is empty, and so is dropped.
        Ok(read.checked_sub(VIRTIO_LEN).zip(gso).unwrap_or((0, Gso::NONE)))
    }
}

impl PacketDevice for Tun {
    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<(usize, Gso)>> {
        loop {
            let mut guard = ready!(self.descriptor.poll_read_ready(cx))?;
            match self.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    fn write(&self, packet: &[u8], gso: Gso) -> io::Result<()> {
        let ipv6 = packet.first().is_some_and(|octet| octet >> 4 == 6);
        let header = gso.to_virtio(ipv6);
        let parts = [IoSlice::new(&header), IoSlice::new(packet)];
        loop {
            match writev(&self.descriptor, &parts[usize::from(!self.headers)..]) {
                Err(Errno::INTR) => {}
                outcome => return Ok(outcome.map(drop)?),
            }
        }
    }

    fn coalesce(&self) -> Coalesce {
        self.coalesce
    }
}
