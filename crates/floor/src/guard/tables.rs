//! The guard and the held table without members: the packets that pass in any case, and the claimed packets that are
//! dropped.

#![forbid(unsafe_code)]

use super::dropped::Dropped;
use super::sets::{
    HANDED, LOST, Layer, OWN_BY_DEVICE, PROTECTED, PacketClass, SEEN, SENT_HERE, TRANSLATED,
};
use super::surroundings::Surroundings;
use esp::filter::{Direction, Filter};
use host::Prefix;
use host::netlink::Family;
use host::nft::{self, AddressType, Chain, Commands, Hook, Match, Rule, Statement, Table};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Priorities of the chains in postrouting: before the translation of source addresses, and after it.
const BEFORE_NAT: i32 = 90;
const AFTER_NAT: i32 = 300;
/// The priority of the held table's chain.
const AFTER_GUARD: i32 = AFTER_NAT + 1;
/// The priority of the chain for packets that arrive: before connections are tracked, and fragments joined.
const ARRIVAL: i32 = -350;

/// The chain for claimed packets between the ports of DHCP: those of other users than root pass only to all servers of a
/// link.
const DHCP: &str = "dhcp";
/// The chain for packets that have the bit of [`SEEN`], and no transformation.
const WITHOUT_TRANSFORMATION: &str = "translated";

const MULTICAST_V4: Prefix = Prefix { address: IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), length: 4 };
const MULTICAST_V6: Prefix =
    Prefix { address: IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), length: 8 };

const IKE_PORT: u16 = 500;
const ESP_AND_AH: [u8; 2] = [50, 51];
const IGMP: u8 = 2;
/// ICMPv6 by which routers and neighbours are found (RFC 4861 §4).
const NEIGHBOUR_DISCOVERY: [u8; 5] = [133, 134, 135, 136, 137];
/// ICMPv6 by which a host joins groups (RFC 2710, RFC 3810).
const MULTICAST_LISTENERS: [u8; 4] = [130, 131, 132, 143];
/// Source and destination ports of DHCP: of a client, between servers and relays, of a server.
const DHCP_V4: [(u16, u16); 3] = [(68, 67), (67, 67), (67, 68)];
const DHCP_V6: [(u16, u16); 3] = [(546, 547), (547, 547), (547, 546)];

const ROOT: u32 = 0;
/// No user has this number: every socket of a program has another one.
const NOBODY: u32 = u32::MAX;

const FROM_HERE: Match<'static> = Match::SourceIs(AddressType::Local);
const FOR_THIS_HOST: Match<'static> = Match::DestinationIs(AddressType::Local);
/// A packet with the bit of [`SEEN`].
const HAS_BEEN_SEEN: Match<'static> = Match::MarkBits(SEEN);
const ACCEPT: Statement<'static> = Statement::Accept;

/// The commands for a table without members, in place of the former one.
pub(super) fn base(
    name: &str,
    layer: Layer,
    surroundings: &Surroundings,
    filter: &Filter,
    dropped: &Dropped,
    logs: Option<u16>,
) -> Commands {
    let mut commands = Commands::default();
    let table = match layer {
        Layer::Guard => {
            commands.remove(&nft::table("kernel", &surroundings.device));
            Table::new(name)
        }
        Layer::Held => Table::owned(name),
    };
    let leaving = PacketClass::Leaving;
    let unprotected = Statement::Goto(leaving.unprotected());
    let [_, handed] = HANDED;
    // Of the packets that have come by no device, this host has sent the ones with its addresses, and those of its
    // programs: an IPv6 socket keeps its address after this host has lost it. Frames that a bridge forwards have
    // neither.
    let sent_here = [
        FROM_HERE.then(unprotected),
        Match::Family(Family::V6).and(Match::OtherUser(NOBODY)).then(unprotected),
    ];
    let to_all_servers = [
        Match::User(ROOT),
        Match::DestinationIs(AddressType::Broadcast),
        Match::DestinationIn(MULTICAST_V6),
    ];
    let table = table
        .counter(leaving.unprotected(), dropped.leaving, 0)
        .chain(&Chain::new(handed))
        .chain(&Chain::new(DHCP).rules(to_all_servers.map(|packet| packet.then(ACCEPT))))
        .chain(&unprotected_leaving(surroundings, filter, logs))
        .chain(&Chain::new(leaving.claims()))
        .chain(&Chain::new(SENT_HERE).rules(sent_here))
        .chain(&Chain::new(PacketClass::Own.claims()));
    let table = match layer {
        Layer::Guard => only_guard(table, surroundings, filter, dropped),
        Layer::Held => table,
    };
    let hooks = hooks(layer, surroundings);
    commands.replace(&hooks.iter().fold(table, Table::chain));
    commands
}

