//! Finds the rules whose addresses meet given ones, however many rules there are.
//!
//! Each stands under the prefixes of both of its sides. Of one side it may be that all rules meet what is asked for
//! (all tunnels of one peer begin at the same host, say), seldom of both: both are looked at in turn, until one is at
//! its end.

use crate::{AddressRange, ChildTunnel, Prefix, Selector};
use std::collections::BTreeSet;

/// Rules, by their numbers.
#[derive(Debug, Default)]
pub struct TrafficIndex {
    local: Side,
    remote: Side,
}

/// The rules under the prefixes of one side.
#[derive(Debug, Default)]
struct Side(BTreeSet<(Prefix, u32)>);

impl Side {
    /// Every rule that has an address of these, and others; some of them more than once.
    fn meeting(&self, ranges: impl Iterator<Item = AddressRange>) -> impl Iterator<Item = u32> {
        let blocks = ranges.flat_map(|range| Prefix::all_meeting(&range));
        let places = blocks.map(|(first, last)| (first, 0)..=(last, u32::MAX));
        places.flat_map(|places| self.0.range(places)).map(|(_, rule)| *rule)
    }
}

fn prefixes(selectors: &[Selector]) -> impl Iterator<Item = Prefix> {
    selectors.iter().map(|selector| Prefix::holding(&selector.addresses))
}

impl TrafficIndex {
    /// Adds a rule for the traffic of a phase 2 tunnel.
    pub fn insert(&mut self, rule: u32, child: &ChildTunnel) {
        for (side, selectors) in
            [(&mut self.local, &child.local), (&mut self.remote, &child.remote)]
        {
            side.0.extend(prefixes(selectors).map(|prefix| (prefix, rule)));
        }
    }

    /// Removes a rule.
    pub fn remove(&mut self, rule: u32, child: &ChildTunnel) {
        for (side, selectors) in
            [(&mut self.local, &child.local), (&mut self.remote, &child.remote)]
        {
            prefixes(selectors).for_each(|prefix| _ = side.0.remove(&(prefix, rule)));
        }
    }

    /// Every rule that has addresses of these on both sides, in order, and perhaps others.
    pub fn meeting(
        &self,
        local: impl Iterator<Item = AddressRange>,
        remote: impl Iterator<Item = AddressRange>,
    ) -> Vec<u32> {
        let (mut here, mut there) = (self.local.meeting(local), self.remote.meeting(remote));
        let (mut of_here, mut of_there) = (Vec::new(), Vec::new());
        let mut found = loop {
            match here.next() {
                Some(rule) => of_here.push(rule),
                None => break of_here,
            }
            match there.next() {
                Some(rule) => of_there.push(rule),
                None => break of_there,
            }
        };
        found.sort_unstable();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, Pfs, PortRange, Role};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    /// Addresses close to each other and to the ends of their families.
    fn range() -> impl Strategy<Value = AddressRange> {
        let number = || prop_oneof![0_u32..24, 250_u32..262, u32::MAX - 9..=u32::MAX];
        (any::<bool>(), number(), number(), any::<bool>()).prop_map(|(v6, a, b, one)| {
            let address = |n: u32| -> IpAddr {
                match v6 {
                    false => Ipv4Addr::from_bits(n).into(),
                    true => Ipv6Addr::from_bits(u128::from(n).rotate_right(32)).into(),
                }
            };
            let (start, end) = (a.min(b), if one { a.min(b) } else { a.max(b) });
            AddressRange::new(address(start), address(end)).expect("ascending")
        })
    }

    fn ranges() -> impl Strategy<Value = Vec<AddressRange>> {
        prop::collection::vec(range(), 1..3)
    }

    fn child(local: &[AddressRange], remote: &[AddressRange]) -> ChildTunnel {
        let selectors = |ranges: &[AddressRange]| {
            let selector = |addresses| Selector { protocol: 0, addresses, ports: PortRange::ANY };
            ranges.iter().copied().map(selector).collect()
        };
        ChildTunnel {
            name: "net".into(),
            role: Role::Both,
            mode: Mode::Tunnel,
            local: selectors(local),
            remote: selectors(remote),
            proposals: vec![],
            pfs: Pfs::default(),
            auto_start: false,
            on_demand: false,
        }
    }

    fn meet(ours: &[Selector], asked: &[AddressRange]) -> bool {
        asked.iter().any(|a| ours.iter().any(|o| o.addresses.intersection(a).is_some()))
    }

    proptest! {
        /// None is missed that a look at all of them finds; and nothing is left when all rules are gone.
        #[test]
        fn finds_what_a_search_finds(
            rules in prop::collection::vec((ranges(), ranges()), 0..40), removed in prop::collection::vec(0..40_u32, 0..10),
            asked in prop::collection::vec((ranges(), ranges()), 1..8),
        ) {
            let mut children: BTreeMap<u32, ChildTunnel> =
                rules.iter().map(|(l, r)| child(l, r)).enumerate().map(|(n, c)| (n as u32, c)).collect();
            let mut traffic = TrafficIndex::default();
            children.iter().for_each(|(id, child)| traffic.insert(*id, child));
            for id in removed {
                children.remove(&id).into_iter().for_each(|child| traffic.remove(id, &child));
            }
            for (local, remote) in asked {
                let meets = |c: &ChildTunnel| meet(&c.local, &local) && meet(&c.remote, &remote);
                let searched = children.iter().filter(|(_, c)| meets(c)).map(|(id, _)| *id);
                let found = traffic.meeting(local.iter().copied(), remote.iter().copied());
                prop_assert!(found.is_sorted_by(|a, b| a < b));
                let found = found.into_iter().filter(|id| meets(&children[id]));
                prop_assert!(found.eq(searched));
            }
            children.iter().for_each(|(id, child)| traffic.remove(*id, child));
            prop_assert!(traffic.local.0.is_empty() && traffic.remote.0.is_empty());
        }
    }
}
