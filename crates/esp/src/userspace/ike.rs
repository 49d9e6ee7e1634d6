//! IKE on the port that ESP uses (RFC 3948 §2.2): it has sockets of its own there, which work while no worker does.

use super::arriving::{NON_ESP_MARKER, sort};
use super::datagrams::Ring;
use super::lane::{Lane, Wire};
use super::socket::Port;
use super::worker::Shared;
use crate::queue::ReceiveQueue;
use socket2::Socket;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// An IKE message that came to the port of ESP in UDP; the non-ESP marker is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IkeDatagram {
    /// The address and port it came to.
    pub local: SocketAddr,
    /// Where it came from.
    pub remote: SocketAddr,
    /// The message, from the IKE header on.
    pub octets: Vec<u8>,
}

/// Sends from the port that ESP in UDP uses. Clones share the sockets, which close with the last of them.
#[derive(Clone)]
pub struct IkeSender {
    pub(super) port: Arc<Port>,
}

impl IkeSender {
    /// Sends an IKE message behind the non-ESP marker (RFC 3948 §2.2), from the address of `local`; its port is not
    /// used.
    pub fn send_ike(&self, local: SocketAddr, remote: SocketAddr, octets: &[u8]) -> io::Result<()> {
        let marked = [&NON_ESP_MARKER, octets].concat();
        self.port.send_datagram(local.ip(), remote, &marked)
    }

    /// Keeps the mappings of NATs on the way alive (RFC 3948 §2.3).
    pub fn send_keepalive(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
        self.port.send_datagram(local.ip(), remote, &[0xff])
    }
}

/// Most messages of one receiving call.
const MESSAGES: usize = 8;

/// The receiving side of the port for one family: whoever owns it waits until its descriptor is readable and then calls
/// [`receive`](Self::receive). The port stays taken as long as it lives.
pub struct IkeReceiver {
    port: Arc<Port>,
    family: usize,
    shared: Arc<Shared>,
    /// Where ESP goes that the kernel has put together with IKE; gone with the plane.
    lane: Weak<Lane>,
    ring: Ring,
    queue: ReceiveQueue,
}

impl IkeReceiver {
    /// One for each family that the host has.
    pub(super) fn all(shared: &Arc<Shared>, lane: &Arc<Lane>) -> Vec<Self> {
        let port = lane.sockets.port();
        let receiver = |family| Self {
            port: Arc::clone(port),
            family,
            shared: Arc::clone(shared),
            lane: Arc::downgrade(lane),
            ring: Ring::new(MESSAGES),
            queue: ReceiveQueue::new(0, lane.tun.coalesce()),
        };
        (0..2).filter(|family| port.first()[*family].is_some()).map(receiver).collect()
    }

    /// Hands on what has come, at most a few messages at a time. Returns whether there may be more.
    pub fn receive(&mut self) -> bool {
        let received = match self.ring.receive(socket(&self.port, self.family).as_fd(), MESSAGES) {
            Ok(received) => received,
            // An ICMP answer to something sent before; there may be more behind it.
            Err(error) => {
                tracing::debug!(%error, "receiving IKE");
                return true;
            }
        };
        let now = Instant::now();
        for message in (0..received).filter_map(|index| self.ring.datagram(index)) {
            let (shared, queue) = (&self.shared, &mut self.queue);
            sort(Wire::Udp, &message, self.port.number(), &shared.hooks, &mut |esp| {
                let (octets, len) = (esp.octets, esp.segment_len);
                shared.datapath.decapsulate_run(now, octets, len, esp.arrival, queue);
            });
        }
        if let Some(lane) = self.lane.upgrade() {
            for (packet, offload) in self.queue.packets() {
                self.shared.write(&lane.tun, packet, offload);
            }
        }
        self.queue.clear();
        // Fewer than asked for may also mean that an error waits behind them.
        received > 0
    }

    /// Another handle to the socket, for whoever watches it.
    ///
    /// # Errors
    /// Where the process has too many descriptors.
    pub fn socket(&self) -> io::Result<UdpSocket> {
        Ok(socket(&self.port, self.family).try_clone()?.into())
    }
}

fn socket(port: &Port, family: usize) -> &Socket {
    port.first()[family].as_ref().expect("made for the families there are")
}

impl AsFd for IkeReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        socket(&self.port, self.family).as_fd()
    }
}
