//! Which object refers to which.

use super::object::{Kind, Object};
use crate::Identity;
use crate::xml::{GROUP_REFERENCES, Node};
use std::collections::BTreeSet;

/// Attributes that refer to objects by name, or by a list of names.
const BY_NAME: [(Kind, &str, Kind); 5] = [
    (Kind::IkeProtection, "IKE_IPSecDefaultProtectionRef", Kind::IpsecProtection),
    (Kind::IkeTunnel, "IKE_ProtectionRef", Kind::IkeProtection),
    (Kind::IpsecProtection, "IPSec_ProposalRefs", Kind::IpsecProposal),
    (Kind::IpsecTunnel, "IPSec_ProtectionRef", Kind::IpsecProtection),
    (Kind::IpsecTunnel, "IKE_TunnelName", Kind::IkeTunnel),
];

/// The objects that one refers to.
fn of(objects: &[Object], at: usize) -> BTreeSet<usize> {
    let Some(object) = objects.get(at) else { return BTreeSet::new() };
    let position = |kind: Kind, name: &str| {
        objects.iter().position(|o| o.kind() == Some(kind) && o.name() == name)
    };
    let mut found = BTreeSet::new();
    for (_, attribute, kind) in BY_NAME.iter().filter(|(from, ..)| object.kind() == Some(*from)) {
        let Some(value) = object.node().attribute(attribute) else { continue };
        if *kind == Kind::IpsecProposal {
            found.extend(value.split_ascii_whitespace().filter_map(|name| position(*kind, name)));
        } else {
            found.extend(position(*kind, value));
        }
    }
    let remote = ["IKERemoteIdentity", "IPSecRemoteIdentity"];
    let remote = object.node().children().iter().filter(|side| remote.contains(&side.name()));
    let mut peers: Vec<Identity> = Vec::new();
    for identity in remote.flat_map(Node::children) {
        peers.extend(identity.identity());
        if !GROUP_REFERENCES.contains(&identity.name()) {
            continue;
        }
        let name = identity.attributes().next().map_or("", |(_, name)| name);
        if let Some(group) = position(Kind::IkeGroup, name) {
            found.insert(group);
            peers.extend(objects[group].node().children().iter().filter_map(Node::identity));
        }
    }
    if object.kind() == Some(Kind::IkeTunnel) {
        let is_for =
            |key: &Object| key.peer().is_some_and(|key| peers.iter().any(|peer| peer.matches(key)));
        let keys = objects.iter().enumerate().filter(|(_, o)| is_for(o));
        found.extend(keys.map(|(at, _)| at));
    }
    found
}

/// The objects that refer to one, except tunnels that could do without this key: whether they can shows when the rest is
/// read.
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
