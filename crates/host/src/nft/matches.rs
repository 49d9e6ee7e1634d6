//! The conditions of rules.

#![forbid(unsafe_code)]

use super::rule::{Rule, Statement};
use super::set::Key;
use crate::Prefix;
use crate::netlink::Family;
use policy::{AddressRange, PortRange};
use std::fmt;

/// A condition on a packet.
#[derive(Clone, Copy, Debug)]
pub enum Match<'a> {
    /// Its family of addresses.
    Family(Family),
    /// Its protocol is one of these; the extension headers of IPv6 are passed over.
    Protocol(&'a [u8]),
    /// The range of its source address.
    Source(AddressRange),
    /// The range of its destination address.
    Destination(AddressRange),
    /// The network of its destination address.
    DestinationIn(Prefix),
    /// The packet's source address is of this type.
    SourceIs(AddressType),
    /// The packet's destination address is of this type.
    DestinationIs(AddressType),
    /// Its source port, of any protocol with ports.
    SourcePort(PortRange),
    /// Its destination port, of any protocol with ports.
    DestinationPort(PortRange),
    /// UDP from one of these ports.
    UdpFrom(&'a [u16]),
    /// UDP to one of these ports.
    UdpTo(&'a [u16]),
    /// UDP with one of these pairs of source and destination port.
    UdpPorts(&'a [(u16, u16)]),
    /// Its time to live or hop limit.
    HopLimit(Family, u8),
    /// ICMP with this type and code.
    Icmp(u8, u8),
    /// ICMPv6 with one of these types.
    Icmpv6(&'a [u8]),
    /// A fragment other than the first.
    LaterFragment(Family),
    /// It comes from a socket of this user.
    User(u32),
    /// It comes from a socket of another user.
    OtherUser(u32),
    /// Its whole mark.
    Mark(u32),
    /// It has all of these bits in its mark.
    MarkBits(u32),
    /// It has come by the device of this name.
    CameBy(&'a str),
    /// It leaves by the device of this name.
    LeavesBy(&'a str),
    /// Whether it has come by a device, or this host has made it.
    HasDevice(bool),
    /// The kernel has opened it.
    Opened,
    /// The kernel is going to protect it.
    ToBeProtected,
    /// The key's fields of the packet are in the set of this name.
    Lookup(&'a Key, &'a str),
}

/// The type that the host's routes give to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressType {
    /// An address of this host.
    Local,
    /// The broadcast address of a network of this host.
    Broadcast,
}

impl Match<'_> {
    /// Adds a condition.
    pub fn and(self, condition: Match<'_>) -> Matches {
        Matches::default().and(self).and(condition)
    }

    /// The rule that does this with the packets.
    pub fn then(self, statement: Statement<'_>) -> Rule {
        Matches::default().and(self).then(statement)
    }
}

impl fmt::Display for Match<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Family(family) => write!(f, "meta nfproto {}", name_of(family)),
            Self::Protocol(numbers) => write!(f, "meta l4proto {}", OneOf(numbers)),
            Self::Source(range) => {
                write!(f, "{} saddr {}", header_of(range_family(range)), Range(range))
            }
            Self::Destination(range) => {
                write!(f, "{} daddr {}", header_of(range_family(range)), Range(range))
            }
            Self::DestinationIn(prefix) => {
                write!(f, "{} daddr {prefix}", header_of(Family::of(prefix.address)))
            }
            Self::SourceIs(kind) => write!(f, "fib saddr type {kind}"),
            Self::DestinationIs(kind) => write!(f, "fib daddr type {kind}"),
            Self::SourcePort(ports) => write!(f, "th sport {}-{}", ports.start(), ports.end()),
            Self::DestinationPort(ports) => write!(f, "th dport {}-{}", ports.start(), ports.end()),
            Self::UdpFrom(ports) => write!(f, "udp sport {}", OneOf(ports)),
            Self::UdpTo(ports) => write!(f, "udp dport {}", OneOf(ports)),
            Self::UdpPorts(pairs) => {
                let pairs: Vec<String> =
                    pairs.iter().map(|(from, to)| format!("{from} . {to}")).collect();
                write!(f, "udp sport . udp dport {}", OneOf(&pairs))
            }
            Self::HopLimit(Family::V4, limit) => write!(f, "ip ttl {limit}"),
            Self::HopLimit(Family::V6, limit) => write!(f, "ip6 hoplimit {limit}"),
            Self::Icmp(kind, code) => write!(f, "icmp type {kind} icmp code {code}"),
            Self::Icmpv6(kinds) => write!(f, "icmpv6 type {}", OneOf(kinds)),
            Self::LaterFragment(Family::V4) => f.write_str("ip frag-off & 0x1fff != 0"),
            Self::LaterFragment(Family::V6) => f.write_str("frag frag-off != 0"),
            Self::User(user) => write!(f, "meta skuid {user}"),
            Self::OtherUser(user) => write!(f, "meta skuid != {user}"),
            Self::Mark(mark) => write!(f, "meta mark {mark:#x}"),
            Self::MarkBits(bits) => write!(f, "meta mark and {bits:#x} == {bits:#x}"),
            Self::CameBy(device) => write!(f, "iifname {}", Name(device)),
            Self::LeavesBy(device) => write!(f, "oifname {}", Name(device)),
            Self::HasDevice(true) => f.write_str("iif != 0"),
            Self::HasDevice(false) => f.write_str("iif 0"),
            Self::Opened => f.write_str("meta ipsec exists"),
            Self::ToBeProtected => f.write_str("rt ipsec exists"),
            Self::Lookup(key, set) => write!(f, "{key} @{set}"),
        }
    }
}

impl fmt::Display for AddressType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Broadcast => "broadcast",
        })
    }
}

