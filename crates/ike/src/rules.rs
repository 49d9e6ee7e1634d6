//! The rules in the plane, by the phase 2 tunnel that each stands for and the other way round.

mod frozen;

use esp::plane::{RuleId, TrafficSelectors};
use policy::shadow::Traffic;
use policy::{
    AddressRange, AllowedTraffic, Binding, ChildTunnel, Identity, IkeTunnel, TrafficIndex,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// One rule for each phase 2 tunnel.
#[derive(Default)]
pub(crate) struct Rules {
    by_tunnel: HashMap<Arc<str>, RuleId>,
    by_id: BTreeMap<RuleId, Ruled>,
    by_traffic: TrafficIndex,
    /// Of phase 2 tunnels that a peer has asked for and the policy does not have, by phase 1 tunnel.
    asked_for: BTreeMap<String, Vec<Arc<str>>>,
    /// Those of them that the plane does not have yet, as it has to prepare for them, with their phase 1 tunnels.
    unplaced: BTreeMap<Arc<str>, String>,
    /// Whether the plane has got one of those since this was asked last.
    fresh: bool,
    made: u32,
}

/// The tunnel that a rule stands for.
pub(crate) struct Ruled {
    name: Arc<str>,
    pub child: Arc<ChildTunnel>,
    /// The peer's identity.
    pub peer: Identity,
}

impl Rules {
    /// How many phase 2 tunnels at the front of these have rules in this order.
    pub fn in_order<'a>(&self, tunnels: impl Iterator<Item = &'a str>) -> usize {
        let ids = tunnels.map(|name| self.of(name));
        let mut last = None;
        ids.take_while(|id| id.is_some() && std::mem::replace(&mut last, *id) < *id).count()
    }

    /// Numbers for so many rules, which come after all others.
    pub fn reserve(&mut self, count: usize) -> Range<u32> {
        let first = self.made;
        self.made += u32::try_from(count).expect("a policy has fewer tunnels");
        first..self.made
    }

    /// Gives the rule of a tunnel another name; returns the former, where it has a rule.
    pub fn renumber(&mut self, tunnel: &str, to: RuleId) -> Option<RuleId> {
        let id = self.by_tunnel.get_mut(tunnel)?;
        let from = std::mem::replace(id, to);
        if let Some(ruled) = self.by_id.remove(&from) {
            self.by_traffic.remove(from.0, &ruled.child);
            self.by_traffic.insert(to.0, &ruled.child);
            self.by_id.insert(to, ruled);
        }
        Some(from)
    }

    /// Makes the rule of a tunnel that has none, under a reserved name.
    pub fn add(&mut self, id: RuleId, tunnel: &IkeTunnel, child: &Arc<ChildTunnel>) {
        let name: Arc<str> = Arc::from(child.name.as_str());
        self.by_tunnel.insert(Arc::clone(&name), id);
        let peer = tunnel.remote.identity.clone();
        self.by_traffic.insert(id.0, child);
        self.by_id.insert(id, Ruled { name, child: Arc::clone(child), peer });
    }

    /// Makes the rule of a phase 2 tunnel that the policy does not have, and that the plane is to get
    /// ([`Self::note_placed`]).
    pub fn add_asked_for(&mut self, tunnel: &IkeTunnel, child: &Arc<ChildTunnel>) -> RuleId {
        let name: Arc<str> = Arc::from(child.name.as_str());
        self.asked_for.entry(tunnel.name.clone()).or_default().push(Arc::clone(&name));
        self.unplaced.insert(name, tunnel.name.clone());
        let id = RuleId(self.reserve(1).start);
        self.add(id, tunnel, child);
        id
    }

    /// The plane has the rule of a phase 2 tunnel that a peer has asked for.
    pub fn note_placed(&mut self, child: &str) {
        self.fresh |= self.unplaced.remove(child).is_some();
    }

    /// Whether the plane has the rule of a phase 2 tunnel.
    pub fn is_placed(&self, child: &str) -> bool {
        self.by_tunnel.contains_key(child) && !self.unplaced.contains_key(child)
    }

    /// The phase 1 tunnels of rules that the plane does not have.
    pub fn tunnels_of_unplaced(&self) -> BTreeSet<String> {
        self.unplaced.values().cloned().collect()
    }

    /// Forgets the rules that the plane does not have.
    pub fn take_unplaced(&mut self) -> Vec<RuleId> {
        let unplaced = std::mem::take(&mut self.unplaced);
        for (child, tunnel) in &unplaced {
            if let Some(names) = self.asked_for.get_mut(tunnel) {
                names.retain(|name| name != child);
            }
        }
        self.asked_for.retain(|_, names| !names.is_empty());
        unplaced.keys().filter_map(|child| self.remove(child)).collect()
    }

    /// Returns `true` if the addresses of a phase 2 tunnel that a peer asks for are within bounds
    /// ([`AllowedTraffic::is_bounded`]): those of this side, and those of its own side together with all for which it
    /// has asked before.
    pub fn has_room_for(&self, tunnel: &IkeTunnel, child: &ChildTunnel) -> bool {
        let names = self.asked_for.get(&tunnel.name).map_or(&[][..], Vec::as_slice);
        let others = names.iter().filter_map(|name| self.child(name));
        let remote = others.flat_map(|other| &other.remote).chain(&child.remote);
        AllowedTraffic::is_bounded(child.local.iter().map(|s| s.addresses))
            && AllowedTraffic::is_bounded(remote.map(|s| s.addresses))
    }

    /// The first rule of another peer that has a part of the traffic of a phase 2 tunnel. A peer that names its traffic
    /// itself gets none of it: an SA with it would let packets in that pretend to come from the other peer. Selectors
    /// alone decide: a mark or an interface of the other tunnel does not keep such a peer from forging its packets, nor
    /// from getting those that leave without the mark or the interface.
    pub fn overlapping_rule(&self, peer: &Identity, child: &ChildTunnel) -> Option<&Ruled> {
        let [local, remote] = [&child.local, &child.remote]
            .map(|selectors| selectors.iter().map(|selector| selector.addresses));
        let near = self.by_traffic.meeting(local, remote);
        let asked = Traffic::of(child, Binding::default());
        near.iter().filter_map(|id| self.by_id.get(&RuleId(*id))).find(|ruled| {
            !ruled.peer.matches(peer) && Traffic::of(&ruled.child, Binding::default()).meets(&asked)
        })
    }

    /// Gives those rules places behind all others; returns the former and the new names, the last first.
    pub fn move_asked_for_behind(&mut self) -> Vec<(RuleId, RuleId)> {
        let names = self.asked_for.values().flatten();
        let mut moving: Vec<(RuleId, Arc<str>)> =
            names.filter_map(|name| Some((self.of(name)?, Arc::clone(name)))).collect();
        moving.sort_unstable();
        let ids = self.reserve(moving.len()).map(RuleId);
        let pairs: Vec<_> = moving.into_iter().zip(ids).rev().collect();
        pairs
            .into_iter()
            .filter_map(|((_, name), to)| Some((self.renumber(&name, to)?, to)))
            .collect()
    }

    /// Whether a peer has made rules for this phase 1 tunnel.
    pub fn has_asked_for(&self, tunnel: &str) -> bool {
        self.asked_for.contains_key(tunnel)
    }

    /// Whether the plane has got a rule that a peer has asked for since this was asked last.
    pub fn take_fresh(&mut self) -> bool {
        std::mem::take(&mut self.fresh)
    }

    /// Forgets the rules that peers have made for this phase 1 tunnel and nothing uses any more.
    pub fn take_unused(&mut self, tunnel: &str) -> Vec<RuleId> {
        let Some(mut names) = self.asked_for.remove(tunnel) else { return Vec::new() };
        // Child SAs share the phase 2 tunnel with its rule.
        let unused: Vec<Arc<str>> = names
            .iter()
            .filter(|name| self.child(name).is_none_or(|c| Arc::strong_count(c) <= 1))
            .cloned()
            .collect();
        names.retain(|name| !unused.contains(name));
        if !names.is_empty() {
            self.asked_for.insert(tunnel.to_owned(), names);
        }
        unused.iter().filter_map(|name| self.remove(name)).collect()
    }

    /// The phase 2 tunnel of that name.
    pub fn child(&self, name: &str) -> Option<&Arc<ChildTunnel>> {
        self.by_id.get(&self.of(name)?).map(|ruled| &ruled.child)
    }

    /// Forgets the rule of a tunnel.
    pub fn remove(&mut self, tunnel: &str) -> Option<RuleId> {
        let id = self.by_tunnel.remove(tunnel)?;
        self.unplaced.remove(tunnel);
        if let Some(ruled) = self.by_id.remove(&id) {
            self.by_traffic.remove(id.0, &ruled.child);
        }
        Some(id)
    }

    /// The rule of a tunnel.
    pub fn of(&self, tunnel: &str) -> Option<RuleId> {
        self.by_tunnel.get(tunnel).copied()
    }

    /// The tunnel of a rule.
    pub fn tunnel(&self, id: RuleId) -> Option<&Arc<str>> {
        self.by_id.get(&id).map(|ruled| &ruled.name)
    }

    /// The rule of another peer that all of this traffic of a phase 2 tunnel meets before the tunnel's own. Packets go
    /// by the first rule that covers them, whether it has an SA or not: an SA with this traffic would never carry one.
    /// A request for it is refused. `binding_of`:
    /// [`Capabilities::binding_of`](esp::plane::Capabilities::binding_of).
    pub fn shadowing_rule(
        &self,
        tunnel: &str,
        peer: &Identity,
        traffic: &TrafficSelectors,
        binding_of: &dyn Fn(&str) -> Binding,
    ) -> Option<&Ruled> {
        // One that is still to be made stands behind all others.
        let own = self.of(tunnel).unwrap_or(RuleId(self.made));
        // A rule that covers all of it covers its first address.
        let [local, remote] = [&traffic.local, &traffic.remote].map(|selectors| {
            selectors.first().map(|s| AddressRange::from(s.addresses.start())).into_iter()
        });
        let near = self.by_traffic.meeting(local, remote);
        let earlier = near.into_iter().map(RuleId).take_while(|id| *id < own);
        let TrafficSelectors { local, remote } = traffic;
        let asked = Traffic { local, remote, binding: binding_of(tunnel) };
        earlier.filter_map(|id| self.by_id.get(&id)).find(|ruled| {
            !ruled.peer.matches(peer)
                && Traffic::of(&ruled.child, binding_of(&ruled.name)).covers(&asked)
        })
    }

    /// The phase 2 tunnels, by name, that may have traffic between these addresses, in order.
    pub fn meeting(
        &self,
        local: impl Iterator<Item = AddressRange>,
        remote: impl Iterator<Item = AddressRange>,
    ) -> impl Iterator<Item = &Arc<str>> {
        let near = self.by_traffic.meeting(local, remote);
        near.into_iter().filter_map(|id| self.tunnel(RuleId(id)))
    }
}
