//! Finds the first rule that covers a packet, however many rules there are.
//!
//! Each rule stands under the prefixes of one of its sides, the narrower one: a packet meets it under its own address,
//! cut to each length of prefix that is in use. The rules found there are compared in full, so that a prefix need only
//! hold the selector, not be it. Rules under the very same prefix are tried one after the other; where there are many
//! of them, as of one host that has tunnels to many, the next stands under its other side.

use super::Entry;
use crate::header::Header;
use crate::plane::{RuleId, TrafficSelectors};
use arc_swap::ArcSwap;
use policy::Prefix;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Small, so that a change copies a few entries and not the table.
const SHARDS: usize = 1024;

/// So many rules under one prefix are a crowd.
const CROWD: usize = 8;

/// Lengths of IPv6 prefixes from 0 to 128.
const LENGTHS: usize = 129;

/// Readers see snapshots of shards; changes are made one at a time.
pub(super) struct Finder {
    shards: Box<[ArcSwap<Shard>]>,
    /// The lengths of prefixes in use, a bit for each, by [`PrefixKey::table`].
    lengths: [[AtomicU64; LENGTHS.div_ceil(64)]; 4],
    /// The number of rules that use each length.
    uses: Mutex<[[u32; LENGTHS]; 4]>,
}

/// Ordered by prefix and then by rule.
type Shard = Vec<(PrefixKey, RuleId, Arc<Entry>)>;

/// A prefix of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PrefixKey {
    /// The prefix, its upper half and its lower; below it zeros.
    bits: [u64; 2],
    len: u8,
    /// The table for its side and family.
    table: u8,
}

#[derive(Clone, Copy)]
enum Side {
    Local,
    Remote,
}

impl PrefixKey {
    fn new(side: Side, prefix: Prefix) -> Self {
        let bits = prefix.bits();
        Self {
            bits: [(bits >> 64) as u64, bits as u64],
            len: prefix.length(),
            table: table(side, prefix.is_ipv6()),
        }
    }

    /// One of [`SHARDS`].
    fn shard(self) -> usize {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let Self { bits: [upper, lower], len, table } = self;
        let mixed = [lower, u64::from(len), u64::from(table)]
            .iter()
            .fold(upper, |mixed, part| (mixed ^ mixed >> 32).wrapping_mul(ODD) ^ part);
        (mixed.wrapping_mul(ODD) >> 40) as usize % SHARDS
    }
}

fn table(side: Side, ipv6: bool) -> u8 {
    side as u8 * 2 + u8::from(ipv6)
}

/// The prefixes under which a rule can be stored: those of one side, and those of the other. The side whose widest
/// selector is narrower comes first.
fn keys(selectors: &TrafficSelectors) -> [BTreeSet<PrefixKey>; 2] {
    let sides = [(Side::Local, &selectors.local), (Side::Remote, &selectors.remote)];
    let [local, remote] = sides.map(|(side, selectors)| {
        let prefixes = selectors.iter().map(|s| Prefix::holding(&s.addresses));
        prefixes.map(|prefix| PrefixKey::new(side, prefix)).collect::<BTreeSet<PrefixKey>>()
    });
    let [widest_local, widest_remote] =
        [&local, &remote].map(|keys| keys.iter().map(|p| p.len).min().unwrap_or(0));
    if widest_local > widest_remote { [local, remote] } else { [remote, local] }
}

