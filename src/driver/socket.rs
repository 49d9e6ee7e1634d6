//! IKE's sockets on one port, one per address family, each for all addresses of the host.

use host::{IcmpError, Process, keep_icmp_errors, take_icmp_error, udp_holder};
use ike::Transmit;
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
    set_socket_recv_buffer_size_force,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Octets of the kernel's memory for what has come and is not read yet: requests of a thousand strangers at once, so
/// that a peer's is not lost among them.
const RECEIVE_BUFFER: usize = 1 << 20;

/// ICMP messages that wait for the engine; more are dropped.
const REPORTS: usize = 64;

/// A datagram and the addresses it bore.
pub(super) struct Received {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub octets: Vec<u8>,
}

/// A socket of IKE cannot be had.
#[derive(thiserror::Error)]
#[error("cannot open UDP port {port}: {source}{}", hint(.source, *.port, .holder.as_ref()))]
pub struct SocketError {
    /// The port.
    pub port: u16,
    /// Why.
    pub source: io::Error,
    /// The process that has the port, if another one has it and may be looked at.
    pub holder: Option<Process>,
}

policy::readable_debug!(SocketError);

impl SocketError {
    fn new(port: u16, source: io::Error) -> Self {
        let taken = source.kind() == io::ErrorKind::AddrInUse;
        Self { port, source, holder: taken.then(|| udp_holder(port)).flatten() }
    }
}

fn hint(error: &io::Error, port: u16, holder: Option<&Process>) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let Some(Process { id, name }) = holder else {
                return format!(
                    "\n  another IKE daemon runs on this host (strongSwan, libreswan, another vpnd?)\n  \
                     find it: ss -ulpn 'sport = {port}'; stop it, and keep it from starting again"
                );
            };
            let stop = match unit(name) {
                Some(unit) => {
                    format!("systemctl disable --now {unit}; or kill {id}")
                }
                None => format!("kill {id}"),
            };
            format!(
                "\n  another IKE daemon runs on this host: {name} (process {id})\n  \
                 stop it, and keep it from starting again: {stop}"
            )
        }
        io::ErrorKind::PermissionDenied => {
            "; CAP_NET_BIND_SERVICE and CAP_NET_ADMIN are needed".to_owned()
        }
        _ => String::new(),
    }
}

/// The unit of systemd that starts an IKE daemon of this name.
fn unit(name: &str) -> Option<&'static str> {
    match name {
        "charon" => Some("strongswan-starter"),
        "charon-systemd" => Some("strongswan"),
        "pluto" => Some("ipsec"),
        "iked" => Some("openiked"),
        "vpnd" => Some("vpnd"),
        _ => None,
    }
}

struct IkeSocket {
    socket: UdpSocket,
    port: u16,
    state: UdpSocketState,
    /// Where datagrams are received, several at once where the kernel has joined them.
    buffer: Mutex<Box<[u8]>>,
    /// ICMP messages about what was sent.
    reports: Mutex<Vec<IcmpError>>,
}

/// Both families; IPv6 is absent where the host has none. Both are absent where another transport carries IKE.
pub(super) struct IkeSockets {
    v4: Option<IkeSocket>,
    v6: Option<IkeSocket>,
}

impl IkeSockets {
    pub fn open(port: u16, mark: u32) -> Result<Self, SocketError> {
        let v4 = IkeSocket::bind((Ipv4Addr::UNSPECIFIED, port).into(), mark)
            .map_err(|source| SocketError::new(port, source))?;
        let v6 = match IkeSocket::bind((Ipv6Addr::UNSPECIFIED, port).into(), mark) {
            Ok(socket) => Some(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(SocketError::new(port, error));
            }
            Err(error) => {
                tracing::debug!(%error, "no IPv6 for IKE");
                None
            }
        };
        Ok(Self { v4: Some(v4), v6 })
    }

    /// No sockets: nothing can be received or sent.
    pub fn none() -> Self {
        Self { v4: None, v6: None }
    }

    /// Returns `true` if another transport carries IKE.
    pub fn are_absent(&self) -> bool {
        self.v4.is_none() && self.v6.is_none()
    }

    fn each(&self) -> impl Iterator<Item = &IkeSocket> {
        [&self.v4, &self.v6].into_iter().flatten()
    }

    /// The ICMP messages about datagrams of these sockets that have come.
    pub fn take_reports(&self) -> Vec<IcmpError> {
        self.each().flat_map(IkeSocket::take_reports).collect()
    }

    /// Waits for datagrams, or for ICMP messages about those that were sent: then there may be no datagram.
    pub async fn receive(&self) -> Vec<Received> {
        match (&self.v4, &self.v6) {
            (Some(v4), Some(v6)) => tokio::select! {
                received = v4.receive() => received,
                received = v6.receive() => received,
            },
            (Some(one), None) | (None, Some(one)) => one.receive().await,
            (None, None) => std::future::pending().await,
        }
    }

    /// The datagrams that have arrived already; it does not wait.
    pub fn receive_now(&self) -> Vec<Received> {
        self.each().flat_map(IkeSocket::receive_now).collect()
    }

