//! The guarded flows as sets of nftables. The cost for a packet does not depend on the number of flows, and a single
//! flow can be added and removed.
//!
//! Flows of one shape share a set: a packet's addresses, ports and mark are looked up there under the shape's masks.
//! Even many tunnels have few shapes, as with the kernel's own policies. Sets of single values may overlap.
//!
//! Traffic that takes too many flows, such as long ranges of addresses, gets a rule of its own instead.

#![forbid(unsafe_code)]

use super::GuardedTraffic;
use esp::plane::TrafficSelectors;
use host::nft;
use policy::{AddressRange, Selector};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use xfrm::Flow;

/// The chains for packets whose policies are in force: before and after the translation of addresses.
pub(super) const PROTECTED: [&str; 2] = ["protected_before", "protected_after"];
/// The chains for packets that pass a second time, on their way to a card: before and after the translation of
/// addresses.
pub(super) const HANDED: [&str; 2] = ["handed_before", "handed_after"];

/// The chain for packets of this host that a device has made, such as those of a GRE tunnel: nftables names this device
/// as the one by which they have come.
pub(super) const OWN_BY_DEVICE: &str = "own_by_device";

/// The chain for packets that have come by no device: those that this host itself sends are unprotected.
pub(super) const SENT_HERE: &str = "sent_here";

/// The chain for packets that had a transformation of the kernel, and lost it with the translation of an address.
/// nftables sees their destination alone.
pub(super) const LOST: &str = "lost";

/// The counter of the packets that [`LOST`] has dropped.
pub(super) const TRANSLATED: &str = "translated_leaving";

/// The bit of the mark of a tunnel's packet that the kernel protects, between the translation of addresses and the end.
/// A packet on its way to a card has it the second time, too.
pub(super) const SEEN: u32 = 1 << 31;

/// The two tables with the guarded flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// The guard: it stays until somebody removes it.
    Guard,
    /// The table that belongs to a process, so that nobody else can remove it. It drops packets that are about to
    /// leave, and changes none.
    Held,
}

/// The same commands for both tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    pub guard: String,
    pub held: String,
}

impl Script {
    pub(super) fn of(text: impl Fn(Layer) -> String) -> Self {
        Self { guard: text(Layer::Guard), held: text(Layer::Held) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.guard.is_empty() && self.held.is_empty()
    }
}

impl Extend<Self> for Script {
    fn extend<I: IntoIterator<Item = Self>>(&mut self, scripts: I) {
        for Self { guard, held } in scripts {
            self.guard += &guard;
            self.held += &held;
        }
    }
}

impl FromIterator<Self> for Script {
    fn from_iter<I: IntoIterator<Item = Self>>(scripts: I) -> Self {
        let mut all = Self::default();
        all.extend(scripts);
        all
    }
}

/// A class of packets that the guard looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PacketClass {
    /// They leave this host, with both addresses in the selectors.
    Leaving,
    /// This host itself sends them to a remote network, from any address.
    Own,
    /// They arrive at this host.
    Arriving,
}

impl PacketClass {
    /// The chain that looks for packets which a rule claims.
    pub(super) fn claims(self) -> &'static str {
        match self {
            Self::Leaving => "leaving",
            Self::Own => "own",
            Self::Arriving => "arriving",
        }
    }

    /// The chain for claimed packets: a few kinds pass, all others are dropped.
    pub(super) fn unprotected(self) -> &'static str {
        match self {
            Self::Leaving | Self::Own => "unprotected_leaving",
            Self::Arriving => "unprotected_arriving",
        }
    }

    /// The chains that look for claimed packets, and their rules.
    fn rules(self, layer: Layer) -> Vec<(&'static str, String)> {
        let goto = format!("goto {}", self.unprotected());
        // Last: it is asked of claimed packets alone.
        let local = format!("fib saddr type local {goto}");
        let lost = format!("counter name {TRANSLATED} drop");
        let sent_here = format!("goto {SENT_HERE}");
        match (self, layer) {
            (Self::Own, Layer::Guard) => {
                vec![(OWN_BY_DEVICE, local), (LOST, lost), (self.claims(), sent_here)]
            }
            (Self::Own, Layer::Held) => vec![(self.claims(), sent_here)],
            (Self::Leaving | Self::Arriving, _) => vec![(self.claims(), goto)],
        }
    }

    fn is_in(self, layer: Layer) -> bool {
        layer == Layer::Guard || self != Self::Arriving
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Leaving => "out",
            Self::Own => "own",
            Self::Arriving => "in",
        }
    }
}

