//! The flows that are guarded, as sets of nftables: how many there are costs a packet nothing, and one comes or goes alone.
//!
//! Flows of one shape share a set, in which a packet's addresses, ports and mark are looked up under the shape's masks. As
//! with the kernel's own policies there are few shapes, however many tunnels; and sets of single values may overlap.

#![forbid(unsafe_code)]

use super::Manner;
use esp::plane::{PlaneError, TrafficSelectors};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use xfrm::Flow;

/// Takes what packets have in common whose policies are in force.
pub(super) const PROTECTED: &str = "protected";
/// Takes those that a card is going to protect, and that have been seen with their policy.
pub(super) const HANDED: &str = "handed";
/// Takes the rest.
pub(super) const UNPROTECTED: &str = "unprotected";

/// The bit of the mark by which a packet is known again that comes a second time on its way to a card.
const SEEN: u32 = 1 << 31;

/// Which bits of a packet say whether it belongs to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    ipv4: bool,
    lengths: [u8; 2],
    /// 0 is any.
    protocol: u8,
    ports: [u16; 2],
    mark: u32,
    by_card: bool,
}

/// A flow: its shape, and what the bits are, as an element of the shape's set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Member(Shape, String);

/// All flows, and how many rules want each.
pub(super) struct Sets {
    table: String,
    wanted: BTreeMap<Shape, BTreeMap<String, usize>>,
}

impl Member {
    /// The flows of a rule's traffic that leaves.
    ///
    /// # Errors
    /// Where they are more than the kernel takes.
    pub(super) fn all(traffic: &TrafficSelectors, manner: Manner) -> Result<Vec<Self>, PlaneError> {
        Ok(Flow::leaving(traffic)?.iter().map(|flow| Self::of(flow, manner)).collect())
    }

    fn of(flow: &Flow, manner: Manner) -> Self {
        let (source, destination) = (&flow.source, &flow.destination);
        let [sport, dport] = flow.ports();
        let (mark, mask) = manner.mark.unwrap_or_default();
        let shape = Shape {
            ipv4: source.address.is_ipv4(),
            lengths: [source.length, destination.length],
            protocol: flow.protocol,
            ports: [sport.mask, dport.mask],
            mark: mask,
            by_card: manner.by_card,
        };
        let mut element = format!("{} . {}", source.address, destination.address);
        // Writing to a String cannot fail.
        for port in [sport, dport].iter().filter(|port| port.mask != 0) {
            let _ = write!(element, " . {}", port.value & port.mask);
        }
        if mask != 0 {
            let _ = write!(element, " . {:#x}", mark & mask);
        }
        Self(shape, element)
    }
}

