//! A data plane in memory: it keeps what it is told, and notes every use of it that the contract of [`DataPlane`]
//! forbids. Packets it carries in a form that needs no cipher, or hands to a real [`Datapath`] beneath it.

mod families;

use crate::traffic::InnerPacket;
use esp::datapath::{Arrival, Datapath};
use esp::discard::Discard;
use esp::gso::Gso;
use esp::plane::{
    Capabilities, DataPlane, Encapsulation, InboundSa, Notice, OutboundSa, PacketSummary, Path,
    PlaneError, Rule, RuleId, SaId, Spi, Usage,
};
use esp::queue::{Coalesce, ReceiveQueue, SendQueue};
use policy::{Binding, Bindings, Secret};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// Octets before the inner packet: SPI, sequence number and a proof of the key.
const OVERHEAD: usize = 4 + 8 + 8;

/// A rule asks for an SA at most once in this time, as in the datapath.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// An inbound SA and what it has seen.
#[derive(Debug)]
pub struct Receiving {
    /// As added, with its present path.
    pub sa: InboundSa,
    seen: BTreeSet<u64>,
    usage: Usage,
    expiry: Expiry,
}

/// An outbound SA and what it has done.
#[derive(Debug)]
pub struct Sending {
    /// As added, with its present path; `standby` is cleared when it is promoted.
    pub sa: OutboundSa,
    /// Place in the order of additions and promotions: the highest is used.
    order: u64,
    sequence: u64,
    usage: Usage,
    expiry: Expiry,
}

/// The limits that were reported.
#[derive(Clone, Copy, Debug, Default)]
struct Expiry {
    soft: bool,
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
    /// An SA was removed.
    Removed(SaId),
}

/// The in-memory plane.
#[derive(Default)]
pub struct Recorder {
    datapath: Option<Datapath>,
    rules: BTreeMap<RuleId, Rule>,
    inbound: BTreeMap<SaId, Receiving>,
    outbound: BTreeMap<SaId, Sending>,
    names: BTreeSet<SaId>,
    keys: BTreeSet<Vec<u8>>,
    order: u64,
    /// The time of each rule's last request for an SA.
    asked: BTreeMap<RuleId, Instant>,
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

impl Recorder {
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
        self.rules.values()
    }

    /// The inbound SAs in force.
    pub fn inbound(&self) -> impl Iterator<Item = &Receiving> {
        self.inbound.values()
    }

