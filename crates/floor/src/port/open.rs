//! Opening sockets with the mark, the buffers and the options that all sockets of a port share.

use crate::datagrams::set_option;
use crate::refusal::refused;
use esp::plane::PlaneError;
use host::netlink::Family;
use host::{bind_patiently, lacks_family, let_pass};
use libc::{IPPROTO_IP, IPPROTO_IPV6};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

/// Octets of socket buffers: about what a 10 Gbit/s link brings in 5 ms.
const SOCKET_BUFFER: usize = 8 << 20;

/// Opens a socket for each family that the host has.
///
/// # Errors
/// If `open` fails for another reason than that the host lacks IPv6.
pub fn for_families(
    what: &str,
    open: impl Fn(Family) -> io::Result<Socket>,
) -> Result<[Option<Socket>; 2], PlaneError> {
    let v4 = unless_absent(open(Family::V4), what, Family::V4)?;
    Ok([v4, unless_absent(open(Family::V6), what, Family::V6)?])
}

/// The socket that was opened; `None` if the host lacks IPv6.
fn unless_absent(
    opened: io::Result<Socket>,
    what: &str,
    family: Family,
) -> Result<Option<Socket>, PlaneError> {
    match opened {
        Ok(socket) => Ok(Some(socket)),
        Err(e) if family == Family::V6 && lacks_family(&e) => Ok(None),
        Err(e) => Err(refused(format!("opening {what} for {family:?}"), &e)),
    }
}

pub(super) fn udp(family: Family, port: u16, mark: u32, joins: bool) -> io::Result<Socket> {
    let socket = marked(family, Type::DGRAM, Protocol::UDP, mark)?;
    let any: IpAddr = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    if family == Family::V6 {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(joins)?;
    bind_patiently(|| socket.bind(&SocketAddr::new(any, port).into()))?;
    Ok(socket)
}

/// Says whether the packets of an IPv4 socket may be fragmented.
///
/// If not, the option is IP_PMTUDISC_PROBE: it sets Don't Fragment and ignores the kernel's own path MTU. The kernel's
/// default (IP_PMTUDISC_WANT) leaves the bit out of packets that the kernel segments, and believes every message about
/// a path's MTU.
///
/// # Errors
/// If the system refuses it.
pub fn let_fragment(socket: &Socket, may: bool) -> io::Result<()> {
    let value = if may { libc::IP_PMTUDISC_DONT } else { libc::IP_PMTUDISC_PROBE };
    set_option(socket.as_fd(), IPPROTO_IP, libc::IP_MTU_DISCOVER, value)
}

/// Opens a socket with the mark and the buffers, which tells of addresses and traffic classes, and passes the kernel's
/// policies.
///
/// # Errors
/// If the host lacks the family, or the system refuses something.
pub fn marked(family: Family, kind: Type, protocol: Protocol, mark: u32) -> io::Result<Socket> {
    let domain = match family {
        Family::V4 => Domain::IPV4,
        Family::V6 => Domain::IPV6,
    };
    let socket = Socket::new(domain, kind, Some(protocol))?;
    socket.set_mark(mark)?;
    socket.set_nonblocking(true)?;
    let fd = socket.as_fd();
    // The kernel's own policies are not for what this plane protects, nor for IKE.
    let_pass(fd, family == Family::V6)?;
    // As WANT lets it, the kernel fragments what exceeds the path's MTU rather than refusing it.
    match family {
        Family::V4 => {
            set_option(fd, IPPROTO_IP, libc::IP_PKTINFO, 1)?;
            set_option(fd, IPPROTO_IP, libc::IP_RECVTOS, 1)?;
            set_option(fd, IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_WANT)?;
        }
        Family::V6 => {
            set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
            set_option(fd, IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            set_option(fd, IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_WANT)?;
        }
    }
    for (forced, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        // Forcing needs a right over the initial user namespace; without it the host's limit applies.
        if set_option(fd, libc::SOL_SOCKET, forced, SOCKET_BUFFER as _).is_err() {
            set_option(fd, libc::SOL_SOCKET, plain, SOCKET_BUFFER as _)?;
        }
    }
    Ok(socket)
}
