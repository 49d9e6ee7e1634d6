//! The way of datagrams to the peers and back: IKE and ESP in UDP, on one socket or on whatever an embedder has.

mod memory;
#[cfg(feature = "host")]
mod udp;

pub use memory::{Fate, Memory, Wire};
#[cfg(feature = "host")]
pub use udp::Udp;

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

/// Four zero octets stand before an IKE message, where an ESP packet has its SPI (RFC 3948 §2.2).
pub(crate) const NON_ESP_MARKER: [u8; 4] = [0; 4];
/// The content of a NAT keepalive (RFC 3948 §2.3).
pub(crate) const KEEPALIVE: [u8; 1] = [0xff];

/// The port on which IKE has no marker, and there is no ESP (RFC 7296 §2).
pub(crate) const IKE_PORT: u16 = 500;

/// Datagrams that go to one peer.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'o> {
    /// The address from which they are to leave. Port 500: they answer datagrams that came there, and leave from there.
    /// Any other port has no meaning: the transport has its own.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// The datagrams, one behind the other.
    pub octets: &'o [u8],
    /// Octets of each datagram but the last, which may be shorter.
    pub segment_len: usize,
    /// The lower two bits are ECN's.
    pub tos: u8,
}

/// Datagrams that came from one peer.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'i> {
    /// The address at which they arrived, with the port that key management knows (`Udp::bind`). On port 500, all are
    /// IKE messages without a marker.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// The datagrams, one behind the other.
    pub octets: &'i [u8],
    /// Octets of each datagram but the last, which may be shorter.
    pub segment_len: usize,
    /// ECN of the outer header, if the transport tells.
    pub tos: Option<u8>,
}

/// A transport of datagrams: UDP of this host (`Udp`), or one of the embedder's.
///
/// Datagrams may get lost, be reordered and come twice. None of its methods may block.
pub trait Datagrams: Send + Sync + 'static {
    /// Sends datagrams.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room for them at present:
    /// [`poll_writable`](Self::poll_writable) tells when to try again. After any other error these datagrams are lost,
    /// and later ones are tried again.
    fn try_send(&self, outgoing: &Outgoing<'_>) -> io::Result<()>;

    /// Waits until [`try_send`](Self::try_send) may succeed.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Hands the datagrams that have come to `take`, which is called once for each run. Ready once there was at least
    /// one.
    ///
    /// # Errors
    /// If the transport fails. It is asked again after a pause.
    fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(Incoming<'_>),
    ) -> Poll<io::Result<()>>;
}
