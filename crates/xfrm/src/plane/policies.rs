//! The policies of rules and their SAs, for as long as these live.
//!
//! An outbound policy names the SPI of the SA that it uses. So an SA in standby is not used before it is promoted, and
//! a promotion is one exchange of a policy.

#![forbid(unsafe_code)]

use super::Xfrm;
use crate::flow::Flow;
use crate::policies::{ALWAYS, halves, keys, neighbour_discovery, priority, tell};
use crate::spd::{Action, Key, PolicyDirection, Rank, Template};
use esp::plane::{PlaneError, RuleId, SaId};
use policy::{Binding, Mode};
use std::cmp::Reverse;

impl Xfrm {
    /// Lets traffic of the rule in that came by SAs like this one.
    pub(super) fn receive_by(
        &mut self,
        rule: RuleId,
        sa: SaId,
        template: Template,
    ) -> Result<(), PlaneError> {
        let Some(ruled) = self.ledger.rule_mut(rule) else { return Ok(()) };
        ruled.receiving.push((sa, template));
        self.guard(rule)
    }

    /// Requires that all traffic of a rule arrives by an SA, also while there is none.
    pub(super) fn guard(&mut self, rule: RuleId) -> Result<(), PlaneError> {
        let Some(ruled) = self.ledger.rule(rule) else { return Ok(()) };
        let template = ruled.receiving.last().map(|(_, template)| *template);
        let between_off = ruled.receiving.last().is_some_and(|(sa, _)| self.is_between_off(*sa));
        let action = match (ruled.elsewhere, template) {
            (true, None) => Action::Bypass,
            // The SAs that were here before the traffic went elsewhere still receive.
            (true, Some(template)) => Action::Tolerate(Template { offload: None, ..template }),
            (false, Some(template)) => Action::Protect(template),
            (false, None) => Action::Block,
        };
        let rank = Rank { priority: priority(rule)?, serial: Reverse(0) };
        for key in
            keys(ruled.flows.iter().map(|f| f.reversed()), ruled.binding, PolicyDirection::In)
        {
            if template.is_some_and(|template| template.offload.is_some()) {
                // Behind it, also once the card has gone and this policy has been made again.
                self.net(key, rank.priority + 1)?;
            }
            let action = match action {
                Action::Protect(_) | Action::Tolerate(_) if between_off => Action::Block,
                action => self.unless_off(&key.flow, action),
            };
            self.want(key, rank, action)?;
            let forward = match action {
                // Devices keep none for these.
                Action::Protect(t) => Action::Protect(Template { offload: None, ..t }),
                other => other,
            };
            self.want(Key { direction: PolicyDirection::Forward, ..key }, rank, forward)?;
        }
        Ok(())
    }

    /// Decides about outbound traffic of a rule that no SA serves.
    pub(super) fn hold(&mut self, rule: RuleId) -> Result<(), PlaneError> {
        let Some(ruled) = self.ledger.rule(rule) else { return Ok(()) };
        let asking = Template {
            protocol: netlink_packet_xfrm::IPPROTO_ESP,
            // So that no outer addresses are needed to ask.
            mode: Mode::Transport,
            reqid: ruled.reqid,
            spi: None,
            ends: None,
            offload: None,
        };
        let action = match (ruled.elsewhere, ruled.rule.trap) {
            (true, _) => Action::Bypass,
            (false, true) => Action::Protect(asking),
            (false, false) => Action::Block,
        };
        let rank = Rank { priority: priority(rule)? + 1, serial: Reverse(0) };
        for key in keys(ruled.flows.iter().copied(), ruled.binding, PolicyDirection::Out) {
            self.want(key, rank, self.unless_off(&key.flow, action))?;
        }
        Ok(())
    }

    /// Points the traffic of an SA that sends at it, as if it had just been promoted.
    pub(super) fn serve(&mut self, id: SaId) -> Result<(), PlaneError> {
        let Some(sa) = self.ledger.sa(id) else { return Ok(()) };
        let Some(turn) = sa.turn() else { return Ok(()) };
        let form = &sa.form;
        let template = Template {
            protocol: form.protocol(),
            mode: form.mode,
            reqid: form.reqid,
            spi: Some(form.spi),
            ends: Some(form.ends()),
            offload: form.offload.filter(|offload| offload.packet),
        };
        let rank = Rank { priority: priority(sa.rule)?, serial: Reverse(turn) };
        for key in keys(sa.flows.iter().copied(), form.binding, PolicyDirection::Out) {
            if template.offload.is_some() {
                self.net(key, rank.priority + 1)?;
            }
            let action = match self.is_between_off(id) {
                true => Action::Block,
                false => self.unless_off(&key.flow, Action::Protect(template)),
            };
            self.want(key, rank, action)?;
        }
        Ok(())
    }

