//! ICMP messages about the datagrams of a socket, from the socket's error queue (`ip(7)`, `IP_RECVERR`).

#![allow(unsafe_code)]

use libc::{c_int, c_void, cmsghdr, msghdr, sock_extended_err, sockaddr_storage, socklen_t};
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Octets of the quoted datagram that are kept: a header of IKE, and the marker before it.
const QUOTED: usize = 32;
/// Room for what comes along with a message.
const CONTROL: usize = 512;

/// An ICMP message about a datagram that the socket sent. Nothing protects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// The destination of the datagram.
    pub remote: SocketAddr,
    /// The sender of the ICMP message.
    pub by: IpAddr,
    /// ICMPv6.
    pub ipv6: bool,
    /// Its type.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// The first octets of the datagram, without UDP header, as far as the message quotes them.
    pub quoted: Vec<u8>,
}

/// Has the kernel keep ICMP messages about the datagrams of a socket. From then on, the next call on the socket after
/// each of them fails, whatever it is about.
///
/// # Errors
/// Where the kernel refuses.
pub fn keep_icmp_errors(socket: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    let (level, name) = match ipv6 {
        false => (libc::IPPROTO_IP, libc::IP_RECVERR),
        true => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    let on: c_int = 1;
    // SAFETY: the pointer and the length describe `on`, which the kernel copies.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const on).cast(),
            size_of::<c_int>() as socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes the next entry of a socket's error queue; the inner `None` stands for an entry that is no ICMP message.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] where there is none.
pub fn take_icmp_error(socket: BorrowedFd<'_>) -> io::Result<Option<IcmpError>> {
    let mut quoted = [0u8; QUOTED];
    // Aligned as a cmsghdr must be.
    let mut control = [0u64; CONTROL / size_of::<u64>()];
    let mut part =
        libc::iovec { iov_base: quoted.as_mut_ptr().cast::<c_void>(), iov_len: quoted.len() };
    // SAFETY: all zeros are a valid value of both types.
    let (mut name, mut message): (sockaddr_storage, msghdr) = unsafe { (zeroed(), zeroed()) };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of::<sockaddr_storage>() as socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: every pointer in `message` leads to a buffer of the length beside it, all of which outlive the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let Ok(length) = usize::try_from(received) else { return Err(io::Error::last_os_error()) };
    let Some(remote) = address(&name) else { return Ok(None) };
    let Some((error, by)) = extended_error(&message) else { return Ok(None) };
    let ipv6 = error.ee_origin == libc::SO_EE_ORIGIN_ICMP6;
    if !ipv6 && error.ee_origin != libc::SO_EE_ORIGIN_ICMP {
        return Ok(None);
    }
    let (kind, code) = (error.ee_type, error.ee_code);
    let quoted = quoted[..length.min(QUOTED)].to_vec();
    Ok(Some(IcmpError { remote, by, ipv6, kind, code, quoted }))
}

/// The error that came along with a message, and the address of its reporter.
#[allow(clippy::unnecessary_cast, reason = "with musl, lengths have another type")]
fn extended_error(message: &msghdr) -> Option<(sock_extended_err, IpAddr)> {
    // SAFETY: the kernel has filled `msg_control` with headers as far as `msg_controllen` says.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: it is a header in the buffer, which is aligned for it.
        let cmsghdr { cmsg_level, cmsg_type, cmsg_len, .. } = unsafe { *header };
        let kind = (cmsg_level, cmsg_type);
        let needed =
            size_of::<cmsghdr>() + size_of::<sock_extended_err>() + size_of::<libc::sockaddr_in>();
        if (kind == (libc::IPPROTO_IP, libc::IP_RECVERR)
            || kind == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR))
            && cmsg_len as usize >= needed
        {
            // SAFETY: the kernel puts this type there, and behind it the address of the reporter: a `sockaddr_in` at
            // least.
            return unsafe {
                let error = libc::CMSG_DATA(header).cast::<sock_extended_err>();
                let room =
                    cmsg_len as usize - size_of::<cmsghdr>() - size_of::<sock_extended_err>();
                let by = reporter(error.add(1).cast(), room)?;
                Some((error.read_unaligned(), by))
            };
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

/// Reads an address of one of two families.
///
/// # Safety
/// `room` octets can be read there, at least a `sockaddr_in`.
unsafe fn reporter(from: *const u8, room: usize) -> Option<IpAddr> {
    // SAFETY: all zeros are a valid value, and the caller vouches for the octets.
    let storage = unsafe {
        let mut storage: sockaddr_storage = zeroed();
        let length = room.min(size_of::<sockaddr_storage>());
        std::ptr::copy_nonoverlapping(from, (&raw mut storage).cast::<u8>(), length);
        storage
    };
    address(&storage).map(|address| address.ip())
}

fn address(storage: &sockaddr_storage) -> Option<SocketAddr> {
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one, and the storage is large and aligned enough for any.
            let v4 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddr::new(ip.into(), u16::from_be(v6.sin6_port)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_closed_port_is_reported_with_what_was_sent_to_it() {
        for loopback in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            // A host may lack IPv6.
            let Ok(socket) = UdpSocket::bind((loopback, 0)) else { continue };
            keep_icmp_errors(socket.as_fd(), loopback.is_ipv6()).expect("the kernel can");
            let nothing = take_icmp_error(socket.as_fd()).expect_err("nothing was sent");
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
            let closed = UdpSocket::bind((loopback, 0)).expect("a port");
            let remote = closed.local_addr().expect("it has one");
            drop(closed);
            socket.send_to(b"a message", remote).expect("it leaves");
            // On loopback the answer has come when the call returns.
            let error = take_icmp_error(socket.as_fd()).expect("an entry").expect("ICMP");
            let unreachable = if loopback.is_ipv6() { (1, 4) } else { (3, 3) };
            assert_eq!((error.kind, error.code), unreachable);
            assert_eq!((error.remote, error.by), (remote, loopback));
            assert_eq!((error.ipv6, error.quoted), (loopback.is_ipv6(), b"a message".to_vec()));
        }
    }
}
