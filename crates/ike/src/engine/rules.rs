//! The rules in the plane, by the phase 2 tunnel that each stands for and the other way round.

use crate::negotiation::selectors::covered;
use esp::plane::{RuleId, TrafficSelectors};
use policy::{AddressRange, ChildTunnel, Identity, IkeTunnel};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
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

/// A block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Prefix {
    ipv6: bool,
    len: u32,
    /// From the highest bit on; zeros below the prefix.
    bits: u128,
}

/// What a rule stands for.
pub(crate) struct Ruled {
    name: Arc<str>,
    pub child: Arc<ChildTunnel>,
    /// Who is at the other end.
    pub peer: Identity,
}

impl Rules {
    /// Makes the rule of a tunnel that has none.
    pub fn add(&mut self, tunnel: &IkeTunnel, child: &Arc<ChildTunnel>) -> RuleId {
        let (id, name) = (RuleId(self.made), Arc::from(child.name.as_str()));
        self.made += 1;
        self.by_tunnel.insert(Arc::clone(&name), id);
        let peer = tunnel.remote.identity.clone();
        self.by_prefix.extend(prefixes(child).map(|prefix| (prefix, id)));
        self.by_id.insert(id, Ruled { name, child: Arc::clone(child), peer });
        id
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

impl Prefix {
    fn new(address: IpAddr, len: u32) -> Self {
        let (ipv6, bits) = match address {
            IpAddr::V4(a) => (false, u128::from(a.to_bits()) << 96),
            IpAddr::V6(a) => (true, a.to_bits()),
        };
        let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
        Self { ipv6, len, bits: bits & mask }
    }

    /// The longest one that holds a range.
    fn holding(range: &AddressRange) -> Self {
        let common = match (range.start(), range.end()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => 0,
        };
        Self::new(range.start(), common)
    }

    /// All that hold an address, the longest last.
    fn all_around(address: IpAddr) -> impl Iterator<Item = Self> {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        (0..=longest).map(move |len| Self::new(address, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(ipv6: bool, bits: u128) -> IpAddr {
        match ipv6 {
            false => IpAddr::V4(std::net::Ipv4Addr::from_bits((bits >> 96) as u32)),
            true => IpAddr::V6(bits.into()),
        }
    }

    proptest! {
        #[test]
        fn a_range_is_found_by_every_address_in_it(
            ipv6: bool, a: u128, span in 0..128_u32, at in 0.0..=1.0_f64,
        ) {
            let b = a.saturating_add(u128::MAX.checked_shr(span).unwrap_or(0));
            let inside = a.saturating_add(((b - a) as f64 * at) as u128);
            let inside = inside.clamp(a, b);
            let range = AddressRange::new(address(ipv6, a), address(ipv6, b)).expect("in order");
            let wanted = Prefix::holding(&range);
            prop_assert_eq!(
                Prefix::all_around(address(ipv6, inside)).filter(|p| *p == wanted).count(), 1
            );
            let outside = address(ipv6, !a);
            let held = Prefix::all_around(outside).any(|p| p == wanted);
            prop_assert!(held == (wanted.len == 0), "the highest bit differs");
        }
    }
}
