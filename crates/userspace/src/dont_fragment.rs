//! Whether what a socket of IPv4 sends may be fragmented on the way.

use super::datagrams::set_option;
use socket2::Socket;
use std::io;
use std::os::fd::AsFd;

/// Lets anybody fragment what a socket of IPv4 sends, or nobody. Nobody is a probe to the kernel, and not what it would do
/// by itself: that leaves Don't Fragment out of what it is to segment, and believes every word on a path's MTU.
pub(super) fn let_fragment(socket: &Socket, may: bool) -> io::Result<()> {
    let value = if may { libc::IP_PMTUDISC_DONT } else { libc::IP_PMTUDISC_PROBE };
    set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value)
}
