//! UDP through tunnels.

use crate::end::End;
use crate::error::ConnectError;
use crate::network::Network;
use crate::packet::{self, LONGEST_DATAGRAM};
use crate::received::{Datagrams, Received};
use crate::routes::UDP;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A UDP socket through tunnels.
///
/// When it is dropped, its port is free at once, and datagrams that nobody has received are lost.
pub struct UdpSocket {
    network: Network,
    local: SocketAddr,
    datagrams: Arc<Datagrams>,
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket").field("local", &self.local).finish_non_exhaustive()
    }
}

impl UdpSocket {
    pub(crate) fn bind(network: Network, mut local: SocketAddr) -> io::Result<Self> {
        let datagrams = Arc::<Datagrams>::default();
        let shared = network.shared();
        let bound = match local.port() {
            0 => shared.ports(policy::PortRange::ANY).any(|port| {
                local.set_port(port);
                shared.sockets().bind(local, &datagrams)
            }),
            _ => shared.sockets().bind(local, &datagrams),
        };
        match bound {
            true => Ok(Self { network, local, datagrams }),
            false => Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("another socket of this network has UDP port {}", local.port()),
            )),
        }
    }

    /// The address and port of this end. The address is unspecified if the socket takes datagrams at all addresses.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sends a datagram. It waits for the tunnel, and for room.
    ///
    /// # Errors
    /// If no tunnel covers the traffic, the tunnel cannot be negotiated, or the datagram is too long.
    ///
    /// # Cancellation
    /// If the future is dropped, the datagram was sent whole or not at all. Of one in fragments of IPv6, a part may
    /// have been sent, which the peer forgets.
    pub async fn send_to(&self, payload: &[u8], remote: SocketAddr) -> io::Result<usize> {
        if payload.len() > LONGEST_DATAGRAM {
            let text = format!("a UDP datagram has at most {LONGEST_DATAGRAM} octets");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let from = Some(self.local.ip()).filter(|address| !address.is_unspecified());
        let (source, ports) = self.network.await_route(UDP, from, remote).await?;
        if !ports.contains(self.local.port()) {
            let selectors = self.network.shared().routes.described();
            return Err(ConnectError::NoTunnel { remote, selectors }.into());
        }
        let local = SocketAddr::new(source, self.local.port());
        let identification = self.network.shared().random() as u16;
        for packet in packet::udp(local, remote, identification, payload) {
            self.network.send_packet(packet).await?;
        }
        Ok(payload.len())
    }

    /// Receives a datagram: the octets that were copied to `buffer`, which may be fewer than it had, and the sender.
    ///
    /// # Errors
    /// If the gateway has stopped, or if the port of a peer to which this socket has sent is closed.
    ///
    /// # Cancellation
    /// No datagram is lost if the future is dropped.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (payload, from, _) = self.receive().await?;
        let len = payload.len().min(buffer.len());
        buffer[..len].copy_from_slice(&payload[..len]);
        Ok((len, from))
    }

    /// Receives a datagram, its sender, and the address at which it arrived.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    ///
    /// # Cancellation
    /// No datagram is lost if the future is dropped.
    pub async fn receive(&self) -> io::Result<(Vec<u8>, SocketAddr, IpAddr)> {
        loop {
            let news = self.datagrams.news();
            if let Some(received) = self.datagrams.take()? {
                let Received { to, from, payload } = received;
                return Ok((payload, from, to));
            }
            tokio::select! {
                () = news => {}
                () = self.network.shared().mailbox.closed() => return Err(End::Stopped.into()),
            }
        }
    }
}
