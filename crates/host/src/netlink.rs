//! Questions and orders to the kernel's routing netlink: one request, one answer, blocking.
//!
//! The socket belongs to the network namespace of the thread that opened it, whoever uses it later.

mod address;
mod exception;
mod route_lookup;

pub use exception::Exception;
pub use host_facts::{Attachment, Family, RouteLookup};

use host_facts::Prefix;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric,
    RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::net::IpAddr;

/// Marks the routes and rules of this program among those of other routing daemons (`ip route` shows `proto 86`).
const PROTOCOL: RouteProtocol = RouteProtocol::Other(86);

fn number(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

/// The target of packets for a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a device.
    Device {
        /// Its index.
        index: u32,
        /// The source address that the host prefers for them.
        source: Option<IpAddr>,
    },
    /// Nowhere: the kernel drops them.
    Blackhole,
}

/// A route of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The table it stands in.
    pub table: u32,
    /// The destinations it is for.
    pub prefix: Prefix,
    /// The lower one wins.
    pub metric: u32,
    /// The target of the packets.
    pub target: Target,
}

/// "Packets without `mark` are looked up in `table`."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkRule {
    /// The family whose packets it is for.
    pub family: Family,
    /// Packets with this mark skip the rule.
    pub mark: u32,
    /// The table that the others are looked up in.
    pub table: u32,
    /// Its place among the rules, the lowest first.
    pub priority: u32,
}