/// The chain for claimed packets that leave. IKE and ESP of this host itself pass, and neighbour discovery, which finds
/// the link addresses that protected packets need.
fn unprotected_leaving(surroundings: &Surroundings, filter: &Filter, logs: Option<u16>) -> Chain {
    let natt_port = surroundings.natt_port;
    // Another user can have these ports while this daemon does not run: port 4500 on any host, and port 500 where
    // net.ipv4.ip_unprivileged_port_start is lowered, as in containers. With the kernel's own ESP in UDP, `skuid` is
    // the user who sent the packet inside.
    let ike = match surroundings.kernel {
        true => vec![
            Match::UdpFrom(&[IKE_PORT]).and(Match::User(ROOT)).and(FROM_HERE),
            Match::UdpFrom(&[natt_port]).and(FROM_HERE),
        ],
        false => {
            vec![Match::UdpFrom(&[IKE_PORT, natt_port]).and(Match::User(ROOT)).and(FROM_HERE)]
        }
    };
    let dhcp = [(Family::V4, &DHCP_V4), (Family::V6, &DHCP_V6)]
        .map(|(family, ports)| Match::Family(family).and(Match::UdpPorts(ports)).and(FROM_HERE));
    let to_group = Match::DestinationIn(MULTICAST_V6).and(Match::HopLimit(Family::V6, 1));
    let igmp = Match::DestinationIn(MULTICAST_V4).and(Match::HopLimit(Family::V4, 1));
    let logged = logs.map(|group| {
        let log = Statement::Log { group, octets: 128 };
        Rule::always(Statement::Limit { rate: 1, burst: Some(5) }).then(log)
    });
    let name = PacketClass::Leaving.unprotected();
    Chain::new(name)
        .rules([Match::Protocol(&ESP_AND_AH).and(FROM_HERE).then(ACCEPT)])
        .rules(ike.into_iter().map(|packet| packet.then(ACCEPT)))
        .rules([
            neighbour_discovery(),
            to_group.and(Match::Icmpv6(&MULTICAST_LISTENERS)).then(ACCEPT),
            igmp.and(Match::Protocol(&[IGMP])).then(ACCEPT),
        ])
        .rules(dhcp.map(|packet| packet.then(Statement::Jump(DHCP))))
        .rules(bypass(filter, Direction::Out))
        .rules(logged)
        .rules([Rule::always(Statement::Count(name)).then(Statement::Drop)])
}

/// Neighbours send it with the highest hop limit, so that no router has forwarded it.
fn neighbour_discovery() -> Rule {
    Match::HopLimit(Family::V6, 255).and(Match::Icmpv6(&NEIGHBOUR_DISCOVERY)).then(ACCEPT)
}

/// The chains by which the kernel shows a table the packets that leave.
fn hooks(layer: Layer, surroundings: &Surroundings) -> Vec<Chain> {
    let Surroundings { device, mark, kernel, .. } = surroundings;
    let claims = Rule::always(Statement::Jump(PacketClass::Leaving.claims()));
    let [protected_before, protected_after] = PROTECTED;
    let [handed_before, handed_after] = HANDED;
    let hook = |name: &str, priority: i32, protected: Statement<'_>, handed: &str| {
        let of_this_daemon = [Match::LeavesBy(device), Match::Mark(*mark), Match::LeavesBy("lo")];
        Chain::at(Hook::Postrouting, priority, name)
            .rules(of_this_daemon.map(|packet| packet.then(ACCEPT)))
            .rules(kernel.then(|| Match::ToBeProtected.then(protected)))
            .rules([Rule::always(Statement::Jump(handed))])
    };
    // A packet of this host has come by no device, unless a device has made it.
    let own_by_device = Match::HasDevice(true).then(Statement::Goto(OWN_BY_DEVICE));
    let own = Match::HasDevice(false).then(Statement::Goto(PacketClass::Own.claims()));
    let after = "after_translation";
    match layer {
        Layer::Guard => {
            let protected = [protected_before, protected_after].map(Statement::Goto);
            let translated = HAS_BEEN_SEEN.then(Statement::Jump(WITHOUT_TRANSFORMATION));
            vec![
                hook("before_translation", BEFORE_NAT, protected[0], handed_before)
                    .rules([claims.clone(), own_by_device]),
                hook(after, AFTER_NAT, protected[1], handed_after).rules([translated, claims, own]),
            ]
        }
        Layer::Held => vec![hook(after, AFTER_GUARD, ACCEPT, handed_after).rules([claims, own])],
    }
}