    /// The outbound SAs in force, standby ones included.
    pub fn outbound(&self) -> impl Iterator<Item = &Sending> {
        self.outbound.values()
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
            .rules
            .values()
            .find(|r| r.selectors.covers(InnerPacket::PROTOCOL, local, remote))
            .map(|r| (r.id, r.trap));
        let Some((rule, trap)) = covering else { return Verdict::NoRule };
        let chosen = self
            .outbound
            .values_mut()
            .filter(|o| o.sa.rule == rule && !o.sa.standby && !o.expiry.hard)
            .filter(|o| o.sa.selectors.covers(InnerPacket::PROTOCOL, local, remote))
            .max_by_key(|o| o.order);
        let Some(sending) = chosen else {
            let asked = self.asked.get(&rule);
            if trap && asked.is_none_or(|at| now.saturating_duration_since(*at) >= ASK_EVERY) {
                self.asked.insert(rule, now);
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
        sending.sequence += 1;
        let mut octets = sending.sa.spi.0.to_be_bytes().to_vec();
        octets.extend(sending.sequence.to_be_bytes());
        octets.extend(proof(&sending.sa.key, sending.sequence, &inner));
        octets.extend(&inner);
        count(&mut sending.usage, now, inner.len());
        let limits = sending.sa.limits;
        let (id, bytes) = (sending.sa.id, sending.usage.bytes);
        self.notices.extend(sending.expiry.reached(id, bytes, limits));
        Verdict::Protected { octets, path: sending.sa.path }
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
        let receiving =
            self.inbound.values_mut().find(|r| r.sa.spi == spi).ok_or(Refusal::UnknownSpi)?;
        let accepted = receiving.accept(sequence, shown, inner);
        match &accepted {
            Ok(_) => count(&mut receiving.usage, now, inner.len()),
            Err(_) => receiving.usage.refused += 1,
        }
        let packet = accepted?;
        let (id, path) = (receiving.sa.id, receiving.sa.path);
        if path.encapsulation == Encapsulation::Udp && path.remote != came.remote {
            self.notices.push(Notice::PeerMoved { sa: id, remote: came.remote });
        }
        let (bytes, limits) = (receiving.usage.bytes, receiving.sa.limits);
        self.notices.extend(receiving.expiry.reached(id, bytes, limits));
        Ok(packet)
    }

    fn admit(
        &mut self,
        id: SaId,
        spi: Spi,
        key: &Secret,
        expected: usize,
    ) -> Result<(), PlaneError> {
        if let Some(Some(error)) = self.refusals.pop_front() {
            return Err(error);
        }
        if !self.names.insert(id) {
            self.misuse.push(format!("{id:?} was used before"));
        }
        if spi.0 < 256 {
            // RFC 4303 §2.1
            self.misuse.push(format!("SPI {spi} is reserved"));
        }
        if key.len() != expected {
            self.misuse.push(format!("{} octets of key for SPI {spi}, not {expected}", key.len()));
        }
        if !self.keys.insert(key.expose().to_vec()) {
            // One key under two SAs means one nonce for two packets.
            self.misuse.push(format!("the key of SPI {spi} was used before"));
        }
        Ok(())
    }
}

impl Receiving {
    fn accept(
        &mut self,
        sequence: u64,
        shown: &[u8],
        inner: &[u8],
    ) -> Result<InnerPacket, Refusal> {
        if self.expiry.hard {
            return Err(Refusal::Exhausted);
        }
        if shown != proof(&self.sa.key, sequence, inner) {
            return Err(Refusal::Forged);
        }
        if !self.seen.insert(sequence) {
            return Err(Refusal::Replayed);
        }
        let packet = InnerPacket::decode(inner).ok_or(Refusal::Malformed)?;
        // RFC 4301 §5.2
        let local = (packet.destination.ip(), Some(packet.destination.port()));
        let remote = (packet.source.ip(), Some(packet.source.port()));
        if self.sa.selectors.covers(InnerPacket::PROTOCOL, local, remote) {
            Ok(packet)
        } else {
            Err(Refusal::Selectors)
        }
    }
}

impl Expiry {
    /// The notices of limits that were reached just now.
    fn reached(&mut self, sa: SaId, bytes: u64, limits: esp::plane::Limits) -> Vec<Notice> {
        let mut notices = Vec::new();
        for (reported, limit, hard) in
            [(&mut self.soft, limits.soft_bytes, false), (&mut self.hard, limits.hard_bytes, true)]
        {
            if !*reported && limit.is_some_and(|l| bytes >= l) {
                *reported = true;
                notices.push(Notice::Expiring { sa, hard });
            }
        }
        notices
    }
}

fn count(usage: &mut Usage, now: Instant, octets: usize) {
    usage.packets += 1;
    usage.bytes += octets as u64;
    usage.last_used = Some(now);
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

/// The datapath takes an SA and keeps it; the record needs its own.
fn copy_of_inbound(sa: &InboundSa) -> InboundSa {
    let InboundSa { id, rule, spi, suite, esn, replay_window, mode, path, limits, .. } = *sa;
    let (key, selectors) = (sa.key.clone(), sa.selectors.clone());
    InboundSa { id, rule, spi, suite, key, esn, replay_window, mode, path, selectors, limits }
}

fn copy_of_outbound(sa: &OutboundSa) -> OutboundSa {
    let OutboundSa { id, rule, spi, suite, esn, mode, path, limits, standby, .. } = *sa;
    let (key, selectors) = (sa.key.clone(), sa.selectors.clone());
    OutboundSa { id, rule, spi, suite, key, esn, mode, path, selectors, limits, standby }
}

impl Capabilities for Recorder {
    fn family_switching(&mut self) -> Option<&mut dyn esp::plane::FamilySwitching> {
        Some(self)
    }

    fn preparation(&mut self) -> Option<&mut dyn esp::plane::Preparation> {
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
        let before = self.rules.insert(rule.id, rule.clone());
        if before.is_some_and(|before| before.tunnel != rule.tunnel) {
            self.misuse.push(format!("{:?} was in force for another tunnel", rule.id));
        }
        Ok(())
    }

    fn renumber_rule(&mut self, rule: RuleId, to: RuleId) {
        self.datapath.iter_mut().for_each(|d| d.renumber_rule(rule, to));
        let Some(renamed) = self.rules.remove(&rule) else { return };
        if self.rules.insert(to, Rule { id: to, ..renamed }).is_some() {
            self.misuse.push(format!("{to:?} was in force already"));
        }
        if let Some(at) = self.asked.remove(&rule) {
            self.asked.insert(to, at);
        }
        for sending in self.outbound.values_mut().filter(|s| s.sa.rule == rule) {
            sending.sa.rule = to;
        }
    }

    fn set_trap(&mut self, rule: RuleId) {
        self.datapath.iter_mut().for_each(|d| d.set_trap(rule));
        if let Some(rule) = self.rules.get_mut(&rule) {
            rule.trap = true;
        }
    }

    fn remove_rule(&mut self, rule: RuleId) {
        self.datapath.iter_mut().for_each(|d| d.remove_rule(rule));
        self.rules.remove(&rule);
        self.asked.remove(&rule);
        if let Preparation::Held { prepared, asked } = &mut self.preparation {
            prepared.remove(&rule);
            asked.remove(&rule);
        }
    }

    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        if self.inbound.values().any(|r| r.sa.spi == sa.spi) {
            return Err(PlaneError::SpiInUse(sa.spi));
        }
        self.admit(sa.id, sa.spi, &sa.key, sa.suite.key_material_len())?;
        if let Some(datapath) = &mut self.datapath {
            datapath.add_inbound(copy_of_inbound(&sa))?;
        }
        self.journal.push(Change::Inbound(sa.id, sa.spi));
        let receiving = Receiving {
            sa,
            seen: BTreeSet::new(),
            usage: Usage::default(),
            expiry: Expiry::default(),
        };
        self.inbound.insert(receiving.sa.id, receiving);
        Ok(())
    }

    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError> {
        if !self.rules.contains_key(&sa.rule) {
            return Err(PlaneError::NoSuchRule(sa.rule));
        }
        self.admit(sa.id, sa.spi, &sa.key, sa.suite.key_material_len())?;
        if let Some(datapath) = &mut self.datapath {
            datapath.add_outbound(copy_of_outbound(&sa))?;
        }
        self.journal.push(Change::Outbound(sa.id, sa.spi, sa.standby));
        self.order += 1;
        if !sa.standby {
            self.asked.remove(&sa.rule);
        }
        let sending = Sending {
            sa,
            order: self.order,
            sequence: 0,
            usage: Usage::default(),
            expiry: Expiry::default(),
        };
        self.outbound.insert(sending.sa.id, sending);
        Ok(())
    }

    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError> {
        if let Some(datapath) = &mut self.datapath {
            datapath.promote(sa)?;
        }
        self.order += 1;
        let sending = self.outbound.get_mut(&sa).ok_or(PlaneError::NoSuchSa(sa))?;
        sending.sa.standby = false;
        sending.order = self.order;
        self.asked.remove(&sending.sa.rule);
        self.journal.push(Change::Promoted(sa));
        Ok(())
    }

    fn relocate(&mut self, sa: SaId, path: Path) -> Result<(), PlaneError> {
        if let Some(datapath) = &mut self.datapath {
            datapath.relocate(sa, path)?;
        }
        match (self.inbound.get_mut(&sa), self.outbound.get_mut(&sa)) {
            (Some(receiving), _) => receiving.sa.path = path,
            (_, Some(sending)) => sending.sa.path = path,
            (None, None) => return Err(PlaneError::NoSuchSa(sa)),
        }
        self.journal.push(Change::Relocated(sa));
        Ok(())
    }

    fn remove(&mut self, sa: SaId) -> Option<Usage> {
        let passed = self.datapath.as_mut().and_then(|d| d.remove(sa));
        let received = self.inbound.remove(&sa).map(|r| r.usage);
        let set = received.or_else(|| self.outbound.remove(&sa).map(|o| o.usage))?;
        self.journal.push(Change::Removed(sa));
        Some(passed.unwrap_or(set))
    }

    fn usage(&mut self, sa: SaId) -> Option<Usage> {
        if let Some(datapath) = &mut self.datapath {
            return datapath.usage(sa);
        }
        let receiving = self.inbound.get(&sa).map(|r| r.usage);
        receiving.or_else(|| self.outbound.get(&sa).map(|o| o.usage))
    }
}

#[cfg(test)]
mod tests;
