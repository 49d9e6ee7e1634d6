//! A data plane in memory: it keeps what it is told, and notes every use of it that the contract of [`DataPlane`]
//! forbids. Packets it carries in a form that needs no cipher, or hands to a real [`Datapath`] beneath it.

mod families;

use crate::traffic::InnerPacket;
use crypto::Suite;
use esp::datapath::{Arrival, Datapath, Settings};
use esp::discard::Discard;
use esp::gso::Gso;
use esp::plane::{
    Capabilities, DataPlane, Encapsulation, InboundSa, Ledger, Limits, Notice, OutboundSa,
    PacketSummary, Path, PlaneError, ReplayCounters, Rule, RuleId, SaEntry, SaId, Spi,
    TrafficSelectors, Usage,
};
use esp::queue::{Coalesce, ReceiveQueue, SendQueue};
use policy::{Binding, Bindings, Mode, Secret};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Octets before the inner packet: SPI, sequence number and a proof of the key.
const OVERHEAD: usize = 4 + 8 + 8;

/// A rule asks for an SA at most once in this time, as in the datapath.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The algorithm, the present path and the work so far of an SA in force.
#[derive(Debug)]
pub struct InForce {
    /// Cipher.
    pub suite: Suite,
    /// Its key.
    pub key: Secret,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Transport or tunnel mode.
    pub mode: Mode,
    /// The present path of its packets.
    pub path: Path,
    selectors: Arc<TrafficSelectors>,
    limits: Limits,
    work: Work,
}

/// The work so far of an SA.
#[derive(Debug, Default)]
struct Work {
    /// The sequence numbers that came.
    seen: BTreeSet<u64>,
    /// Up to there all count as received.
    skipped: u64,
    /// The last sequence number that was sent.
    sequence: u64,
    usage: Usage,
    /// The soft limit was reported.
    soft: bool,
    /// The hard limit was reported.
    hard: bool,
}

/// The decision about an outbound packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Protected, to be sent along the path.
    Protected {
        /// The ESP packet from its SPI on.
        octets: Vec<u8>,
        /// The path of the packet.
        path: Path,
    },
    /// Kept until an SA comes; [`Recorder::take_released`] has it then.
    Kept,
    /// Dropped: a rule covers it, but no SA.
    NoSa,
    /// No rule covers it: a plane lets it out as it is where the operator permits it.
    NoRule,
}

/// The reason why a received packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Too short, or not made by a recorder.
    Malformed,
    /// No inbound SA has the SPI.
    UnknownSpi,
    /// The SA's key is another.
    Forged,
    /// Seen before.
    Replayed,
    /// The SA's selectors do not cover what is inside.
    Selectors,
    /// The SA reached its hard limit.
    Exhausted,
    /// The datapath beneath refuses it.
    Datapath(Discard),
}

/// One change asked of the plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// An inbound SA was added.
    Inbound(SaId, Spi),
    /// An outbound SA was added, perhaps in standby.
    Outbound(SaId, Spi, bool),
    /// An outbound SA was promoted.
    Promoted(SaId),
    /// An SA was moved.
    Relocated(SaId),
    /// Sequence numbers of an SA were skipped: so many.
    Skipped(SaId, u64),
    /// An SA was removed.
    Removed(SaId),
}

/// The in-memory plane.
#[derive(Default)]
pub struct Recorder {
    datapath: Option<Datapath>,
    /// With each rule the time of its last request for an SA.
    ledger: Ledger<Option<Instant>, InForce>,
    /// The names of all SAs that were ever added.
    names: BTreeSet<SaId>,
    keys: BTreeSet<Vec<u8>>,
    notices: Vec<Notice>,
    refusals: VecDeque<Option<PlaneError>>,
    journal: Vec<Change>,
    misuse: Vec<String>,
    preparation: Preparation,
    bindings: Bindings,
}

/// Whether the plane is prepared for new rules.
#[derive(Default)]
enum Preparation {
    #[default]
    AtOnce,
    /// For these rules only. It was asked to prepare for the others, by the names of their phase 2 tunnels.
    Held { prepared: BTreeSet<RuleId>, asked: BTreeMap<RuleId, String> },
}

