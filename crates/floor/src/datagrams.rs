//! The system calls of the sockets: many datagrams per call, with addresses, DSCP, ECN and segmentation beside them.
//!
//! quinn-udp was weighed and left: it sends the two ECN bits of the traffic class and clears the DSCP that
//! RFC 4301 §5.1.2 wants copied, it does one message per `sendmsg`, and it knows no raw sockets. One thin layer that
//! serves both kinds of sockets is smaller than two that differ.

#![allow(unsafe_code)]

mod receiving;
mod sending;

pub use receiving::{Incoming, Ring};
pub use sending::{Arena, Batch, Outgoing};

use libc::c_int;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Most messages of one call.
pub const BATCH: usize = 64;

/// Room for packet information, traffic class and segment length: 40 + 24 + 24 octets, rounded up.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 128]);

/// Sets a socket option whose value is an integer.
pub fn set_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            mem::size_of::<c_int>() as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::receiving::read_control;
    use super::*;
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsFd;

    fn pair(address: &str) -> (UdpSocket, UdpSocket) {
        let bind = || UdpSocket::bind((address, 0)).expect("loopback");
        (bind(), bind())
    }

    fn receive_all(ring: &mut Ring, socket: &UdpSocket, octets: usize) -> Vec<Vec<u8>> {
        let mut got = Vec::new();
        while got.iter().map(Vec::len).sum::<usize>() < octets {
            let mut fds = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
            let limit = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
            assert_eq!(rustix::event::poll(&mut fds, Some(&limit)), Ok(1), "nothing came");
            for i in 0..ring.receive(socket.as_fd(), BATCH).expect("receive") {
                let incoming = ring.datagram(i).expect("datagram");
                got.extend(incoming.octets.chunks(incoming.segment_len).map(<[u8]>::to_vec));
            }
        }
        got
    }

    #[test]
    fn batches_keep_addresses_traffic_class_and_octets() {
        for (address, level, pktinfo, tos) in [
            ("127.0.0.1", libc::IPPROTO_IP, libc::IP_PKTINFO, libc::IP_RECVTOS),
            ("::1", libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, libc::IPV6_RECVTCLASS),
        ] {
            let (from, to) = pair(address);
            set_option(to.as_fd(), level, pktinfo, 1).expect("pktinfo");
            set_option(to.as_fd(), level, tos, 1).expect("traffic class");
            let (mut arena, mut ring) = (Arena::new(), Ring::new(BATCH));
            let source = from.local_addr().expect("bound");
            let payloads: Vec<Vec<u8>> = (1..=20u8).map(|n| vec![n; n.into()]).collect();
            let mut batch = arena.batch();
            for octets in &payloads {
                batch.push(Outgoing {
                    octets,
                    destination: to.local_addr().expect("bound"),
                    source: source.ip(),
                    segment_len: None,
                    tos: 0xb9,
                });
            }
            assert_eq!(batch.send(from.as_fd(), 0).expect("send"), 20);
            assert_eq!(ring.receive(to.as_fd(), BATCH).expect("receive"), 20);
            for (i, octets) in payloads.iter().enumerate() {
                let incoming = ring.datagram(i).expect("datagram");
                assert_eq!(incoming.octets, octets);
                assert_eq!(incoming.remote, source);
                assert_eq!(incoming.local, Some(source.ip()));
                assert_eq!(incoming.tos, Some(0xb9));
            }
            assert_eq!(ring.receive(to.as_fd(), BATCH).expect("receive"), 0);
        }
    }

    #[test]
    fn segmented_datagrams_arrive_as_they_were_cut() {
        for gro in [0, 1] {
            let (from, to) = pair("127.0.0.1");
            if set_option(to.as_fd(), libc::SOL_UDP, libc::UDP_GRO, gro).is_err() {
                println!("skipped: the kernel has no UDP GRO");
                return;
            }
            let octets: Vec<u8> = (0..5_500u32).map(|n| n as u8).collect();
            let (mut arena, mut ring) = (Arena::new(), Ring::new(BATCH));
            let mut batch = arena.batch();
            batch.push(Outgoing {
                octets: &octets,
                destination: to.local_addr().expect("bound"),
                source: from.local_addr().expect("bound").ip(),
                segment_len: Some(1_000),
                tos: 0,
            });
            assert_eq!(batch.send(from.as_fd(), 0).expect("send"), 1);
            let got = receive_all(&mut ring, &to, octets.len());
            assert_eq!(got, octets.chunks(1_000).map(<[u8]>::to_vec).collect::<Vec<_>>());
        }
    }

    #[test]
    fn malformed_control_messages_are_ignored() {
        for octets in [
            &[0xff; 40][..],
            &[0; 40],
            &[1; 15],
            &[17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ] {
            let remote = SocketAddr::from(([127, 0, 0, 1], 1));
            let mut incoming = Incoming {
                octets: &[],
                remote,
                local: None,
                segment_len: 7,
                tos: None,
                control: None,
            };
            read_control(octets, &mut incoming);
            assert_eq!((incoming.local, incoming.segment_len), (None, 7));
        }
    }
}