/// The bits of a packet that decide whether it belongs to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape {
    class: PacketClass,
    ipv4: bool,
    lengths: [u8; 2],
    /// 0 is any.
    protocol: u8,
    ports: [u16; 2],
    /// Fragments other than the first: they show no ports.
    fragment: bool,
    mark: u32,
    by_card: bool,
}

/// A part of a rule's traffic, as nftables knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Member {
    /// A flow: its shape, and the values of the shape's bits, written as an element of the shape's set.
    Element(Shape, String),
    /// A rule's expression, for traffic that takes too many flows.
    Expression(PacketClass, String),
}

/// All members, each with the number of rules that have it.
pub(super) struct Sets {
    /// The names of both tables.
    tables: [String; 2],
    elements: BTreeMap<Shape, BTreeMap<String, usize>>,
    expressions: BTreeMap<(PacketClass, String), usize>,
}

impl Member {
    /// The members of a rule: its traffic that leaves, this host's own packets to its remote network, and, with
    /// `arriving`, its traffic that arrives.
    pub(super) fn all(
        traffic: &TrafficSelectors,
        properties: GuardedTraffic,
        arriving: bool,
    ) -> Vec<Self> {
        let TrafficSelectors { local, remote } = traffic;
        let Ok(flows) = Flow::leaving(traffic) else {
            let own: Vec<Selector> = local.iter().flat_map(from_anywhere).collect();
            let all = [
                (PacketClass::Leaving, local, remote),
                (PacketClass::Own, &own, remote),
                (PacketClass::Arriving, remote, local),
            ];
            let classes = all.into_iter().take(if arriving { 3 } else { 2 });
            let all = classes.flat_map(|(class, from, to)| {
                nft::flows(from, to).into_iter().map(move |text| Self::Expression(class, text))
            });
            return all.collect();
        };
        let mut members = Vec::new();
        for flow in &flows {
            for class in [PacketClass::Leaving, PacketClass::Own] {
                members.push(Self::of(class, flow, properties, false));
                if flow.ports().iter().any(|port| port.mask != 0) {
                    members.push(Self::of(class, flow, properties, true));
                }
            }
            // The mark of a packet that arrives is set by rules of this host, which may come later.
            if arriving && properties.mark.is_none() {
                members.push(Self::of(PacketClass::Arriving, &flow.reversed(), properties, false));
            }
        }
        members
    }

    fn of(class: PacketClass, flow: &Flow, properties: GuardedTraffic, fragment: bool) -> Self {
        let (source, destination) = (&flow.source, &flow.destination);
        let ports = if fragment { Default::default() } else { flow.ports() };
        let (mark, mask) = properties.mark.unwrap_or_default();
        let shape = Shape {
            class,
            ipv4: source.address.is_ipv4(),
            lengths: [
                if class == PacketClass::Own { 0 } else { source.length },
                destination.length,
            ],
            protocol: flow.protocol,
            ports: ports.map(|port| port.mask),
            fragment,
            mark: mask,
            by_card: class == PacketClass::Leaving && properties.by_card,
        };
        let mut element = match class {
            PacketClass::Own => destination.address.to_string(),
            PacketClass::Leaving | PacketClass::Arriving => {
                format!("{} . {}", source.address, destination.address)
            }
        };
        // Writing to a String cannot fail.
        for port in ports.iter().filter(|port| port.mask != 0) {
            let _ = write!(element, " . {}", port.value & port.mask);
        }
        if mask != 0 {
            let _ = write!(element, " . {:#x}", mark & mask);
        }
        Self::Element(shape, element)
    }
}

impl Sets {
    pub(super) fn new(tables: [&str; 2]) -> Self {
        Self {
            tables: tables.map(str::to_owned),
            elements: BTreeMap::new(),
            expressions: BTreeMap::new(),
        }
    }

