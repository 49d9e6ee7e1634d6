//! IKEGroup: a set of identities that may stand for the peer of a tunnel which this side only answers.

use super::context::Context;
use super::table::Table;
use crate::xml::element::Element;
use crate::xml::schema::{GROUP_NAME, GROUP_REFERENCE, GROUPS, is_group_reference};
use crate::{AddressRange, Endpoint};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Peers that one group may stand for: each becomes a tunnel of its own.
const MAX_PEERS: usize = 1024;

/// The limit for all tunnels of a file together.
const MAX_PEERS_OF_ALL: usize = 20_000;

/// One group.
pub(super) struct Group {
    pub name: String,
    members: Vec<Member>,
}

enum Member {
    One(Endpoint),
    /// Each address of it.
    Range(AddressRange),
}

/// Reads every group.
pub(super) fn groups(cx: &mut Context<'_>, root: &Element<'_>) -> Table<Group> {
    let mut table = Table::new("IKEGroup");
    for element in root.children.iter().filter(|child| GROUPS.contains(&child.name)) {
        let Some(name) = cx.one_spelling(element, GROUP_NAME) else {
            table.has_nameless();
            continue;
        };
        if element.children.is_empty() && !element.damaged {
            let help = "put identities inside it, like <FQDN Value=\"laptop.example.net\"/>";
            cx.report.error(element.span(), format!("{} holds no identity", element.name), help);
        }
        let members: Vec<_> = element.children.iter().map(|member| cx.member(member)).collect();
        let members: Option<Vec<_>> = members.into_iter().collect();
        let group = members.filter(|members| !members.is_empty()).map(|members| {
            let name = element.attribute(name).map_or("", |name| name.trimmed()).to_owned();
            Group { name, members }
        });
        table.insert(cx, element, name, group);
    }
    table
}

impl Group {
    /// The addresses of its members; the error is a member that has none.
    pub fn addresses(&self) -> Result<Vec<AddressRange>, &Endpoint> {
        self.members
            .iter()
            .map(|member| match member {
                Member::One(endpoint) => endpoint.address.map(AddressRange::from).ok_or(endpoint),
                Member::Range(range) => Ok(*range),
            })
            .collect()
    }
}

/// The peers that members stand for, each once.
fn peers(members: &[Member]) -> Vec<Endpoint> {
    let mut peers: Vec<Endpoint> = Vec::new();
    let mut seen: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for member in members {
        let more = match member {
            Member::One(endpoint) => vec![endpoint.clone()],
            Member::Range(range) => each(range),
        };
        for peer in more {
            let alike = seen.entry(peer.identity.fingerprint()).or_default();
            if alike.iter().all(|at| !peers[*at].identity.matches(&peer.identity)) {
                alike.push(peers.len());
                peers.push(peer);
            }
        }
    }
    peers
}

/// Number of addresses in a range, or a large number.
fn count(range: &AddressRange) -> usize {
    let (start, end) = bits(range);
    usize::try_from(end - start).unwrap_or(usize::MAX).saturating_add(1)
}

fn bits(range: &AddressRange) -> (u128, u128) {
    let [start, end] = [range.start(), range.end()].map(|address| match address {
        IpAddr::V4(address) => Ipv4Addr::to_bits(address).into(),
        IpAddr::V6(address) => Ipv6Addr::to_bits(address),
    });
    (start, end)
}

/// Every address of a range.
fn each(range: &AddressRange) -> Vec<Endpoint> {
    let (start, end) = bits(range);
    (start..=end)
        .map(|bits| match u32::try_from(bits) {
            Ok(bits) if range.start().is_ipv4() => IpAddr::V4(Ipv4Addr::from_bits(bits)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        })
        .map(|address| Endpoint { address: Some(address), identity: address.into() })
        .collect()
}

impl Context<'_> {
    fn member(&mut self, element: &Element<'_>) -> Option<Member> {
        match element.name {
            "IPV4_Address_Range" | "IPV6_Address_Range" | "IPV4_Subnet" | "IPV6_Subnet" => {
                self.range(element).map(Member::Range)
            }
            _ if is_group_reference(element.name) => None,
            _ => self.party(element).map(Member::One),
        }
    }

    /// The group that an element refers to; the outer `None` is reported here, the inner one was.
    pub fn group_of<'g>(
        &mut self,
        element: &Element<'_>,
        groups: &'g Table<Group>,
    ) -> Option<Option<&'g Group>> {
        if let Some(child) = element.children.first() {
            let message = "a group's members stand where it is defined, not where it is used";
            let help = "define it as <IKEGroup IKE_GroupName=\"…\"> inside AIX_VPN, and write <IKEGroupRef Value=\"…\"/> here";
            self.report.error(child.span(), message, help);
            return None;
        }
        let name = self.one_spelling(element, GROUP_REFERENCE)?;
        let attribute = element.attribute(name)?;
        self.name(element, attribute)?;
        groups.resolve_name(self, element, attribute, attribute.trimmed())
    }

    /// The peers that a group stands for, where it is the remote identity of a phase 1 tunnel.
    pub fn peers(&mut self, element: &Element<'_>, group: &Group) -> Option<Vec<Endpoint>> {
        let help =
            "each of them becomes a tunnel of its own: name fewer addresses, or the peers by FQDN";
        // Counted before they are made: a few octets of a file can stand for any number.
        let count = group.members.iter().fold(0_usize, |sum, member| {
            sum.saturating_add(match member {
                Member::One(_) => 1,
                Member::Range(range) => count(range),
            })
        });
        if count > MAX_PEERS {
            let message =
                format!("the group {:?} stands for more than {MAX_PEERS} peers", group.name);
            self.report.error(element.span(), message, help);
            return None;
        }
        self.peers_of_groups += count;
        if self.peers_of_groups > MAX_PEERS_OF_ALL {
            let message =
                format!("the groups of all tunnels stand for more than {MAX_PEERS_OF_ALL} peers");
            self.report.error(element.span(), message, help);
            return None;
        }
        Some(peers(&group.members))
    }
}