/// Conditions of which a packet has to meet all. They are ordered as their text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Matches(String);

impl Matches {
    /// Adds a condition.
    #[must_use]
    pub fn and(mut self, condition: Match<'_>) -> Self {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        self.0 += &condition.to_string();
        self
    }

    /// The rule that does this with the packets.
    pub fn then(self, statement: Statement<'_>) -> Rule {
        Rule::with(self.0, statement)
    }
}

impl<'a> FromIterator<Match<'a>> for Matches {
    fn from_iter<I: IntoIterator<Item = Match<'a>>>(conditions: I) -> Self {
        conditions.into_iter().fold(Self::default(), Self::and)
    }
}

impl fmt::Display for Matches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A value, or a set of several ones without a name.
struct OneOf<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for OneOf<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [value] = self.0 {
            return write!(f, "{value}");
        }
        f.write_str("{ ")?;
        for (place, value) in self.0.iter().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            write!(f, "{separator}{value}")?;
        }
        f.write_str(" }")
    }
}

/// The name of a device. nftables takes a star at its end for any end of a name, unless a backslash is before it.
struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.strip_suffix('*') {
            Some(begin) => write!(f, "\"{begin}\\*\""),
            None => write!(f, "\"{}\"", self.0),
        }
    }
}

/// The addresses of a range, both ends of which nftables takes.
struct Range(AddressRange);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end) = (self.0.start(), self.0.end());
        if start == end { write!(f, "{start}") } else { write!(f, "{start}-{end}") }
    }
}

fn range_family(range: AddressRange) -> Family {
    Family::of(range.start())
}

/// The name of a family among the values of `meta nfproto`.
fn name_of(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

/// The name of a family's header.
pub(super) fn header_of(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_device_stands_for_no_other_device() {
        let text = |condition: Match<'_>| condition.to_string();
        assert_eq!(text(Match::LeavesBy("vpn0")), "oifname \"vpn0\"");
        assert_eq!(text(Match::LeavesBy("vpn*")), "oifname \"vpn\\*\"");
        assert_eq!(text(Match::CameBy("v*n")), "iifname \"v*n\"");
    }

    #[test]
    fn one_value_has_no_braces() {
        assert_eq!(Match::UdpTo(&[500]).to_string(), "udp dport 500");
        assert_eq!(Match::UdpTo(&[500, 4500]).to_string(), "udp dport { 500, 4500 }");
        assert_eq!(Match::UdpPorts(&[(68, 67)]).to_string(), "udp sport . udp dport 68 . 67");
    }
}
