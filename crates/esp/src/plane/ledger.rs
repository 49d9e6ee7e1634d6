//! The rules and SAs of a plane by their names, the rule of each SA, and the SA whose turn it is to send.
//!
//! A plane enters a rule or an SA once the system has accepted it, and strikes it once it is gone. The tables in which
//! [`Datapath`](crate::datapath::Datapath) finds packets are others: threads read those without locks.

use super::{InboundSa, OutboundSa, PlaneError, Rule, RuleId, SaId, Spi};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

/// The rules and SAs that a [`DataPlane`](super::DataPlane) has. With each of them the plane keeps a value of its own:
/// an `R` with a rule, an `S` with an SA.
#[derive(Debug)]
pub struct Ledger<R, S> {
    rules: BTreeMap<RuleId, RuleEntry<R>>,
    sas: BTreeMap<SaId, SaEntry<S>>,
    by_rule: BTreeSet<(RuleId, SaId)>,
    /// The last turn that was given.
    turn: u64,
}

/// A rule that a plane has. It dereferences to the value of the plane.
#[derive(Debug)]
pub struct RuleEntry<R> {
    /// The rule, with its present name and trap.
    pub rule: Rule,
    /// The value of the plane.
    pub extra: R,
}

/// An SA that a plane has. It dereferences to the value of the plane.
#[derive(Debug)]
pub struct SaEntry<S> {
    /// Its name.
    pub id: SaId,
    /// The present name of the rule whose traffic it carries.
    pub rule: RuleId,
    /// Its SPI.
    pub spi: Spi,
    side: Side,
    /// The value of the plane.
    pub extra: S,
}

#[derive(Debug)]
enum Side {
    Receives,
    /// `None`: in standby.
    Sends(Option<u64>),
}

impl<S> SaEntry<S> {
    /// An SA that receives.
    pub fn inbound(sa: &InboundSa, extra: S) -> Self {
        Self { id: sa.id, rule: sa.rule, spi: sa.spi, side: Side::Receives, extra }
    }

    /// An SA that sends, or is in standby. It has its turn once it is entered.
    pub fn outbound(sa: &OutboundSa, extra: S) -> Self {
        let side = Side::Sends((!sa.standby).then_some(0));
        Self { id: sa.id, rule: sa.rule, spi: sa.spi, side, extra }
    }

    /// An SA that receives, of which the plane has no more at hand than that.
    pub fn receiving(id: SaId, rule: RuleId, spi: Spi, extra: S) -> Self {
        Self { id, rule, spi, side: Side::Receives, extra }
    }

    /// An SA in standby, of which the plane has no more at hand than that.
    pub fn standing_by(id: SaId, rule: RuleId, spi: Spi, extra: S) -> Self {
        Self { id, rule, spi, side: Side::Sends(None), extra }
    }

    /// Returns `true` if the SA is inbound.
    pub fn receives(&self) -> bool {
        matches!(self.side, Side::Receives)
    }

    /// The place of an outbound SA in the order of additions and promotions: of the SAs of a rule that cover a packet,
    /// the one with the highest turn sends it. `None` if the SA is in standby, or inbound.
    pub fn turn(&self) -> Option<u64> {
        match self.side {
            Side::Receives => None,
            Side::Sends(turn) => turn,
        }
    }
}

impl<R> Deref for RuleEntry<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.extra
    }
}

impl<S> Deref for SaEntry<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.extra
    }
}

impl<R, S> Default for Ledger<R, S> {
    fn default() -> Self {
        Self { rules: BTreeMap::new(), sas: BTreeMap::new(), by_rule: BTreeSet::new(), turn: 0 }
    }
}

impl<R, S> Ledger<R, S> {
    /// The rules, in the order in which they are matched.
    pub fn rules(&self) -> impl Iterator<Item = &RuleEntry<R>> {
        self.rules.values()
    }

    /// A rule.
    pub fn rule(&self, rule: RuleId) -> Option<&RuleEntry<R>> {
        self.rules.get(&rule)
    }

    /// The plane's value of a rule.
    pub fn rule_mut(&mut self, rule: RuleId) -> Option<&mut R> {
        self.rules.get_mut(&rule).map(|entry| &mut entry.extra)
    }

