//! SAs that an operator keys by hand, without IKE.
//!
//! Their keys never change, so that nothing ends the life of a key but its sequence numbers. The keeper of an SA has to
//! see to it that no number is used twice, over restarts, too (RFC 8221 §3): [`ManualKeying::resume`] continues behind
//! the numbers that were used, [`ManualKeying::allow`] ends at those that are on record, and [`ManualKeying::retire`]
//! tells the last one.

#![forbid(unsafe_code)]

use crate::plane::{
    DataPlane, InboundSa, Limits, ManualKeying, OutboundSa, Path, PlaneError, Rule, RuleId, SaId,
    Spi, TrafficSelectors, Usage,
};
use crypto::{Iv, Suite};
use policy::{Mode, Secret};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rules of key management have lower numbers: the policy's tunnels come first.
const FIRST_RULE: u32 = 0x007f_0000;

/// Numbers for their rules that the kernel plane has room for, too.
const RULES: u32 = 0x0000_fff0;

/// One SA of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManualSa {
    /// Names its traffic: one SA of either direction may have it, and both are of the same traffic then.
    pub name: String,
    /// The direction of its packets.
    pub direction: SaDirection,
    /// From 1 on; below 256 they are reserved (RFC 4303 §2.1), which planes let pass here.
    pub spi: Spi,
    /// Cipher.
    pub suite: Suite,
    /// [`Suite::key_material_len`] octets.
    pub key: Secret,
    /// Another SA may have the same key, although both then use the same nonces with it.
    pub shared_key: bool,
    /// Transport or tunnel mode.
    pub mode: Mode,
    /// Between which addresses, and how.
    pub path: Path,
    /// Its traffic, as it leaves.
    pub selectors: TrafficSelectors,
    /// Packets of anti-replay window of an inbound SA.
    pub replay_window: u32,
    /// Extended sequence numbers.
    pub esn: bool,
    /// The reqid of both SAs of the name in the kernel; `None`: the kernel plane chooses one.
    pub reqid: Option<u32>,
}

/// The direction of an SA's packets, seen from this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SaDirection {
    /// From the peer.
    In,
    /// To the peer.
    Out,
}

impl SaDirection {
    /// `in` or `out`.
    pub fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

impl ManualSa {
    /// Returns `true` if a number that is used twice with the key reveals the plaintext, and lets others forge packets.
    pub fn counts_nonces(&self) -> bool {
        self.suite.iv() == Iv::Unique
    }

    /// The last sequence number there is.
    pub fn last_sequence(&self) -> u64 {
        if self.esn { u64::MAX - (1 << 32) } else { u32::MAX.into() }
    }
}

/// An SA cannot be installed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("manual SA {name:?} ({}): {why}", direction.name())]
pub struct ManualError {
    /// Its name.
    pub name: String,
    /// Its direction.
    pub direction: SaDirection,
    /// The plane's reason.
    pub why: PlaneError,
}

policy::readable_debug!(ManualError);

/// The sequence numbers that concern the keeper of an outbound SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The last one that was ever used with its key; 0: none.
    pub used: u64,
    /// The last one that it may use before it is allowed more.
    pub allowed: u64,
}

/// SAs that a plane has, and the rules for their traffic.
#[derive(Clone, Debug, Default)]
pub struct Installed {
    sas: Vec<(SaId, Arc<ManualSa>)>,
    /// By the name of the SAs. A name may have no SA any more: its traffic is blocked then.
    rules: BTreeMap<String, Rule>,
    /// The numbers of `rules`.
    taken: BTreeSet<RuleId>,
    /// Rules so far, those included that are gone.
    ruled: u32,
    /// SAs so far, those included that are gone: names of SAs are not used again.
    last: u64,
}

impl Installed {
    /// Adds SAs and a rule for each name to a plane. `numbers` tells of an outbound SA which sequence numbers it may
    /// use.
    ///
    /// # Errors
    /// Where the plane refuses one: then it has none of them.
    pub fn install(
        plane: &mut dyn DataPlane,
        sas: &[Arc<ManualSa>],
        numbers: &mut dyn FnMut(&ManualSa) -> Numbers,
    ) -> Result<Self, ManualError> {
        let mut installed = Self::default();
        installed.add(plane, sas, numbers).map(|()| installed)
    }

