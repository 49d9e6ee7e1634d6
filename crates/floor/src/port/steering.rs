//! The steering of datagrams to the sockets on one port: IKE goes to the first, ESP to one of the others by its SPI. So
//! the packets of an SA stay in order, and the SAs of one peer spread over all.

#![allow(unsafe_code)]

use libc::{sock_filter, sock_fprog, socklen_t};
use socket2::Socket;
use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;

/// Spreads SPIs that differ little (Knuth's multiplicative hash): key management need not choose them at random.
const SPREAD: u32 = 0x9e37_79b1;

/// SPIs that can be told apart from the kernel's: a program has 4096 steps at most, and each SPI takes two.
pub(super) const MOST_SPIS: usize = 2000;

/// Has ESP go to the `joined` sockets that joined the port of `socket` after the first, and all else to the first.
/// With `own`, ESP with other SPIs than these goes to the socket that joined next, and the `joined` sockets are those
/// behind.
pub(super) fn steer(socket: &Socket, joined: u32, own: Option<&BTreeSet<u32>>) -> io::Result<()> {
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
        // With more sockets an SPI stays or goes to a later one.
        step(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, SPREAD),
        step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
        step(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, joined.max(1)),
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

fn step(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};
    use std::net::{SocketAddr, UdpSocket};

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
}
