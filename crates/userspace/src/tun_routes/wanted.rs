//! The prefixes that rules want routed, and the source address that each route prefers, found without a look at all the
//! rules of a prefix: a gateway may have very many tunnels to one network.

use esp::plane::RuleId;
use host::Prefix;
use host::netlink::Family;
use policy::Selector;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Prefixes and the rules that want them.
#[derive(Debug, Default)]
pub(super) struct WantedRoutes {
    prefixes: BTreeMap<Prefix, Wanted>,
    rules: BTreeMap<RuleId, Routed>,
    /// The addresses of this host, and how often they have changed.
    addresses: Vec<IpAddr>,
    changes: u64,
}

/// A rule, as far as routes are concerned.
#[derive(Debug, Default)]
struct Routed {
    /// The local selectors: preferred source addresses come from them.
    local: Vec<Selector>,
    /// The prefixes that it wants.
    prefixes: BTreeSet<Prefix>,
}

/// A prefix that some rules want.
#[derive(Debug, Default)]
struct Wanted {
    rules: BTreeSet<RuleId>,
    choice: Option<Choice>,
}

/// The source of a prefix.
#[derive(Clone, Copy, Debug)]
struct Choice {
    /// It was made among the addresses as they were after so many changes.
    changes: u64,
    /// The first rule of the prefix that has a source here, and that source.
    found: Option<(RuleId, IpAddr)>,
}

/// The rules that are left when one no longer wants a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// No rule wanted it.
    Nothing,
    /// It was the last one.
    LastOne,
    /// Others want it.
    OneOfMany,
}

impl WantedRoutes {
    /// Notes the addresses of this host.
    pub fn set_addresses(&mut self, addresses: Vec<IpAddr>) {
        if self.addresses != addresses {
            self.addresses = addresses;
            self.changes += 1;
        }
    }

    /// A rule wants these prefixes, and no others. Returns those that it wanted before; it has them until they are
    /// [released](Self::release).
    pub fn add(
        &mut self,
        rule: RuleId,
        local: &[Selector],
        prefixes: &BTreeSet<Prefix>,
    ) -> BTreeSet<Prefix> {
        let routed = self.rules.entry(rule).or_default();
        let former = routed.prefixes.clone();
        routed.prefixes.extend(prefixes);
        if routed.local != local {
            routed.local = local.to_vec();
            // Its former sources no longer count.
            for prefix in &former {
                if let Some(wanted) = self.prefixes.get_mut(prefix) {
                    wanted.forget(rule);
                }
            }
        }
        for prefix in prefixes {
            let wanted = self.prefixes.entry(*prefix).or_default();
            wanted.rules.insert(rule);
            if let Some(choice) = &mut wanted.choice
                && choice.found.is_none_or(|(first, _)| rule < first)
                && let Some(source) = source_of(local, Family::of(prefix.address), &self.addresses)
            {
                choice.found = Some((rule, source));
            }
        }
        if former.is_empty() && prefixes.is_empty() {
            self.rules.remove(&rule);
        }
        former
    }

    /// A rule goes on under another name.
    pub fn rename(&mut self, rule: RuleId, to: RuleId) {
        let Some(routed) = self.rules.remove(&rule) else { return };
        for prefix in &routed.prefixes {
            if let Some(wanted) = self.prefixes.get_mut(prefix) {
                wanted.rules.remove(&rule);
                wanted.rules.insert(to);
                wanted.forget(rule);
                if wanted.choice.is_some_and(|c| c.found.is_some_and(|(first, _)| to < first)) {
                    wanted.choice = None;
                }
            }
        }
        self.rules.insert(to, routed);
    }

    /// A rule no longer wants a prefix.
    pub fn release(&mut self, prefix: Prefix, rule: RuleId) -> Released {
        if let Some(routed) = self.rules.get_mut(&rule) {
            routed.prefixes.remove(&prefix);
            if routed.prefixes.is_empty() {
                self.rules.remove(&rule);
            }
        }
        let Some(wanted) = self.prefixes.get_mut(&prefix) else { return Released::Nothing };
        wanted.rules.remove(&rule);
        wanted.forget(rule);
        if wanted.rules.is_empty() {
            self.prefixes.remove(&prefix);
            return Released::LastOne;
        }
        Released::OneOfMany
    }

    /// The prefixes of a rule.
    pub fn of(&self, rule: RuleId) -> BTreeSet<Prefix> {
        self.rules.get(&rule).map(|routed| routed.prefixes.clone()).unwrap_or_default()
    }

    /// Returns `true` if a rule wants the prefix.
    pub fn contains(&self, prefix: &Prefix) -> bool {
        self.prefixes.contains_key(prefix)
    }

    /// All of them.
    pub fn prefixes(&self) -> Vec<Prefix> {
        self.prefixes.keys().copied().collect()
    }

