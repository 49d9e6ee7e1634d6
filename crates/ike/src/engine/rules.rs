//! The rules in the plane, by the phase 2 tunnel that each stands for and the other way round.

use crate::negotiation::selectors::covered;
use esp::plane::{RuleId, TrafficSelectors};
use policy::{ChildTunnel, Identity, IkeTunnel, Prefix};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// One rule for each phase 2 tunnel.
#[derive(Default)]
pub(crate) struct Rules {
    by_tunnel: HashMap<Arc<str>, RuleId>,
    by_id: BTreeMap<RuleId, Ruled>,
    /// By each range of the peer's traffic.
    by_prefix: BTreeSet<(Prefix, RuleId)>,
    made: u32,
}

/// What a rule stands for.
pub(crate) struct Ruled {
    name: Arc<str>,
    pub child: Arc<ChildTunnel>,
    /// Who is at the other end.
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
    pub fn rename(&mut self, tunnel: &str, to: RuleId) -> Option<RuleId> {
        let id = self.by_tunnel.get_mut(tunnel)?;
        let from = std::mem::replace(id, to);
        if let Some(ruled) = self.by_id.remove(&from) {
            for prefix in prefixes(&ruled.child) {
                self.by_prefix.remove(&(prefix, from));
                self.by_prefix.insert((prefix, to));
            }
            self.by_id.insert(to, ruled);
        }
        Some(from)
    }

    /// Makes the rule of a tunnel that has none, under a reserved name.
    pub fn add(&mut self, id: RuleId, tunnel: &IkeTunnel, child: &Arc<ChildTunnel>) {
        let name: Arc<str> = Arc::from(child.name.as_str());
        self.by_tunnel.insert(Arc::clone(&name), id);
        let peer = tunnel.remote.identity.clone();
        self.by_prefix.extend(prefixes(child).map(|prefix| (prefix, id)));
        self.by_id.insert(id, Ruled { name, child: Arc::clone(child), peer });
    }

    /// Forgets the rule of a tunnel.
    pub fn remove(&mut self, tunnel: &str) -> Option<RuleId> {
        let id = self.by_tunnel.remove(tunnel)?;
        if let Some(ruled) = self.by_id.remove(&id) {
            for prefix in prefixes(&ruled.child) {
                self.by_prefix.remove(&(prefix, id));
            }
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
    pub fn claimant(
        &self,
        tunnel: &str,
        peer: &Identity,
        traffic: &TrafficSelectors,
    ) -> Option<&Ruled> {
        let own = self.of(tunnel)?;
        // Who covers all of it covers its first address.
        let first = traffic.remote.first()?.addresses.start();
        let around = |prefix| self.by_prefix.range((prefix, RuleId(0))..(prefix, own));
        let earlier: BTreeSet<RuleId> =
            Prefix::all_around(first).flat_map(around).map(|(_, id)| *id).collect();
        earlier.iter().filter_map(|id| self.by_id.get(id)).find(|ruled| {
            covered(&traffic.remote, &ruled.child.remote)
                && covered(&traffic.local, &ruled.child.local)
                && !ruled.peer.matches(peer)
        })
    }
}

fn prefixes(child: &ChildTunnel) -> impl Iterator<Item = Prefix> {
    child.remote.iter().map(|selector| Prefix::holding(&selector.addresses))
}
