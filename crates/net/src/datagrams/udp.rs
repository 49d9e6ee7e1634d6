//! UDP of this host, from a port that needs no privilege.

use super::{Datagrams, Incoming, Outgoing};
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Octets of the kernel's memory for what has come, or is to leave. The limits of the host apply.
const KERNEL_BUFFER: usize = 8 << 20;
/// Runs of datagrams that one system call receives.
const RUNS: usize = 8;
/// Octets of a run: the kernel joins no more.
const RUN: usize = 1 << 16;

/// Datagrams by UDP sockets of this host, one for each address family.
pub struct Udp {
    v4: One,
    /// IPv6 is absent where the host has none.
    v6: Option<One>,
}

struct One {
    socket: UdpSocket,
    state: UdpSocketState,
    /// The port that key management knows.
    port: u16,
    buffer: Mutex<Box<[u8]>>,
}

impl Udp {
    /// Opens the sockets on a port of the kernel's choice, inside a tokio runtime. `port` is the one that key
    /// management has on this side (4500): like a NAT, this transport puts its own in place of it.
    ///
    /// # Errors
    /// If there is no IPv4 socket.
    pub fn bind(port: u16) -> io::Result<Self> {
        let v4 = One::bind(Ipv4Addr::UNSPECIFIED.into(), port)?;
        let v6 = One::bind(Ipv6Addr::UNSPECIFIED.into(), port);
        let v6 = v6.inspect_err(|error| tracing::debug!(%error, "no IPv6 between the peers"));
        Ok(Self { v4, v6: v6.ok() })
    }

    /// The UDP ports from which datagrams leave, of IPv4 and IPv6.
    pub fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        [Some(&self.v4), self.v6.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|one| one.socket.local_addr().ok())
            .map(|address| address.port())
    }

    fn sockets(&self) -> impl Iterator<Item = &One> {
        [Some(&self.v4), self.v6.as_ref()].into_iter().flatten()
    }
}

impl One {
    fn bind(address: IpAddr, port: u16) -> io::Result<Self> {
        let address = SocketAddr::new(address, 0);
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
        // The kernel grants what its limits allow.
        socket.set_recv_buffer_size(KERNEL_BUFFER)?;
        socket.set_send_buffer_size(KERNEL_BUFFER)?;
        socket.bind(&address.into())?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // Messages of IKE may be longer than the path, and ICMP about ESP is not heard by an ordinary user: routers
        // fragment.
        match address.is_ipv6() {
            false => set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DONT)?,
            true => set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DONT)?,
        }
        let buffer = Mutex::new(vec![0; RUNS * RUN].into());
        Ok(Self { socket: UdpSocket::from_std(socket.into())?, state, port, buffer })
    }

    fn send(&self, outgoing: &Outgoing<'_>) -> io::Result<()> {
        let most = self.state.max_gso_segments().max(1) * outgoing.segment_len.max(1);
        for octets in outgoing.octets.chunks(most) {
            match self.send_at_once(outgoing, octets) {
                Ok(()) => {}
                // A path or a device that does not take several datagrams at once: one by one.
                Err(error)
                    if octets.len() > outgoing.segment_len
                        && error.kind() != io::ErrorKind::WouldBlock =>
                {
                    for octets in octets.chunks(outgoing.segment_len) {
                        self.send_at_once(outgoing, octets)?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn send_at_once(&self, outgoing: &Outgoing<'_>, octets: &[u8]) -> io::Result<()> {
        let transmit = Transmit {
            destination: outgoing.remote,
            ecn: EcnCodepoint::from_bits(outgoing.tos & 3),
            contents: octets,
            segment_size: (octets.len() > outgoing.segment_len).then_some(outgoing.segment_len),
            src_ip: Some(outgoing.local.ip()).filter(|ip| !ip.is_unspecified()),
        };
        self.socket.try_io(Interest::WRITABLE, || {
            self.state.try_send(UdpSockRef::from(&self.socket), &transmit)
        })
    }

    fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(Incoming<'_>),
    ) -> Poll<io::Result<()>> {
        loop {
            if let Err(error) = std::task::ready!(self.socket.poll_recv_ready(cx)) {
                return Poll::Ready(Err(error));
            }
            match self.receive(take) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    fn receive(&self, take: &mut dyn FnMut(Incoming<'_>)) -> io::Result<()> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut meta = [RecvMeta::default(); RUNS];
        let received = {
            let mut slices = buffer.chunks_mut(RUN).map(IoSliceMut::new);
            let mut slices: [IoSliceMut<'_>; RUNS] =
                std::array::from_fn(|_| slices.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
            self.socket.try_io(Interest::READABLE, || {
                self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut meta)
            })?
        };
        for (meta, octets) in meta[..received].iter().zip(buffer.chunks(RUN)) {
            let unspecified = || match meta.addr.is_ipv4() {
                true => Ipv4Addr::UNSPECIFIED.into(),
                false => Ipv6Addr::UNSPECIFIED.into(),
            };
            take(Incoming {
                local: SocketAddr::new(meta.dst_ip.unwrap_or_else(unspecified), self.port),
                remote: meta.addr,
                octets: &octets[..meta.len],
                segment_len: meta.stride.max(1),
                tos: meta.ecn.map(|ecn| ecn as u8),
            });
        }
        Ok(())
    }
}

impl Datagrams for Udp {
    fn try_send(&self, outgoing: &Outgoing<'_>) -> io::Result<()> {
        let one = if outgoing.remote.is_ipv4() { Some(&self.v4) } else { self.v6.as_ref() };
        one.ok_or(io::ErrorKind::AddrNotAvailable)?.send(outgoing)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        for one in self.sockets() {
            if one.socket.poll_send_ready(cx).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(Incoming<'_>),
    ) -> Poll<io::Result<()>> {
        let mut any = false;
        for one in self.sockets() {
            match one.poll_receive(cx, take) {
                Poll::Ready(Ok(())) => any = true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {}
            }
        }
        if any { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}
