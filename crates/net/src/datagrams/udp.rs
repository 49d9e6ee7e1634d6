//! UDP of this host: from ports that need no privilege, and at those where peers can begin.

use super::{Datagrams, IKE_PORT, Incoming, Outgoing};
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll, Waker};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Octets of the kernel's memory for what has come, or is to leave. The limits of the host apply.
const KERNEL_BUFFER: usize = 8 << 20;
/// Runs of datagrams that one system call receives.
const RUNS: usize = 8;
/// Octets of a run: the kernel joins no more.
const RUN: usize = 1 << 16;

/// Datagrams by UDP sockets of this host: for each address family one on a port of the kernel's choice, and those of
/// [`Udp::listen`].
///
/// A datagram leaves from the socket that listens at its address, otherwise from the one on the kernel's choice. So
/// this side can still begin, and move, where it cannot listen.
pub struct Udp {
    /// A later socket has precedence.
    sockets: RwLock<Sockets>,
    /// Of the task that receives, for sockets that come later.
    reader: Mutex<Option<Waker>>,
}

type Sockets = Arc<[Arc<One>]>;

struct One {
    socket: UdpSocket,
    state: UdpSocketState,
    /// The address and port that key management knows; the unspecified address stands for all.
    known: SocketAddr,
    buffer: Mutex<Box<[u8]>>,
}

impl Udp {
    /// Opens the sockets on a port of the kernel's choice, inside a tokio runtime. `port` is the one that key
    /// management has on this side (4500): like a NAT, this transport puts its own in place of it.
    ///
    /// # Errors
    /// If there is no IPv4 socket.
    pub fn bind(port: u16) -> io::Result<Self> {
        let v4 = One::of_any_address(Ipv4Addr::UNSPECIFIED.into(), port)?;
        let v6 = One::of_any_address(Ipv6Addr::UNSPECIFIED.into(), port);
        let v6 = v6.inspect_err(|error| tracing::debug!(%error, "no IPv6 between the peers"));
        let sockets = [Some(v4), v6.ok()].into_iter().flatten().map(Arc::new).collect();
        Ok(Self { sockets: RwLock::new(sockets), reader: Mutex::default() })
    }

    /// Opens one more socket, inside the same tokio runtime, at an address and port where peers can begin. The address
    /// may be one that this host is yet to get. On port 500, IKE messages have no marker and there is no ESP.
    ///
    /// # Errors
    /// If another socket has the port there, or this user may not have it.
    pub fn listen(&self, local: SocketAddr) -> io::Result<()> {
        let one = Arc::new(One::bind(local, local)?);
        let mut sockets = self.sockets.write().unwrap_or_else(PoisonError::into_inner);
        *sockets = sockets.iter().cloned().chain([one]).collect();
        drop(sockets);
        // The next poll asks the new socket, too.
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        reader.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// The sockets of the moment.
    fn sockets(&self) -> Sockets {
        Arc::clone(&self.sockets.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The socket from which datagrams leave.
    fn socket_for(&self, local: SocketAddr, remote: SocketAddr) -> Option<Arc<One>> {
        let sockets = self.sockets();
        let is_ike = local.port() == IKE_PORT;
        let mut fitting = sockets.iter().rev().filter(|one| {
            (one.known.port() == IKE_PORT) == is_ike && one.known.is_ipv4() == remote.is_ipv4()
        });
        let one = fitting.clone().find(|one| one.known.ip() == local.ip());
        one.or_else(|| fitting.find(|one| one.known.ip().is_unspecified())).cloned()
    }
}

impl fmt::Debug for Udp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sockets().iter().map(|one| one.known)).finish()
    }
}

impl One {
    fn of_any_address(unspecified: IpAddr, port: u16) -> io::Result<Self> {
        Self::bind(SocketAddr::new(unspecified, 0), SocketAddr::new(unspecified, port))
    }

    fn bind(address: SocketAddr, known: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        match address.is_ipv6() {
            false => socket.set_freebind_v4(true)?,
            true => {
                socket.set_only_v6(true)?;
                socket.set_freebind_v6(true)?;
            }
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
        Ok(Self { socket: UdpSocket::from_std(socket.into())?, state, known, buffer })
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
            take(Incoming {
                local: SocketAddr::new(meta.dst_ip.unwrap_or(self.known.ip()), self.known.port()),
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
        let one = self.socket_for(outgoing.local, outgoing.remote);
        one.ok_or(io::ErrorKind::AddrNotAvailable)?.send(outgoing)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        for one in self.sockets().iter() {
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
        // First, so that no socket comes unseen.
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *reader {
            Some(reader) => reader.clone_from(cx.waker()),
            None => *reader = Some(cx.waker().clone()),
        }
        drop(reader);
        let mut any = false;
        for one in self.sockets().iter() {
            match one.poll_receive(cx, take) {
                Poll::Ready(Ok(())) => any = true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {}
            }
        }
        if any { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}
