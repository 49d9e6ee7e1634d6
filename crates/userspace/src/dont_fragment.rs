//! The Don't Fragment bit of the packets that a socket of IPv4 sends.

use super::datagrams::set_option;
use socket2::Socket;
use std::io;
use std::os::fd::AsFd;

/// Says whether the packets of an IPv4 socket may be fragmented.
///
/// If not, the option is IP_PMTUDISC_PROBE: it sets Don't Fragment and ignores the kernel's own path MTU. The kernel's
/// default (IP_PMTUDISC_WANT) leaves the bit out of packets that the kernel segments, and believes every message about
/// a path's MTU.
pub(super) fn let_fragment(socket: &Socket, may: bool) -> io::Result<()> {
    let value = if may { libc::IP_PMTUDISC_DONT } else { libc::IP_PMTUDISC_PROBE };
    set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value)
}