/// The sequence numbers of SAs: the last one that was sent, those that came, and up to where all count as received.
#[derive(Clone, Debug, Default)]
pub struct Numbers(BTreeMap<SaId, (u64, BTreeSet<u64>, u64)>);

impl Recorder {
    /// Freezes the datapath, if there is one, and has another one go on that is made from the frozen one.
    ///
    /// # Panics
    /// If the frozen datapath is refused.
    pub fn refreeze(&mut self, now: Instant) {
        if let Some(datapath) = &mut self.datapath {
            let successor = Datapath::import(Settings::default(), datapath.freeze(now), now);
            *datapath = successor.expect("it was frozen just now");
            datapath.thaw();
        }
    }

    /// Makes a recorder that has a datapath do the packets' work.
    pub fn over(datapath: Datapath) -> Self {
        Self { datapath: Some(datapath), ..Self::default() }
    }

    /// Returns `true` if packets are really encrypted.
    pub fn encrypts(&self) -> bool {
        self.datapath.is_some()
    }

    /// Makes an installation of an SA fail, after so many that succeed.
    pub fn refuse_next_after(&mut self, accepted: usize, error: PlaneError) {
        self.refusals.extend(std::iter::repeat_n(None, accepted));
        self.refusals.push_back(Some(error));
    }

    /// From now on tunnels have marks and interfaces, as in a kernel. Packets of this plane have neither: they are to
    /// be of tunnels that have none.
    pub fn bind(&mut self, bindings: Bindings) {
        self.bindings = bindings;
    }

    /// From now on the plane is prepared for a new rule only when [`Self::prepare_all`] says so.
    pub fn hold_preparation(&mut self) {
        self.preparation = Preparation::Held { prepared: BTreeSet::new(), asked: BTreeMap::new() };
    }

    /// The plane is prepared for the rules for which it was asked to prepare.
    pub fn prepare_all(&mut self) {
        if let Preparation::Held { prepared, asked } = &mut self.preparation {
            prepared.extend(std::mem::take(asked).into_keys());
        }
    }

    /// The phase 2 tunnels of the rules for which the plane prepares.
    pub fn preparing(&self) -> Vec<&str> {
        match &self.preparation {
            Preparation::AtOnce => Vec::new(),
            Preparation::Held { asked, .. } => asked.values().map(String::as_str).collect(),
        }
    }

