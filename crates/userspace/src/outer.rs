//! The MTUs of this host's interfaces and routes, as limits of the packets to a peer.

use esp::path_mtu::floor;
use host::netlink::Netlink;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Asks this host what it knows by itself of the way to a peer: the MTU of the first hop, and of the route. The path
/// MTU that the kernel has learned does not count: the kernel believes anybody who knows the ports of a socket, which
/// are no secret.
pub(super) struct Wayfinder {
    netlink: Mutex<Netlink>,
    mark: u32,
}

impl Wayfinder {
    /// For packets with that mark, in the network namespace of this thread.
    pub(super) fn new(mark: u32) -> io::Result<Self> {
        Ok(Self { netlink: Mutex::new(Netlink::open()?), mark })
    }

    /// Octets of the longest packet; `None` where there is no way.
    pub(super) fn mtu(&self, peer: IpAddr) -> Option<usize> {
        let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
        let mtu = netlink.route_mtu(peer, self.mark).ok()??;
        usize::try_from(mtu).ok().map(|mtu| mtu.max(floor(peer)))
    }
}
