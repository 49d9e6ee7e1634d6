//! The steering of datagrams to the sockets on one port: IKE goes to the first, ESP to one of the others by its SPI. So
//! the packets of an SA stay in order, and the SAs of one peer spread over all.

#![allow(unsafe_code)]

use libc::{c_int, sock_filter, sock_fprog, socklen_t};
use socket2::{SockFilter, Socket};
use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::ptr;

/// Spreads SPIs that differ little (Knuth's multiplicative hash): key management need not choose them at random.
const SPREAD: u32 = 0x9e37_79b1;

/// SPIs that can be told apart from the kernel's: a program has 4096 steps at most, and each SPI takes two.
pub(super) const MOST_SPIS: usize = 2000;

/// Has ESP go to the `queue_pairs` sockets that joined the port of `socket` after the first, and all else to the first.
/// With `own`, ESP with other SPIs than these goes to the socket that joined next, and queue pairs are those behind.
pub(super) fn steer(
    socket: &Socket,
    queue_pairs: u32,
    own: Option<&BTreeSet<u32>>,
) -> io::Result<()> {
    // Data begin behind the UDP header. A load past the end, as of a keepalive's one octet, ends the program with 0.
    let mut program = vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        // The non-ESP marker (RFC 3948 §2.2).
        sock_filter { jf: 1, ..step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0) },
        step(libc::BPF_RET | libc::BPF_K, 0),
    ];
    if let Some(own) = own {
        for (place, spi) in own.iter().enumerate() {
            // Past the rest of the list.
            let rest = 2 * (own.len() - place - 1) + 1;
            let equal = step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *spi);
            program.push(sock_filter { jf: 1, ..equal });
            program.push(step(libc::BPF_JMP | libc::BPF_JA, rest as u32));
        }
        program.push(step(libc::BPF_RET | libc::BPF_K, 1));
    }
    program.extend([
        // With more queue pairs an SPI stays or goes to a later one.
        step(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, SPREAD),
        step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
        step(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, queue_pairs.max(1)),
        step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
        step(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, 1 + u32::from(own.is_some())),
        step(libc::BPF_RET | libc::BPF_A, 0),
    ]);
    let program = sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the pointer and the length describe `program`, whose filter points to as many steps as it says; both
    // outlive the call, and the kernel copies them.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            mem::size_of::<sock_fprog>() as socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

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
    let filter = |code: u32, jf: u8, k: u32| SockFilter::new(code as u16, 0, jf, k);
    let mut program = match at.behind_header {
        true => vec![
            filter(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0),
            filter(libc::BPF_LD | libc::BPF_W | libc::BPF_IND, 0, at.offset),
        ],
        false => vec![filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, at.offset)],
    };
    for spi in own {
        program.push(filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, *spi));
        program.push(filter(libc::BPF_RET | libc::BPF_K, 0, u32::MAX));
    }
    program.push(filter(libc::BPF_RET | libc::BPF_K, 0, 0));
    socket.attach_filter(&program)
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

fn step(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};
    use std::net::UdpSocket;

    /// The queue pair that the program chooses.
    fn queue_pair_of(spi: u32, queue_pairs: u32) -> u32 {
        ((spi.wrapping_mul(SPREAD) >> 16) * queue_pairs) >> 16
    }

    fn bound(address: SocketAddr) -> Socket {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
        socket.set_reuse_port(true).expect("set");
        socket.bind(&address.into()).expect("bound");
        socket.set_nonblocking(true).expect("set");
        socket
    }

    fn received(socket: &Socket) -> Option<usize> {
        socket.recv(&mut [mem::MaybeUninit::uninit(); 64]).ok()
    }

    #[test]
    fn ike_goes_to_the_first_and_esp_by_its_spi() {
        let first = bound(([127, 0, 0, 1], 0).into());
        let address = first.local_addr().expect("bound").as_socket().expect("of IP");
        let queue_pairs = [bound(address), bound(address), bound(address)];
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bound");
        for spread in [1, 2, 3] {
            steer(&first, spread, None).expect("the kernel takes it");
            for spi in 256u32..272 {
                sender.send_to(&[&spi.to_be_bytes()[..], b"esp"].concat(), address).expect("sent");
                let got = queue_pairs.each_ref().map(|queue_pair| received(queue_pair).is_some());
                let expected = [0, 1, 2].map(|queue_pair| queue_pair_of(spi, spread) == queue_pair);
                assert_eq!(got, expected, "{spi} among {spread}");
            }
            for other in [&[0xff][..], &[0, 0, 0, 0, 1, 2, 3]] {
                sender.send_to(other, address).expect("sent");
                assert_eq!(received(&first), Some(other.len()));
            }
        }
    }

    #[test]
    fn beside_the_kernel_only_own_spis_come_to_queue_pairs() {
        let first = bound(([127, 0, 0, 1], 0).into());
        let address = first.local_addr().expect("bound").as_socket().expect("of IP");
        let [kernel, queue_pair] = [bound(address), bound(address)];
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bound");
        for own in [BTreeSet::new(), [0x101].into(), (0x100..0x100 + MOST_SPIS as u32).collect()] {
            steer(&first, 1, Some(&own)).expect("the kernel takes it");
            for spi in [0x100, 0x101, 0x102, 0x8cf, 0x8d0] {
                sender
                    .send_to(&[&u32::to_be_bytes(spi)[..], b"esp"].concat(), address)
                    .expect("sent");
                let got = [&kernel, &queue_pair].map(|socket| received(socket).is_some());
                assert_eq!(got, [!own.contains(&spi), own.contains(&spi)], "{spi:#x}");
            }
            sender.send_to(&[0, 0, 0, 0, 1, 2, 3], address).expect("sent");
            assert_eq!(received(&first), Some(7));
        }
    }

    #[test]
    fn consecutive_spis_spread_and_more_queue_pairs_move_them_on() {
        for queue_pairs in 1..=64 {
            let mut taken = vec![0; queue_pairs as usize];
            for spi in 0xc000_0000..0xc000_0000 + 64 * queue_pairs {
                taken[queue_pair_of(spi, queue_pairs) as usize] += 1;
                assert!(queue_pair_of(spi, queue_pairs) <= queue_pair_of(spi, queue_pairs + 1));
            }
            assert!(taken.iter().all(|count| (48..=80).contains(count)), "{taken:?}");
        }
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