    /// The rules in force.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.ledger.rules().map(|entry| &entry.rule)
    }

    /// The inbound SAs in force.
    pub fn inbound(&self) -> impl Iterator<Item = &SaEntry<InForce>> {
        self.ledger.sas().filter(|sa| sa.receives())
    }

    /// The outbound SAs in force, standby ones included.
    pub fn outbound(&self) -> impl Iterator<Item = &SaEntry<InForce>> {
        self.ledger.sas().filter(|sa| !sa.receives())
    }

    /// Everything asked so far, in order.
    pub fn journal(&self) -> &[Change] {
        &self.journal
    }

    /// The requests that break the contract, in words.
    pub fn misuse(&self) -> &[String] {
        &self.misuse
    }

    /// The notices for key management.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        let mut notices = std::mem::take(&mut self.notices);
        notices.extend(self.datapath.iter().flat_map(Datapath::take_notices));
        notices
    }

    /// The packets that were kept for an SA which has come since: ESP packets from the SPI on, with their paths.
    pub fn take_released(&mut self, now: Instant) -> Vec<(Vec<u8>, Path)> {
        let mut queue = SendQueue::new(0);
        self.datapath.iter().for_each(|d| d.flush_held(now, &mut queue));
        packets_of(&queue)
    }

    /// Protects a packet that wants to leave.
    pub fn protect(&mut self, now: Instant, packet: &InnerPacket) -> Verdict {
        match &self.datapath {
            Some(datapath) => encapsulate(datapath, now, packet),
            None => self.protect_here(now, packet),
        }
    }

    fn protect_here(&mut self, now: Instant, packet: &InnerPacket) -> Verdict {
        let local = (packet.source.ip(), Some(packet.source.port()));
        let remote = (packet.destination.ip(), Some(packet.destination.port()));
        let covering = self
            .ledger
            .rules()
            .find(|r| r.rule.selectors.covers(InnerPacket::PROTOCOL, local, remote))
            .map(|r| (r.rule.id, r.rule.trap, r.extra));
        let Some((rule, trap, asked)) = covering else { return Verdict::NoRule };
        let chosen = self
            .ledger
            .of_rule(rule)
            .filter(|sa| sa.turn().is_some() && !sa.work.hard)
            .filter(|sa| sa.selectors.covers(InnerPacket::PROTOCOL, local, remote))
            .max_by_key(|sa| sa.turn())
            .map(|sa| (sa.id, sa.spi));
        let chosen = chosen.and_then(|(id, spi)| Some((id, spi, self.ledger.sa_mut(id)?)));
        let Some((id, spi, sending)) = chosen else {
            if trap && asked.is_none_or(|at| now.saturating_duration_since(at) >= ASK_EVERY) {
                self.note_asked(rule, Some(now));
                let packet = PacketSummary {
                    protocol: InnerPacket::PROTOCOL,
                    source: local,
                    destination: remote,
                };
                self.notices.push(Notice::Acquire { rule, packet });
            }
            return Verdict::NoSa;
        };
        let inner = packet.encode();
        sending.work.sequence += 1;
        let sequence = sending.work.sequence;
        let mut octets = spi.0.to_be_bytes().to_vec();
        octets.extend(sequence.to_be_bytes());
        octets.extend(proof(&sending.key, sequence, &inner));
        octets.extend(&inner);
        sending.count(now, inner.len());
        self.notices.extend(sending.limits_reached(id));
        Verdict::Protected { octets, path: sending.path }
    }

    /// Notes when a rule has asked for an SA. `None`: its next packet may ask.
    fn note_asked(&mut self, rule: RuleId, at: Option<Instant>) {
        if let Some(asked) = self.ledger.rule_mut(rule) {
            *asked = at;
        }
    }

    /// The sequence numbers of all SAs. A datapath beneath keeps its own.
    pub fn numbers(&self) -> Numbers {
        let sas = self.ledger.sas();
        Numbers(sas.map(|sa| (sa.id, sa.work.numbers())).collect())
    }

    /// Has SAs go back to former numbers, as on another node, which has an old record of them.
    pub fn rewind(&mut self, numbers: &Numbers) {
        for (id, (sequence, seen, skipped)) in &numbers.0 {
            if let Some(sa) = self.ledger.sa_mut(*id) {
                (sa.work.sequence, sa.work.skipped) = (*sequence, *skipped);
                sa.work.seen.clone_from(seen);
            }
        }
    }

    /// Opens a received packet and checks it against its SA; `path` is how it came.
    ///
    /// # Errors
    /// Where the packet is refused.
    pub fn open(
        &mut self,
        now: Instant,
        octets: &[u8],
        path: Path,
    ) -> Result<InnerPacket, Refusal> {
        match &self.datapath {
            Some(datapath) => decapsulate(datapath, now, octets, path),
            None => self.open_here(now, octets, path),
        }
    }

    fn open_here(
        &mut self,
        now: Instant,
        octets: &[u8],
        came: Path,
    ) -> Result<InnerPacket, Refusal> {
        let (header, inner) = octets.split_at_checked(OVERHEAD).ok_or(Refusal::Malformed)?;
        let (spi, rest) = header.split_first_chunk().ok_or(Refusal::Malformed)?;
        let (sequence, shown) = rest.split_first_chunk().ok_or(Refusal::Malformed)?;
        let (spi, sequence) = (Spi(u32::from_be_bytes(*spi)), u64::from_be_bytes(*sequence));
        let id = self.ledger.receiver(spi).map(|sa| sa.id);
        let receiving = id.and_then(|id| self.ledger.sa_mut(id)).zip(id);
        let (receiving, id) = receiving.ok_or(Refusal::UnknownSpi)?;
        let accepted = receiving.accept(sequence, shown, inner);
        match &accepted {
            Ok(_) => receiving.count(now, inner.len()),
            Err(_) => receiving.work.usage.refused += 1,
        }
        let packet = accepted?;
        let path = receiving.path;
        if path.encapsulation == Encapsulation::Udp && path.remote != came.remote {
            self.notices.push(Notice::PeerMoved { sa: id, remote: came.remote });
        }
        self.notices.extend(receiving.limits_reached(id));
        Ok(packet)
    }

    fn admit(&mut self, sa: &SaEntry<InForce>) -> Result<(), PlaneError> {
        if let Some(Some(error)) = self.refusals.pop_front() {
            return Err(error);
        }
        let (id, spi, expected) = (sa.id, sa.spi, sa.suite.key_material_len());
        if !self.names.insert(id) {
            self.misuse.push(format!("{id:?} was used before"));
        }
        if spi.0 < 256 {
            // RFC 4303 §2.1
            self.misuse.push(format!("SPI {spi} is reserved"));
        }
        if sa.key.len() != expected {
            let len = sa.key.len();
            self.misuse.push(format!("{len} octets of key for SPI {spi}, not {expected}"));
        }
        if !self.keys.insert(sa.key.expose().to_vec()) {
            // One key under two SAs means one nonce for two packets.
            self.misuse.push(format!("the key of SPI {spi} was used before"));
        }
        Ok(())
    }
}

