//! The outbound policy: ordered rules, the SAs that serve each, and the packets kept until one does.

#![forbid(unsafe_code)]

mod finder;
mod flows;
mod held;

pub use flows::Lookups;
pub(crate) use flows::{AHEAD, Flow, Flows};
pub use held::HeldPacket;

use crate::discard::Discard;
use crate::families::FamilySwitch;
use crate::filter::{Direction, Filter, FilterAction};
use crate::gso::Gso;
use crate::header::Header;
use crate::outbound::Outbound;
use crate::plane::{Rule, RuleId, SaId, TrafficSelectors};
use arc_swap::ArcSwap;
use finder::Finder;
use held::Held;
use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The shortest time between two requests of one rule for an SA.
const ACQUIRE_EVERY: Duration = Duration::from_secs(1);

/// The decision about an outbound packet.
pub(crate) enum Verdict {
    Protect(Arc<Outbound>),
    /// A rule covers it, but none of its SAs does.
    NoSa(Arc<Entry>),
    /// A rule of the filter covers it, or none at all, or its family is off.
    Drop(Discard),
}

/// The first entry that matches an outbound packet.
pub(crate) enum SpdMatch {
    /// The rule of the filter in this place.
    Filter(usize, FilterAction),
    Rule(Arc<Entry>),
    Nothing,
}

/// The rules; of those that cover a packet the one with the lowest [`RuleId`] counts. Readers see snapshots; changes
/// are made one at a time, which the caller sees to.
pub(crate) struct Spd {
    /// The filter has rules. Every packet reads this.
    filters: AtomicBool,
    filter: ArcSwap<Filter>,
    /// The address families that tunnels may use.
    families: Arc<FamilySwitch>,
    /// The number of changes to rules, SAs in use, the filter and the families.
    generation: AtomicU64,
    /// A rule, an SA or the filter names ports, or did so once. Only then flows of a pair of hosts are distinguished by
    /// their ports.
    by_port: AtomicBool,
    finder: Finder,
    by_id: Mutex<BTreeMap<RuleId, Arc<Entry>>>,
}

/// A rule and what it needs at run time.
pub(crate) struct Entry {
    pub(crate) rule: Rule,
    pub(crate) service: Arc<Service>,
}

/// The SAs of a rule, which outlive a change of its selectors.
#[derive(Default)]
pub(crate) struct Service {
    /// The one added or promoted last comes first.
    serving: ArcSwap<Vec<Arc<Outbound>>>,
    held: Held,
    /// The time of the next possible request for an SA, in nanoseconds since the epoch.
    next_acquire: AtomicU64,
    /// Packets of the rule that were dropped because no SA served them.
    unserved: AtomicU64,
}

/// The state of a rule beside its SAs. Times are since the epoch of the datapath.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrozenService {
    /// Packets that wait for an SA, in their order.
    pub held: Vec<HeldPacket>,
    /// The time of the next possible request for an SA.
    pub next_acquire: Duration,
    /// Packets that were dropped because no SA served them.
    pub unserved: u64,
}

impl Spd {
    pub(crate) fn new(families: Arc<FamilySwitch>) -> Self {
        Self {
            families,
            filters: AtomicBool::new(false),
            filter: ArcSwap::default(),
            generation: AtomicU64::new(0),
            by_port: AtomicBool::new(false),
            finder: Finder::new(),
            by_id: Mutex::default(),
        }
    }

    /// A number that differs from what it was if anything has changed since that [`Self::lookup`] depends on.
    fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// To be called after every change of that kind, which is in force from then on.
    pub(crate) fn changed(&self) {
        self.generation.fetch_add(1, Release);
    }

    /// To be called before such traffic makes a difference.
    pub(crate) fn enable_port_matching(&self, traffic: &TrafficSelectors) {
        if traffic.name_ports() && !self.by_port.swap(true, Relaxed) {
            self.changed();
        }
    }

    /// The fields that decide about a packet. The caller has read the [`generation`](Self::generation) before.
    fn flow(&self, header: &Header) -> Flow {
        Flow::of(header, self.by_port.load(Relaxed))
    }

    /// The one place where an outbound packet meets policy; [`Flows`] stand in front of it.
    pub(crate) fn lookup(&self, header: &Header) -> Verdict {
        let entry = match self.find(header) {
            SpdMatch::Filter(_, FilterAction::Discard) => {
                return Verdict::Drop(Discard::FilterDiscard);
            }
            SpdMatch::Filter(_, FilterAction::Bypass) => {
                return Verdict::Drop(Discard::FilterBypass);
            }
            SpdMatch::Nothing => return Verdict::Drop(Discard::NoPolicy),
            SpdMatch::Rule(entry) => entry,
        };
        if self.families.blocks_all(header.ipv6) {
            return Verdict::Drop(Discard::OutboundFamilyOff);
        }
        match entry.service.serving.load().iter().find(|sa| sa.carries(header)) {
            Some(sa) if self.families.blocks(header.ipv6, sa.path().remote.ip()) => {
                Verdict::Drop(Discard::OutboundFamilyOff)
            }
            Some(sa) => Verdict::Protect(Arc::clone(sa)),
            None => Verdict::NoSa(entry),
        }
    }

    /// The first that covers an outbound packet: the filter's rules come before the tunnels (RFC 4301 §4.4.1).
    pub(crate) fn find(&self, header: &Header) -> SpdMatch {
        if self.filters.load(Relaxed)
            && let Some((place, rule)) = self.filter.load().first(&header.summary(), Direction::Out)
        {
            return SpdMatch::Filter(place, rule.action);
        }
        self.finder.find(header).map_or(SpdMatch::Nothing, SpdMatch::Rule)
    }

