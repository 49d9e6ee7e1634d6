//! TSi and TSr (RFC 7296 §3.13).

use super::TrafficSelector;
use crate::wire::reader::{LengthField, Reader, WireError};
use crate::wire::registry::TsType;
use policy::{AddressRange, PortRange, Selector};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// RFC 7296 §3.13.1: start and end port where the port must be unknown.
const OPAQUE: (u16, u16) = (65535, 0);

pub(super) fn read(body: &[u8]) -> Result<Vec<TrafficSelector>, WireError> {
    let mut reader = Reader::new(body, "TS payload");
    let count = reader.u8()?;
    reader.take(3)?;
    if count == 0 {
        return Err(WireError::Malformed("TS payload: it has no selector"));
    }
    let selectors = (0..count).map(|_| read_one(&mut reader)).collect::<Result<_, _>>()?;
    reader.finish()?;
    Ok(selectors)
}

pub(super) fn write(selectors: &[TrafficSelector], out: &mut Vec<u8>) {
    let count = u8::try_from(selectors.len()).expect("a TS payload has at most 255 selectors");
    out.extend_from_slice(&[count, 0, 0, 0]);
    for selector in selectors {
        write_one(selector, out);
    }
}

fn read_one(reader: &mut Reader<'_>) -> Result<TrafficSelector, WireError> {
    let kind = TsType(reader.u8()?);
    let protocol = reader.u8()?;
    let len = reader.u16()?;
    let mut body = Reader::new(reader.body(len, 4)?, "traffic selector");
    if kind != TsType::IPV4_ADDR_RANGE && kind != TsType::IPV6_ADDR_RANGE {
        return Ok(TrafficSelector::Unsupported { kind: kind.0 });
    }
    let ports = (body.u16()?, body.u16()?);
    let (start, end) = if kind == TsType::IPV4_ADDR_RANGE {
        (IpAddr::from(body.array::<4>()?), IpAddr::from(body.array::<4>()?))
    } else {
        (IpAddr::from(body.array::<16>()?), IpAddr::from(body.array::<16>()?))
    };
    body.finish()?;
    let addresses = AddressRange::new(start, end)
        .ok_or(WireError::Malformed("traffic selector: addresses in the wrong order"))?;
    if ports == OPAQUE {
        return Ok(TrafficSelector::Unsupported { kind: kind.0 });
    }
    let ports = PortRange::new(ports.0, ports.1)
        .ok_or(WireError::Malformed("traffic selector: ports in the wrong order"))?;
    Ok(TrafficSelector::Range(Selector { protocol, addresses, ports }))
}

fn write_one(selector: &TrafficSelector, out: &mut Vec<u8>) {
    let at = out.len();
    let (kind, protocol, range) = match selector {
        TrafficSelector::Range(s) => {
            let kind = match s.addresses.start() {
                IpAddr::V4(_) => TsType::IPV4_ADDR_RANGE,
                IpAddr::V6(_) => TsType::IPV6_ADDR_RANGE,
            };
            let ports = (s.ports.start(), s.ports.end());
            (kind, s.protocol, Some((ports, s.addresses.start(), s.addresses.end())))
        }
        TrafficSelector::Unsupported { kind } => (TsType(*kind), 0, opaque(TsType(*kind))),
    };
    out.extend_from_slice(&[kind.0, protocol]);
    let len = LengthField::reserve(out, at);
    if let Some((ports, start, end)) = range {
        out.extend_from_slice(&ports.0.to_be_bytes());
        out.extend_from_slice(&ports.1.to_be_bytes());
        for address in [start, end] {
            match address {
                IpAddr::V4(a) => out.extend_from_slice(&a.octets()),
                IpAddr::V6(a) => out.extend_from_slice(&a.octets()),
            }
        }
    }
    len.fill(out);
}

/// All addresses with OPAQUE ports, where the type is one with addresses and ports.
fn opaque(kind: TsType) -> Option<((u16, u16), IpAddr, IpAddr)> {
    let (start, end): (IpAddr, IpAddr) = match kind {
        TsType::IPV4_ADDR_RANGE => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()),
        TsType::IPV6_ADDR_RANGE => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from(u128::MAX).into()),
        _ => return None,
    };
    Some((OPAQUE, start, end))
}