impl Work {
    fn numbers(&self) -> (u64, BTreeSet<u64>, u64) {
        (self.sequence, self.seen.clone(), self.skipped)
    }
}

impl InForce {
    fn inbound(sa: &InboundSa) -> SaEntry<Self> {
        let InboundSa { suite, esn, mode, path, limits, .. } = *sa;
        let (key, selectors, work) = (sa.key.clone(), Arc::clone(&sa.selectors), Work::default());
        SaEntry::inbound(sa, Self { suite, key, esn, mode, path, selectors, limits, work })
    }

    fn outbound(sa: &OutboundSa) -> SaEntry<Self> {
        let OutboundSa { suite, esn, mode, path, limits, .. } = *sa;
        let (key, selectors, work) = (sa.key.clone(), Arc::clone(&sa.selectors), Work::default());
        SaEntry::outbound(sa, Self { suite, key, esn, mode, path, selectors, limits, work })
    }

    fn accept(
        &mut self,
        sequence: u64,
        shown: &[u8],
        inner: &[u8],
    ) -> Result<InnerPacket, Refusal> {
        if self.work.hard {
            return Err(Refusal::Exhausted);
        }
        if shown != proof(&self.key, sequence, inner) {
            return Err(Refusal::Forged);
        }
        if sequence <= self.work.skipped || !self.work.seen.insert(sequence) {
            return Err(Refusal::Replayed);
        }
        let packet = InnerPacket::decode(inner).ok_or(Refusal::Malformed)?;
        // RFC 4301 §5.2
        let local = (packet.destination.ip(), Some(packet.destination.port()));
        let remote = (packet.source.ip(), Some(packet.source.port()));
        if self.selectors.covers(InnerPacket::PROTOCOL, local, remote) {
            Ok(packet)
        } else {
            Err(Refusal::Selectors)
        }
    }

    fn count(&mut self, now: Instant, octets: usize) {
        let usage = &mut self.work.usage;
        usage.packets += 1;
        usage.bytes += octets as u64;
        usage.last_used = Some(now);
    }

    /// The notices of limits that were reached just now.
    fn limits_reached(&mut self, sa: SaId) -> Vec<Notice> {
        let (limits, work) = (self.limits, &mut self.work);
        let mut notices = Vec::new();
        for (reported, limit, hard) in
            [(&mut work.soft, limits.soft_bytes, false), (&mut work.hard, limits.hard_bytes, true)]
        {
            if !*reported && limit.is_some_and(|limit| work.usage.bytes >= limit) {
                *reported = true;
                notices.push(Notice::Expiring { sa, hard });
            }
        }
        notices
    }
}