    /// Replaces the filter.
    pub(crate) fn set_filter(&self, filter: Arc<Filter>) {
        filter.rules.iter().for_each(|rule| self.enable_port_matching(&rule.traffic));
        let filters = !filter.rules.is_empty();
        self.filter.store(filter);
        self.filters.store(filters, Relaxed);
        self.changed();
    }

    /// The filter in force.
    pub(crate) fn filter(&self) -> Arc<Filter> {
        self.filter.load_full()
    }

    /// Every rule that `fits`, in order.
    pub(crate) fn covering(&self, fits: impl Fn(&Rule) -> bool) -> Vec<Arc<Entry>> {
        self.by_id().values().filter(|entry| fits(&entry.rule)).cloned().collect()
    }

    /// Adds a rule, or changes the one of that name and lets it keep its SAs.
    pub(crate) fn insert(&self, rule: Rule) {
        self.enable_port_matching(&rule.selectors);
        let mut by_id = self.by_id();
        let before = by_id.get(&rule.id).cloned();
        let service = before.as_ref().map(|e| Arc::clone(&e.service)).unwrap_or_default();
        let entry = Arc::new(Entry { rule, service });
        self.finder.insert(&entry, before.as_deref());
        by_id.insert(entry.rule.id, entry);
        self.changed();
    }

    /// Puts a rule elsewhere among the rules, with its SAs.
    pub(crate) fn rename(&self, rule: RuleId, to: RuleId) {
        let mut by_id = self.by_id();
        let Some(before) = by_id.remove(&rule) else { return };
        let renamed = Rule { id: to, ..before.rule.clone() };
        let entry = Arc::new(Entry { rule: renamed, service: Arc::clone(&before.service) });
        self.finder.insert(&entry, None);
        self.finder.remove(&before);
        by_id.insert(to, entry);
        self.changed();
    }

    pub(crate) fn remove(&self, rule: RuleId) -> Option<Arc<Entry>> {
        let entry = self.by_id().remove(&rule)?;
        self.finder.remove(&entry);
        self.changed();
        Some(entry)
    }

    pub(crate) fn service(&self, rule: RuleId) -> Option<Arc<Service>> {
        Some(Arc::clone(&self.by_id().get(&rule)?.service))
    }

    pub(crate) fn rule(&self, rule: RuleId) -> Option<Rule> {
        Some(self.by_id().get(&rule)?.rule.clone())
    }

    /// The packets that were dropped because no SA served them, by tunnel; without the tunnels that have dropped none.
    pub(crate) fn unserved(&self) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        for entry in self.by_id().values() {
            let dropped = entry.service.unserved.load(Relaxed);
            if dropped > 0 {
                *found.entry(entry.rule.tunnel.clone()).or_default() += dropped;
            }
        }
        found
    }

    /// Every rule, in order.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        self.by_id().values().cloned().collect()
    }

    fn by_id(&self) -> MutexGuard<'_, BTreeMap<RuleId, Arc<Entry>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// Lets an SA carry the rule's traffic before all others; one that already does moves to the front.
    pub(crate) fn put_first(&self, sa: Arc<Outbound>) {
        let before = self.serving.load();
        let mut serving = Vec::with_capacity(before.len() + 1);
        serving.push(Arc::clone(&sa));
        serving.extend(before.iter().filter(|other| other.id != sa.id).cloned());
        self.serving.store(Arc::new(serving));
    }

    pub(crate) fn withdraw(&self, sa: SaId) {
        let mut rest = Vec::clone(&self.serving.load());
        rest.retain(|other| other.id != sa);
        rest.shrink_to_fit();
        self.serving.store(Arc::new(rest));
    }

    /// The SAs in the order in which they are asked.
    pub(crate) fn sas(&self) -> Arc<Vec<Arc<Outbound>>> {
        self.serving.load_full()
    }

    /// A packet of the rule is dropped because no SA serves it.
    pub(crate) fn count_unserved(&self) {
        self.unserved.fetch_add(1, Relaxed);
    }

    pub(crate) fn is_served(&self) -> bool {
        !self.serving.load().is_empty()
    }

    /// Returns `true` if the rule may ask for an SA now; `true` at most once per second.
    pub(crate) fn may_acquire(&self, now: Duration) -> bool {
        let now = now.as_nanos() as u64;
        let next = now + ACQUIRE_EVERY.as_nanos() as u64;
        self.next_acquire.fetch_update(Relaxed, Relaxed, |due| (due <= now).then_some(next)).is_ok()
    }

    /// The state of the rule that is none of its SAs, with copies of the packets that wait.
    pub(crate) fn frozen(&self) -> FrozenService {
        FrozenService {
            held: self.held.packets(),
            next_acquire: Duration::from_nanos(self.next_acquire.load(Relaxed)),
            unserved: self.unserved.load(Relaxed),
        }
    }

    /// Goes on where another process has frozen the rule.
    pub(crate) fn go_on(&self, frozen: FrozenService) {
        let FrozenService { held, next_acquire, unserved } = frozen;
        self.held.go_on(held);
        self.next_acquire.store(next_acquire.as_nanos() as u64, Relaxed);
        self.unserved.store(unserved, Relaxed);
    }

    /// Keeps a copy of a packet. Those kept too long make room, each counted by `count`.
    pub(crate) fn hold(
        &self,
        now: Duration,
        packet: &[u8],
        gso: Gso,
        count: &dyn Fn(Discard),
    ) -> Result<(), Discard> {
        self.held.hold(now, packet, gso, count)
    }

    pub(crate) fn holds_packets(&self) -> bool {
        !self.held.is_empty()
    }

    /// The packet kept longest, no longer kept.
    pub(crate) fn release(&self) -> Option<HeldPacket> {
        self.held.release()
    }
}