    /// The address of this host that the route to a prefix prefers: the first one in the local selectors of its rules.
    pub fn source(&mut self, prefix: Prefix) -> Option<IpAddr> {
        let wanted = self.prefixes.get_mut(&prefix)?;
        let found = match wanted.choice {
            Some(Choice { changes, found }) if changes == self.changes => found,
            _ => wanted.rules.iter().find_map(|rule| {
                let local = &self.rules.get(rule)?.local;
                Some((*rule, source_of(local, Family::of(prefix.address), &self.addresses)?))
            }),
        };
        wanted.choice = Some(Choice { changes: self.changes, found });
        found.map(|(_, source)| source)
    }
}

impl Wanted {
    /// Forgets the choice if it is a rule's.
    fn forget(&mut self, rule: RuleId) {
        if self.choice.is_some_and(|choice| choice.found.is_some_and(|(first, _)| first == rule)) {
            self.choice = None;
        }
    }
}

/// The first address of this host that one of the selectors holds.
fn source_of(local: &[Selector], family: Family, addresses: &[IpAddr]) -> Option<IpAddr> {
    let usable = addresses.iter().copied().filter(|a| Family::of(*a) == family && !a.is_loopback());
    // The order of the selectors counts, and not that of the addresses.
    local
        .iter()
        .find_map(|selector| usable.clone().find(|address| selector.addresses.contains(*address)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        /// A rule with local networks and prefixes, each by number.
        Add(u32, Vec<u8>, BTreeSet<u8>),
        Remove(u32),
        Rename(u32, u32),
        Addresses(Vec<u8>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let local = prop::collection::vec(0..6_u8, 0..3);
        let prefixes = prop::collection::btree_set(0..4_u8, 0..3);
        prop_oneof![
            5 => (0..8_u32, local.clone(), prefixes).prop_map(|(r, l, p)| Step::Add(r, l, p)),
            2 => (0..8_u32).prop_map(Step::Remove),
            1 => (0..8_u32, 8..12_u32).prop_map(|(from, to)| Step::Rename(from, to)),
            2 => local.prop_map(Step::Addresses),
        ]
    }

    fn selector(number: u8) -> Selector {
        let network = format!("10.{number}.0.0-10.{number}.255.255");
        Selector::all_of(network.as_str().try_into().expect("a range"))
    }

    fn prefix(number: u8) -> Prefix {
        Prefix { address: IpAddr::from([10, 100 + number, 0, 0]), length: 16 }
    }

    /// Rules as they were added; each search reads all of them.
    type Rules = BTreeMap<RuleId, (Vec<u8>, BTreeSet<u8>)>;

    fn searched(rules: &Rules, addresses: &[u8], wanted: u8) -> Option<IpAddr> {
        let wanting = rules.values().filter(|(_, prefixes)| prefixes.contains(&wanted));
        wanting
            .flat_map(|(local, _)| local)
            .find(|local| addresses.contains(local))
            .map(|local| address(*local))
    }

    fn address(number: u8) -> IpAddr {
        IpAddr::from([10, number, 0, 1])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        /// The source of a prefix is the one that a search of all rules finds, and a prefix is there for as long as a
        /// rule wants it.
        #[test]
        fn sources_are_those_that_a_search_finds(steps in prop::collection::vec(step(), 1..60)) {
            let mut wanted = WantedRoutes::default();
            let (mut rules, mut addresses) = (Rules::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Add(rule, local, prefixes) => {
                        let id = RuleId(rule);
                        let selectors: Vec<_> = local.iter().copied().map(selector).collect();
                        let new: BTreeSet<_> = prefixes.iter().copied().map(prefix).collect();
                        let former = wanted.add(id, &selectors, &new);
                        for gone in former.difference(&new) {
                            wanted.release(*gone, id);
                        }
                        rules.insert(id, (local, prefixes));
                    }
                    Step::Remove(rule) => {
                        let id = RuleId(rule);
                        for gone in wanted.of(id) {
                            prop_assert!(wanted.release(gone, id) != Released::Nothing);
                        }
                        rules.remove(&id);
                    }
                    Step::Rename(from, to) => {
                        // The name is free.
                        if !rules.contains_key(&RuleId(to)) {
                            wanted.rename(RuleId(from), RuleId(to));
                            let renamed = rules.remove(&RuleId(from));
                            rules.extend(renamed.map(|rule| (RuleId(to), rule)));
                        }
                    }
                    Step::Addresses(now) => {
                        wanted.set_addresses(now.iter().copied().map(address).collect());
                        addresses = now;
                    }
                }
                for number in 0..4 {
                    let is_wanted = rules.values().any(|(_, prefixes)| prefixes.contains(&number));
                    prop_assert_eq!(wanted.contains(&prefix(number)), is_wanted);
                    prop_assert_eq!(wanted.source(prefix(number)), searched(&rules, &addresses, number));
                }
            }
            let some: Vec<_> = rules.iter().filter(|(_, (_, p))| !p.is_empty()).map(|(id, _)| *id).collect();
            prop_assert_eq!(wanted.rules.keys().copied().collect::<Vec<_>>(), some);
        }
    }
}