    /// Enters a rule. Returns the rule of that name whose place and SAs it takes.
    pub fn enter_rule(&mut self, rule: Rule, extra: R) -> Option<RuleEntry<R>> {
        self.rules.insert(rule.id, RuleEntry { rule, extra })
    }

    /// Gives a rule and its SAs the name `to` of the rule. Returns `false`, and changes nothing, if there is no such
    /// rule or `to` is taken.
    pub fn renumber_rule(&mut self, rule: RuleId, to: RuleId) -> bool {
        if self.rules.contains_key(&to) {
            return false;
        }
        let Some(mut entry) = self.rules.remove(&rule) else { return false };
        entry.rule.id = to;
        self.rules.insert(to, entry);
        for id in self.of_rule(rule).map(|sa| sa.id).collect::<Vec<_>>() {
            self.by_rule.remove(&(rule, id));
            self.by_rule.insert((to, id));
            self.sas.entry(id).and_modify(|sa| sa.rule = to);
        }
        true
    }

    /// Sets the trap of a rule. Returns `false` if there is no such rule.
    pub fn set_trap(&mut self, rule: RuleId) -> bool {
        let Some(entry) = self.rules.get_mut(&rule) else { return false };
        entry.rule.trap = true;
        true
    }

    /// Strikes a rule. Its SAs stay until they are struck.
    pub fn strike_rule(&mut self, rule: RuleId) -> Option<RuleEntry<R>> {
        self.rules.remove(&rule)
    }

    /// The SAs of both directions, in the order of their names.
    pub fn sas(&self) -> impl Iterator<Item = &SaEntry<S>> {
        self.sas.values()
    }

    /// The SAs of a rule, in the order of their names.
    pub fn of_rule(&self, rule: RuleId) -> impl DoubleEndedIterator<Item = &SaEntry<S>> {
        let names = self.by_rule.range((rule, SaId(0))..=(rule, SaId(u64::MAX)));
        names.filter_map(|(_, id)| self.sas.get(id))
    }

    /// An SA of either direction.
    pub fn sa(&self, sa: SaId) -> Option<&SaEntry<S>> {
        self.sas.get(&sa)
    }

    /// The plane's value of an SA.
    pub fn sa_mut(&mut self, sa: SaId) -> Option<&mut S> {
        self.sas.get_mut(&sa).map(|entry| &mut entry.extra)
    }

    /// The inbound SA with an SPI.
    pub fn receiver(&self, spi: Spi) -> Option<&SaEntry<S>> {
        self.sas().find(|sa| sa.receives() && sa.spi == spi)
    }

    /// Enters an SA. If it sends, it has the next turn.
    pub fn enter_sa(&mut self, mut entry: SaEntry<S>) {
        self.strike_sa(entry.id);
        if let Side::Sends(Some(turn)) = &mut entry.side {
            self.turn += 1;
            *turn = self.turn;
        }
        self.by_rule.insert((entry.rule, entry.id));
        self.sas.insert(entry.id, entry);
    }

    /// Gives an outbound SA the next turn. Returns the turn that it had; `None`: it was in standby.
    ///
    /// # Errors
    /// If there is no such SA that sends.
    pub fn promote(&mut self, sa: SaId) -> Result<Option<u64>, PlaneError> {
        match self.sas.get_mut(&sa).map(|entry| &mut entry.side) {
            Some(Side::Sends(turn)) => {
                self.turn += 1;
                Ok(turn.replace(self.turn))
            }
            _ => Err(PlaneError::NoSuchSa(sa)),
        }
    }

    /// Puts an outbound SA in standby. Returns the turn that it had.
    pub fn stand_by(&mut self, sa: SaId) -> Option<u64> {
        match &mut self.sas.get_mut(&sa)?.side {
            Side::Receives => None,
            Side::Sends(turn) => turn.take(),
        }
    }

    /// Strikes an SA.
    pub fn strike_sa(&mut self, sa: SaId) -> Option<SaEntry<S>> {
        let entry = self.sas.remove(&sa)?;
        self.by_rule.remove(&(entry.rule, sa));
        Some(entry)
    }
}

#[cfg(test)]
mod tests;
