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
    let position = |kind: Kind, name: &str| {
        objects.iter().position(|o| o.kind() == Some(kind) && o.name() == name)
    };
    let mut found = BTreeSet::new();
    for reference in REFERENCES.iter().filter(|reference| reference.from == object.element()) {
        let Some(value) = object.node().attribute(reference.attribute) else { continue };
        let Some(kind) = Kind::of_element(reference.to) else { continue };
        if kind == Kind::IpsecProposal {
            found.extend(value.split_ascii_whitespace().filter_map(|name| position(kind, name)));
        } else {
            found.extend(position(kind, value));
        }
    }
    let remote = ["IKERemoteIdentity", "IPSecRemoteIdentity"];
    let remote = object.node().children().iter().filter(|side| remote.contains(&side.name()));
    let mut peers: Vec<&Node> = Vec::new();
    for peer in remote.flat_map(Node::children) {
        peers.push(peer);
        if !is_group_reference(peer.name()) {
            continue;
        }
        let name = peer.attributes().next().map_or("", |(_, name)| name);
        if let Some(group) = position(Kind::IkeGroup, name) {
            found.insert(group);
            peers.extend(objects[group].node().children());
        }
    }
    let protection = |at: &&usize| objects[**at].kind() == Some(Kind::IkeProtection);
    if object.kind() == Some(Kind::IkeTunnel)
        && found.iter().find(protection).is_none_or(|at| wants_key(objects[*at].node()))
    {
        let is_for =
            |key: &Object| key.peer().is_some_and(|key| peers.iter().any(|peer| names(peer, key)));
        let keys = objects.iter().enumerate().filter(|(_, o)| is_for(o));
        found.extend(keys.map(|(at, _)| at));
    }
    found
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
    let value = |spellings: &[&str]| spellings.iter().find_map(|name| element.attribute(name));
    let read = |spellings| value(spellings).and_then(|value| value.parse::<IpAddr>().ok());
    if let (Some(from), Some(to)) = (read(&["From_IPAddr"]), read(&["To_IPAddr"])) {
        return AddressRange::new(from, to).is_some_and(|range| range.contains(address));
    }
    let len = value(SUBNET_MASK).and_then(|mask| match mask.parse() {
        Ok(IpAddr::V4(mask)) => u8::try_from(mask.to_bits().leading_ones()).ok(),
        Ok(IpAddr::V6(mask)) => u8::try_from(mask.to_bits().leading_ones()).ok(),
        Err(_) => mask.parse().ok(),
    });
    let network = read(SUBNET_ADDRESS);
    let block = |address| len.map(|len| Prefix::new(address, len));
    network.is_some_and(|network| block(network).is_some() && block(network) == block(address))
}

/// The objects that refer to one.
pub(super) fn to(objects: &[Object], at: usize) -> Vec<usize> {
    (0..objects.len()).filter(|from| of(objects, *from).contains(&at)).collect()
}

/// A phase 1 tunnel with all that belongs to it; `None` if there is none of that name.
pub(crate) fn of_tunnel(objects: &[Object], name: &str) -> Option<Vec<usize>> {
    let is_it = |o: &Object| o.kind() == Some(Kind::IkeTunnel) && o.name() == name;
    Some(closure(objects, &[objects.iter().position(is_it)?]))
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