    /// Sends at once, or not at all: a full socket buffer loses the datagram, which retransmission makes good.
    pub fn send(&self, transmit: &Transmit) -> io::Result<()> {
        let socket = if transmit.remote.is_ipv4() { &self.v4 } else { &self.v6 };
        let Some(socket) = socket else { return Err(io::ErrorKind::AddrNotAvailable.into()) };
        socket.send(transmit)
    }
}

impl IkeSocket {
    fn bind(address: SocketAddr, mark: u32) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_mark(mark)?;
        // IKE is never to wait for the SAs that it makes.
        host::let_pass(socket.as_fd(), address.is_ipv6())?;
        if let Err(error) = keep_icmp_errors(socket.as_fd(), address.is_ipv6()) {
            tracing::debug!(%error, "ICMP about messages of IKE will not be noticed");
        }
        socket.set_nonblocking(true)?;
        // Forcing needs a right over the initial user namespace; without it the host's limit applies.
        if set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).is_err() {
            socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        }
        host::bind_patiently(|| socket.bind(&address.into()))?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let_fragment(&socket, address.is_ipv6())?;
        let buffer = Mutex::new(vec![0; usize::from(u16::MAX)].into());
        let socket = UdpSocket::from_std(socket.into())?;
        Ok(Self { socket, port: address.port(), state, buffer, reports: Mutex::default() })
    }

    async fn receive(&self) -> Vec<Received> {
        loop {
            let interest = Interest::READABLE | Interest::ERROR;
            match self.socket.async_io(interest, || self.read_or_note()).await {
                Ok(received) if received.is_empty() && !self.has_reports() => {}
                Ok(received) => return received,
                Err(error) => {
                    // An ICMP message about an earlier datagram fails here too; nothing else is known to.
                    tracing::debug!(%error, "receiving IKE");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    fn receive_now(&self) -> Vec<Received> {
        // The next [`IkeSocket::receive`] reports an error.
        self.socket.try_io(Interest::READABLE, || self.read()).unwrap_or_default()
    }

    /// Reads datagrams; where there are none, or the call fails for an ICMP message, takes note of those.
    fn read_or_note(&self) -> io::Result<Vec<Received>> {
        self.read().or_else(|error| match self.note_reports() {
            true => Ok(Vec::new()),
            false => Err(error),
        })
    }

    /// Takes note of ICMP messages. Returns `true` if there was one.
    fn note_reports(&self) -> bool {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let mut any = false;
        while let Ok(report) = take_icmp_error(self.socket.as_fd()) {
            any = true;
            if let Some(report) = report.filter(|_| reports.len() < REPORTS) {
                reports.push(report);
            }
        }
        any
    }

    fn has_reports(&self) -> bool {
        !self.reports.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn take_reports(&self) -> Vec<IcmpError> {
        std::mem::take(&mut *self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read(&self) -> io::Result<Vec<Received>> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut meta = [RecvMeta::default()];
        let mut slices = [IoSliceMut::new(&mut buffer)];
        if self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut meta)? == 0 {
            return Ok(Vec::new());
        }
        let [meta] = meta;
        let local = SocketAddr::new(meta.dst_ip.unwrap_or(self.unspecified()), self.port);
        let datagrams = buffer[..meta.len].chunks(meta.stride.max(1));
        let received =
            datagrams.map(|octets| Received { local, remote: meta.addr, octets: octets.to_vec() });
        Ok(received.collect())
    }

    fn unspecified(&self) -> IpAddr {
        self.socket.local_addr().map_or(Ipv4Addr::UNSPECIFIED.into(), |a| a.ip())
    }

    fn send(&self, transmit: &Transmit) -> io::Result<()> {
        let datagram = quinn_udp::Transmit {
            destination: transmit.remote,
            ecn: None,
            contents: &transmit.octets,
            segment_size: None,
            src_ip: Some(transmit.local.ip()),
        };
        match self.try_send(&datagram) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            // It may be the error of an ICMP message about another datagram, which fails one call only.
            Err(_) => self.try_send(&datagram),
            Ok(()) => Ok(()),
        }
    }

    fn try_send(&self, datagram: &quinn_udp::Transmit<'_>) -> io::Result<()> {
        self.socket.try_io(Interest::WRITABLE, || {
            self.state.try_send(UdpSockRef::from(&self.socket), datagram)
        })
    }
}

/// Has the kernel fragment messages that the path does not carry: a peer without IKE fragmentation (RFC 7383) gets
/// messages with certificates whole.
fn let_fragment(socket: &Socket, v6: bool) -> io::Result<()> {
    match v6 {
        false => set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::WANT)?,
        true => set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::WANT)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::{ip_mtu_discover, ipv6_mtu_discover};

    #[test]
    fn the_kernel_may_fragment_what_is_sent() {
        let open = |domain| Socket::new(domain, Type::DGRAM, Some(Protocol::UDP));
        let v4 = open(Domain::IPV4).expect("every host has IPv4");
        let_fragment(&v4, false).expect("every kernel has it");
        assert_eq!(ip_mtu_discover(&v4).expect("it was set"), Ipv4PathMtuDiscovery::WANT);
        if let Ok(v6) = open(Domain::IPV6) {
            let_fragment(&v6, true).expect("every kernel has it");
            assert_eq!(ipv6_mtu_discover(&v6).expect("it was set"), Ipv6PathMtuDiscovery::WANT);
        }
    }
}
