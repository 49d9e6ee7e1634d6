//! The host's addresses and routes as far as peers are concerned: which there are, and when they change.

use crate::netlink::{Netlink, is_of_this_program};
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// Groups of the kernel's announcements (`linux/rtnetlink.h`): links, and addresses, routes and rules of both families.
const GROUPS: [u32; 7] = [1, 5, 7, 8, 9, 11, 19];

/// The contents of announcements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// Something that this program has put on the host may be missing: a link or an address has changed, a routing rule
    /// was deleted, or a route of this program was.
    pub removed: bool,
}

/// Asks for addresses and routes, and hears of changes. Its file descriptor is readable when something has changed.
///
/// It belongs to the network namespace of the thread that opened it, whoever uses it later.
pub struct Host {
    netlink: Netlink,
    announcements: Socket,
    mark: u32,
}

impl Host {
    /// Opens it; `mark` is that of the packets whose routes matter.
    ///
    /// # Errors
    /// Where the kernel gives no netlink socket.
    pub fn open(mark: u32) -> io::Result<Self> {
        let mut announcements = Socket::new(NETLINK_ROUTE)?;
        announcements.bind_auto()?;
        for group in GROUPS {
            announcements.add_membership(group)?;
        }
        announcements.set_non_blocking(true)?;
        Ok(Self { netlink: Netlink::open()?, announcements, mark })
    }

    /// Takes the announcements that have come. They only tell that the present state is to be asked for.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where there is none.
    pub fn take_announcements(&self) -> io::Result<Announced> {
        let mut buffer = Vec::with_capacity(1 << 16);
        let mut taken: Option<Announced> = None;
        loop {
            buffer.clear();
            let removed = match self.announcements.recv_from(&mut buffer, 0) {
                Ok(_) => tells_of_removal(&buffer),
                // Some were lost, and any of them may have told it.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return taken.ok_or(e);
                }
                Err(e) => return Err(e),
            };
            taken.get_or_insert_default().removed |= removed;
        }
    }

    /// The addresses at which peers elsewhere may reach this host.
    ///
    /// # Errors
    /// Where the kernel does not answer.
    pub fn addresses(&mut self) -> io::Result<Vec<IpAddr>> {
        let mut addresses = self.netlink.addresses()?;
        addresses.retain(|a| is_reachable(*a));
        Ok(addresses)
    }

    /// The address from which packets to a peer leave; `None`: no route leads there.
    pub fn source_for(&mut self, peer: IpAddr) -> Option<IpAddr> {
        match self.netlink.source(peer, self.mark) {
            Ok(source) => source.filter(|a| !a.is_unspecified()),
            Err(error) => {
                tracing::debug!(%error, %peer, "no route");
                None
            }
        }
    }
}

impl AsFd for Host {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.announcements.as_fd()
    }
}

/// Returns `true` if an announcement tells that something of this program may be missing ([`Announced::removed`]).
fn tells_of_removal(datagram: &[u8]) -> bool {
    let mut rest = datagram;
    while !rest.is_empty() {
        // An announcement that cannot be read may tell anything.
        let Ok(message) = NetlinkMessage::<Message>::deserialize(rest) else { return true };
        let length = (message.header.length as usize).next_multiple_of(4);
        rest = rest.get(length..).unwrap_or_default();
        match message.payload {
            NetlinkPayload::InnerMessage(Message::NewRoute(_) | Message::NewRule(_)) => {}
            NetlinkPayload::InnerMessage(Message::DelRoute(route))
                if !is_of_this_program(&route) => {}
            _ => return true,
        }
    }
    false
}

fn is_reachable(address: IpAddr) -> bool {
    let of_link = match address {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    };
    !(of_link || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_link_alone_reach_nobody() {
        let reachable = |text: &str| is_reachable(text.parse().expect("an address"));
        assert!(reachable("192.0.2.1") && reachable("10.0.0.1") && reachable("2001:db8::1"));
        for address in ["127.0.0.1", "169.254.1.1", "fe80::1", "::1", "0.0.0.0", "ff02::1"] {
            assert!(!reachable(address), "{address}");
        }
    }
}
