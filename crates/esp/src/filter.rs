//! The filter for traffic that belongs to no tunnel: explicit rules before the tunnels, and a default behind them.
//!
//! A packet goes by the first of these that covers it (RFC 4301 §4.4.1): what always passes ([`Always`]), the rules of
//! the filter in their order, the tunnels in theirs, the default of its family.

#![forbid(unsafe_code)]

use crate::plane::{PacketSummary, TrafficSelectors};
use policy::Selector;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Rules and defaults; the default value of this type touches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Filter {
    /// The default for IPv4.
    pub ipv4: DefaultAction,
    /// The default for IPv6.
    pub ipv6: DefaultAction,
    /// The first that covers a packet decides.
    pub rules: Vec<FilterRule>,
}

/// The decision about packets that no rule and no tunnel covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum DefaultAction {
    /// They pass in the clear.
    #[default]
    Permit,
    /// They are dropped.
    Deny,
}

/// Traffic that passes in the clear or not at all, whatever the tunnels say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FilterRule {
    /// For people.
    pub name: Option<String>,
    /// The decision about it.
    pub action: FilterAction,
    /// The direction of its packets.
    pub direction: Direction,
    /// Its traffic, as it leaves.
    pub traffic: TrafficSelectors,
}

/// The decision about packets that a rule covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum FilterAction {
    /// They pass in the clear.
    Bypass,
    /// They are dropped.
    Discard,
}

/// The direction of packets, seen from this side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Direction {
    /// From the remote side to the local one.
    In,
    /// From the local side to the remote one.
    Out,
    /// Either.
    #[default]
    Both,
}

/// The decisions of each part of a filter since it has been in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FilterCounts {
    /// Of each rule.
    pub rules: Vec<Tally>,
    /// IPv4 that was denied for want of a rule.
    pub denied_ipv4: Tally,
    /// IPv6 that was denied for want of a rule.
    pub denied_ipv6: Tally,
}

/// Packets and their octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Octets of the packets.
    pub bytes: u64,
}

/// A filter at work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FilterStatus {
    /// The filter in force.
    pub filter: Arc<Filter>,
    /// Its counters.
    pub counts: FilterCounts,
    /// Cleartext that should have been protected is dropped (RFC 4301 §5.2).
    pub inbound_guard: bool,
}

/// Traffic that passes before any rule is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Always {
    /// It does not leave the host.
    Loopback,
    /// IKE of this daemon, or ESP in UDP.
    Ike,
    /// ESP or AH to or from this daemon.
    Ipsec,
    /// Neighbour and router discovery, without which there is no IPv6.
    Neighbours,
    /// ICMP messages about the path MTU.
    PathMtu,
}

/// ICMPv6 by which neighbours, routers and the multicast groups of both are found (RFC 4861 §4, RFC 2710, RFC 3810).
pub const NEIGHBOURS: [u8; 9] = [130, 131, 132, 133, 134, 135, 136, 137, 143];

/// ICMPv6 Packet Too Big (RFC 4443 §3.2).
pub const PACKET_TOO_BIG: u8 = 2;

/// Type and code of ICMP "fragmentation needed" (RFC 1191 §4).
pub const FRAGMENTATION_NEEDED: u16 = 0x0304;

const ICMP: u8 = 1;
const UDP: u8 = 17;
const ESP: u8 = 50;
const AH: u8 = 51;
const ICMPV6: u8 = 58;
const IKE_PORT: u16 = 500;

impl Filter {
    /// Returns `true` if it leaves all traffic without a tunnel alone.
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// The rules that let pass what goes one way.
    pub fn bypasses(&self, way: Direction) -> impl Iterator<Item = &FilterRule> {
        self.rules
            .iter()
            .filter(move |rule| rule.action == FilterAction::Bypass && rule.direction.includes(way))
    }

    /// The default of a family of addresses.
    pub fn default_of(&self, address: IpAddr) -> DefaultAction {
        if address.is_ipv4() { self.ipv4 } else { self.ipv6 }
    }

