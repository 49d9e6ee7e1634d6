//! References between objects.

use super::object::{Kind, Object};
use crate::xml::Node;
use crate::xml::schema::{REFERENCES, SUBNET_ADDRESS, SUBNET_MASK, is_group_reference};
use crate::{AddressRange, Identity, Prefix};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The objects that one refers to.
fn of(objects: &[Object], at: usize) -> BTreeSet<usize> {
    let Some(object) = objects.get(at) else { return BTreeSet::new() };
    let mut found = BTreeSet::new();
    for reference in REFERENCES.iter().filter(|reference| reference.from == object.element()) {
        let Some(value) = object.node().attribute(reference.attribute) else { continue };
        let Some(kind) = Kind::of_element(reference.to) else { continue };
        if kind == Kind::IpsecProposal {
            found.extend(
                value.split_ascii_whitespace().filter_map(|name| position(objects, kind, name)),
            );
        } else {
            found.extend(position(objects, kind, value));
        }
    }
    // No attribute refers to a preshared key: a tunnel has the key whose identity its peer may have.
    let remote = ["IKERemoteIdentity", "IPSecRemoteIdentity"];
    let remote = object.node().children().iter().filter(|side| remote.contains(&side.name()));
    let mut peers: Vec<&Node> = Vec::new();
    for peer in remote.flat_map(Node::children) {
        peers.push(peer);
        if !is_group_reference(peer.name()) {
            continue;
        }
        let name = peer.attributes().next().map_or("", |(_, name)| name);
        if let Some(group) = position(objects, Kind::IkeGroup, name) {
            found.insert(group);
            peers.extend(objects[group].node().children());
        }
    }
    if object.kind() == Some(Kind::IkeTunnel)
        && found
            .iter()
            .find(|at| objects[**at].kind() == Some(Kind::IkeProtection))
            .is_none_or(|at| wants_key(objects[*at].node()))
    {
        let keys = objects.iter().enumerate().filter(|(_, key)| {
            key.peer().is_some_and(|key| peers.iter().any(|peer| names(peer, key)))
        });
        found.extend(keys.map(|(at, _)| at));
    }
    found
}

fn position(objects: &[Object], kind: Kind, name: &str) -> Option<usize> {
    objects.iter().position(|object| object.kind() == Some(kind) && object.name() == name)
}

/// Returns `true` if tunnels of a protection prove themselves with a preshared key, as they do unless it says
/// otherwise.
fn wants_key(protection: &Node) -> bool {
    let methods =
        protection.children().iter().filter_map(|t| t.attribute("IKE_AuthenticationMethod"));
    let mut methods = methods.peekable();
    methods.peek().is_none() || methods.any(|m| m.eq_ignore_ascii_case("Preshared_key"))
}

/// Returns `true` if an identity, or a member of a group, may stand for a peer.
fn names(element: &Node, peer: &Identity) -> bool {
    if let Some(identity) = element.identity() {
        return identity.matches(peer);
    }
    let Some(address) = peer.address() else { return false };
    if let [Some(from), Some(to)] =
        ["From_IPAddr", "To_IPAddr"].map(|name| element.attribute(name)?.parse::<IpAddr>().ok())
    {
        return AddressRange::new(from, to).is_some_and(|range| range.contains(address));
    }
    let [network, mask] = [SUBNET_ADDRESS, SUBNET_MASK]
        .map(|spellings| spellings.iter().find_map(|name| element.attribute(name)));
    let network = network.and_then(|network| network.parse::<IpAddr>().ok());
    let len = mask.and_then(|mask| match mask.parse() {
        Ok(IpAddr::V4(mask)) => u8::try_from(mask.to_bits().leading_ones()).ok(),
        Ok(IpAddr::V6(mask)) => u8::try_from(mask.to_bits().leading_ones()).ok(),
        Err(_) => mask.parse().ok(),
    });
    let (Some(network), Some(len)) = (network, len) else { return false };
    Prefix::new(network, len) == Prefix::new(address, len)
}

/// The objects that refer to one.
pub(super) fn to(objects: &[Object], at: usize) -> Vec<usize> {
    (0..objects.len()).filter(|from| of(objects, *from).contains(&at)).collect()
}

/// A phase 1 tunnel with all that belongs to it; `None` if there is none of that name.
pub(crate) fn of_tunnel(objects: &[Object], name: &str) -> Option<Vec<usize>> {
    Some(closure(objects, &[position(objects, Kind::IkeTunnel, name)?]))
}

/// Objects with all they refer to, and with the phase 2 tunnels that the phase 1 tunnels among them carry.
pub(super) fn closure(objects: &[Object], seed: &[usize]) -> Vec<usize> {
    let carriers = seed.iter().filter(|at| objects[**at].kind() == Some(Kind::IkeTunnel));
    let carried = carriers.flat_map(|carrier| {
        to(objects, *carrier)
            .into_iter()
            .filter(|at| objects[*at].kind() == Some(Kind::IpsecTunnel))
    });
    let mut open: Vec<usize> = seed.iter().copied().chain(carried).collect();
    let mut found = BTreeSet::new();
    while let Some(at) = open.pop() {
        if found.insert(at) {
            open.extend(of(objects, at));
        }
    }
    found.into_iter().collect()
}
