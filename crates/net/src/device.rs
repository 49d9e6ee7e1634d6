//! A device whose packets take the tunnels in place of sockets: a TUN device of another network namespace, or the stack
//! of an embedder.

#[cfg(feature = "host")]
mod tun;

#[cfg(feature = "host")]
pub use tun::Tun;

use esp::gso::Gso;
use esp::queue::Coalesce;
use std::fmt;
use std::io;
use std::task::{Context, Poll};

/// Octets of the longest packet that a device is read with.
pub(crate) const LONGEST: usize = 65_536;

/// Gives IP packets to the tunnels, and takes those that come out of them.
pub trait PacketDevice: fmt::Debug + Send + Sync {
    /// Reads a packet, or a super-packet, to `buffer`: its octets, and the work that is left in it. If there is none,
    /// the task is woken when there is one.
    ///
    /// # Errors
    /// If the device is gone. It is not read again.
    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<(usize, Gso)>>;

    /// Hands a packet over, or a super-packet of a protocol in [`coalesce`](Self::coalesce). It must not block: a
    /// packet for which there is no room is lost.
    ///
    /// # Errors
    /// If the packet is lost.
    fn write(&self, packet: &[u8], gso: Gso) -> io::Result<()>;

    /// The protocols whose super-packets [`write`](Self::write) takes. Default: none.
    fn coalesce(&self) -> Coalesce {
        Coalesce::default()
    }
}
