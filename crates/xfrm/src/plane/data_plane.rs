//! The kernel plane as key management sees it: rules and SAs are added, changed and removed.

#![forbid(unsafe_code)]

use super::{Installed, Ruled, Xfrm};
use crate::flow::Flow;
use crate::ownership::{PolicyName, REQIDS};
use crate::policies::priority;
use esp::plane::{
    DataPlane, InboundSa, OutboundSa, PacketSummary, Path, PlaneError, Rule, RuleId, SaEntry, SaId,
    Usage,
};
use esp::trace::OneWayTrace;
use netlink_packet_xfrm::XfrmMessage;
use std::collections::BTreeSet;

impl DataPlane for Xfrm {
    fn add_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        self.put_rule(rule, false)
    }

    fn renumber_rule(&mut self, rule: RuleId, to: RuleId) {
        if !self.ledger.renumber_rule(rule, to) {
            return;
        }
        let mut outcome = self.hold(to).and_then(|()| self.guard(to));
        for id in self.sas_of(to) {
            // Its turn among those of the rule stays.
            if let Some(turn) = self.ledger.sa(id).and_then(SaEntry::turn) {
                self.withdraw(id, rule, turn);
            }
            self.waiting.rename(id, to);
            outcome = outcome.and(self.serve(id));
        }
        if let Some(ruled) = self.ledger.rule(to) {
            let (flows, binding) = (ruled.flows.clone(), ruled.binding);
            self.release(rule, &flows, binding);
        }
        if let Err(error) = outcome {
            tracing::error!(%error, "a rule's traffic is blocked");
        }
    }

    fn set_trap(&mut self, rule: RuleId) {
        if !self.ledger.set_trap(rule) {
            return;
        }
        if let Err(error) = self.hold(rule) {
            tracing::error!(%error, "packets that wait for a tunnel are not seen");
        }
    }

    fn remove_rule(&mut self, rule: RuleId) {
        let Some(ruled) = self.ledger.strike_rule(rule) else { return };
        self.sas_of(rule).into_iter().for_each(|sa| self.rest(sa));
        self.release(rule, &ruled.flows, ruled.binding);
    }

    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        self.place_inbound(sa)
    }

    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError> {
        self.place_outbound(sa)
    }

    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError> {
        // The card may have taken the SA and not take its policy.
        self.use_from_now(sa).or_else(|error| self.leave_card_for(sa, error))
    }

    // An SA that moves is installed again with its sequence numbers. XFRM_MSG_MIGRATE needs a kernel built for it,
    // finds SAs by reqid and addresses rather than by SPI, and cannot put an SA into UDP.
    fn relocate(&mut self, id: SaId, path: Path) -> Result<(), PlaneError> {
        let sa = self.ledger.sa(id).ok_or(PlaneError::NoSuchSa(id))?;
        if sa.form.path == path {
            return Ok(());
        }
        self.remake(id, &mut |form| form.path = path)
    }

    fn remove(&mut self, sa: SaId) -> Option<Usage> {
        self.take_away(sa).map(|(removed, _)| removed.last)
    }

    fn usage(&mut self, sa: SaId) -> Option<Usage> {
        let usage = self.look_at(sa)?;
        let asked = self.ledger.sa(sa)?;
        // Key management asks from time to time about an SA that receives, for the liveness of the peer. The numbers of
        // those that send are to be known as well.
        if asked.receives() {
            let senders = self.ledger.of_rule(asked.rule).filter(|sa| !sa.receives());
            let senders: Vec<SaId> = senders.map(|sa| sa.id).collect();
            senders.into_iter().for_each(|id| _ = self.look_at(id));
        }
        Some(usage)
    }
}

/// The kernel's plane, as far as it can do more than others.
pub trait KernelPlane: DataPlane {
    /// Lets a rule's traffic pass, which is protected elsewhere, in the rule's place among the others.
    fn leave_alone(&mut self, rule: Rule) -> Result<(), PlaneError>;
    /// Predicts the way of a packet that a rule of this plane covers and decides about; `None` without such a rule.
    fn trace_one_way(
        &self,
        rule: RuleId,
        packet: &PacketSummary,
        leaves: bool,
    ) -> Option<OneWayTrace>;
    /// Removes what an earlier run has left and nothing of this one has replaced.
    fn remove_stale_policies(&mut self);
}

impl KernelPlane for Xfrm {
    fn leave_alone(&mut self, rule: Rule) -> Result<(), PlaneError> {
        self.put_rule(rule, true)
    }