    /// Adds more SAs, and a rule for each new name. A name that is [blocked](Self::blocked) gets the rule of these SAs.
    ///
    /// # Errors
    /// Where the plane refuses one: then it has none of these, and the rules of before.
    pub fn add(
        &mut self,
        plane: &mut dyn DataPlane,
        sas: &[Arc<ManualSa>],
        numbers: &mut dyn FnMut(&ManualSa) -> Numbers,
    ) -> Result<(), ManualError> {
        let before = self.sas.len();
        let mut ruled: BTreeSet<String> = self.sas.iter().map(|(_, sa)| sa.name.clone()).collect();
        let mut former: Vec<(String, Option<Rule>)> = Vec::new();
        for sa in sas {
            let added = match ruled.insert(sa.name.clone()) {
                true => self.add_rule(plane, sa, &mut former),
                false => Ok(()),
            };
            if let Err(why) = added.and_then(|()| self.add_sa(plane, sa, numbers)) {
                self.sas.drain(before..).for_each(|(id, _)| _ = plane.remove(id));
                former.into_iter().for_each(|(name, rule)| self.put_back(plane, &name, rule));
                return Err(ManualError { name: sa.name.clone(), direction: sa.direction, why });
            }
        }
        Ok(())
    }

    /// Adds the rule for the SAs of a name, and notes the one that the name had.
    fn add_rule(
        &mut self,
        plane: &mut dyn DataPlane,
        sa: &ManualSa,
        former: &mut Vec<(String, Option<Rule>)>,
    ) -> Result<(), PlaneError> {
        let rule = sa.rule(self.number_for(&sa.name));
        former.push((sa.name.clone(), self.enter(&sa.name, rule.clone())));
        plane.add_rule(rule.clone())?;
        sa.reqid.map_or(Ok(()), |reqid| plane.manual_keying().set_reqid(rule.id, reqid))
    }

    fn add_sa(
        &mut self,
        plane: &mut dyn DataPlane,
        sa: &Arc<ManualSa>,
        numbers: &mut dyn FnMut(&ManualSa) -> Numbers,
    ) -> Result<(), PlaneError> {
        let rule = self.rules.get(&sa.name).map_or(RuleId(FIRST_RULE), |rule| rule.id);
        self.last += 1;
        let id = SaId(SaId::FIRST_MANUAL.0 + self.last);
        sa.add(plane, id, rule, numbers)?;
        self.sas.push((id, Arc::clone(sa)));
        Ok(())
    }

    fn put_back(&mut self, plane: &mut dyn DataPlane, name: &str, rule: Option<Rule>) {
        let Some(rule) = rule else {
            self.unblock(plane, name);
            return;
        };
        // A plane that refuses it has guarded its traffic all the same.
        let _ = plane.add_rule(rule.clone());
        self.enter(name, rule);
    }

    fn enter(&mut self, name: &str, rule: Rule) -> Option<Rule> {
        self.ruled = rule.id.0.saturating_sub(FIRST_RULE) + 1;
        self.taken.insert(rule.id);
        self.rules.insert(name.to_owned(), rule)
    }

    /// The number of the rule for the SAs of this name; where there is none, one that is free.
    fn number_for(&self, name: &str) -> RuleId {
        if let Some(rule) = self.rules.get(name) {
            return rule.id;
        }
        let behind = self.taken.last().map_or(FIRST_RULE, |rule| rule.0 + 1);
        let mut numbers = (0..RULES).map(|n| RuleId(FIRST_RULE + (self.ruled + n) % RULES));
        numbers.find(|rule| !self.taken.contains(rule)).unwrap_or(RuleId(behind))
    }

