//! References between objects.

use super::object::{Kind, Object};
use crate::xml::Node;
use crate::xml::schema::{REFERENCES, SUBNET_ADDRESS, SUBNET_MASK, is_group_reference};
use crate::{AddressRange, Identity, Prefix};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// The references between objects, which are found by their names.
pub(super) struct References<'o> {
    objects: &'o [Object],
    /// The first object of each kind and name.
    by_name: HashMap<(Kind, &'o str), usize>,
    /// Preshared keys by the fingerprints of their peers.
    keys: HashMap<u64, Vec<usize>>,
}

impl<'o> References<'o> {
    /// The references between these objects.
    pub fn between(objects: &'o [Object]) -> Self {
        let mut by_name = HashMap::with_capacity(objects.len());
        let mut keys: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at, object) in objects.iter().enumerate() {
            if let Some(kind) = object.kind() {
                by_name.entry((kind, object.name())).or_insert(at);
            }
            if let Some(peer) = object.peer() {
                keys.entry(peer.fingerprint()).or_default().push(at);
            }
        }
        Self { objects, by_name, keys }
    }

    /// The objects that one refers to.
    fn of(&self, at: usize) -> BTreeSet<usize> {
        let Some(object) = self.objects.get(at) else { return BTreeSet::new() };
        let mut found = BTreeSet::new();
        for reference in REFERENCES.iter().filter(|reference| reference.from == object.element()) {
            let Some(value) = object.node().attribute(reference.attribute) else { continue };
            let Some(kind) = Kind::of_element(reference.to) else { continue };
            if kind == Kind::IpsecProposal {
                found.extend(
                    value.split_ascii_whitespace().filter_map(|name| self.position(kind, name)),
                );
            } else {
                found.extend(self.position(kind, value));
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
            if let Some(group) = self.position(Kind::IkeGroup, name) {
                found.insert(group);
                peers.extend(self.objects[group].node().children());
            }
        }
        if object.kind() == Some(Kind::IkeTunnel)
            && found
                .iter()
                .find(|at| self.objects[**at].kind() == Some(Kind::IkeProtection))
                .is_none_or(|at| wants_key(self.objects[*at].node()))
        {
            found.extend(peers.into_iter().flat_map(|peer| self.keys_of(peer)));
        }
        found
    }

    /// The preshared keys for a peer, or for the peers that a member of a group stands for.
    fn keys_of(&self, peer: &Node) -> Vec<usize> {
        let is_named = |at: &usize| {
            let key = self.objects[*at].peer();
            key.is_some_and(|key| names(peer, key))
        };
        match peer.identity() {
            Some(identity) => {
                let alike = self.keys.get(&identity.fingerprint()).into_iter().flatten();
                alike.copied().filter(is_named).collect()
            }
            // A range of addresses.
            None => self.keys.values().flatten().copied().filter(is_named).collect(),
        }
    }

    fn position(&self, kind: Kind, name: &str) -> Option<usize> {
        self.by_name.get(&(kind, name)).copied()
    }

    /// For each of these objects to which others refer, those others.
    pub fn to(&self, objects: &BTreeSet<usize>) -> BTreeMap<usize, Vec<usize>> {
        let mut found: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for from in (0..self.objects.len()).filter(|from| !objects.contains(from)) {
            for to in self.of(from).intersection(objects) {
                found.entry(*to).or_default().push(from);
            }
        }
        found
    }

    /// Objects with all they refer to, and with the phase 2 tunnels that the phase 1 tunnels among them carry.
    pub fn closure(&self, seed: &[usize]) -> Vec<usize> {
        let is = |at: usize, kind| self.objects[at].kind() == Some(kind);
        let carriers: BTreeSet<usize> =
            seed.iter().copied().filter(|at| is(*at, Kind::IkeTunnel)).collect();
        let mut open = seed.to_vec();
        if !carriers.is_empty() {
            let children = (0..self.objects.len()).filter(|at| is(*at, Kind::IpsecTunnel));
            open.extend(children.filter(|child| !self.of(*child).is_disjoint(&carriers)));
        }
        let mut found = BTreeSet::new();
        while let Some(at) = open.pop() {
            if found.insert(at) {
                open.extend(self.of(at));
            }
        }
        found.into_iter().collect()
    }
}

/// A phase 1 tunnel with all that belongs to it; `None` if there is none of that name.
pub(crate) fn of_tunnel(objects: &[Object], name: &str) -> Option<BTreeSet<usize>> {
    let references = References::between(objects);
    let tunnel = references.position(Kind::IkeTunnel, name)?;
    Some(references.closure(&[tunnel]).into_iter().collect())
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
