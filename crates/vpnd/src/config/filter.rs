//! `[filter]`: what happens to traffic that is no tunnel's.

use crate::view;
use control::protocol::DefaultAction;
use esp::filter::{self, Filter, FilterAction, FilterRule};
use esp::plane::TrafficSelectors;
use policy::{AddressRange, PortRange, Selector};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use settings::word;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

settings::section! {
    /// `[filter]`: traffic outside of tunnels.
    pub struct FilterSection = "filter" {
        /// Traffic outside of tunnels (docs/operate/filter.md). "vpnctl reload" puts a change of this section in force.
        /// Packets that no rule below and no tunnel covers: "permit" (they pass in the clear) or "deny" (they are dropped, on all
        /// interfaces of this host: give ssh a rule first).
        pub ipv4: DefaultAction = DefaultAction::default(), written word, applies Reload;
        pub ipv6: DefaultAction = DefaultAction::default(), written word, applies Reload;
        /// File of "mkfilt" and "vpnctl filter ... --persist". Its values override the two above.
        pub file: PathBuf = PathBuf::from("/var/lib/vpnd/filter.toml"), applies Reload;
        /// The traffic of the tunnels when SIGTERM ends vpnd, as "systemctl stop" and "systemctl restart" do: "release" (it takes
        /// the host's other routes, in the clear) or "block" (it stays blocked until the next start, or until "vpnd release").
        pub on_stop: OnStop = OnStop::default(), written word, applies Reload;
        /// Whether vpnd starts if nftables is missing, or refuses the guard that keeps the tunnels' traffic from leaving in the
        /// clear: "wanted" (with a warning) or "required" (it does not start).
        pub guard: GuardNeed = GuardNeed::default(), written word, applies Reload;
    }
    tables {
        /// `[[filter.rule]]`, in the order in which they are asked.
        pub rule: Vec<Rule>
    }
    after {
        /// Rules come before the tunnels, in their order; the first rule that covers a packet decides. An example:
        ///   [[filter.rule]]
        ///   name = "ssh"
        ///   action = "bypass"            # or "discard": dropped. Either counts even if a tunnel covers the packet.
        ///   direction = "both"           # or "in", "out"
        ///   local = "any"                # this side: an address, a prefix such as "10.1.0.0/16", "10.0.0.5-10.0.0.9", or "any"
        ///   remote = "192.0.2.0/24"      # the other side
        ///   protocol = "tcp"             # a name, a number, or "any"
        ///   local_port = 22              # or "1000-2000", or "any"
        ///   remote_port = "any"
        /// Only "action" is required.
    }
}

/// The way of the tunnels' traffic after SIGTERM has ended the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnStop {
    /// It takes the host's other routes.
    #[default]
    Release,
    /// It stays blocked until the next start.
    Block,
}

/// Whether the daemon starts on a host where nftables refuses the guard, or is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuardNeed {
    /// It does, with a warning.
    #[default]
    Wanted,
    /// It does not.
    Required,
}

/// A rule whose fields go together.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Written")]
pub struct Rule(pub FilterRule);

/// A rule as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: Option<String>,
    action: Action,
    #[serde(default)]
    direction: Direction,
    #[serde(default)]
    local: Addresses,
    #[serde(default)]
    remote: Addresses,
    #[serde(default)]
    protocol: Protocol,
    #[serde(default)]
    local_port: Ports,
    #[serde(default)]
    remote_port: Ports,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Bypass,
    Discard,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    In,
    Out,
    #[default]
    Both,
}

/// `None`: any of both families.
#[derive(Default)]
pub(super) struct Addresses(pub Option<AddressRange>);

/// 0: any.
#[derive(Default)]
pub(super) struct Protocol(pub u8);

pub(super) struct Ports(pub PortRange);

impl Ports {
    pub fn is_any(&self) -> bool {
        self.0 == PortRange::ANY
    }
}

impl Default for Ports {
    fn default() -> Self {
        Self(PortRange::ANY)
    }
}

impl FilterSection {
    /// The filter that this section describes.
    pub fn filter(&self) -> Filter {
        Filter {
            ipv4: view::default_action(self.ipv4),
            ipv6: view::default_action(self.ipv6),
            rules: self.rule.iter().map(|rule| rule.0.clone()).collect(),
        }
    }
}

