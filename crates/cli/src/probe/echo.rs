//! Echo requests of ICMP and ICMPv6 (RFC 792, RFC 4443), which routers must not fragment.

use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Octets of ICMP's header of an echo.
const HEADER: usize = 8;
/// The time between two requests. Packets that are sent together travel as one long packet through the hosts that offload
/// segmentation, and a packet filter there judges the length of that one.
const APART: Duration = Duration::from_millis(50);

/// The outcome of an echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The answer, after this time.
    Reply(Duration),
    /// A router or this host says that the packet is too long.
    TooBig,
    /// A router or a host says that it cannot be reached.
    Unreachable,
    /// None came in time.
    Nothing,
}

/// A socket that sends echo requests to one address.
pub(super) struct Echo {
    socket: Socket,
    ipv4: bool,
    identifier: u16,
    sequence: u16,
}

impl Echo {
    /// Opens one.
    pub(super) fn open(from: IpAddr, to: IpAddr) -> io::Result<Self> {
        let ipv4 = to.is_ipv4();
        let socket = if ipv4 {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
            // With Don't Fragment, and without the path MTU that the kernel believes.
            set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
            socket
        } else {
            let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
            set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?;
            socket
        };
        socket.bind(&SocketAddr::new(from, 0).into())?;
        socket.connect(&SocketAddr::new(to, 0).into())?;
        let identifier = (std::process::id() & 0xffff) as u16;
        Ok(Self { socket, ipv4, identifier, sequence: 0 })
    }

    /// Sends up to `number` requests in packets of `size` octets, one after another, until one is answered. The last
    /// one is waited for as long as `timeout`.
    pub(super) fn exchange(
        &mut self,
        size: usize,
        number: usize,
        timeout: Duration,
    ) -> io::Result<Answer> {
        let first = self.sequence.wrapping_add(1);
        let sent = Instant::now();
        // Errors may be about earlier requests, so that an answer is worth more than an error.
        let mut otherwise = Answer::Nothing;
        for left in (0..number).rev() {
            self.sequence = self.sequence.wrapping_add(1);
            let request = self.request(size);
            let mut outcome = self.socket.send(&request);
            if outcome.is_err() {
                outcome = self.socket.send(&request);
            }
            if let Err(error) = outcome {
                return told(&error).ok_or(error);
            }
            let until = Instant::now() + if left == 0 { timeout } else { APART.min(timeout) };
            if self.is_answered(first, until, &mut otherwise)? {
                return Ok(Answer::Reply(sent.elapsed()));
            }
        }
        Ok(otherwise)
    }

    /// Waits for an answer to one of the requests from `first` on.
    fn is_answered(&self, first: u16, until: Instant, otherwise: &mut Answer) -> io::Result<bool> {
        let mut buffer = [0; 1 << 16];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.socket.set_read_timeout(Some(left))?;
            match (&self.socket).read(&mut buffer) {
                Ok(length) => {
                    let sequence = self.answered(&buffer[..length]);
                    let since = sequence.map(|sequence| sequence.wrapping_sub(first));
                    let sent = self.sequence.wrapping_sub(first);
                    if since.is_some_and(|since| since <= sent) {
                        return Ok(true);
                    }
                }
                Err(error) if is_late(&error) => {}
                Err(error) => *otherwise = told(&error).ok_or(error)?,
            }
        }
    }

    fn request(&self, size: usize) -> Vec<u8> {
        let ip = if self.ipv4 { 20 } else { 40 };
        let mut packet = vec![0x56; size.saturating_sub(ip).max(HEADER)];
        let kind = if self.ipv4 { 8 } else { 128 };
        packet[..4].copy_from_slice(&[kind, 0, 0, 0]);
        packet[4..6].copy_from_slice(&self.identifier.to_be_bytes());
        packet[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        if self.ipv4 {
            // The kernel fills in that of ICMPv6.
            let sum = checksum(&packet);
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        packet
    }

    /// The sequence number of an answer to this socket's requests.
    fn answered(&self, received: &[u8]) -> Option<u16> {
        let message = match self.ipv4 {
            // The kernel hands over the header of IPv4.
            true => received.get(usize::from(received.first()? & 0xf) * 4..)?,
            false => received,
        };
        let kind = if self.ipv4 { 0 } else { 129 };
        let [is, 0, _, _, id_high, id_low, high, low, ..] = *message else { return None };
        let identifier = u16::from_be_bytes([id_high, id_low]);
        (is == kind && identifier == self.identifier).then(|| u16::from_be_bytes([high, low]))
    }
}

/// The answer that an error of the socket stands for.
fn told(error: &io::Error) -> Option<Answer> {
    use rustix::io::Errno;
    let errno = Errno::from_raw_os_error(error.raw_os_error()?);
    match errno {
        Errno::MSGSIZE => Some(Answer::TooBig),
        Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::CONNREFUSED | Errno::NOPROTOOPT => {
            Some(Answer::Unreachable)
        }
        // A full queue, and a packet filter of this host.
        Errno::NOBUFS => Some(Answer::Nothing),
        Errno::PERM => Some(Answer::Unreachable),
        _ => None,
    }
}

fn is_late(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// The checksum of RFC 1071.
fn checksum(octets: &[u8]) -> u16 {
    let words = octets
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_with_its_checksum_sums_up_to_nothing() {
        for length in [8, 9, 56, 1410] {
            let mut message = vec![0x5a; length];
            message[..4].copy_from_slice(&[8, 0, 0, 0]);
            let sum = checksum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(checksum(&message), 0, "{length} octets");
        }
        // The example of RFC 1071 §3.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }
}