/// An open routing netlink socket.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Index of the interface of that name.
    pub fn link_index(&mut self, name: &str) -> io::Result<Option<u32>> {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.exchange(Message::GetLink(link), 0) {
            Ok(answers) => Ok(answers.iter().find_map(|m| match m {
                Message::NewLink(l) => Some(l.header.index),
                _ => None,
            })),
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Name and MTU of an interface.
    pub fn link(&mut self, index: u32) -> io::Result<(String, u32)> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        let (mut name, mut mtu) = (String::new(), 0);
        for answer in self.exchange(Message::GetLink(link), 0)? {
            let Message::NewLink(link) = answer else { continue };
            for attribute in link.attributes {
                match attribute {
                    LinkAttribute::IfName(n) => name = n,
                    LinkAttribute::Mtu(m) => mtu = m,
                    _ => {}
                }
            }
        }
        Ok((name, mtu))
    }

    /// The number of outbound packets that an interface had no room for.
    pub fn dropped(&mut self, index: u32) -> io::Result<u64> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        let answers = self.exchange(Message::GetLink(link), 0)?;
        let attributes = answers.into_iter().filter_map(|answer| match answer {
            Message::NewLink(link) => Some(link.attributes),
            _ => None,
        });
        let dropped = attributes.flatten().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(stats.tx_dropped),
            _ => None,
        });
        Ok(dropped.unwrap_or(0))
    }

    /// Sets the MTU of a link.
    pub fn set_mtu(&mut self, index: u32, mtu: u16) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes.push(LinkAttribute::Mtu(mtu.into()));
        self.order(Message::SetLink(link), 0)
    }

    /// Sets the number of packets that may wait in each queue of a device.
    pub fn set_queue(&mut self, index: u32, packets: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes.push(LinkAttribute::TxQueueLen(packets));
        self.order(Message::SetLink(link), 0)
    }

    /// Sets a link up.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        self.order(Message::SetLink(link), 0)
    }

    /// The addresses this host owns.
    pub fn addresses(&mut self) -> io::Result<Vec<IpAddr>> {
        Ok(self.attachments()?.into_iter().map(|(address, _)| address).collect())
    }

    /// The addresses this host owns, and the networks it is attached to.
    pub fn networks(&mut self) -> io::Result<Vec<Prefix>> {
        let attachments = self.attachments()?.into_iter();
        Ok(attachments
            .flat_map(|(a, network)| {
                [Prefix::holding(a, if a.is_ipv4() { 32 } else { 128 }), network]
            })
            .collect())
    }

    /// The addresses this host owns, each with its network.
    fn attachments(&mut self) -> io::Result<Vec<(IpAddr, Prefix)>> {
        let answers = self.exchange(Message::GetAddress(AddressMessage::default()), NLM_F_DUMP)?;
        let mut owned = Vec::new();
        for answer in answers {
            let Message::NewAddress(a) = answer else { continue };
            // Not yet, or never: another host may have it.
            if a.header
                .flags
                .intersects(AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed)
            {
                continue;
            }
            // On point-to-point links `Address` is the other end's; `Local` is ours where both are present.
            let local = a.attributes.iter().find_map(|x| match x {
                AddressAttribute::Local(l) => Some(*l),
                _ => None,
            });
            let plain = a.attributes.iter().find_map(|x| match x {
                AddressAttribute::Address(l) => Some(*l),
                _ => None,
            });
            if let Some((own, on_link)) = local.or(plain).zip(plain.or(local)) {
                owned.push((own, Prefix::holding(on_link, a.header.prefix_len)));
            }
        }
        Ok(owned)
    }

    /// Index of the interface through which marked packets to `remote` leave.
    pub fn egress(&mut self, remote: IpAddr, mark: u32) -> io::Result<Option<u32>> {
        self.look_up(remote, mark, |a| match a {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        })
    }

    /// The address that marked packets to `remote` leave from.
    pub fn source(&mut self, remote: IpAddr, mark: u32) -> io::Result<Option<IpAddr>> {
        self.look_up(remote, mark, |a| match a {
            RouteAttribute::PrefSource(RouteAddress::Inet(a)) => Some((*a).into()),
            RouteAttribute::PrefSource(RouteAddress::Inet6(a)) => Some((*a).into()),
            _ => None,
        })
    }

    /// The MTU of the route that marked packets to `remote` take, or of its interface if that is less; without what was
    /// learned of networks beyond. `None` if there is no single interface.
    pub fn route_mtu(&mut self, remote: IpAddr, mark: u32) -> io::Result<Option<u32>> {
        let Some(route) = self.route(remote, mark, RouteFlags::FibMatch)? else { return Ok(None) };
        let interface = route.attributes.iter().find_map(|a| match a {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        });
        let Some(interface) = interface else { return Ok(None) };
        let metrics = route.attributes.iter().find_map(|a| match a {
            RouteAttribute::Metrics(metrics) => Some(&metrics[..]),
            _ => None,
        });
        let own = metrics.unwrap_or_default().iter().find_map(|metric| match metric {
            RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
            _ => None,
        });
        let (_, mtu) = self.link(interface)?;
        Ok(Some(own.map_or(mtu, |own| own.min(mtu))))
    }

    /// The kernel's answer about the route that marked packets to `remote` take.
    fn look_up<T>(
        &mut self,
        remote: IpAddr,
        mark: u32,
        wanted: impl Fn(&RouteAttribute) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let route = self.route(remote, mark, RouteFlags::empty())?;
        Ok(route.and_then(|route| route.attributes.iter().find_map(&wanted)))
    }

    /// The route that marked packets to `remote` take.
    fn route(
        &mut self,
        remote: IpAddr,
        mark: u32,
        flags: RouteFlags,
    ) -> io::Result<Option<RouteMessage>> {
        let mut route = RouteMessage::default();
        route.header.address_family = number(Family::of(remote));
        route.header.destination_prefix_length = if remote.is_ipv4() { 32 } else { 128 };
        route.attributes.push(RouteAttribute::Destination(remote.into()));
        route.attributes.push(RouteAttribute::Mark(mark));
        route.header.flags = flags;
        let answers = self.exchange(Message::GetRoute(route), 0)?;
        Ok(answers.into_iter().find_map(|m| match m {
            Message::NewRoute(route) => Some(route),
            _ => None,
        }))
    }

    /// Adds a route, or replaces the one of the same prefix and metric.
    pub fn put_route(&mut self, route: &Route) -> io::Result<()> {
        self.order(Message::NewRoute(route_message(route)), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Deletes a route; one that does not exist is no error.
    pub fn delete_route(&mut self, route: &Route) -> io::Result<()> {
        gone_is_fine(self.order(Message::DelRoute(route_message(route)), 0))
    }

    /// Removes every route of ours from a table.
    pub fn flush(&mut self, family: Family, table: u32) -> io::Result<()> {
        let mut query = RouteMessage::default();
        query.header.address_family = number(family);
        for answer in self.exchange(Message::GetRoute(query), NLM_F_DUMP)? {
            let Message::NewRoute(route) = answer else { continue };
            let its_table = route
                .attributes
                .iter()
                .find_map(|a| match a {
                    RouteAttribute::Table(t) => Some(*t),
                    _ => None,
                })
                .unwrap_or(route.header.table.into());
            if its_table == table && route.header.protocol == PROTOCOL {
                gone_is_fine(self.order(Message::DelRoute(essence(route)), 0))?;
            }
        }
        Ok(())
    }

    /// The routes of this program in a table.
    pub fn routes(&mut self, family: Family, table: u32) -> io::Result<Vec<Route>> {
        let mut query = RouteMessage::default();
        query.header.address_family = number(family);
        query.attributes.push(RouteAttribute::Table(table));
        // The kernel then lists this table only, and not the routes of a whole internet.
        self.socket.set_netlink_get_strict_chk(true)?;
        let answers = self.exchange(Message::GetRoute(query), NLM_F_DUMP);
        self.socket.set_netlink_get_strict_chk(false)?;
        let answers = match answers {
            // There is no such table.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Vec::new(),
            other => other?,
        };
        let routes = answers.iter().filter_map(|answer| match answer {
            Message::NewRoute(route) if is_of_this_program(route) => read_route(family, route),
            _ => None,
        });
        Ok(routes.filter(|route| route.table == table).collect())
    }

    /// Returns `true` if a routing rule is there.
    pub fn has_rule(&mut self, rule: &MarkRule) -> io::Result<bool> {
        let mut query = RuleMessage::default();
        query.header.family = number(rule.family);
        let wanted = rule_message(rule);
        let answers = self.exchange(Message::GetRule(query), NLM_F_DUMP)?;
        Ok(answers.iter().any(|answer| match answer {
            Message::NewRule(found) => {
                found.header.action == wanted.header.action
                    && found.header.flags.contains(RuleFlags::Invert)
                    && wanted.attributes.iter().all(|a| found.attributes.contains(a))
            }
            _ => false,
        }))
    }

    /// Adds a routing rule.
    pub fn add_rule(&mut self, rule: &MarkRule) -> io::Result<()> {
        match self.order(Message::NewRule(rule_message(rule)), NLM_F_CREATE | NLM_F_EXCL) {
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            other => other,
        }
    }

    /// Deletes a routing rule; one that does not exist is no error.
    pub fn delete_rule(&mut self, rule: &MarkRule) -> io::Result<()> {
        gone_is_fine(self.order(Message::DelRule(rule_message(rule)), 0))
    }

    fn order(&mut self, message: Message, flags: u16) -> io::Result<()> {
        self.exchange(message, flags | NLM_F_ACK).map(drop)
    }

    /// Sends one request and collects its answers up to the acknowledgement, the end of the dump or, where neither
    /// was asked for, the first answer.
    fn exchange(&mut self, message: Message, flags: u16) -> io::Result<Vec<Message>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut octets = vec![0; request.buffer_len()];
        request.serialize(&mut octets);
        self.socket.send(&octets, 0)?;

        let many = flags & (NLM_F_ACK | NLM_F_DUMP) != 0;
        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = &datagram[..];
            while !rest.is_empty() {
                let answer = NetlinkMessage::<Message>::deserialize(rest)
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
                let length = answer.header.length as usize;
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(e) if e.code.is_none() => return Ok(answers),
                    NetlinkPayload::Error(e) => return Err(e.to_io()),
                    NetlinkPayload::InnerMessage(m) => {
                        answers.push(m);
                        if !many {
                            return Ok(answers);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Returns `true` if a route is marked as one of this program.
pub(crate) fn is_of_this_program(route: &RouteMessage) -> bool {
    route.header.protocol == PROTOCOL
}

fn route_message(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    let family = Family::of(route.prefix.address);
    message.header = RouteHeader {
        address_family: number(family),
        destination_prefix_length: route.prefix.length,
        protocol: PROTOCOL,
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    };
    message.attributes.push(RouteAttribute::Table(route.table));
    message.attributes.push(RouteAttribute::Priority(route.metric));
    if route.prefix.length > 0 {
        message.attributes.push(RouteAttribute::Destination(route.prefix.address.into()));
    }
    match route.target {
        Target::Device { index, source } => {
            if family == Family::V4 {
                message.header.scope = RouteScope::Link;
            }
            message.attributes.push(RouteAttribute::Oif(index));
            message.attributes.extend(source.map(|s| RouteAttribute::PrefSource(s.into())));
        }
        Target::Blackhole => message.header.kind = RouteType::BlackHole,
    }
    message
}

/// A route of a dump.
fn read_route(family: Family, message: &RouteMessage) -> Option<Route> {
    let unspecified: IpAddr = match family {
        Family::V4 => [0; 4].into(),
        Family::V6 => [0; 16].into(),
    };
    let mut table = u32::from(message.header.table);
    let (mut address, mut metric, mut index, mut source) = (unspecified, 0, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::Oif(number) => index = Some(*number),
            RouteAttribute::Destination(RouteAddress::Inet(a)) => address = (*a).into(),
            RouteAttribute::Destination(RouteAddress::Inet6(a)) => address = (*a).into(),
            RouteAttribute::PrefSource(RouteAddress::Inet(a)) => source = Some((*a).into()),
            RouteAttribute::PrefSource(RouteAddress::Inet6(a)) => source = Some((*a).into()),
            _ => {}
        }
    }
    let prefix = Prefix { address, length: message.header.destination_prefix_length };
    let target = match message.header.kind {
        // With IPv6, the kernel names the loopback device.
        RouteType::BlackHole => Target::Blackhole,
        _ => Target::Device { index: index?, source },
    };
    Some(Route { table, prefix, metric, target })
}

/// The attributes that identify a route of a dump; the kernel refuses some of a dump's attributes in a deletion.
fn essence(route: RouteMessage) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = route.header;
    message.header.flags = Default::default();
    message.attributes = route
        .attributes
        .into_iter()
        .filter(|a| {
            matches!(
                a,
                RouteAttribute::Table(_)
                    | RouteAttribute::Priority(_)
                    | RouteAttribute::Destination(_)
                    | RouteAttribute::Oif(_)
            )
        })
        .collect();
    message
}

fn rule_message(rule: &MarkRule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = number(rule.family);
    message.header.action = RuleAction::ToTable;
    message.header.flags = RuleFlags::Invert;
    message.attributes = vec![
        RuleAttribute::Priority(rule.priority),
        RuleAttribute::FwMark(rule.mark),
        RuleAttribute::FwMask(u32::MAX),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Protocol(PROTOCOL),
    ];
    message
}

/// A deletion of what is not there has nothing left to do.
fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e)
            if matches!(
                e.raw_os_error(),
                Some(libc::ESRCH | libc::ENOENT | libc::ENODEV | libc::EAFNOSUPPORT)
            ) =>
        {
            Ok(())
        }
        other => other,
    }
}
