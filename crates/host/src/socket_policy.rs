//! The socket options that IKE needs in a kernel with policies.

#![allow(unsafe_code)]

use libc::{c_int, socklen_t};
use netlink_packet_core::Emitable;
use netlink_packet_xfrm::{
    AF_INET, AF_INET6, UDP_ENCAP_ESPINUDP, UserPolicyInfo, XFRM_POLICY_ALLOW, XFRM_POLICY_IN,
    XFRM_POLICY_OUT,
};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// linux/in6.h; libc has none.
const IPV6_XFRM_POLICY: c_int = 35;

/// Lets the datagrams of a socket pass whatever policies there are, in and out: IKE must not wait for the SAs that it
/// makes, and ESP in UDP must reach its decapsulation. Does nothing where the kernel has no XFRM.
///
/// # Errors
/// Where CAP_NET_ADMIN is missing.
pub fn let_pass(socket: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    let (level, name, family) = match ipv6 {
        false => (libc::IPPROTO_IP, libc::IP_XFRM_POLICY, AF_INET),
        true => (libc::IPPROTO_IPV6, IPV6_XFRM_POLICY, AF_INET6),
    };
    for direction in [XFRM_POLICY_IN, XFRM_POLICY_OUT] {
        let mut info =
            UserPolicyInfo { direction, action: XFRM_POLICY_ALLOW, ..UserPolicyInfo::default() };
        info.selector.family = family;
        let mut octets = vec![0; info.buffer_len()];
        info.emit(&mut octets);
        match set(socket, level, name, &octets) {
            Err(error) if has_none(&error) => return Ok(()),
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Has the kernel take ESP from a UDP socket; other datagrams still come to the process (RFC 3948 §2.2).
///
/// # Errors
/// Where the kernel has no ESP in UDP.
pub fn decapsulate(socket: BorrowedFd<'_>) -> io::Result<()> {
    // linux/udp.h
    const UDP_ENCAP: c_int = 100;
    let kind = c_int::from(UDP_ENCAP_ESPINUDP);
    set(socket, libc::IPPROTO_UDP, UDP_ENCAP, &kind.to_ne_bytes())
}

fn has_none(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP))
}

fn set(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which the kernel copies.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