    /// The rules that [`Self::add`] would add for these SAs, so that a plane can be prepared for them.
    pub fn rules_for(&self, sas: &[Arc<ManualSa>]) -> Vec<Rule> {
        let mut with = self.clone();
        let mut rules = BTreeMap::new();
        for sa in sas {
            let rule = sa.rule(with.number_for(&sa.name));
            with.enter(&sa.name, rule.clone());
            rules.insert(rule.id, rule);
        }
        rules.into_values().collect()
    }

    /// Removes the SAs of a name: first the one that sends, so that nothing is protected any more that the other could
    /// not answer. Their traffic is blocked until [`Self::unblock`]. Returns each with the last sequence number that it
    /// has used, if it has sent.
    pub fn remove(
        &mut self,
        plane: &mut dyn DataPlane,
        name: &str,
    ) -> Vec<(Arc<ManualSa>, Option<u64>)> {
        let (mut gone, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.sas).into_iter().partition(|(_, sa)| sa.name == name);
        self.sas = rest;
        gone.sort_by_key(|(_, sa)| std::cmp::Reverse(sa.direction));
        let removed = gone.into_iter().map(|(id, sa)| {
            let last = plane.manual_keying().retire(id);
            if last.is_none() {
                plane.remove(id);
            }
            (sa, last)
        });
        removed.collect()
    }

    /// Removes the rule of a name that has no SA: the plane no longer matches its traffic. Returns `true` if there was
    /// a rule.
    pub fn unblock(&mut self, plane: &mut dyn DataPlane, name: &str) -> bool {
        let Some(rule) = self.rules.remove(name) else { return false };
        self.taken.remove(&rule.id);
        plane.remove_rule(rule.id);
        true
    }

    /// Returns `true` if one of the names has this rule.
    pub fn has_rule(&self, rule: RuleId) -> bool {
        self.taken.contains(&rule)
    }

    /// The names that have a rule and no SA: their traffic is blocked.
    pub fn blocked(&self) -> impl Iterator<Item = &str> {
        let served: BTreeSet<&str> = self.sas.iter().map(|(_, sa)| sa.name.as_str()).collect();
        self.rules.keys().map(String::as_str).filter(move |name| !served.contains(name))
    }

    /// Every SA with its name in the plane, in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = (SaId, &Arc<ManualSa>)> {
        self.sas.iter().map(|(id, sa)| (*id, sa))
    }

    /// The SA of that name in the plane.
    pub fn get(&self, id: SaId) -> Option<&Arc<ManualSa>> {
        self.sas.iter().find(|(known, _)| *known == id).map(|(_, sa)| sa)
    }

    /// The counters of each SA, and the last sequence number that an outbound one has used.
    pub fn usage(&self, plane: &mut dyn DataPlane) -> Vec<(Usage, Option<u64>)> {
        let sas = self.sas.iter();
        sas.map(|(id, _)| {
            (plane.usage(*id).unwrap_or_default(), plane.manual_keying().last_sequence(*id))
        })
        .collect()
    }
}

impl ManualSa {
    /// The rule for the traffic of this SA.
    pub fn rule(&self, id: RuleId) -> Rule {
        Rule { id, tunnel: self.name.clone(), selectors: self.selectors.clone(), trap: false }
    }

