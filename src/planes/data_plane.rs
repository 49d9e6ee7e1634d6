//! Both planes as one, as key management sees it: rules and SAs are added, changed and removed.

use super::guard::Guard;
use super::{KernelPlane, PlaneKind, Planes};
use esp::plane::{
    BulkRules, DataPlane, EarlyPackets, InboundSa, OutboundSa, Path, PlaneError, Rule, RuleId,
    SaId, Usage,
};
use std::sync::Arc;

impl<U: DataPlane, K: KernelPlane> DataPlane for Planes<U, K> {
    fn add_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        // First: whatever becomes of the rule, its traffic does not leave in the clear.
        self.guard(std::slice::from_ref(&rule));
        let placed = self.place_rule(rule);
        self.guard.iter_mut().for_each(Guard::let_go);
        placed
    }

    fn renumber_rule(&mut self, rule: RuleId, to: RuleId) {
        if let Some(guard) = &mut self.guard {
            guard.rename(rule, to);
        }
        if let Some(unplaced) = self.unplaced.remove(&rule) {
            self.unplaced.insert(to, Rule { id: to, ..unplaced });
        }
        if self.moved.remove(&rule) {
            self.moved.insert(to);
        }
        if let Some(mate) = self.mate.as_mut().filter(|mate| mate.rule == rule) {
            mate.rule = to;
        }
        let Some((renamed, place)) = self.rules.remove(&rule) else { return };
        if place == PlaneKind::Userspace {
            self.userspace.renumber_rule(rule, to);
        }
        // It knows those of userspace, too.
        if let Some(kernel) = &mut self.kernel {
            kernel.renumber_rule(rule, to);
        }
        self.rules.insert(to, (Rule { id: to, ..renamed }, place));
        if let Some(peer) = self.peers.remove(&rule) {
            self.peers.insert(to, peer);
        }
        self.config.report.rename(rule, to);
    }

    fn set_trap(&mut self, rule: RuleId) {
        if let Some(unplaced) = self.unplaced.get_mut(&rule) {
            unplaced.trap = true;
        }
        let Some((kept, place)) = self.rules.get_mut(&rule) else { return };
        kept.trap = true;
        let place = *place;
        self.plane(place).set_trap(rule);
    }

    fn remove_rule(&mut self, rule: RuleId) {
        self.remove_rules(&[rule]);
    }

    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        let (id, spi, rule, mut place) = (sa.id, sa.spi, sa.rule, self.place(sa.rule)?);
        self.mate = None;
        let again = copy_of_inbound(&sa);
        match self.plane(place).add_inbound(sa) {
            Err(error) if place == PlaneKind::Kernel && self.may_fall_back(rule, &error) => {
                self.fall_back(rule, &error)?;
                place = PlaneKind::Userspace;
                self.userspace.add_inbound(again)?;
            }
            Ok(()) if place == PlaneKind::Kernel && self.has_fallback(rule) => {
                self.mate = Some(again);
            }
            outcome => outcome.map_err(|error| self.explained_of(rule, error))?,
        }
        if place == PlaneKind::Kernel {
            self.userspace.early_packets().expect_no_sa(spi);
        }
        self.sas.insert(id, place);
        Ok(())
    }

    fn add_outbound(&mut self, mut sa: OutboundSa) -> Result<(), PlaneError> {
        let (id, rule, mut place) = (sa.id, sa.rule, self.place(sa.rule)?);
        self.takes_over(&mut sa);
        let mate = self.mate.take().filter(|mate| place == PlaneKind::Kernel && mate.rule == rule);
        let again = mate.is_some().then(|| copy_of_outbound(&sa));
        let peer = sa.path.remote.ip();
        match (self.plane(place).add_outbound(sa), mate.zip(again)) {
            (Err(error), Some((mate, again))) if self.may_fall_back(rule, &error) => {
                self.move_pair(mate, again, &error)?;
                place = PlaneKind::Userspace;
            }
            (outcome, _) => outcome.map_err(|error| self.explained_of(rule, error))?,
        }
        self.sas.insert(id, place);
        self.moved.remove(&rule);
        if place == PlaneKind::Kernel && self.peers.insert(rule, peer) != Some(peer) {
            self.know_peer(rule);
        }
        Ok(())
    }

    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError> {
        self.plane_of(sa)?.promote(sa)
    }

    fn relocate(&mut self, sa: SaId, path: Path) -> Result<(), PlaneError> {
        self.plane_of(sa)?.relocate(sa, path)?;
        if let Some(mate) = self.mate.as_mut().filter(|mate| mate.id == sa) {
            mate.path = path;
        }
        Ok(())
    }

    fn remove(&mut self, sa: SaId) -> Option<Usage> {
        let place = self.sas.remove(&sa)?;
        self.mate.take_if(|mate| mate.id == sa);
        self.plane(place).remove(sa)
    }

    fn usage(&mut self, sa: SaId) -> Option<Usage> {
        self.plane_of(sa).ok()?.usage(sa)
    }
}

/// The plane that refuses an SA has wiped its key.
fn copy_of_inbound(sa: &InboundSa) -> InboundSa {
    InboundSa { key: sa.key.clone(), selectors: Arc::clone(&sa.selectors), ..*sa }
}

fn copy_of_outbound(sa: &OutboundSa) -> OutboundSa {
    OutboundSa { key: sa.key.clone(), selectors: Arc::clone(&sa.selectors), ..*sa }
}
