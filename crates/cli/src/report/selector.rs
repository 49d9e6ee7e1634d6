//! Traffic selectors as people write them.

use policy::{AddressRange, PortRange, Selector};
use std::net::IpAddr;

/// A selector with prefixes and names where they fit: `10.1.0.0/16[tcp/443]`, `10.0.0.5-10.0.0.9`.
pub fn selector(selector: &Selector) -> String {
    let mut text = addresses(&selector.addresses);
    if selector.protocol != 0 || selector.ports != PortRange::ANY {
        text.push('[');
        match selector.protocol {
            0 => text.push_str("any"),
            1 => text.push_str("icmp"),
            6 => text.push_str("tcp"),
            17 => text.push_str("udp"),
            58 => text.push_str("icmpv6"),
            132 => text.push_str("sctp"),
            number => text.push_str(&number.to_string()),
        }
        if selector.ports != PortRange::ANY {
            text.push_str(&format!("/{}", selector.ports.start()));
            if selector.ports.start() != selector.ports.end() {
                text.push_str(&format!("-{}", selector.ports.end()));
            }
        }
        text.push(']');
    }
    text
}

fn addresses(range: &AddressRange) -> String {
    let (start, end, bits) = match (range.start(), range.end()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return range.to_string(),
    };
    // A prefix is a range whose two ends differ in the low bits only, all clear in one and all set in the other.
    let host = start ^ end;
    if start == end || host & host.wrapping_add(1) != 0 || start & host != 0 {
        return range.to_string();
    }
    format!("{}/{}", range.start(), bits - host.count_ones())
}
