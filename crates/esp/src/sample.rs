//! Packets for tests, and an independent judge of their checksums.

use crate::ip::{TCP, UDP};
use std::net::IpAddr;

pub(crate) const ACK: u8 = 0x10;
pub(crate) const PSH: u8 = 0x08;

/// The two hosts whose packets these are; the first sends.
pub(crate) fn hosts(ipv6: bool) -> (IpAddr, IpAddr) {
    if ipv6 {
        ([0xfd00, 0, 0, 1, 0, 0, 0, 1].into(), [0xfd00, 0, 0, 2, 0, 0, 0, 2].into())
    } else {
        ([10, 1, 0, 1].into(), [10, 2, 0, 2].into())
    }
}

/// An IP packet of that upper layer message between two hosts.
pub(crate) fn ip(source: IpAddr, destination: IpAddr, protocol: u8, upper: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    match (source, destination) {
        (IpAddr::V4(s), IpAddr::V4(d)) => {
            packet.extend([0x45, 0x02]);
            packet.extend(((20 + upper.len()) as u16).to_be_bytes());
            packet.extend([0x12, 0xff, 0x40, 0, 63, protocol, 0, 0]);
            packet.extend(s.octets());
            packet.extend(d.octets());
            let sum = checksum(&packet);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(s), IpAddr::V6(d)) => {
            packet.extend([0x60, 0x21, 0x23, 0x45]);
            packet.extend((upper.len() as u16).to_be_bytes());
            packet.extend([protocol, 63]);
            packet.extend(s.octets());
            packet.extend(d.octets());
        }
        _ => panic!("two families"),
    }
    packet.extend(upper);
    packet
}

pub(crate) fn udp(ipv6: bool, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let (source, destination) = hosts(ipv6);
    ip(source, destination, UDP, &udp_between(source, destination, ports, payload))
}

pub(crate) fn udp_between(s: IpAddr, d: IpAddr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut upper = Vec::new();
    upper.extend(ports.0.to_be_bytes());
    upper.extend(ports.1.to_be_bytes());
    upper.extend(((8 + payload.len()) as u16).to_be_bytes());
    upper.extend([0, 0]);
    upper.extend(payload);
    let sum = checksum(&with_pseudo(s, d, UDP, &upper));
    upper[6..8].copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
    upper
}

pub(crate) fn tcp(ipv6: bool, sequence: u32, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let (source, destination) = hosts(ipv6);
    let mut upper = vec![0x9c, 0x40, 0, 80];
    upper.extend(sequence.to_be_bytes());
    upper.extend([1, 2, 3, 4, ((20 + options.len()) << 2) as u8, flags, 0x10, 0, 0, 0, 0, 0]);
    upper.extend(options);
    upper.extend(payload);
    let sum = checksum(&with_pseudo(source, destination, TCP, &upper));
    upper[16..18].copy_from_slice(&sum.to_be_bytes());
    ip(source, destination, TCP, &upper)
}

/// Payload that differs from octet to octet.
pub(crate) fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Returns `true` if the IPv4 header's checksum and that of TCP or UDP are right.
pub(crate) fn checksums_hold(packet: &[u8]) -> bool {
    let header = crate::header::Header::parse(packet).expect("a whole packet");
    let upper = &packet[header.transport..header.len];
    (header.ipv6 || checksum(&packet[..header.transport]) == 0)
        && checksum(&with_pseudo(header.source(), header.destination(), header.protocol, upper))
            == 0
}

/// The message behind its pseudo-header, octet by octet as the RFCs draw it.
pub(crate) fn with_pseudo(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    upper: &[u8],
) -> Vec<u8> {
    let mut octets = Vec::new();
    match (source, destination) {
        (IpAddr::V4(s), IpAddr::V4(d)) => {
            octets.extend(s.octets());
            octets.extend(d.octets());
            octets.extend([0, protocol]);
            octets.extend((upper.len() as u16).to_be_bytes());
        }
        (IpAddr::V6(s), IpAddr::V6(d)) => {
            octets.extend(s.octets());
            octets.extend(d.octets());
            octets.extend((upper.len() as u32).to_be_bytes());
            octets.extend([0, 0, 0, protocol]);
        }
        _ => panic!("two families"),
    }
    octets.extend(upper);
    octets
}

/// RFC 1071 without any cleverness.
pub(crate) fn checksum(octets: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in octets.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
