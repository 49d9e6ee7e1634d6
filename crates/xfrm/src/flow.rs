//! Flows as the kernel's messages write them.

#![forbid(unsafe_code)]

pub use floor::flow::{End, Flow, Port};

use netlink_packet_xfrm::{AF_INET, AF_INET6, Address, Selector};
use std::net::IpAddr;

pub(super) const ICMPV6: u8 = 58;

/// A flow as it is written in messages.
pub(super) fn wire(flow: &Flow) -> Selector {
    let (source, destination) = (&flow.source, &flow.destination);
    Selector {
        daddr: Address::from_ip(&destination.address),
        saddr: Address::from_ip(&source.address),
        dport: destination.port.value,
        dport_mask: destination.port.mask,
        sport: source.port.value,
        sport_mask: source.port.mask,
        family: family(source.address),
        prefixlen_d: destination.length,
        prefixlen_s: source.length,
        proto: flow.protocol,
        ifindex: 0,
        user: 0,
    }
}

pub(super) fn family(address: IpAddr) -> u16 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

/// An address of a message, which does not say itself of which family it is.
pub(super) fn address(wire: &Address, family: u16) -> IpAddr {
    if family == AF_INET { wire.to_ipv4().into() } else { wire.to_ipv6().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_written_with_its_prefixes_and_ports() {
        let end = |address: &str, length, value, mask| End {
            address: address.parse().expect("address"),
            length,
            port: Port { value, mask },
        };
        let (source, destination) = (end("10.1.0.0", 16, 0, 0), end("10.2.0.7", 32, 443, 0xffff));
        let flow = Flow { source, destination, protocol: 6 };
        let there = wire(&flow);
        assert_eq!((there.prefixlen_s, there.prefixlen_d, there.proto), (16, 32, 6));
        let ports = (there.sport, there.sport_mask, there.dport, there.dport_mask);
        assert_eq!(ports, (0, 0, 443, 0xffff));
        let back = wire(&flow.reversed());
        assert_eq!((back.sport, back.sport_mask, back.dport_mask), (443, 0xffff, 0));
        assert_eq!(back.saddr.to_ipv4().to_string(), "10.2.0.7");
    }
}