    /// The place and the rule that decides about a packet that goes this way; [`Direction::Both`] finds none.
    pub fn first(&self, packet: &PacketSummary, way: Direction) -> Option<(usize, &FilterRule)> {
        self.rules.iter().enumerate().find(|(_, rule)| rule.covers(packet, way))
    }
}

impl FilterRule {
    /// Returns `true` if it decides about a packet that goes this way, unless an earlier one does.
    pub fn covers(&self, packet: &PacketSummary, way: Direction) -> bool {
        let PacketSummary { protocol, source, destination } = *packet;
        let (local, remote) = match way {
            Direction::Out => (source, destination),
            Direction::In => (destination, source),
            Direction::Both => return false,
        };
        self.direction.includes(way) && self.traffic.covers(protocol, local, remote)
    }

    /// Its title: its number, counted from 1, and its name.
    pub fn title(&self, place: usize) -> String {
        match &self.name {
            Some(name) => format!("rule {} ({name})", place + 1),
            None => format!("rule {}", place + 1),
        }
    }
}

impl Direction {
    /// Returns `true` if this direction includes that one.
    pub fn includes(self, way: Self) -> bool {
        self == Self::Both || self == way
    }
}

impl Always {
    /// The reason why a packet of this description always passes, with ESP in UDP on that port; `None` if the rules are
    /// asked.
    ///
    /// A packet from an IKE port passes only if this daemon sends it, which no description shows.
    pub fn of(packet: &PacketSummary, way: Direction, natt_port: u16) -> Option<Self> {
        let PacketSummary { protocol, source, destination } = *packet;
        let own = if way == Direction::In { destination } else { source };
        let kind = source.1;
        match protocol {
            _ if source.0.is_loopback() || destination.0.is_loopback() => Some(Self::Loopback),
            UDP if [Some(IKE_PORT), Some(natt_port)].contains(&own.1) => Some(Self::Ike),
            ESP | AH => Some(Self::Ipsec),
            ICMP if kind == Some(FRAGMENTATION_NEEDED) => Some(Self::PathMtu),
            ICMPV6 => match u8::try_from(kind? >> 8) {
                Ok(PACKET_TOO_BIG) => Some(Self::PathMtu),
                Ok(kind) if NEIGHBOURS.contains(&kind) => Some(Self::Neighbours),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns `true` if it passes only without a tunnel that protects it: an ICMP message about other traffic goes the
    /// way of that traffic.
    pub fn yields_to_tunnels(self) -> bool {
        self == Self::PathMtu
    }

    /// The reason in words.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Loopback => "it does not leave this host",
            Self::Ike => "IKE of vpnd itself, or ESP in UDP",
            Self::Ipsec => "ESP or AH of vpnd itself",
            Self::Neighbours => "IPv6 finds neighbours and routers by it",
            Self::PathMtu => "it tells how long packets may be",
        }
    }
}

impl DefaultAction {
    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Permit => "permit",
            Self::Deny => "deny",
        }
    }
}

impl FilterAction {
    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Discard => "discard",
        }
    }
}

impl Direction {
    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
            Self::Both => "both",
        }
    }
}

impl fmt::Display for FilterRule {
    /// As in `bypass both 10.1.0.0/24[tcp/22] <> any`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = match self.direction {
            Direction::In => "<",
            Direction::Out => ">",
            Direction::Both => "<>",
        };
        let TrafficSelectors { local, remote } = &self.traffic;
        write!(f, "{} {} {arrow} {}", self.action.name(), listed(local), listed(remote))
    }
}

