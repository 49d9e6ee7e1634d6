//! The packets that a socket takes, and those that it has lost.

#![allow(unsafe_code)]

use libc::{c_int, socklen_t};
use socket2::{SockFilter, Socket};
use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::ptr;

/// The position of the SPI in a packet from a raw socket.
#[derive(Clone, Copy)]
pub(super) struct SpiAt {
    /// The packet's IP header comes first, as it does in IPv4.
    pub behind_header: bool,
    /// Octets from there, or from the beginning.
    pub offset: u32,
}

/// Has a raw socket take packets with these SPIs and no others: the kernel gives it copies of those that it opens
/// itself.
pub(super) fn sift(socket: &Socket, at: SpiAt, own: &BTreeSet<u32>) -> io::Result<()> {
    let mut program = match at.behind_header {
        true => vec![
            instruction(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0),
            instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_IND, 0, at.offset),
        ],
        false => vec![instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, at.offset)],
    };
    for spi in own {
        program.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, *spi));
        program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, u32::MAX));
    }
    program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, 0));
    socket.attach_filter(&program)
}

fn instruction(code: u32, jf: u8, k: u32) -> SockFilter {
    SockFilter::new(code as u16, 0, jf, k)
}

/// Has a socket take nothing until it is [reopened](reopen).
pub(super) fn close(socket: &Socket) -> io::Result<()> {
    socket.attach_filter(&[SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0)])
}

/// Has a socket take everything again.
pub(super) fn reopen(socket: &Socket) -> io::Result<()> {
    match socket.detach_filter() {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        outcome => outcome,
    }
}

/// Has a raw socket take nothing but what is for this address, of the loopback device. With a filter the kernel would
/// still copy each packet of its own SAs for it, hold the copy against its policies, which what a card has opened does
/// not fit, and count it as lost.
pub(super) fn seclude(socket: &Socket, loopback: IpAddr) -> io::Result<()> {
    // To connect it would do, too, but one that is disconnected then takes nothing ever again.
    socket.bind(&SocketAddr::new(loopback, 0).into()).or_else(|_| close(socket))
}

/// Has a raw socket take what is for every address again.
pub(super) fn admit(socket: &Socket, any: IpAddr) -> io::Result<()> {
    socket.bind(&SocketAddr::new(any, 0).into())?;
    reopen(socket)
}

/// The fill level of a socket, and the packets it has lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fill {
    /// Octets of memory that wait to be read.
    pub waiting: u64,
    /// Octets of memory there is room for.
    pub room: u64,
    /// Datagrams there was no room for.
    pub dropped: u64,
}

/// Asks the kernel; a kernel that does not say is taken to have lost nothing.
pub(super) fn fill(socket: &Socket) -> Fill {
    // SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_RCVBUF and SK_MEMINFO_DROPS of linux/sock_diag.h.
    const WAITING: usize = 0;
    const ROOM: usize = 1;
    const DROPPED: usize = 8;
    let mut values = [0u32; 9];
    let mut length = mem::size_of_val(&values) as socklen_t;
    // SAFETY: the pointers describe `values` and its length, which the kernel does not exceed.
    let outcome: c_int = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            ptr::from_mut(&mut values).cast(),
            &raw mut length,
        )
    };
    if outcome != 0 {
        return Fill::default();
    }
    Fill {
        waiting: values[WAITING].into(),
        room: values[ROOM].into(),
        dropped: values[DROPPED].into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn bound(address: SocketAddr) -> Socket {
        let socket = UdpSocket::bind(address).expect("bound");
        socket.set_nonblocking(true).expect("set");
        socket.into()
    }

    fn received(socket: &Socket) -> Option<usize> {
        socket.recv(&mut [mem::MaybeUninit::uninit(); 64]).ok()
    }

    #[test]
    fn a_closed_socket_takes_nothing_and_counts_it() {
        let socket = bound(([127, 0, 0, 1], 0).into());
        let address = socket.local_addr().expect("bound").as_socket().expect("of IP");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bound");
        close(&socket).expect("closed");
        sender.send_to(b"lost", address).expect("sent");
        assert_eq!((received(&socket), fill(&socket).dropped), (None, 1));
        reopen(&socket).expect("reopened");
        reopen(&socket).expect("twice is fine");
        sender.send_to(b"kept", address).expect("sent");
        assert!(fill(&socket).waiting > 0);
        assert_eq!(received(&socket), Some(4));
    }
}