impl Finder {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| ArcSwap::default()).collect(),
            lengths: Default::default(),
            uses: Mutex::new([[0; LENGTHS]; 4]),
        }
    }

    /// The rule that covers a packet and has the lowest name of those that do.
    pub(super) fn find(&self, header: &Header) -> Option<Arc<Entry>> {
        let mut best: Option<Arc<Entry>> = None;
        for (side, address) in
            [(Side::Remote, header.destination()), (Side::Local, header.source())]
        {
            let table = usize::from(table(side, address.is_ipv6()));
            for (word, lengths) in self.lengths[table].iter().enumerate() {
                let mut lengths = lengths.load(Relaxed);
                while lengths != 0 {
                    let len = (word * 64) as u8 + lengths.trailing_zeros() as u8;
                    lengths &= lengths - 1;
                    let key = PrefixKey::new(side, Prefix::new(address, len));
                    self.find_under(key, header, &mut best);
                }
            }
        }
        best
    }

    fn find_under(&self, key: PrefixKey, header: &Header, best: &mut Option<Arc<Entry>>) {
        let shard = self.shards[key.shard()].load();
        let first = shard.partition_point(|(p, ..)| *p < key);
        let below = best.as_ref().map(|b| b.rule.id);
        let found = (shard[first..].iter())
            .take_while(|(p, id, _)| *p == key && below.is_none_or(|b| *id < b))
            .find(|(.., entry)| header.leaves_by(&entry.rule.selectors));
        if let Some((.., entry)) = found {
            *best = Some(Arc::clone(entry));
        }
    }

    /// Adds a rule, and forgets the one of its name that it replaces.
    pub(super) fn insert(&self, entry: &Arc<Entry>, replaced: Option<&Entry>) {
        let [narrower, other] = keys(&entry.rule.selectors);
        let [crowd, other_crowd] =
            [&narrower, &other].map(|keys| keys.iter().map(|p| self.count(*p)).max());
        let crowded = crowd.filter(|crowd| *crowd >= CROWD);
        let chosen = if crowded > other_crowd { other } else { narrower };
        // First the new, then the old: no packet is to find neither.
        for &prefix in &chosen {
            let key = (prefix, entry.rule.id);
            let shard = &self.shards[prefix.shard()];
            let before = shard.load();
            // There are thousands of shards, none with room to spare.
            let mut entries = Shard::with_capacity(before.len() + 1);
            entries.extend_from_slice(&before);
            match entries.binary_search_by_key(&key, |(p, id, _)| (*p, *id)) {
                Ok(at) => entries[at].2 = Arc::clone(entry),
                Err(at) => {
                    entries.insert(at, (prefix, entry.rule.id, Arc::clone(entry)));
                    self.use_length(prefix, true);
                }
            }
            shard.store(Arc::new(entries));
        }
        let before = replaced.into_iter().flat_map(|old| keys(&old.rule.selectors)).flatten();
        let left = before.filter(|key| !chosen.contains(key));
        left.for_each(|key| self.leave(key, entry.rule.id));
    }

    /// Forgets a rule.
    pub(super) fn remove(&self, entry: &Entry) {
        let keys = keys(&entry.rule.selectors).into_iter().flatten();
        keys.for_each(|key| self.leave(key, entry.rule.id));
    }

    /// The number of rules under a prefix.
    fn count(&self, key: PrefixKey) -> usize {
        let shard = self.shards[key.shard()].load();
        shard.partition_point(|(p, ..)| *p <= key) - shard.partition_point(|(p, ..)| *p < key)
    }

    fn leave(&self, key: PrefixKey, rule: RuleId) {
        let shard = &self.shards[key.shard()];
        let before = shard.load();
        if let Ok(at) = before.binary_search_by_key(&(key, rule), |(p, id, _)| (*p, *id)) {
            let mut entries = Shard::clone(&before);
            entries.remove(at);
            shard.store(Arc::new(entries));
            self.use_length(key, false);
        }
    }

    fn use_length(&self, key: PrefixKey, more: bool) {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        let (table, len) = (usize::from(key.table), usize::from(key.len));
        let count = &mut uses[table][len];
        *count = if more { *count + 1 } else { *count - 1 };
        let (word, bit) = (&self.lengths[table][len / 64], 1 << (len % 64));
        match *count {
            0 => word.fetch_and(!bit, Relaxed),
            _ => word.fetch_or(bit, Relaxed),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::{PacketSummary, Rule};
    use policy::{AddressRange, PortRange, Selector};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    /// Addresses close to each other and to the ends of their families, so that ranges meet.
    fn address(ipv6: bool) -> impl Strategy<Value = IpAddr> {
        let number = prop_oneof![
            Just(1_u32),
            0_u32..24,
            250_u32..262,
            u32::MAX - 9..=u32::MAX,
            0x7fff_fffd_u32..0x8000_0003
        ];
        number.prop_map(move |n| match ipv6 {
            false => Ipv4Addr::from_bits(n).into(),
            true => Ipv6Addr::from_bits(u128::from(n).rotate_right(32) | u128::from(n)).into(),
        })
    }

    fn selector(ipv6: bool) -> impl Strategy<Value = Selector> {
        let ports =
            prop_oneof![Just(PortRange::ANY), Just(PortRange::new(80, 90).expect("ascending"))];
        (address(ipv6), address(ipv6), any::<bool>(), prop_oneof![Just(0), Just(17)], ports)
            .prop_map(|(a, b, one, protocol, ports)| {
                let range = AddressRange::new(a.min(b), a.max(b)).filter(|_| !one);
                let addresses = range.unwrap_or_else(|| AddressRange::from(a));
                Selector { protocol, addresses, ports }
            })
    }

    fn selectors() -> impl Strategy<Value = TrafficSelectors> {
        let side = || any::<bool>().prop_flat_map(|v6| prop::collection::vec(selector(v6), 1..3));
        (side(), side()).prop_map(|(local, remote)| TrafficSelectors { local, remote })
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u32, TrafficSelectors),
        Remove(u32),
        Look(IpAddr, IpAddr, u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        let look = any::<bool>().prop_flat_map(|v6| (address(v6), address(v6), 78..92_u16));
        prop_oneof![
            3 => (0..40_u32, selectors()).prop_map(|(id, s)| Step::Insert(id, s)),
            1 => (0..40_u32).prop_map(Step::Remove),
            6 => look.prop_map(|(a, b, port)| Step::Look(a, b, port)),
        ]
    }

    fn header(source: IpAddr, destination: IpAddr, port: u16) -> Header {
        let port = Some(port);
        let (source, destination) = ((source, port), (destination, port));
        Header::described(&PacketSummary { protocol: 17, source, destination })
    }

    #[test]
    fn one_host_with_many_tunnels_makes_no_crowd() {
        let spd = super::super::Spd::new(Default::default());
        let host = |last| Selector::all_of(AddressRange::from(IpAddr::from([10, 0, last, 1])));
        for n in 0..200_u8 {
            let selectors = TrafficSelectors { local: vec![host(n)], remote: vec![host(255)] };
            let id = RuleId(n.into());
            spd.insert(Rule { id, tunnel: "t".into(), selectors, trap: false });
        }
        let key = PrefixKey::new(Side::Remote, Prefix::holding(&host(255).addresses));
        assert!(spd.finder.count(key) <= CROWD);
        let header = header([10, 0, 199, 1].into(), [10, 0, 255, 1].into(), 80);
        assert_eq!(spd.finder.find(&header).map(|e| e.rule.id), Some(RuleId(199)));
    }

    proptest! {
        /// The first rule that a search in order finds, after any changes; and nothing is left when all rules are gone.
        #[test]
        fn finds_what_a_search_finds(steps in prop::collection::vec(step(), 1..80)) {
            let spd = super::super::Spd::new(Default::default());
            let mut rules: BTreeMap<RuleId, TrafficSelectors> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Insert(id, selectors) => {
                        let id = RuleId(id);
                        let rule = Rule { id, tunnel: "t".into(), selectors: selectors.clone(), trap: false };
                        spd.insert(rule);
                        rules.insert(id, selectors);
                    }
                    Step::Remove(id) => {
                        let removed = spd.remove(RuleId(id)).map(|e| e.rule.id);
                        prop_assert_eq!(removed, rules.remove(&RuleId(id)).map(|_| RuleId(id)));
                    }
                    Step::Look(source, destination, port) => {
                        let header = header(source, destination, port);
                        let searched = rules.iter().find(|(_, s)| header.leaves_by(s));
                        let found = spd.finder.find(&header).map(|e| e.rule.id);
                        prop_assert_eq!(found, searched.map(|(id, _)| *id));
                    }
                }
            }
            for id in rules.into_keys() {
                spd.remove(id);
            }
            prop_assert!(spd.finder.shards.iter().all(|s| s.load().is_empty()));
            prop_assert!(spd.finder.lengths.iter().flatten().all(|l| l.load(Relaxed) == 0));
        }
    }
}