/// Adds the part that the held table does not have: the marks of packets, and packets that arrive.
fn only_guard(
    table: Table,
    surroundings: &Surroundings,
    filter: &Filter,
    dropped: &Dropped,
) -> Table {
    let arriving = PacketClass::Arriving;
    let [protected_before, protected_after] = PROTECTED;
    let [handed, _] = HANDED;
    let clear = Statement::ClearMarkBits(SEEN);
    let translated = [clear, Statement::Jump(LOST), Statement::SetMarkBits(SEEN)].map(Rule::always);
    let table = table
        .counter(arriving.unprotected(), dropped.arriving, 0)
        .counter(TRANSLATED, dropped.translated, 0)
        .chain(&Chain::new(protected_before))
        .chain(&Chain::new(protected_after).rules([HAS_BEEN_SEEN.then(clear)]))
        .chain(&Chain::new(handed))
        .chain(&Chain::new(OWN_BY_DEVICE))
        .chain(&Chain::new(LOST))
        .chain(&Chain::new(WITHOUT_TRANSFORMATION).rules(translated))
        .chain(&unprotected_arriving(surroundings, filter))
        .chain(&Chain::new(arriving.claims()));
    match surroundings.inbound {
        true => table.chain(&arrival(surroundings)),
        false => table,
    }
}

/// The chain for claimed packets that arrive. The same kinds pass as of those that leave, and fragments other than the
/// first, which show no ports and never become a packet if their first one is dropped.
fn unprotected_arriving(surroundings: &Surroundings, filter: &Filter) -> Chain {
    let ike = [IKE_PORT, surroundings.natt_port];
    let name = PacketClass::Arriving.unprotected();
    Chain::new(name)
        .rules([
            Match::Protocol(&ESP_AND_AH).and(FOR_THIS_HOST).then(ACCEPT),
            Match::UdpTo(&ike).and(FOR_THIS_HOST).then(ACCEPT),
            Match::LaterFragment(Family::V4).then(ACCEPT),
            Match::LaterFragment(Family::V6).then(ACCEPT),
            neighbour_discovery(),
        ])
        .rules(bypass(filter, Direction::In))
        .rules([Rule::always(Statement::Count(name)).then(Statement::Drop)])
}

/// The chain by which the kernel shows the guard the packets that arrive. Packets of interfaces other than the tunnel
/// device were not opened by the userspace plane. The kernel checks the packets that it has opened itself.
fn arrival(surroundings: &Surroundings) -> Chain {
    let opened = surroundings.kernel.then_some(Match::Opened);
    let passing =
        [Match::CameBy(&surroundings.device), Match::CameBy("lo")].into_iter().chain(opened);
    Chain::at(Hook::Prerouting, ARRIVAL, "prerouting")
        .rules(passing.map(|packet| packet.then(ACCEPT)))
        .rules([Rule::always(Statement::Goto(PacketClass::Arriving.claims()))])
}

/// The rules that accept the traffic of the filter's bypass rules.
fn bypass(filter: &Filter, direction: Direction) -> impl Iterator<Item = Rule> {
    filter.bypasses(direction).flat_map(move |rule| {
        let (local, remote) = (&rule.traffic.local, &rule.traffic.remote);
        let flows = match direction {
            Direction::In => nft::flows(remote, local),
            Direction::Out | Direction::Both => nft::flows(local, remote),
        };
        flows.into_iter().map(|flow| flow.then(ACCEPT))
    })
}
