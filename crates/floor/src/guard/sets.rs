//! The guarded flows as sets of nftables. The cost for a packet does not depend on the number of flows, and a single
//! flow can be added and removed.
//!
//! Flows of one shape share a set: a packet's addresses, ports and mark are looked up there under the shape's masks.
//! Even many tunnels have few shapes, as with the kernel's own policies. Sets of single values may overlap.
//!
//! Traffic that takes too many flows, such as long ranges of addresses, gets a rule of its own instead.

#![forbid(unsafe_code)]

use super::surroundings::GuardedTraffic;
use crate::flow::Flow;
use esp::plane::TrafficSelectors;
use host::netlink::Family;
use host::nft::{
    self, AddressType, Commands, Element, Field, Key, Match, Matches, Rule, Statement, Value,
};
use policy::{AddressRange, Selector};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    pub guard: Commands,
    pub held: Commands,
}

impl Script {
    pub(super) fn of(commands: impl Fn(Layer) -> Commands) -> Self {
        Self { guard: commands(Layer::Guard), held: commands(Layer::Held) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.guard.is_empty() && self.held.is_empty()
    }
}

impl Extend<Self> for Script {
    fn extend<I: IntoIterator<Item = Self>>(&mut self, scripts: I) {
        for Self { guard, held } in scripts {
            self.guard.extend([guard]);
            self.held.extend([held]);
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

    /// The rules for packets that meet these conditions, with their chains, which look for claimed packets.
    fn rules(self, layer: Layer, claimed: &Matches) -> Vec<(&'static str, Rule)> {
        let unprotected = Statement::Goto(self.unprotected());
        match (self, layer) {
            (Self::Own, Layer::Guard) => {
                // Last: it is asked of claimed packets alone.
                let local = claimed.clone().and(Match::SourceIs(AddressType::Local));
                vec![
                    (OWN_BY_DEVICE, local.then(unprotected)),
                    (
                        LOST,
                        claimed.clone().then(Statement::Count(TRANSLATED)).then(Statement::Drop),
                    ),
                    (self.claims(), claimed.clone().then(Statement::Goto(SENT_HERE))),
                ]
            }
            (Self::Own, Layer::Held) => {
                vec![(self.claims(), claimed.clone().then(Statement::Goto(SENT_HERE)))]
            }
            (Self::Leaving | Self::Arriving, _) => {
                vec![(self.claims(), claimed.clone().then(unprotected))]
            }
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
    /// A flow: its shape, and the values of the shape's bits as an element of the shape's set.
    Element(Shape, Element),
    /// The conditions of a rule, for traffic that takes too many flows.
    Conditions(PacketClass, Matches),
}

/// All members, each with the number of rules that have it.
pub(super) struct Sets {
    /// The names of both tables.
    tables: [String; 2],
    elements: BTreeMap<Shape, BTreeMap<Element, usize>>,
    conditions: BTreeMap<(PacketClass, Matches), usize>,
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
                nft::flows(from, to).into_iter().map(move |flow| Self::Conditions(class, flow))
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
        let addresses = match class {
            PacketClass::Own => vec![destination.address],
            PacketClass::Leaving | PacketClass::Arriving => {
                vec![source.address, destination.address]
            }
        };
        let ports = ports.into_iter().filter(|port| port.mask != 0);
        let element = addresses
            .into_iter()
            .map(Value::Address)
            .chain(ports.map(|port| Value::Port(port.value & port.mask)))
            .chain((mask != 0).then_some(Value::Mark(mark & mask)))
            .collect();
        Self::Element(shape, element)
    }
}

impl Sets {
    pub(super) fn new(tables: [&str; 2]) -> Self {
        Self {
            tables: tables.map(str::to_owned),
            elements: BTreeMap::new(),
            conditions: BTreeMap::new(),
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
        self.elements.values().all(BTreeMap::is_empty) && self.conditions.is_empty()
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
                    (true, _) => self.set(shape, &[element]),
                    (false, 1) => Script::of(|layer| self.elements(layer, shape, &[element])),
                    (false, _) => Script::default(),
                }
            }
            Member::Conditions(class, claimed) => {
                let count = self.conditions.entry((*class, claimed.clone())).or_default();
                *count += 1;
                match *count {
                    1 => Script::of(|layer| self.rules(layer, *class, claimed)),
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
            Member::Conditions(class, claimed) => {
                let key = (*class, claimed.clone());
                let count = self.conditions.get_mut(&key)?;
                *count -= 1;
                if *count > 0 {
                    return Some(Script::default());
                }
                self.conditions.remove(&key);
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
        Some(Script::of(|layer| {
            let mut commands = Commands::default();
            if shape.class.is_in(layer) {
                commands.delete_elements([self.table(layer), &shape.name()], [element]);
            }
            commands
        }))
    }

    /// The commands for all members, in a table without any.
    pub(super) fn all(&mut self) -> Script {
        self.elements.retain(|_, elements| !elements.is_empty());
        let sets = self
            .elements
            .iter()
            .map(|(shape, elements)| self.set(shape, &Vec::from_iter(elements.keys())));
        let rules = self
            .conditions
            .keys()
            .map(|(class, claimed)| Script::of(|layer| self.rules(layer, *class, claimed)));
        sets.chain(rules).collect()
    }

    /// A new set with its rules and elements.
    fn set(&self, shape: &Shape, elements: &[&Element]) -> Script {
        Script::of(|layer| {
            let parts = [self.shape(layer, shape), self.elements(layer, shape, elements)];
            parts.into_iter().collect()
        })
    }

    /// Adds elements.
    fn elements(&self, layer: Layer, shape: &Shape, elements: &[&Element]) -> Commands {
        let mut commands = Commands::default();
        if shape.class.is_in(layer) {
            let set = shape.name();
            commands.add_elements([self.table(layer), &set], elements.iter().copied());
        }
        commands
    }

    /// Adds the rules for packets that meet these conditions.
    fn rules(&self, layer: Layer, class: PacketClass, claimed: &Matches) -> Commands {
        let mut commands = Commands::default();
        if class.is_in(layer) {
            for (chain, rule) in class.rules(layer, claimed) {
                commands.add_rule([self.table(layer), chain], &rule);
            }
        }
        commands
    }

    /// Adds a set, and the rules that look into it.
    fn shape(&self, layer: Layer, shape: &Shape) -> Commands {
        let mut commands = Commands::default();
        if !shape.class.is_in(layer) {
            return commands;
        }
        let (table, set, key) = (self.table(layer), shape.name(), shape.key());
        let claimed = shape.conditions(&key, &set);
        commands.add_set([table, &set], &key);
        let [protected_before, protected_after] = PROTECTED;
        // Where the mark decides which tunnel a packet takes, its bit is not available.
        if layer == Layer::Guard && shape.class == PacketClass::Leaving && shape.mark & SEEN == 0 {
            commands.add_rule(
                [table, protected_before],
                &claimed.clone().then(Statement::SetMarkBits(SEEN)),
            );
        }
        if shape.by_card {
            let [before, after] = HANDED;
            match layer {
                Layer::Guard => {
                    let seen = claimed.clone().and(Match::MarkBits(SEEN));
                    let passes = seen.clone().then(Statement::Accept);
                    let passes_without =
                        seen.then(Statement::ClearMarkBits(SEEN)).then(Statement::Accept);
                    let mark = claimed.clone().then(Statement::SetMarkBits(SEEN));
                    commands.add_rule([table, protected_after], &mark);
                    commands.add_rule([table, before], &passes);
                    commands.add_rule([table, after], &passes_without);
                }
                // The guard has cleared the bit by then: nothing tells them from others.
                Layer::Held => {
                    commands.add_rule([table, after], &claimed.clone().then(Statement::Accept));
                }
            }
        }
        commands.extend([self.rules(layer, shape.class, &claimed)]);
        commands
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

    /// The fields of a packet that are looked up in the set.
    fn key(&self) -> Key {
        let [source, destination] = self.lengths.map(|length| mask(self.ipv4, length));
        let source = (self.class != PacketClass::Own).then_some(Field::Source(source));
        let [sport, dport] = self.ports;
        let others = [
            (sport != 0).then_some(Field::SourcePort(sport)),
            (dport != 0).then_some(Field::DestinationPort(dport)),
            (self.mark != 0).then_some(Field::Mark(self.mark)),
        ];
        let destination = Some(Field::Destination(destination));
        [source, destination].into_iter().chain(others).flatten().collect()
    }

    /// The conditions of a packet whose fields are in the set.
    fn conditions(&self, key: &Key, set: &str) -> Matches {
        let protocol = &[self.protocol];
        let protocol = (self.protocol != 0).then_some(Match::Protocol(protocol));
        let family = if self.ipv4 { Family::V4 } else { Family::V6 };
        let fragment = self.fragment.then_some(Match::LaterFragment(family));
        [protocol, fragment, Some(Match::Lookup(key, set))].into_iter().flatten().collect()
    }
}

fn mask(ipv4: bool, length: u8) -> IpAddr {
    let width: u8 = if ipv4 { 32 } else { 128 };
    let host = u32::from(width.saturating_sub(length));
    match ipv4 {
        true => Ipv4Addr::from_bits(u32::MAX.checked_shl(host).unwrap_or(0)).into(),
        false => Ipv6Addr::from_bits(u128::MAX.checked_shl(host).unwrap_or(0)).into(),
    }
}

#[cfg(test)]
mod tests;
