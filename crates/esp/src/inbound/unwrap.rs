//! The inner packet of an opened ESP packet: padding and next header, the inner packet in tunnel mode, a new IP header
//! in transport mode.

#![forbid(unsafe_code)]

use crate::discard::Discard;
use crate::header::{Fragment, Header};
use crate::ip::{self, IPIP, IPV6, NO_NEXT_HEADER};
use crate::plane::Encapsulation;
use crate::sa::Arrival;

/// Octets of the longest message that both families' length fields have room for.
const MAX_MESSAGE: usize = u16::MAX as usize - ip::IPV4_LEN;

/// Octets of payload, and the next header (RFC 4303 §2.4, §2.6).
#[inline(always)]
pub(super) fn trailer(plaintext: &[u8]) -> Result<(usize, u8), Discard> {
    let [body @ .., pad_len, next_header] = plaintext else { return Err(Discard::Padding) };
    let pad_len = usize::from(*pad_len);
    let payload = body.len().checked_sub(pad_len).ok_or(Discard::Padding)?;
    let counts_up = match body.last_chunk() {
        // No more than alignment takes: in one comparison.
        Some(last) if pad_len <= 3 => {
            let (right, mask) = (0x01_02_03 >> (24 - 8 * pad_len), (1 << (8 * pad_len)) - 1);
            u32::from_be_bytes(*last) & mask == right
        }
        _ => body[payload..].iter().zip(1..=u8::MAX).all(|(octet, n)| *octet == n),
    };
    if !counts_up {
        return Err(Discard::Padding);
    }
    if *next_header == NO_NEXT_HEADER {
        return Err(Discard::Dummy);
    }
    Ok((payload, *next_header))
}

/// Reads the inner packet; the octets behind it are padding for traffic flow confidentiality (RFC 4303 §2.7).
#[inline(always)]
pub(super) fn leave_tunnel(
    packet: &mut [u8],
    next_header: u8,
    arrival: &Arrival,
) -> Result<Header, Discard> {
    if next_header != IPIP && next_header != IPV6 {
        return Err(Discard::NextHeader);
    }
    let header = Header::parse(packet).ok_or(Discard::InboundMalformed)?;
    if header.ipv6 != (next_header == IPV6) {
        return Err(Discard::InboundMalformed);
    }
    if let Some(outer) = arrival.tos {
        let ecn = ip::leave_tunnel(header.tos, outer).ok_or(Discard::Congestion)?;
        if ecn != header.tos & 3 {
            ip::set_ecn(packet, ecn);
        }
    }
    Ok(header)
}

/// Puts a header in front of an upper layer message.
#[inline]
pub(super) fn rebuild(
    packet: &mut [u8],
    header_len: usize,
    protocol: u8,
    arrival: &Arrival,
) -> Result<Header, Discard> {
    let (source, destination) = (arrival.path.remote.ip(), arrival.path.local.ip());
    let (header, message) = packet.split_at_mut(header_len);
    if source.is_ipv4() != destination.is_ipv4() || message.len() > MAX_MESSAGE {
        return Err(Discard::InboundMalformed);
    }
    let tos = arrival.tos.unwrap_or(0);
    ip::write_header(header, source, destination, protocol, message.len(), tos, arrival.ttl);
    if arrival.path.encapsulation == Encapsulation::Udp {
        // RFC 3948 §3.1.2: addresses may have changed on the way, and the checksum covers them. ESP's integrity check
        // has vouched for the message itself.
        ip::rebuild_checksum(source, destination, protocol, message);
    }
    let header = Header::parse(packet).ok_or(Discard::InboundMalformed)?;
    if header.fragment != Fragment::Whole {
        return Err(Discard::InboundFragment);
    }
    Ok(header)
}