/// Only an owner of the key can make it; an integrity check as far as a simulation needs one.
fn proof(key: &Secret, sequence: u64, inner: &[u8]) -> [u8; 8] {
    let mut hasher = DefaultHasher::new();
    (key.expose(), sequence, inner).hash(&mut hasher);
    hasher.finish().to_be_bytes()
}

fn packets_of(queue: &SendQueue) -> Vec<(Vec<u8>, Path)> {
    let split = |run| queue.octets(run).chunks(run.segment_len).map(|p| (p.to_vec(), run.path));
    queue.runs().iter().flat_map(split).collect()
}

fn encapsulate(datapath: &Datapath, now: Instant, packet: &InnerPacket) -> Verdict {
    let mut queue = SendQueue::new(0);
    match datapath.encapsulate(now, &mut packet.encode(), Gso::NONE, &mut queue) {
        Err(Discard::NoPolicy) => Verdict::NoRule,
        Err(_) => Verdict::NoSa,
        Ok(()) => match packets_of(&queue).pop() {
            Some((octets, path)) => Verdict::Protected { octets, path },
            None => Verdict::Kept,
        },
    }
}

fn decapsulate(
    datapath: &Datapath,
    now: Instant,
    octets: &[u8],
    path: Path,
) -> Result<InnerPacket, Refusal> {
    let mut queue = ReceiveQueue::new(0, Coalesce::default());
    let arrival = Arrival { path, tos: None, ttl: None };
    let opened = match path.encapsulation {
        Encapsulation::Native | Encapsulation::Udp => {
            datapath.decapsulate(now, octets, arrival, &mut queue)
        }
        Encapsulation::Ah => {
            let cut = esp::ah::split(octets).ok_or(Refusal::Malformed)?;
            datapath.decapsulate_ah(now, cut, arrival, &mut queue)
        }
    };
    opened.map_err(Refusal::Datapath)?;
    let inner = queue.packets().next().and_then(|(octets, _)| InnerPacket::decode(octets));
    inner.ok_or(Refusal::Malformed)
}

impl Capabilities for Recorder {
    fn family_switching(&mut self) -> Option<&mut dyn esp::plane::FamilySwitching> {
        Some(self)
    }

    fn preparation(&mut self) -> Option<&mut dyn esp::plane::Preparation> {
        Some(self)
    }

    fn replay_counters(&mut self) -> Option<&mut dyn ReplayCounters> {
        Some(self)
    }

    fn filtering(&mut self) -> Option<&mut dyn esp::plane::Filtering> {
        self.datapath.as_mut()?.filtering()
    }

    fn binding_of(&self, tunnel: &str) -> Binding {
        self.bindings.of(tunnel)
    }
}

impl esp::plane::Preparation for Recorder {
    fn prepare(&mut self, rule: &Rule) -> bool {
        let Preparation::Held { prepared, asked } = &mut self.preparation else { return true };
        let is_prepared = prepared.contains(&rule.id);
        if !is_prepared {
            asked.insert(rule.id, rule.tunnel.clone());
        }
        is_prepared
    }
}

impl ReplayCounters for Recorder {
    fn skip(&mut self, sa: SaId, count: u64) -> Result<(), PlaneError> {
        if let Some(datapath) = &mut self.datapath {
            datapath.skip(sa, count)?;
        }
        let work = &mut self.ledger.sa_mut(sa).ok_or(PlaneError::NoSuchSa(sa))?.work;
        let received = work.seen.last().copied().unwrap_or(0).max(work.skipped);
        work.skipped = received.saturating_add(count);
        work.sequence = work.sequence.saturating_add(count);
        self.journal.push(Change::Skipped(sa, count));
        Ok(())
    }
}