/// Both families in full are "any", as people say.
pub(crate) fn listed(selectors: &[Selector]) -> String {
    let texts: Vec<String> = selectors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [four, six] if four.starts_with("0.0.0.0/0") && six.starts_with("::/0") => {
            format!("any{}", six.trim_start_matches("::/0"))
        }
        _ => texts.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{AddressRange, PortRange};
    use std::net::Ipv6Addr;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn packet(protocol: u8, from: (&str, u16), to: (&str, u16)) -> PacketSummary {
        let end = |(text, port): (&str, u16)| (address(text), (port > 0).then_some(port));
        PacketSummary { protocol, source: end(from), destination: end(to) }
    }

    fn ssh(direction: Direction) -> FilterRule {
        let of = |start, end, port: Option<u16>| Selector {
            protocol: 6,
            addresses: AddressRange::new(address(start), address(end)).expect("a range"),
            ports: port.map_or(PortRange::ANY, |p| PortRange::new(p, p).expect("a range")),
        };
        let last = Ipv6Addr::from_bits(u128::MAX).to_string();
        let both = |port| vec![of("0.0.0.0", "255.255.255.255", port), of("::", &last, port)];
        let traffic = TrafficSelectors { local: both(Some(22)), remote: both(None) };
        FilterRule {
            name: Some("ssh".to_owned()),
            action: FilterAction::Bypass,
            direction,
            traffic,
        }
    }

    #[test]
    fn a_rule_covers_both_ways_as_it_says() {
        let to = packet(6, ("192.0.2.9", 4000), ("192.0.2.1", 22));
        let from = packet(6, ("fd00::1", 22), ("fd00::2", 4000));
        for (direction, arrives, leaves) in [
            (Direction::Both, true, true),
            (Direction::In, true, false),
            (Direction::Out, false, true),
        ] {
            let rule = ssh(direction);
            assert_eq!(rule.covers(&to, Direction::In), arrives);
            assert_eq!(rule.covers(&from, Direction::Out), leaves);
            assert!(!rule.covers(&to, Direction::Out) && !rule.covers(&from, Direction::In));
        }
        assert!(!ssh(Direction::Both).covers(&packet(17, ("::1", 1), ("::1", 22)), Direction::In));
    }

    #[test]
    fn the_first_rule_decides() {
        let discard = FilterRule { action: FilterAction::Discard, ..ssh(Direction::In) };
        let rules = vec![discard, ssh(Direction::Both)];
        let filter = Filter { rules, ..Filter::default() };
        let to = packet(6, ("192.0.2.9", 4000), ("192.0.2.1", 22));
        let (place, rule) = filter.first(&to, Direction::In).expect("covered");
        assert_eq!((place, rule.action), (0, FilterAction::Discard));
        let from = packet(6, ("192.0.2.1", 22), ("192.0.2.9", 4000));
        assert_eq!(filter.first(&from, Direction::Out).expect("covered").0, 1);
        assert!(!filter.is_open() && Filter::default().is_open());
    }

    #[test]
    fn neighbour_discovery_ipsec_ike_and_loopback_always_pass() {
        let neighbour = packet(58, ("fe80::1", 135 << 8), ("ff02::1", 135 << 8));
        let echo = packet(58, ("fd00::1", 128 << 8), ("fd00::2", 128 << 8));
        let ike = packet(17, ("192.0.2.9", 3000), ("192.0.2.1", 4500));
        let always = |packet: &PacketSummary, way| Always::of(packet, way, 4500);
        for way in [Direction::In, Direction::Out] {
            assert_eq!(always(&neighbour, way), Some(Always::Neighbours));
            assert_eq!(always(&echo, way), None);
            let esp = packet(50, ("192.0.2.9", 0), ("192.0.2.1", 0));
            assert_eq!(always(&esp, way), Some(Always::Ipsec));
            let own = packet(6, ("127.0.0.1", 1), ("127.0.0.1", 2));
            assert_eq!(always(&own, way), Some(Always::Loopback));
        }
        assert_eq!(always(&ike, Direction::In), Some(Always::Ike));
        assert_eq!(always(&ike, Direction::Out), None);
    }

    #[test]
    fn reads_like_the_configuration() {
        assert_eq!(ssh(Direction::Both).to_string(), "bypass any[tcp/22] <> any[tcp]");
        assert_eq!(ssh(Direction::In).title(1), "rule 2 (ssh)");
    }
}