    fn trace_one_way(
        &self,
        rule: RuleId,
        packet: &PacketSummary,
        leaves: bool,
    ) -> Option<OneWayTrace> {
        self.trace_by(rule, packet, leaves)
    }

    fn remove_stale_policies(&mut self) {
        let in_force: BTreeSet<PolicyName> =
            self.spd.in_force().map(|change| change.name()).collect();
        for stale in std::mem::take(&mut self.stale) {
            let id = &stale.user_policy_id;
            if in_force.contains(&PolicyName::new(id.selector, id.direction, &stale.nlas)) {
                continue;
            }
            match self.kernel.order(XfrmMessage::DeletePolicy(stale)) {
                Err(error) if !error.is_absent() => {
                    tracing::warn!(%error, "a policy of an earlier run stays in the kernel");
                }
                _ => {}
            }
        }
    }
}

impl Xfrm {
    /// Removes an SA. Returns it as it was in the end, and whether the kernel has told its last sequence number.
    pub(super) fn take_away(&mut self, sa: SaId) -> Option<(SaEntry<Installed>, bool)> {
        self.rest(sa);
        self.count_in_card(sa);
        let mut removed = self.ledger.strike_sa(sa)?;
        self.config.placement.forget(sa);
        if let Some(ruled) = self.ledger.rule_mut(removed.rule) {
            ruled.receiving.retain(|(id, _)| *id != sa);
            if let Err(error) = self.guard(removed.rule) {
                tracing::warn!(%error, "the guard against cleartext stays as it was");
            }
        }
        let name = removed.form.name();
        self.known.remove(&name);
        let mut is_exact = false;
        match self.delete(&name, &removed.form.binding) {
            // To the last packet.
            Ok(Some(ended)) => {
                removed.extra.count(&ended, &self.config.crypto);
                is_exact = removed.form.offload.is_none_or(|offload| !offload.packet);
            }
            // One that has expired is gone from the kernel.
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, spi = %removed.form.spi, "an SA stays in the kernel");
            }
        }
        self.leave_room(&removed);
        Some((removed, is_exact))
    }

    fn sas_of(&self, rule: RuleId) -> Vec<SaId> {
        self.ledger.of_rule(rule).map(|sa| sa.id).collect()
    }

    /// Adds a rule, or changes the one of that name, which keeps its SAs.
    pub(super) fn put_rule(&mut self, rule: Rule, elsewhere: bool) -> Result<(), PlaneError> {
        let (id, flows) = (rule.id, Flow::leaving(&rule.selectors)?);
        priority(id)?;
        if flows.iter().any(|flow| flow.source.address.is_ipv6()) {
            self.neighbour_discovery()?;
        }
        let binding = self.config.bindings.of(&rule.tunnel);
        let before = self.ledger.strike_rule(id);
        let (reqid, receiving) = match &before {
            Some(ruled) => (ruled.reqid, ruled.receiving.clone()),
            None => (self.next_reqid()?, Vec::new()),
        };
        let ruled = Ruled { binding, reqid, flows: flows.clone(), elsewhere, receiving };
        self.ledger.enter_rule(rule, ruled);
        let outcome = self.hold(id).and_then(|()| self.guard(id));
        let (gone, binding) = match (&outcome, before) {
            (Ok(()), Some(before)) => {
                let Ruled { flows: former, binding, .. } = before.extra;
                let gone = former.into_iter().filter(|flow| !flows.contains(flow));
                (gone.collect(), binding)
            }
            // The former rule stays in force.
            (Err(_), Some(before)) => {
                let gone = flows.into_iter().filter(|flow| !before.flows.contains(flow));
                let gone = gone.collect();
                self.ledger.enter_rule(before.rule, before.extra);
                if let Err(error) = self.hold(id).and_then(|()| self.guard(id)) {
                    tracing::error!(%error, "a rule's traffic is not as it was");
                }
                (gone, binding)
            }
            (Err(_), None) => {
                self.remove_rule(id);
                (Vec::new(), binding)
            }
            (Ok(()), None) => (Vec::new(), binding),
        };
        self.release(id, &gone, binding);
        outcome
    }

    fn next_reqid(&mut self) -> Result<u32, PlaneError> {
        let next = self.reqid + 1;
        if !REQIDS.contains(&next) {
            return Err(PlaneError::System {
                what: "numbering a rule for the kernel".to_owned(),
                why: "all reqids of this plane have been used; restart it".to_owned(),
            });
        }
        self.reqid = next;
        Ok(next)
    }
}
