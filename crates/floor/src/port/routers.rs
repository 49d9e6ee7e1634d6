//! The messages of routers about packets that were too long for them (RFC 1191, RFC 8201).

use super::strays::Strays;
use host::lacks_family;
use host::netlink::Family;
use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET,
};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::io::{self, Read};
use std::time::Instant;

/// Most messages that are taken at a time.
const MESSAGES: usize = 16;

/// Octets of a message that are of interest: a router may send more, but what it quotes begins in front.
const LONGEST: usize = 2048;

/// A socket that hears routers say that a packet was too long, and nothing else.
pub(super) struct Routers {
    socket: Socket,
    family: Family,
}

impl Routers {
    /// One for each family that the host has.
    pub(super) fn listen() -> io::Result<Vec<Self>> {
        let routers =
            [Family::V4, Family::V6].into_iter().filter_map(|family| match Self::open(family) {
                Err(error) if family == Family::V6 && lacks_family(&error) => None,
                outcome => Some(outcome),
            });
        routers.collect()
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    fn open(family: Family) -> io::Result<Self> {
        let (domain, protocol) = match family {
            Family::V4 => (Domain::IPV4, Protocol::ICMPV4),
            Family::V6 => (Domain::IPV6, Protocol::ICMPV6),
        };
        let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        socket.set_nonblocking(true)?;
        let pass = step(BPF_RET | BPF_K, 0, u32::MAX);
        let drop = step(BPF_RET | BPF_K, 0, 0);
        // So that no other message wakes anybody.
        match family {
            // Behind the IP header: type 3, code 4.
            Family::V4 => socket.attach_filter(&[
                step(BPF_LDX | BPF_B | BPF_MSH, 0, 0),
                step(BPF_LD | BPF_H | BPF_IND, 0, 0),
                step(BPF_JMP | BPF_JEQ | BPF_K, 1, 0x0304),
                pass,
                drop,
            ])?,
            Family::V6 => socket.attach_filter(&[
                step(BPF_LD | BPF_B | BPF_ABS, 0, 0),
                step(BPF_JMP | BPF_JEQ | BPF_K, 1, 2),
                pass,
                drop,
            ])?,
        }
        Ok(Self { socket, family })
    }

    /// Takes what has come, at most a few messages. Returns whether there may be more.
    pub(super) fn receive(&self, strays: &dyn Strays) -> bool {
        let mut octets = [0; LONGEST];
        for _ in 0..MESSAGES {
            let message = match (&self.socket).read(&mut octets) {
                Ok(length) => &octets[..length],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => {
                    tracing::debug!(%error, "receiving ICMP");
                    continue;
                }
            };
            strays.too_long(Instant::now(), self.family, message);
        }
        true
    }
}

fn step(code: u32, jump: u8, k: u32) -> SockFilter {
    SockFilter::new(code as u16, 0, jump, k)
}
