//! ICMP messages about IKE on the port of ESP in UDP (RFC 3948 §2.2).
//!
//! Several sockets share that port, and the kernel puts an ICMP message into the error queue of any of them. There it
//! would also fail the next call that sends ESP. A raw socket hears the same messages and disturbs no other socket.

use crate::netlink::Family;
use crate::{IcmpError, lacks_family};
use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET,
    BPF_W,
};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Octets that are read of a message; a longer one is left out.
const LONGEST: usize = 2048;
/// Octets of a message of IKE that are kept: its header.
const KEPT: usize = 28;
/// Octets of the header of ICMP, and of that of UDP.
const HEADER: usize = 8;
/// Stands before a message of IKE, where an ESP packet has its SPI.
const NON_ESP_MARKER: [u8; 4] = [0; 4];

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP: u8 = 17;
/// The type of "destination unreachable" in each family.
const UNREACHABLE: [u8; 2] = [3, 1];

/// Hears ICMP messages that tell why a message of IKE from one port of this host does not reach its destination.
pub struct IcmpListener {
    socket: UdpSocket,
    family: Family,
    port: u16,
}

impl IcmpListener {
    /// One for each family that the host has, in the network namespace of the calling thread. It needs CAP_NET_RAW.
    ///
    /// # Errors
    /// If the system refuses a socket.
    pub fn open(port: u16) -> io::Result<Vec<Self>> {
        Family::BOTH
            .into_iter()
            .filter_map(|family| match Self::of_family(family, port) {
                Err(error) if family == Family::V6 && lacks_family(&error) => None,
                outcome => Some(outcome),
            })
            .collect()
    }

    fn of_family(family: Family, port: u16) -> io::Result<Self> {
        let (domain, protocol) = match family {
            Family::V4 => (Domain::IPV4, Protocol::ICMPV4),
            Family::V6 => (Domain::IPV6, Protocol::ICMPV6),
        };
        let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        socket.set_nonblocking(true)?;
        socket.attach_filter(&filter(family, port))?;
        Ok(Self { socket: socket.into(), family, port })
    }

    /// Another handle to the socket, for the task that watches it.
    ///
    /// # Errors
    /// If the process has too many descriptors.
    pub fn watched(&self) -> io::Result<UdpSocket> {
        self.socket.try_clone()
    }

    /// Takes the next message; the inner `None` stands for one that tells nothing. Its quotation begins with the header
    /// of IKE.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none.
    pub fn take(&self) -> io::Result<Option<IcmpError>> {
        let mut octets = [0; LONGEST];
        let (length, from) = self.socket.recv_from(&mut octets)?;
        let message = octets.get(..length).filter(|message| message.len() < LONGEST);
        Ok(message.and_then(|message| match self.family {
            Family::V4 => read_v4(message, self.port),
            Family::V6 => read_v6(message, from.ip(), self.port),
        }))
    }
}

/// Lets pass what may be of interest, so that no other ICMP message wakes the reader.
fn filter(family: Family, port: u16) -> Vec<SockFilter> {
    // Behind the IP header, or from the beginning.
    let (mode, quoted) = match family {
        Family::V4 => (BPF_IND, IPV4_LEN),
        Family::V6 => (BPF_ABS, IPV6_LEN),
    };
    let protocol = HEADER + if family == Family::V4 { 9 } else { 6 };
    let wanted = [
        (BPF_B, 0, u32::from(UNREACHABLE[usize::from(family == Family::V6)])),
        (BPF_B, protocol, UDP.into()),
        (BPF_H, HEADER + quoted, port.into()),
        (BPF_W, HEADER + quoted + HEADER, u32::from_be_bytes(NON_ESP_MARKER)),
    ];
    let mut program = Vec::new();
    if family == Family::V4 {
        program.push(SockFilter::new((BPF_LDX | BPF_B | BPF_MSH) as u16, 0, 0, 0));
    }
    for (index, (size, at, value)) in wanted.into_iter().enumerate() {
        let last = (wanted.len() - 1 - index) as u8;
        program.push(SockFilter::new((BPF_LD | size | mode) as u16, 0, 0, at as u32));
        // To the end, beyond the loads and comparisons that follow and the return.
        program.push(SockFilter::new((BPF_JMP | BPF_JEQ | BPF_K) as u16, 0, last * 2 + 1, value));
    }
    program.push(SockFilter::new((BPF_RET | BPF_K) as u16, 0, 0, u32::MAX));
    program.push(SockFilter::new((BPF_RET | BPF_K) as u16, 0, 0, 0));
    program
}

/// Reads a message in IPv4, from the IP header on. A raw socket gets it before the kernel has looked at the checksum.
fn read_v4(packet: &[u8], port: u16) -> Option<IcmpError> {
    let at = usize::from(packet.first()? & 0x0f) * 4;
    let by = address_v4(packet, 12)?;
    let message = packet.get(at..)?;
    if sum(message) != 0xffff {
        return None;
    }
    let quoted = message.get(HEADER..)?;
    let first = quoted.get(..IPV4_LEN)?;
    // Of later fragments nothing can be told.
    if first[0] != 0x45 || first[9] != UDP || word(first, 6)? & 0x1fff != 0 {
        return None;
    }
    let remote = address_v4(quoted, 16)?;
    unreachable(message, [by, remote], quoted.get(IPV4_LEN..)?, port)
}