impl Sets {
    pub(super) fn new(table: &str) -> Self {
        Self { table: table.to_owned(), wanted: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// One rule more wants a flow: what nftables is to be told.
    pub(super) fn add(&mut self, Member(shape, element): &Member) -> String {
        let first = !self.wanted.contains_key(shape);
        let count = self.wanted.entry(*shape).or_default().entry(element.clone()).or_default();
        *count += 1;
        match (first, *count) {
            (true, _) => self.shape(shape) + &self.elements(shape, element),
            (false, 1) => self.elements(shape, element),
            (false, _) => String::new(),
        }
    }

    /// One rule less wants a flow: what nftables is to be told; `None` where the table is to be made anew.
    pub(super) fn remove(&mut self, Member(shape, element): &Member) -> Option<String> {
        let elements = self.wanted.get_mut(shape)?;
        let count = elements.get_mut(element)?;
        *count -= 1;
        if *count > 0 {
            return Some(String::new());
        }
        elements.remove(element);
        if elements.is_empty() {
            // With its set go the rules that name it.
            self.wanted.remove(shape);
            return None;
        }
        Some(format!("delete element inet {} {} {{ {element} }}\n", self.table, shape.name()))
    }

    /// All of it, for a table without any.
    pub(super) fn all(&self) -> String {
        let whole = |(shape, elements): (&Shape, &BTreeMap<String, usize>)| {
            let elements: Vec<&str> = elements.keys().map(String::as_str).collect();
            self.shape(shape) + &self.elements(shape, &elements.join(", "))
        };
        self.wanted.iter().map(whole).collect()
    }

    fn elements(&self, shape: &Shape, elements: &str) -> String {
        format!("add element inet {} {} {{ {elements} }}\n", self.table, shape.name())
    }

    /// A set, and the rules that look into it.
    fn shape(&self, shape: &Shape) -> String {
        let (table, set) = (&self.table, shape.name());
        let (kinds, key) = shape.key();
        let rule = |chain: &str, then: &str| {
            format!("add rule inet {table} {chain} {key} @{set} {then}\n")
        };
        let mut script = format!("add set inet {table} {set} {{ type {kinds}; }}\n");
        if shape.by_card {
            let (set, clear) = (format!("meta mark or {SEEN:#x}"), !SEEN);
            script += &rule(PROTECTED, &format!("meta mark set {set}"));
            script += &rule(
                HANDED,
                &format!(
                    "meta mark and {SEEN:#x} == {SEEN:#x} meta mark set meta mark and {clear:#x} accept"
                ),
            );
        }
        script + &rule(UNPROTECTED, "counter drop")
    }
}

impl Shape {
    fn name(&self) -> String {
        let family = if self.ipv4 { "ip" } else { "ip6" };
        let [source, destination] = self.lengths;
        let mut name = format!("{family}_{source}_{destination}");
        let [sport, dport] = self.ports;
        for (what, value) in [
            ("proto", self.protocol.into()),
            ("sport", u32::from(sport)),
            ("dport", dport.into()),
            ("mark", self.mark),
        ] {
            if value != 0 {
                let _ = write!(name, "_{what}_{value:x}");
            }
        }
        if self.by_card { name + "_card" } else { name }
    }

    /// The types of the set's fields, and what of a packet is looked up.
    fn key(&self) -> (String, String) {
        let (family, address) = match self.ipv4 {
            true => ("ip", "ipv4_addr"),
            false => ("ip6", "ipv6_addr"),
        };
        let [source, destination] = self.lengths.map(|length| mask(self.ipv4, length));
        let mut kinds = format!("{address} . {address}");
        let mut key = format!("{family} saddr & {source} . {family} daddr & {destination}");
        let [sport, dport] = self.ports.map(u32::from);
        for (kind, field, mask) in [
            ("inet_service", "th sport", sport),
            ("inet_service", "th dport", dport),
            ("mark", "meta mark", self.mark),
        ] {
            if mask != 0 {
                let _ = write!(kinds, " . {kind}");
                let _ = write!(key, " . {field} & {mask:#x}");
            }
        }
        match self.protocol {
            0 => (kinds, key),
            protocol => (kinds, format!("meta l4proto {protocol} {key}")),
        }
    }
}

fn mask(ipv4: bool, length: u8) -> IpAddr {
    let host = |width: u8| u32::from(width.saturating_sub(length));
    match ipv4 {
        true => Ipv4Addr::from_bits(u32::MAX.checked_shl(host(32)).unwrap_or(0)).into(),
        false => Ipv6Addr::from_bits(u128::MAX.checked_shl(host(128)).unwrap_or(0)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{AddressRange, PortRange, Selector};

    fn selector(start: &str, end: &str, protocol: u8, ports: (u16, u16)) -> Selector {
        let (start, end) = (start.parse().expect("address"), end.parse().expect("address"));
        let addresses = AddressRange::new(start, end).expect("range");
        Selector { protocol, addresses, ports: PortRange::new(ports.0, ports.1).expect("range") }
    }

    const ANY: (u16, u16) = (0, u16::MAX);
    const PLAIN: Manner = Manner { mark: None, by_card: false };

    fn members(local: Selector, remote: Selector, manner: Manner) -> Vec<Member> {
        let traffic = TrafficSelectors { local: vec![local], remote: vec![remote] };
        Member::all(&traffic, manner).expect("few flows")
    }

    fn nets(remote: &str, manner: Manner) -> Vec<Member> {
        let end = remote.replace(".0", ".255");
        members(selector("10.1.0.1", "10.1.0.1", 0, ANY), selector(remote, &end, 0, ANY), manner)
    }

    #[test]
    fn flows_of_one_shape_share_a_set_and_come_and_go_alone() {
        let mut sets = Sets::new("g");
        let [first] = &nets("10.2.1.0", PLAIN)[..] else { panic!("one prefix") };
        let [second] = &nets("10.2.2.0", PLAIN)[..] else { panic!("one prefix") };
        let of_first = "add element inet g ip_32_24 { 10.1.0.1 . 10.2.1.0 }\n";
        assert_eq!(
            sets.add(first),
            format!(
                "add set inet g ip_32_24 {{ type ipv4_addr . ipv4_addr; }}\n\
                 add rule inet g unprotected ip saddr & 255.255.255.255 . ip daddr & 255.255.255.0 @ip_32_24 \
                 counter drop\n{of_first}"
            )
        );
        assert_eq!(sets.add(second), of_first.replace(".2.1.", ".2.2."));
        assert_eq!(sets.add(first), "", "it is there already");
        assert_eq!(sets.remove(first).as_deref(), Some(""), "another rule wants it");
        assert_eq!(sets.remove(first), Some(of_first.replace("add", "delete")));
        let all = sets.all();
        assert!(all.ends_with(&of_first.replace(".2.1.", ".2.2.")), "{all}");
        assert_eq!(sets.remove(second), None, "the set goes, too");
        assert!(sets.is_empty());
    }

    #[test]
    fn a_card_s_packets_are_known_again() {
        let mut sets = Sets::new("g");
        let [flow] = &nets("10.2.1.0", Manner { by_card: true, ..PLAIN })[..] else {
            panic!("one")
        };
        let script = sets.add(flow);
        let rules: Vec<&str> = script.lines().filter(|line| line.contains("_card ")).collect();
        let [_, protected, handed, unprotected, _] = rules[..] else { panic!("{script}") };
        assert!(
            protected.ends_with("@ip_32_24_card meta mark set meta mark or 0x80000000"),
            "{protected}"
        );
        assert!(handed.ends_with("meta mark set meta mark and 0x7fffffff accept"), "{handed}");
        assert!(unprotected.ends_with("counter drop"), "{unprotected}");
    }

    #[test]
    fn protocols_ports_types_and_marks_are_looked_up_under_masks() {
        let told = |local: Selector, remote: Selector, mark| {
            let manner = Manner { mark, by_card: false };
            let mut sets = Sets::new("g");
            members(local, remote, manner).iter().map(|member| sets.add(member)).collect::<String>()
        };
        let web = told(
            selector("fd01::1", "fd01::1", 6, (80, 81)),
            selector("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 6, ANY),
            Some((0x2011, 0xff)),
        );
        let name = "ip6_128_0_proto_6_sport_fffe_mark_ff";
        assert!(
            web.contains(&format!(
                "{name} {{ type ipv6_addr . ipv6_addr . inet_service . mark; }}"
            )),
            "{web}"
        );
        let key = "meta l4proto 6 ip6 saddr & ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff . ip6 daddr & :: . \
                   th sport & 0xfffe . meta mark & 0xff";
        assert!(web.contains(&format!("unprotected {key} @{name} counter drop")), "{web}");
        assert!(web.contains(&format!("{name} {{ fd01::1 . :: . 80 . 0x11 }}")), "{web}");

        let echo = told(
            selector("10.1.0.1", "10.1.0.1", 1, (8 << 8, (8 << 8) + 255)),
            selector("10.2.0.1", "10.2.0.1", 1, ANY),
            None,
        );
        assert!(echo.contains(". th sport & 0xff00 @"), "{echo}");
        assert!(echo.contains("{ 10.1.0.1 . 10.2.0.1 . 2048 }"), "{echo}");
    }
}