impl DataPlane for Recorder {
    fn add_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        if rule.selectors.local.is_empty() || rule.selectors.remote.is_empty() {
            self.misuse.push(format!("{:?} covers nothing", rule.id));
        }
        if let Preparation::Held { prepared, .. } = &self.preparation
            && !prepared.contains(&rule.id)
        {
            self.misuse.push(format!("{:?} comes before the plane is prepared", rule.id));
        }
        if let Some(datapath) = &mut self.datapath {
            datapath.add_rule(rule.clone())?;
        }
        let before = self.ledger.rule(rule.id);
        if before.is_some_and(|before| before.rule.tunnel != rule.tunnel) {
            self.misuse.push(format!("{:?} was in force for another tunnel", rule.id));
        }
        let asked = before.and_then(|before| before.extra);
        self.ledger.enter_rule(rule, asked);
        Ok(())
    }

    fn renumber_rule(&mut self, rule: RuleId, to: RuleId) {
        self.datapath.iter_mut().for_each(|d| d.renumber_rule(rule, to));
        let is_there = self.ledger.rule(rule).is_some();
        if !self.ledger.renumber_rule(rule, to) && is_there {
            self.misuse.push(format!("{to:?} was in force already"));
        }
    }

    fn set_trap(&mut self, rule: RuleId) {
        self.datapath.iter_mut().for_each(|d| d.set_trap(rule));
        self.ledger.set_trap(rule);
    }

    fn remove_rule(&mut self, rule: RuleId) {
        self.datapath.iter_mut().for_each(|d| d.remove_rule(rule));
        self.ledger.strike_rule(rule);
        if let Preparation::Held { prepared, asked } = &mut self.preparation {
            prepared.remove(&rule);
            asked.remove(&rule);
        }
    }

    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        if self.ledger.receiver(sa.spi).is_some() {
            return Err(PlaneError::SpiInUse(sa.spi));
        }
        let entry = InForce::inbound(&sa);
        self.admit(&entry)?;
        if let Some(datapath) = &mut self.datapath {
            datapath.add_inbound(sa)?;
        }
        self.journal.push(Change::Inbound(entry.id, entry.spi));
        self.ledger.enter_sa(entry);
        Ok(())
    }

    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError> {
        if self.ledger.rule(sa.rule).is_none() {
            return Err(PlaneError::NoSuchRule(sa.rule));
        }
        let (entry, standby) = (InForce::outbound(&sa), sa.standby);
        self.admit(&entry)?;
        if let Some(datapath) = &mut self.datapath {
            datapath.add_outbound(sa)?;
        }
        self.journal.push(Change::Outbound(entry.id, entry.spi, standby));
        if !standby {
            self.note_asked(entry.rule, None);
        }
        self.ledger.enter_sa(entry);
        Ok(())
    }

    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError> {
        if let Some(datapath) = &mut self.datapath {
            datapath.promote(sa)?;
        }
        self.ledger.promote(sa)?;
        if let Some(rule) = self.ledger.sa(sa).map(|sa| sa.rule) {
            self.note_asked(rule, None);
        }
        self.journal.push(Change::Promoted(sa));
        Ok(())
    }

    fn relocate(&mut self, sa: SaId, path: Path) -> Result<(), PlaneError> {
        if let Some(datapath) = &mut self.datapath {
            datapath.relocate(sa, path)?;
        }
        self.ledger.sa_mut(sa).ok_or(PlaneError::NoSuchSa(sa))?.path = path;
        self.journal.push(Change::Relocated(sa));
        Ok(())
    }

    fn remove(&mut self, sa: SaId) -> Option<Usage> {
        let passed = self.datapath.as_mut().and_then(|d| d.remove(sa));
        let removed = self.ledger.strike_sa(sa)?;
        self.journal.push(Change::Removed(sa));
        Some(passed.unwrap_or(removed.work.usage))
    }

    fn usage(&mut self, sa: SaId) -> Option<Usage> {
        if let Some(datapath) = &mut self.datapath {
            return datapath.usage(sa);
        }
        self.ledger.sa(sa).map(|sa| sa.work.usage)
    }
}

#[cfg(test)]
mod tests;