    fn table(&self, layer: Layer) -> &str {
        let [guard, held] = &self.tables;
        match layer {
            Layer::Guard => guard,
            Layer::Held => held,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.elements.values().all(BTreeMap::is_empty) && self.expressions.is_empty()
    }

    /// One more rule has this member. Returns the commands for nftables.
    pub(super) fn add(&mut self, member: &Member) -> Script {
        match member {
            Member::Element(shape, element) => {
                let first = !self.elements.contains_key(shape);
                let elements = self.elements.entry(*shape).or_default();
                let count = elements.entry(element.clone()).or_default();
                *count += 1;
                match (first, *count) {
                    (true, _) => self.set(shape, element),
                    (false, 1) => Script::of(|layer| self.elements(layer, shape, element)),
                    (false, _) => Script::default(),
                }
            }
            Member::Expression(class, text) => {
                let count = self.expressions.entry((*class, text.clone())).or_default();
                *count += 1;
                match *count {
                    1 => Script::of(|layer| self.expression(layer, *class, text)),
                    _ => Script::default(),
                }
            }
        }
    }

    /// One rule less has each of these members. Returns the commands for nftables; `None` if the table has to be built
    /// again.
    pub(super) fn remove_all(&mut self, members: &[Member]) -> Option<Script> {
        // All are removed, also after one for which the table has to be built again.
        let changes: Vec<_> = members.iter().map(|member| self.remove(member)).collect();
        changes.into_iter().collect()
    }

    /// One rule less has this member. Returns the commands for nftables; `None` if the table has to be built again.
    fn remove(&mut self, member: &Member) -> Option<Script> {
        let (shape, element) = match member {
            Member::Element(shape, element) => (shape, element),
            Member::Expression(class, text) => {
                let key = (*class, text.clone());
                let count = self.expressions.get_mut(&key)?;
                *count -= 1;
                if *count > 0 {
                    return Some(Script::default());
                }
                self.expressions.remove(&key);
                return None;
            }
        };
        let elements = self.elements.get_mut(shape)?;
        let count = elements.get_mut(element)?;
        *count -= 1;
        if *count > 0 {
            return Some(Script::default());
        }
        // Should it be the last one, the empty set stays until the table is built again.
        elements.remove(element);
        Some(Script::of(|layer| self.elements_are("delete", layer, shape, element)))
    }

    /// The commands for all members, in a table without any.
    pub(super) fn all(&mut self) -> Script {
        self.elements.retain(|_, elements| !elements.is_empty());
        let whole = |(shape, elements): (&Shape, &BTreeMap<String, usize>)| {
            let elements: Vec<&str> = elements.keys().map(String::as_str).collect();
            self.set(shape, &elements.join(", "))
        };
        let expression = |(class, text): &(PacketClass, String)| {
            Script::of(|layer| self.expression(layer, *class, text))
        };
        let expressions = self.expressions.keys().map(expression);
        self.elements.iter().map(whole).chain(expressions).collect()
    }

    /// A new set with its rules and elements.
    fn set(&self, shape: &Shape, elements: &str) -> Script {
        Script::of(|layer| self.shape(layer, shape) + &self.elements(layer, shape, elements))
    }

    fn elements(&self, layer: Layer, shape: &Shape, elements: &str) -> String {
        self.elements_are("add", layer, shape, elements)
    }

    /// `done`: add or delete.
    fn elements_are(&self, done: &str, layer: Layer, shape: &Shape, elements: &str) -> String {
        let (table, set) = (self.table(layer), shape.name());
        match shape.class.is_in(layer) {
            true => format!("{done} element inet {table} {set} {{ {elements} }}\n"),
            false => String::new(),
        }
    }

    fn expression(&self, layer: Layer, class: PacketClass, text: &str) -> String {
        let table = self.table(layer);
        let rules = class.rules(layer).into_iter().filter(|_| class.is_in(layer));
        rules
            .map(|(chain, then)| format!("add rule inet {table} {chain} {text} {then}\n"))
            .collect()
    }

    /// A set, and the rules that look into it.
    fn shape(&self, layer: Layer, shape: &Shape) -> String {
        if !shape.class.is_in(layer) {
            return String::new();
        }
        let (table, set) = (self.table(layer), shape.name());
        let (kinds, key) = shape.key();
        let rule = |chain: &str, then: &str| {
            format!("add rule inet {table} {chain} {key} @{set} {then}\n")
        };
        let mut script = format!("add set inet {table} {set} {{ type {kinds}; }}\n");
        let set = format!("meta mark set meta mark or {SEEN:#x}");
        let [protected_before, protected_after] = PROTECTED;
        // Where the mark decides which tunnel a packet takes, its bit is not available.
        if layer == Layer::Guard && shape.class == PacketClass::Leaving && shape.mark & SEEN == 0 {
            script += &rule(protected_before, &set);
        }
        if shape.by_card {
            let clear = !SEEN;
            let seen = format!("meta mark and {SEEN:#x} == {SEEN:#x}");
            let [before, after] = HANDED;
            script += &match layer {
                Layer::Guard => {
                    let cleared = format!("{seen} meta mark set meta mark and {clear:#x} accept");
                    let before = rule(before, &format!("{seen} accept"));
                    rule(protected_after, &set) + &before + &rule(after, &cleared)
                }
                // The guard has cleared the bit by then: nothing tells them from others.
                Layer::Held => rule(after, "accept"),
            };
        }
        let claims = shape.class.rules(layer).into_iter();
        script.extend(claims.map(|(chain, then)| rule(chain, &then)));
        script
    }
}

/// The same traffic from any address of the family.
fn from_anywhere(local: &Selector) -> Option<Selector> {
    let (first, last): (IpAddr, IpAddr) = match local.addresses.start() {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from_bits(u128::MAX).into()),
    };
    Some(Selector { addresses: AddressRange::new(first, last)?, ..*local })
}