    fn add(
        &self,
        plane: &mut dyn DataPlane,
        id: SaId,
        rule: RuleId,
        numbers: &mut dyn FnMut(&ManualSa) -> Numbers,
    ) -> Result<(), PlaneError> {
        let (spi, suite, esn, mode, path) = (self.spi, self.suite, self.esn, self.mode, self.path);
        let (key, limits) = (self.key.clone(), Limits::default());
        let selectors = Arc::new(self.selectors.clone());
        match self.direction {
            SaDirection::In => plane.add_inbound(InboundSa {
                id,
                rule,
                spi,
                suite,
                key,
                esn,
                replay_window: self.replay_window,
                mode,
                path,
                selectors,
                limits,
            }),
            // No packet is to leave before it is known which numbers are free.
            SaDirection::Out => {
                let standby = true;
                plane.add_outbound(OutboundSa {
                    id,
                    rule,
                    spi,
                    suite,
                    key,
                    esn,
                    mode,
                    path,
                    selectors,
                    limits,
                    standby,
                })?;
                let Numbers { used, allowed } = numbers(self);
                let resumed =
                    if used > 0 { plane.manual_keying().resume(id, used) } else { Ok(()) };
                resumed
                    .and_then(|()| plane.manual_keying().allow(id, allowed))
                    .and_then(|()| plane.promote(id))
                    .inspect_err(|_| _ = plane.remove(id))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::{Arrival, Datapath, Settings};
    use crate::gso::Gso;
    use crate::plane::Encapsulation;
    use crate::queue::{Coalesce, ReceiveQueue, SendQueue};
    use crate::sample;
    use policy::{AddressRange, KeyBits, Selector};
    use std::net::SocketAddr;
    use std::time::Instant;

    /// The side of the first or of the second host, its key for either direction another one.
    fn sa(first: bool, direction: SaDirection) -> Arc<ManualSa> {
        let (a, b) = sample::hosts(false);
        let (here, there) = if first { (a, b) } else { (b, a) };
        let side = |address| Selector::all_of(AddressRange::from(address));
        Arc::new(ManualSa {
            name: "link".to_owned(),
            direction,
            spi: Spi(7),
            suite: Suite::AesGcm16(KeyBits::B128),
            key: Secret::new(vec![u8::from(first == (direction == SaDirection::Out)); 20]),
            shared_key: false,
            mode: Mode::Transport,
            path: Path {
                local: SocketAddr::new(here, 500),
                remote: SocketAddr::new(there, 500),
                encapsulation: Encapsulation::Native,
            },
            selectors: TrafficSelectors { local: vec![side(here)], remote: vec![side(there)] },
            replay_window: 32,
            esn: false,
            reqid: None,
        })
    }

    fn plane() -> Datapath {
        Datapath::new(Settings::default(), Instant::now())
    }

    fn after(used: u64) -> Numbers {
        Numbers { used, allowed: u32::MAX.into() }
    }

    fn both(first: bool) -> [Arc<ManualSa>; 2] {
        [sa(first, SaDirection::Out), sa(first, SaDirection::In)]
    }

    #[test]
    fn packets_go_through_a_pair_and_numbers_go_on_where_they_were() {
        let (mut left, mut right) = (plane(), plane());
        let there = Installed::install(&mut right, &both(false), &mut |_| after(0)).expect("taken");
        for used in [0_u32, 1000] {
            let here = Installed::install(&mut left, &both(true), &mut |_| after(used.into()));
            let here = here.expect("taken");
            let mut queue = SendQueue::new(4096);
            let mut packet = sample::udp(false, (1, 2), b"by hand");
            left.encapsulate(Instant::now(), &mut packet, Gso::default(), &mut queue)
                .expect("an SA");
            let sealed = queue.octets(&queue.runs()[0]);
            assert_eq!(sealed[..4], 7_u32.to_be_bytes());
            assert_eq!(sealed[4..8], (used + 1).to_be_bytes());
            let arrival = Arrival { path: sa(false, SaDirection::In).path, tos: None, ttl: None };
            let mut opened = ReceiveQueue::new(4096, Coalesce::default());
            right
                .decapsulate(Instant::now(), sealed, arrival, &mut opened)
                .expect("authentic, and a new number");
            let usage = here.usage(&mut left);
            assert_eq!((usage[0].0.packets, usage[0].1), (1, Some(u64::from(used) + 1)));
            assert_eq!(usage[1].1, None);
            here.iter().for_each(|(id, _)| _ = left.remove(id));
        }
        assert_eq!(there.usage(&mut right)[1].0.packets, 2);
    }

    #[test]
    fn of_what_is_refused_nothing_stays() {
        let mut plane = plane();
        let [out, inbound] = both(true);
        let twice = [out, Arc::clone(&inbound), inbound];
        let error =
            Installed::install(&mut plane, &twice, &mut |_| after(0)).expect_err("the same SPI");
        assert_eq!(error.to_string(), "manual SA \"link\" (in): SPI 00000007 is in use");
        Installed::install(&mut plane, &twice[..2], &mut |_| after(0))
            .expect("nothing is in the way");
    }
}