impl TryFrom<Written> for Rule {
    type Error = String;

    fn try_from(rule: Written) -> Result<Self, String> {
        let Written { name, action, direction, local, remote, protocol, local_port, remote_port } =
            rule;
        let has_ports = matches!(protocol.0, 6 | 17 | 33 | 132 | 136);
        if !has_ports && [&local_port, &remote_port].iter().any(|p| !p.is_any()) {
            return Err(
                "ports need a protocol that has them: tcp, udp, sctp, dccp or udplite".to_owned()
            );
        }
        let mut families =
            families(local.0, remote.0).ok_or("local and remote are of two families")?;
        match protocol.0 {
            ICMP => families.retain(|family| family.start().is_ipv4()),
            ICMPV6 => families.retain(|family| family.start().is_ipv6()),
            _ => {}
        }
        if families.is_empty() {
            return Err("icmp is of IPv4 and icmpv6 of IPv6; the addresses are not".to_owned());
        }
        let side = |addresses: Addresses, ports: Ports| -> Vec<Selector> {
            let of = |whole: &AddressRange| Selector {
                protocol: protocol.0,
                addresses: addresses.0.unwrap_or(*whole),
                ports: ports.0,
            };
            families.iter().map(of).collect()
        };
        let traffic =
            TrafficSelectors { local: side(local, local_port), remote: side(remote, remote_port) };
        let action = match action {
            Action::Bypass => FilterAction::Bypass,
            Action::Discard => FilterAction::Discard,
        };
        let direction = match direction {
            Direction::In => filter::Direction::In,
            Direction::Out => filter::Direction::Out,
            Direction::Both => filter::Direction::Both,
        };
        Ok(Self(FilterRule { name, action, direction, traffic }))
    }
}

/// All addresses of a family.
pub(super) fn whole(ipv4: bool) -> AddressRange {
    let (first, last): (IpAddr, IpAddr) = if ipv4 {
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into())
    } else {
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from_bits(u128::MAX).into())
    };
    AddressRange::new(first, last).expect("in order, and of one family")
}

/// All addresses of each family that a rule is about.
fn families(
    local: Option<AddressRange>,
    remote: Option<AddressRange>,
) -> Option<Vec<AddressRange>> {
    let ipv4 = |range: AddressRange| range.start().is_ipv4();
    match (local.map(ipv4), remote.map(ipv4)) {
        (Some(a), Some(b)) if a != b => None,
        (Some(family), _) | (None, Some(family)) => Some(vec![whole(family)]),
        (None, None) => Some(vec![whole(true), whole(false)]),
    }
}

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        addresses_of(&String::deserialize(deserializer)?)
    }
}

/// Reads `any`, an address, a prefix or two ends.
pub(super) fn addresses_of<E: Error>(text: &str) -> Result<Addresses, E> {
    if text == "any" {
        return Ok(Addresses(None));
    }
    range(text).map(|range| Addresses(Some(range))).ok_or_else(|| {
        E::custom(format!(
            "{text:?} is no range of addresses; write \"any\", \"192.0.2.7\", \"10.1.0.0/16\", \"fd01::/64\" or \
             \"10.0.0.5-10.0.0.9\""
        ))
    })
}

/// An address, a prefix or two ends.
fn range(text: &str) -> Option<AddressRange> {
    if let Some((first, last)) = text.split_once('-') {
        return AddressRange::new(first.trim().parse().ok()?, last.trim().parse().ok()?);
    }
    let Some((address, length)) = text.split_once('/') else {
        return text.parse::<IpAddr>().ok().map(AddressRange::from);
    };
    let length: u32 = length.parse().ok()?;
    let address: IpAddr = address.parse().ok()?;
    AddressRange::subnet(address, length).filter(|subnet| subnet.start() == address)
}

/// A value that may be written as a number or as text.
struct Word<T> {
    expected: &'static str,
    read: fn(&str) -> Option<T>,
}

impl<T> Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.read)(text).ok_or_else(|| E::custom(format!("{text:?} is not {}", self.expected)))
    }
}

impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Word {
            expected: "a protocol; write \"any\", a name such as \"tcp\" or a number from 1 to 255",
            read: |text| match text {
                "any" => Some(Self(0)),
                text => esp::trace::protocol(text).filter(|number| *number > 0).map(Self),
            },
        })
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Word {
            expected: "a range of ports; write 22, \"22\", \"1000-2000\" or \"any\"",
            read: |text| {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let range = || PortRange::new(first.parse().ok()?, last.parse().ok()?);
                if text == "any" { Some(PortRange::ANY) } else { range() }.map(Self)
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::path::Path;

    fn read(text: &str) -> Result<Filter, String> {
        let config = Config::parse(Path::new("vpnd.toml"), text);
        config.map(|config| config.filter.filter()).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_is_filtered_by_default() {
        assert!(read("").expect("valid").is_open());
        assert!(read("[filter]\nipv4 = \"permit\"\n").expect("valid").is_open());
    }

    #[test]
    fn rules_are_read() {
        let filter = read(
            "[filter]\nipv4 = \"deny\"\n\
             [[filter.rule]]\nname = \"ssh\"\naction = \"bypass\"\nprotocol = \"tcp\"\nlocal_port = 22\n\
             [[filter.rule]]\naction = \"discard\"\ndirection = \"out\"\nremote = \"10.0.0.0/8\"\n\
             [[filter.rule]]\naction = \"bypass\"\nprotocol = 47\nlocal = \"fd01::1\"\n\
             [[filter.rule]]\naction = \"bypass\"\nprotocol = \"icmpv6\"\n\
             [[filter.rule]]\naction = \"discard\"\nprotocol = \"udp\"\nremote = \"10.0.0.5-10.0.0.9\"\nremote_port = \"1-9\"\n",
        )
        .expect("valid");
        let rules: Vec<String> = filter.rules.iter().map(ToString::to_string).collect();
        assert_eq!(
            rules,
            [
                "bypass any[tcp/22] <> any[tcp]",
                "discard 0.0.0.0/0 > 10.0.0.0/8",
                "bypass fd01::1[47] <> ::/0[47]",
                "bypass ::/0[icmpv6] <> ::/0[icmpv6]",
                "discard 0.0.0.0/0[udp] <> 10.0.0.5-10.0.0.9[udp/1-9]",
            ]
        );
        assert_eq!(filter.rules[0].name.as_deref(), Some("ssh"));
        assert_eq!((filter.ipv4.name(), filter.ipv6.name()), ("deny", "permit"));
    }

    #[test]
    fn the_example_in_the_shipped_file_is_valid() {
        let text = include_str!("../../../../config/vpnd.toml");
        let example: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
        let filter = read(&example.join("\n")).expect("valid");
        assert_eq!(filter.rules[0].to_string(), "bypass 0.0.0.0/0[tcp/22] <> 192.0.2.0/24[tcp]");
    }

    #[test]
    fn errors_say_where_and_what_to_write() {
        let rule = "[[filter.rule]]\naction = \"bypass\"\n";
        for (text, why) in [
            ("[filter]\nipv4 = \"block\"\n".to_owned(), "expected `permit` or `deny`"),
            (format!("{rule}local = \"10.1.0.1/16\"\n"), "no range of addresses; write \"any\""),
            (format!("{rule}local = \"10.1.0.0/33\"\n"), "no range of addresses"),
            (format!("{rule}local = \"10.0.0.9-10.0.0.5\"\n"), "no range of addresses"),
            (format!("{rule}local = \"10.0.0.9\"\nremote = \"fd00::1\"\n"), "two families"),
            (format!("{rule}local = \"fd00::1\"\nprotocol = \"icmp\"\n"), "icmpv6 of IPv6"),
            (format!("{rule}local_port = 22\n"), "ports need a protocol that has them"),
            (format!("{rule}protocol = \"tpc\"\n"), "a name such as \"tcp\""),
            (format!("{rule}protocol = 256\n"), "a number from 1 to 255"),
            (format!("{rule}protocol = \"tcp\"\nlocal_port = \"9-1\"\n"), "a range of ports"),
            (format!("{rule}port = 22\n"), "unknown field `port`"),
            ("[[filter.rule]]\n".to_owned(), "missing field `action`"),
        ] {
            let error = read(&text).expect_err(&text);
            assert!(
                error.contains(why) && error.contains("vpnd.toml: TOML parse error at line"),
                "{error}"
            );
        }
    }
}