/// The same in IPv6, from the ICMP header on; the kernel has looked at the checksum.
fn read_v6(message: &[u8], by: IpAddr, port: u16) -> Option<IcmpError> {
    let quoted = message.get(HEADER..)?;
    let first = quoted.get(..IPV6_LEN)?;
    if first[0] >> 4 != 6 || first[6] != UDP {
        return None;
    }
    let remote: [u8; 16] = first[24..].try_into().ok()?;
    unreachable(message, [by, Ipv6Addr::from(remote).into()], quoted.get(IPV6_LEN..)?, port)
}

/// The message about a UDP datagram of this port.
fn unreachable(
    message: &[u8],
    [by, remote]: [IpAddr; 2],
    datagram: &[u8],
    port: u16,
) -> Option<IcmpError> {
    let ipv6 = remote.is_ipv6();
    let [kind, code] = *message.first_chunk()?;
    let quoted = datagram.get(HEADER..)?.strip_prefix(&NON_ESP_MARKER)?;
    if kind != UNREACHABLE[usize::from(ipv6)] || word(datagram, 0)? != port {
        return None;
    }
    let remote = (remote, word(datagram, 2)?).into();
    let quoted = quoted[..quoted.len().min(KEPT)].to_vec();
    Some(IcmpError { remote, by, ipv6, kind, code, quoted })
}

fn word(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*octets.get(at..)?.first_chunk()?))
}

fn address_v4(octets: &[u8], at: usize) -> Option<IpAddr> {
    Some(Ipv4Addr::from(*octets.get(at..)?.first_chunk::<4>()?).into())
}

/// The checksum of octets (RFC 1071), not inverted: 0xffff if they contain their own.
fn sum(octets: &[u8]) -> u16 {
    let words = octets.chunks(2).map(|w| [w[0], w.get(1).copied().unwrap_or(0)]);
    let sum: u32 = words.map(|w| u32::from(u16::from_be_bytes(w))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 4500;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        digits.chunks(2).map(|p| pair(p).expect("two digits")).collect()
    }

    /// As the host 192.0.2.2 sends it: nothing listens on its port 4500.
    fn port_unreachable() -> Vec<u8> {
        let mut packet = hex("45c0 0058 1234 0000 4001 0000 c0000202 c0000201
             0303 0000 0000 0000
             4500 003c 0001 4000 4011 0000 c0000201 c0000202
             1194 1194 0028 0000 00000000 1122334455667788 99aabbccddeeff00 2e202508 00000001");
        mend(&mut packet);
        packet
    }

    fn mend(packet: &mut [u8]) {
        packet[22..24].fill(0);
        let sum = !sum(&packet[20..]);
        packet[22..24].copy_from_slice(&sum.to_be_bytes());
    }

    #[test]
    fn a_message_about_ike_is_read_from_the_header_of_ike_on() {
        let error = read_v4(&port_unreachable(), PORT).expect("about IKE");
        assert_eq!((error.kind, error.code, error.ipv6), (3, 3, false));
        assert_eq!(error.remote, ([192, 0, 2, 2], PORT).into());
        assert_eq!(error.by, IpAddr::from([192, 0, 2, 2]));
        assert_eq!(error.quoted[..8], hex("1122334455667788")[..]);

        let six = hex("0104 0000 00000000
             6000 0000 0028 11 40 20010db8000000000000000000000001 20010db8000000000000000000000002
             1194 1194 0028 0000 00000000 1122334455667788");
        let by: IpAddr = "2001:db8::9".parse().expect("an address");
        let error = read_v6(&six, by, PORT).expect("about IKE");
        assert_eq!((error.kind, error.code, error.ipv6, error.by), (1, 4, true, by));
        assert_eq!(error.quoted, hex("1122334455667788"));
    }

    #[test]
    fn a_damaged_or_unrelated_message_tells_nothing() {
        let packet = port_unreachable();
        assert_eq!(read_v4(&packet, 500), None, "another port");
        for cut in 0..packet.len() {
            assert_eq!(read_v4(&packet[..cut], PORT), None, "cut at {cut}");
        }
        let mut damaged = packet.clone();
        damaged[70] ^= 1;
        assert_eq!(read_v4(&damaged, PORT), None, "the checksum");
        // Time exceeded; another protocol; options; a later fragment; ESP instead of the marker.
        for (at, value) in [(20, 11), (37, 6), (28, 0x46), (35, 1), (56, 1)] {
            let mut other = packet.clone();
            other[at] = value;
            mend(&mut other);
            assert_eq!(read_v4(&other, PORT), None, "{at}");
        }
    }
}
