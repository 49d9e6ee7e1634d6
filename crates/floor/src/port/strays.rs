//! The messages that come to the sockets of IKE.

use super::arriving::{Arrived, IkeDatagram};
use host::netlink::Family;
use std::time::Instant;

/// Takes the messages that come to the sockets of IKE, and that no thread of a plane reads. The methods are called on
/// the thread of the [receiver](super::IkeReceiver), so none of them may block.
pub trait Strays: Send + Sync {
    /// Takes an IKE message.
    fn ike(&self, datagram: IkeDatagram);

    /// Takes ESP that the kernel has put together with an IKE message (UDP GRO), or that came before a
    /// plane's socket had joined the port.
    fn esp(&self, now: Instant, arrived: &Arrived<'_>);

    /// Takes an ICMP message about a packet that was too long for a router, with the IP header in IPv4.
    fn too_long(&self, now: Instant, family: Family, message: &[u8]);
}