impl Shape {
    fn name(&self) -> String {
        let family = if self.ipv4 { "ip" } else { "ip6" };
        let [source, destination] = self.lengths;
        let mut name = match self.class {
            PacketClass::Own => format!("own_{family}_{destination}"),
            class => format!("{}_{family}_{source}_{destination}", class.prefix()),
        };
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
        for (what, is) in [("fragment", self.fragment), ("card", self.by_card)] {
            if is {
                let _ = write!(name, "_{what}");
            }
        }
        name
    }

    /// The types of the set's fields, and the fields of a packet that are looked up.
    fn key(&self) -> (String, String) {
        let (family, address, fragment) = match self.ipv4 {
            true => ("ip", "ipv4_addr", "ip frag-off & 0x1fff != 0"),
            false => ("ip6", "ipv6_addr", "frag frag-off != 0"),
        };
        let [source, destination] = self.lengths.map(|length| mask(self.ipv4, length));
        let (mut kinds, mut key) = match self.class {
            PacketClass::Own => (address.to_owned(), format!("{family} daddr & {destination}")),
            PacketClass::Leaving | PacketClass::Arriving => (
                format!("{address} . {address}"),
                format!("{family} saddr & {source} . {family} daddr & {destination}"),
            ),
        };
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
        if self.fragment {
            key = format!("{fragment} {key}");
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
    use policy::PortRange;

    fn selector(start: &str, end: &str, protocol: u8, ports: (u16, u16)) -> Selector {
        let (start, end) = (start.parse().expect("address"), end.parse().expect("address"));
        let addresses = AddressRange::new(start, end).expect("range");
        Selector { protocol, addresses, ports: PortRange::new(ports.0, ports.1).expect("range") }
    }

    const ANY: (u16, u16) = (0, u16::MAX);
    const PLAIN: GuardedTraffic = GuardedTraffic { mark: None, by_card: false };

    fn members(local: Selector, remote: Selector, properties: GuardedTraffic) -> Vec<Member> {
        let traffic = TrafficSelectors { local: vec![local], remote: vec![remote] };
        Member::all(&traffic, properties, false)
    }

    fn nets(remote: &str, properties: GuardedTraffic) -> [Member; 2] {
        let end = remote.replace(".0", ".255");
        let (local, remote) =
            (selector("10.1.0.1", "10.1.0.1", 0, ANY), selector(remote, &end, 0, ANY));
        members(local, remote, properties).try_into().expect("one prefix, leaving and own")
    }

    #[test]
    fn flows_of_one_shape_share_a_set_and_come_and_go_alone() {
        let mut sets = Sets::new(["g", "h"]);
        let [first, _] = &nets("10.2.1.0", PLAIN);
        let [second, _] = &nets("10.2.2.0", PLAIN);
        let of_first = "add element inet g out_ip_32_24 { 10.1.0.1 . 10.2.1.0 }\n";
        assert_eq!(
            sets.add(first).guard,
            format!(
                "add set inet g out_ip_32_24 {{ type ipv4_addr . ipv4_addr; }}\n\
                 add rule inet g protected_before ip saddr & 255.255.255.255 . ip daddr & 255.255.255.0 \
                 @out_ip_32_24 meta mark set meta mark or 0x80000000\n\
                 add rule inet g leaving ip saddr & 255.255.255.255 . ip daddr & 255.255.255.0 @out_ip_32_24 \
                 goto unprotected_leaving\n{of_first}"
            )
        );
        let of_second = of_first.replace(".2.1.", ".2.2.");
        assert_eq!(sets.add(second).guard, of_second);
        assert!(sets.add(first).is_empty(), "it is there already");
        assert_eq!(sets.remove(first), Some(Script::default()), "another rule wants it");
        let removed = sets.remove(first).expect("without building the table again");
        assert_eq!(removed.guard, of_first.replace("add", "delete"));
        assert_eq!(removed.held, of_first.replace("add", "delete").replace("inet g", "inet h"));
        let all = sets.all().guard;
        assert!(all.ends_with(&of_second), "{all}");
        let removed = sets.remove(second).expect("without building the table again");
        assert_eq!(removed.guard, of_second.replace("add", "delete"));
        assert!(sets.is_empty());
        assert_eq!(sets.add(second).guard, of_second, "the empty set is still there");
        let _ = sets.remove(second);
        assert!(sets.all().is_empty(), "a new table has no empty set");
    }

    #[test]
    fn the_held_table_has_the_flows_that_leave_and_sets_no_mark() {
        let traffic = TrafficSelectors {
            local: vec![selector("10.1.0.0", "10.1.255.255", 0, ANY)],
            remote: vec![selector("10.2.0.0", "10.2.0.255", 6, (443, 443))],
        };
        for by_card in [false, true] {
            let properties = GuardedTraffic { mark: None, by_card };
            let mut sets = Sets::new(["g", "h"]);
            let members = Member::all(&traffic, properties, true).into_iter();
            let script: Script = members.map(|member| sets.add(&member)).collect();
            let of_held = |line: &String| {
                let absent = [
                    "g protected_",
                    "g lost ",
                    "g own_by",
                    "g handed_",
                    "g arriving ",
                    "inet g in_",
                ];
                !absent.iter().any(|part| line.contains(part))
            };
            let lines = |text: &str| -> Vec<String> {
                let lines = text.lines().map(|line| line.replace("inet h", "inet g"));
                lines.filter(of_held).collect()
            };
            assert_eq!(lines(&script.held), lines(&script.guard));
            assert!(!script.held.contains("mark set"), "{script:?}");
            assert_eq!(script.held.contains("_card accept"), by_card, "{script:?}");
            let all = lines(&sets.all().held);
            for line in lines(&script.held) {
                assert!(all.contains(&line), "{line}: {all:?}");
            }
        }
    }

    #[test]
    fn a_card_s_packets_are_known_again() {
        let mut sets = Sets::new(["g", "h"]);
        let [flow, _] = &nets("10.2.1.0", GuardedTraffic { by_card: true, ..PLAIN });
        let script = sets.add(flow).guard;
        let rules: Vec<&str> = script.lines().filter(|line| line.contains("_card ")).collect();
        let [_, protected, kept, before, after, unprotected, _] = rules[..] else {
            panic!("{script}")
        };
        for set in [protected, kept] {
            let key = "@out_ip_32_24_card meta mark set meta mark or 0x80000000";
            assert!(set.ends_with(key), "{set}");
        }
        assert!(before.ends_with("meta mark and 0x80000000 == 0x80000000 accept"), "{before}");
        assert!(after.ends_with("meta mark set meta mark and 0x7fffffff accept"), "{after}");
        assert!(unprotected.ends_with("goto unprotected_leaving"), "{unprotected}");
    }

    #[test]
    fn this_host_sends_to_a_remote_network_from_no_address() {
        let mut sets = Sets::new(["g", "h"]);
        let remote = || selector("10.2.0.0", "10.2.0.255", 6, (443, 443));
        let here = |from, to| members(selector(from, to, 6, ANY), remote(), PLAIN);
        let (one, two) = (here("10.1.0.0", "10.1.0.255"), here("10.3.0.0", "10.3.0.255"));
        let script: String = one.iter().map(|member| sets.add(member).guard).collect();
        let key = "meta l4proto 6 ip daddr & 255.255.255.0 . th dport & 0xffff @own_ip_24_proto_6_dport_ffff";
        for rule in [
            format!("own {key} goto sent_here\n"),
            format!("own_by_device {key} fib saddr type local goto unprotected_leaving\n"),
            format!("lost {key} counter name translated_leaving drop\n"),
        ] {
            assert!(script.contains(&rule), "{script}");
        }
        assert!(script.contains("@own_ip_24_proto_6_fragment goto sent_here"), "{script}");
        let added: String = two.iter().map(|member| sets.add(member).guard).collect();
        assert!(!added.contains("own_"), "both tunnels share the destination: {added}");
        let gone = sets.remove_all(&one).expect("without building the table again").guard;
        assert!(!gone.contains("own_"), "the other tunnel has it: {gone}");
    }

    #[test]
    fn protocols_ports_types_and_marks_are_looked_up_under_masks() {
        let told = |local: Selector, remote: Selector, mark| {
            let properties = GuardedTraffic { mark, by_card: false };
            let mut sets = Sets::new(["g", "h"]);
            members(local, remote, properties)
                .iter()
                .map(|member| sets.add(member).guard)
                .collect::<String>()
        };
        let web = told(
            selector("fd01::1", "fd01::1", 6, (80, 81)),
            selector("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 6, ANY),
            Some((0x2011, 0xff)),
        );
        let name = "out_ip6_128_0_proto_6_sport_fffe_mark_ff";
        assert!(
            web.contains(&format!(
                "{name} {{ type ipv6_addr . ipv6_addr . inet_service . mark; }}"
            )),
            "{web}"
        );
        let key = "meta l4proto 6 ip6 saddr & ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff . ip6 daddr & :: . \
                   th sport & 0xfffe . meta mark & 0xff";
        assert!(web.contains(&format!("leaving {key} @{name} goto unprotected_leaving")), "{web}");
        assert!(web.contains(&format!("{name} {{ fd01::1 . :: . 80 . 0x11 }}")), "{web}");

        let echo = told(
            selector("10.1.0.1", "10.1.0.1", 1, (8 << 8, (8 << 8) + 255)),
            selector("10.2.0.1", "10.2.0.1", 1, ANY),
            None,
        );
        assert!(echo.contains(". th sport & 0xff00 @"), "{echo}");
        assert!(echo.contains("{ 10.1.0.1 . 10.2.0.1 . 2048 }"), "{echo}");
    }

    #[test]
    fn fragments_without_ports_are_claimed_on_their_way_out() {
        let https = selector("10.2.0.7", "10.2.0.7", 6, (443, 443));
        let members = members(selector("10.1.0.0", "10.1.255.255", 0, ANY), https, PLAIN);
        let mut sets = Sets::new(["g", "h"]);
        let script: String = members.iter().map(|member| sets.add(member).guard).collect();
        let rule = "leaving meta l4proto 6 ip frag-off & 0x1fff != 0 ip saddr & 255.255.0.0 . ip daddr & 255.255.255.255 @";
        assert!(script.contains(rule), "{script}");
    }

    #[test]
    fn traffic_that_arrives_has_the_ends_exchanged() {
        let traffic = TrafficSelectors {
            local: vec![selector("10.1.0.0", "10.1.255.255", 0, ANY)],
            remote: vec![selector("10.2.0.7", "10.2.0.7", 6, (443, 443))],
        };
        let mut sets = Sets::new(["g", "h"]);
        let members = Member::all(&traffic, PLAIN, true);
        let script: String = members.iter().map(|member| sets.add(member).guard).collect();
        let element =
            "add element inet g in_ip_32_16_proto_6_sport_ffff { 10.2.0.7 . 10.1.0.0 . 443 }\n";
        assert!(script.contains(element), "{script}");
        let marked = GuardedTraffic { mark: Some((1, 1)), by_card: false };
        let members = Member::all(&traffic, marked, true);
        assert!(!members.iter().any(
            |m| matches!(m, Member::Element(shape, _) if shape.class == PacketClass::Arriving)
        ));
    }

    #[test]
    fn ranges_of_too_many_flows_get_a_rule_of_their_own() {
        let local = selector("10.1.0.1", "10.1.255.254", 6, (1, 65_534));
        let members = members(local, selector("10.2.0.1", "10.2.0.1", 6, ANY), PLAIN);
        let mut sets = Sets::new(["g", "h"]);
        let script: String = members.iter().map(|member| sets.add(member).guard).collect();
        let to = "ip daddr 10.2.0.1 meta l4proto 6 th sport 1-65534";
        let anywhere = format!("ip saddr 0.0.0.0-255.255.255.255 {to}");
        let expected = [
            format!("leaving ip saddr 10.1.0.1-10.1.255.254 {to} goto unprotected_leaving"),
            format!("own_by_device {anywhere} fib saddr type local goto unprotected_leaving"),
            format!("lost {anywhere} counter name translated_leaving drop"),
            format!("own {anywhere} goto sent_here"),
        ];
        assert_eq!(script, expected.map(|rule| format!("add rule inet g {rule}\n")).concat());
        assert_eq!(sets.remove(&members[0]), None, "rules of a chain have no names");
    }
}
