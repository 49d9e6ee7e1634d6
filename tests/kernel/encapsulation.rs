//! The socket that a key manager opens for ESP in UDP: its datagrams are the kernel's (udp(7), `UDP_ENCAP`).
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of_val;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;

/// `UDP_ENCAP_ESPINUDP` of linux/udp.h.
const ESP_IN_UDP: libc::c_int = 2;

/// Opens one in the calling thread's namespace; the kernel takes ESP off its datagrams for as long as it lives.
pub fn listen(address: IpAddr, port: u16) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, port))?;
    let kind = ESP_IN_UDP;
    // SAFETY: the option's value is an int that lives beyond the call.
    let refused = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_ENCAP,
            (&raw const kind).cast(),
            size_of_val(&kind) as libc::socklen_t,
        )
    };
    if refused == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}