    /// The action for a flow of one family: nothing that an SA would protect passes while the family is off. Traffic of
    /// tunnels elsewhere passes the kernel; the other plane drops it.
    fn unless_off(&self, flow: &Flow, action: Action) -> Action {
        match action {
            Action::Protect(_) | Action::Tolerate(_)
                if !self.families.has_address(flow.source.address) =>
            {
                Action::Block
            }
            action => action,
        }
    }

    /// Returns `true` if an SA is between addresses of a family that is off.
    fn is_between_off(&self, id: SaId) -> bool {
        let remote = self.ledger.sa(id).map(|sa| sa.form.path.remote.ip());
        remote.is_some_and(|remote| !self.families.has_address(remote))
    }

    /// If a device keeps a policy, the kernel forgets the policy together with the device. Packets would then pass in
    /// the clear until that is noticed. So a second pair of policies drops them, told apart from the first by one bit
    /// of the mark.
    pub(super) fn net(&mut self, key: Key, priority: u32) -> Result<(), PlaneError> {
        let rank = Rank { priority, serial: Reverse(0) };
        for half in halves(key) {
            self.want(half, rank, Action::Block)?;
        }
        Ok(())
    }

    /// Has an SA that sends not used for a moment.
    pub(super) fn pause(&mut self, id: SaId) -> Result<(), PlaneError> {
        let Some(sa) = self.ledger.sa(id) else { return Ok(()) };
        let Some(turn) = sa.turn() else { return Ok(()) };
        let rank = Rank { priority: priority(sa.rule)?, serial: Reverse(turn) };
        for key in keys(sa.flows.iter().copied(), sa.form.binding, PolicyDirection::Out) {
            self.want(key, rank, Action::Block)?;
        }
        Ok(())
    }

    /// Points traffic of an SA away from it.
    pub(super) fn rest(&mut self, id: SaId) {
        if let (Some(turn), Some(sa)) = (self.ledger.stand_by(id), self.ledger.sa(id)) {
            self.withdraw(id, sa.rule, turn);
        }
    }

    /// Forgets the policies by which traffic of a rule took an SA in its turn.
    pub(super) fn withdraw(&mut self, id: SaId, rule: RuleId, turn: u64) {
        let (Some(sa), Ok(priority)) = (self.ledger.sa(id), priority(rule)) else { return };
        let rank = Rank { priority, serial: Reverse(turn) };
        for key in keys(sa.flows.iter().copied(), sa.form.binding, PolicyDirection::Out) {
            self.unwant(key, rank);
        }
    }

    pub(super) fn neighbour_discovery(&mut self) -> Result<(), PlaneError> {
        let rank = Rank { priority: ALWAYS, serial: Reverse(0) };
        for flow in neighbour_discovery() {
            for direction in [PolicyDirection::In, PolicyDirection::Out, PolicyDirection::Forward] {
                let key = Key { direction, flow, binding: Binding::default() };
                self.want(key, rank, Action::Bypass)?;
            }
        }
        Ok(())
    }

    pub(super) fn want(&mut self, key: Key, rank: Rank, action: Action) -> Result<(), PlaneError> {
        let before = self.spd.get(&key, &rank);
        let Some(change) = self.spd.insert(key, rank, action) else { return Ok(()) };
        tell(&mut *self.kernel, &change).inspect_err(|_| {
            // It stays in force as it was.
            let _ = match before {
                Some(action) => self.spd.insert(key, rank, action),
                None => self.spd.remove(key, rank),
            };
        })
    }

    pub(super) fn unwant(&mut self, key: Key, rank: Rank) {
        if let Some(change) = self.spd.remove(key, rank)
            && let Err(error) = tell(&mut *self.kernel, &change)
        {
            tracing::warn!(%error, "a policy stays in the kernel");
        }
    }

    /// Forgets the policies of a rule that stand for traffic without an SA.
    pub(super) fn release(&mut self, rule: RuleId, flows: &[Flow], binding: Binding) {
        let Ok(priority) = priority(rule) else { return };
        let [first, behind] =
            [priority, priority + 1].map(|priority| Rank { priority, serial: Reverse(0) });
        for key in keys(flows.iter().copied(), binding, PolicyDirection::Out) {
            self.unwant(key, behind);
            halves(key).into_iter().for_each(|half| self.unwant(half, behind));
        }
        for key in keys(flows.iter().map(|f| f.reversed()), binding, PolicyDirection::In) {
            self.unwant(key, first);
            halves(key).into_iter().for_each(|half| self.unwant(half, behind));
            self.unwant(Key { direction: PolicyDirection::Forward, ..key }, first);
        }
    }
}
