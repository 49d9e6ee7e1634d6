//! The outbound policy: ordered rules, the SAs that serve each, and the packets kept until one does.

#![forbid(unsafe_code)]

use crate::discard::Discard;
use crate::header::Header;
use crate::offload::Offload;
use crate::outbound::Outbound;
use crate::plane::{Rule, RuleId, SaId};
use arc_swap::ArcSwap;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const HELD_PACKETS: usize = 32;
const HELD_OCTETS: usize = 65_536;

/// How long a kept packet is worth sending.
const HELD_FOR: Duration = Duration::from_secs(10);

/// How often one rule may ask for an SA.
const ACQUIRE_EVERY: Duration = Duration::from_secs(1);

/// What becomes of an outbound packet.
pub(crate) enum Verdict {
    Protect(Arc<Outbound>),
    /// A rule covers it, but none of its SAs does.
    NoSa(Arc<Entry>),
    NoPolicy,
}

/// The rules in the order they are matched. Readers see a snapshot; changes are made one at a time, which the caller
/// sees to.
pub(crate) struct Spd(ArcSwap<Vec<Arc<Entry>>>);

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
    held: Mutex<Held>,
    /// When it may ask for an SA again, in nanoseconds since the epoch.
    next_acquire: AtomicU64,
}

#[derive(Default)]
struct Held {
    packets: VecDeque<HeldPacket>,
    octets: usize,
}

/// A packet that waits for an SA.
pub(crate) struct HeldPacket {
    since: Duration,
    pub(crate) octets: Vec<u8>,
    pub(crate) offload: Offload,
}

impl HeldPacket {
    pub(crate) fn is_stale(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) > HELD_FOR
    }
}

impl Spd {
    pub(crate) fn new() -> Self {
        Self(ArcSwap::default())
    }

    /// The one place where an outbound packet meets policy; a cache of flows belongs in front of it.
    pub(crate) fn lookup(&self, header: &Header) -> Verdict {
        let rules = self.0.load();
        let Some(entry) = rules.iter().find(|e| header.leaves_by(&e.rule.selectors)) else {
            return Verdict::NoPolicy;
        };
        match entry.service.serving.load().iter().find(|sa| sa.carries(header)) {
            Some(sa) => Verdict::Protect(Arc::clone(sa)),
            None => Verdict::NoSa(Arc::clone(entry)),
        }
    }

    /// Adds a rule, or changes the one of that name and lets it keep its SAs.
    pub(crate) fn insert(&self, rule: Rule) {
        let mut rules = Vec::clone(&self.0.load());
        match rules.binary_search_by_key(&rule.id, |e| e.rule.id) {
            Ok(at) => {
                let service = Arc::clone(&rules[at].service);
                rules[at] = Arc::new(Entry { rule, service });
            }
            Err(at) => {
                rules.insert(at, Arc::new(Entry { rule, service: Arc::default() }));
            }
        }
        self.0.store(Arc::new(rules));
    }

    pub(crate) fn remove(&self, rule: RuleId) -> Option<Arc<Entry>> {
        let mut rules = Vec::clone(&self.0.load());
        let at = rules.binary_search_by_key(&rule, |e| e.rule.id).ok()?;
        let entry = rules.remove(at);
        self.0.store(Arc::new(rules));
        Some(entry)
    }

    pub(crate) fn rule(&self, rule: RuleId) -> Option<Rule> {
        let rules = self.0.load();
        let at = rules.binary_search_by_key(&rule, |e| e.rule.id).ok()?;
        Some(rules[at].rule.clone())
    }

    pub(crate) fn service(&self, rule: RuleId) -> Option<Arc<Service>> {
        let rules = self.0.load();
        let at = rules.binary_search_by_key(&rule, |e| e.rule.id).ok()?;
        Some(Arc::clone(&rules[at].service))
    }
}

impl Service {
    /// Lets an SA carry the rule's traffic before all others; one that already does moves to the front.
    pub(crate) fn put_first(&self, sa: Arc<Outbound>) {
        let mut serving = vec![Arc::clone(&sa)];
        serving.extend(self.serving.load().iter().filter(|other| other.id != sa.id).cloned());
        self.serving.store(Arc::new(serving));
    }

    pub(crate) fn withdraw(&self, sa: SaId) {
        let rest = self.serving.load().iter().filter(|other| other.id != sa).cloned().collect();
        self.serving.store(Arc::new(rest));
    }

    pub(crate) fn is_served(&self) -> bool {
        !self.serving.load().is_empty()
    }

    /// Whether the rule may ask for an SA now; `true` at most once per second.
    pub(crate) fn may_acquire(&self, now: Duration) -> bool {
        let now = now.as_nanos() as u64;
        let next = now + ACQUIRE_EVERY.as_nanos() as u64;
        self.next_acquire.fetch_update(Relaxed, Relaxed, |due| (due <= now).then_some(next)).is_ok()
    }

    /// Keeps a copy of a packet. Those kept too long make room, each counted by `count`.
    pub(crate) fn hold(
        &self,
        now: Duration,
        packet: &[u8],
        offload: Offload,
        count: &dyn Fn(Discard),
    ) -> Result<(), Discard> {
        let mut held = self.held();
        while held.packets.front().is_some_and(|p| p.is_stale(now)) {
            held.pop();
            count(Discard::HoldExpired);
        }
        if held.packets.len() == HELD_PACKETS || held.octets + packet.len() > HELD_OCTETS {
            return Err(Discard::HoldFull);
        }
        held.octets += packet.len();
        held.packets.push_back(HeldPacket { since: now, octets: packet.to_vec(), offload });
        Ok(())
    }

    pub(crate) fn holds_packets(&self) -> bool {
        !self.held().packets.is_empty()
    }

    /// The packet kept longest, no longer kept.
    pub(crate) fn release(&self) -> Option<HeldPacket> {
        self.held().pop()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn pop(&mut self) -> Option<HeldPacket> {
        let packet = self.packets.pop_front()?;
        self.octets -= packet.octets.len();
        Some(packet)
    }
}
