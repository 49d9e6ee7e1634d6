//! The kernel plane's optional capabilities.

#![forbid(unsafe_code)]

use super::{Installed, Xfrm};
use crate::netlink::refusal;
use crate::ownership::REQIDS;
use crate::state;
use esp::families::Families;
use esp::plane::{
    Capabilities, CryptoAccounting, FamilySwitching, Maintenance, ManualKeying, Notice, PlaneError,
    ReplayCounters, Restored, Resynced, RuleId, SaId,
};
use netlink_packet_xfrm::XfrmMessage;
use policy::Binding;

impl Capabilities for Xfrm {
    fn manual_keying(&mut self) -> Option<&mut dyn ManualKeying> {
        Some(self)
    }

    fn replay_counters(&mut self) -> Option<&mut dyn ReplayCounters> {
        Some(self)
    }

    fn maintenance(&mut self) -> Option<&mut dyn Maintenance> {
        Some(self)
    }

    fn family_switching(&mut self) -> Option<&mut dyn FamilySwitching> {
        Some(self)
    }

    fn crypto_accounting(&mut self) -> Option<&mut dyn CryptoAccounting> {
        Some(self)
    }

    fn binding_of(&self, tunnel: &str) -> Binding {
        self.config.bindings.of(tunnel)
    }
}

impl FamilySwitching for Xfrm {
    fn set_families(&mut self, families: Families) -> Result<(), PlaneError> {
        self.families = families;
        let mut outcome = Ok(());
        // If the kernel refuses the change of one rule, the others are changed all the same.
        for rule in self.ledger.rules().map(|ruled| ruled.rule.id).collect::<Vec<_>>() {
            let changed = self.guard(rule).and_then(|()| self.hold(rule));
            outcome = outcome.and(changed);
        }
        let sas = self.ledger.sas().map(|sa| (sa.id, sa.is_at_limit()));
        for (id, is_at_limit) in sas.collect::<Vec<_>>() {
            let changed = if is_at_limit { self.pause(id) } else { self.fit_policies(id) };
            outcome = outcome.and(changed);
        }
        outcome
    }
}

impl ManualKeying for Xfrm {
    fn set_reqid(&mut self, rule: RuleId, reqid: u32) -> Result<(), PlaneError> {
        let other = self.ledger.rules().find(|r| r.reqid == reqid && r.rule.id != rule);
        let obstacle = match other {
            _ if reqid == 0 || REQIDS.contains(&reqid) => {
                let (first, last) = (REQIDS.start(), REQIDS.end());
                Some(format!("0 and {first} to {last} are not to be given by hand"))
            }
            Some(other) => Some(format!("those of {} have it", other.rule.tunnel)),
            None => None,
        };
        if let Some(why) = obstacle {
            return Err(PlaneError::System { what: format!("giving reqid {reqid} to SAs"), why });
        }
        self.ledger.rule_mut(rule).ok_or(PlaneError::NoSuchRule(rule))?.reqid = reqid;
        self.hold(rule)
    }

    /// The kernel has no message for it: the SA is deleted and made again, with its sequence number set.
    fn resume(&mut self, id: SaId, used: u64) -> Result<(), PlaneError> {
        let sa = self.ledger.sa(id).ok_or(PlaneError::NoSuchSa(id))?;
        let (name, binding) = (sa.form.name(), sa.form.binding);
        if sa.receives() || sa.turn().is_some() {
            return Err(PlaneError::System {
                what: format!("going on with SA {} after packet {used}", sa.form.spi),
                why: "it is not one that waits to send".to_owned(),
            });
        }
        let sa = self.ledger.sa_mut(id).ok_or(PlaneError::NoSuchSa(id))?;
        sa.form.base = used;
        let message = sa.form.message(&sa.key, Some(state::replay_from(&sa.form, used)))?;
        self.delete(&name, &binding)
            .and_then(|_| self.kernel.order(XfrmMessage::AddSa(message)))
            .map_err(|e| refusal(format!("going on with SA {:08x}", name.spi), &e))
    }

    /// The kernel ends an SA at the limit, and counts a super-packet that a card cuts up as one packet. An SA that is
    /// seen at or behind its limit is paused.
    fn allow(&mut self, id: SaId, last: u64) -> Result<(), PlaneError> {
        let sa = self.ledger.sa(id).ok_or(PlaneError::NoSuchSa(id))?;
        let (before, is_at_limit) = (sa.form.allowed, sa.sequence() >= last);
        if before != Some(last) {
            self.raise(id, last).inspect_err(|_| {
                if let Some(sa) = self.ledger.sa_mut(id) {
                    sa.form.allowed = before;
                }
            })?;
        }
        if is_at_limit { self.pause(id) } else { self.fit_policies(id) }
    }

    fn last_sequence(&mut self, id: SaId) -> Option<u64> {
        if self.ledger.sa(id)?.receives() {
            return None;
        }
        self.look_at(id);
        let expired = self.has_expired(id);
        let sa = self.ledger.sa(id)?;
        Some(if expired { sa.beyond() } else { sa.sequence() })
    }

    fn retire(&mut self, id: SaId) -> Option<u64> {
        if self.ledger.sa(id)?.receives() {
            return None;
        }
        let (sa, is_exact) = self.take_away(id)?;
        Some(if is_exact { sa.sequence() } else { sa.beyond() })
    }
}

impl ReplayCounters for Xfrm {
    /// The kernel could be told other numbers (XFRM_MSG_NEWAE), but packets take some between the question and the
    /// order: so the SA is deleted and made again.
    fn skip(&mut self, id: SaId, count: u64) -> Result<(), PlaneError> {
        let form = &self.ledger.sa(id).ok_or(PlaneError::NoSuchSa(id))?.form;
        // Without a window, an inbound SA refuses no number.
        if form.inbound && form.replay_window == 0 {
            return Ok(());
        }
        self.remake_behind(id, count, &mut |_| ())
    }
}

impl Installed {
    /// Returns `true` if it sends, and has used up the sequence numbers that it may use for now.
    pub(super) fn is_at_limit(&self) -> bool {
        !self.form.inbound && self.form.allowed.is_some_and(|last| self.sequence() >= last)
    }
}

impl Xfrm {
    fn raise(&mut self, id: SaId, last: u64) -> Result<(), PlaneError> {
        let is_there = !self.has_expired(id) && self.read_back(id).is_some();
        let sa = self.ledger.sa_mut(id).ok_or(PlaneError::NoSuchSa(id))?;
        let name = sa.form.name();
        if is_there {
            sa.form.allowed = Some(last);
            let message = sa.form.update(&sa.key, sa.beyond())?;
            return self
                .kernel
                .order(XfrmMessage::UpdateSa(message))
                .map_err(|e| refusal(format!("limiting SA {:08x}", name.spi), &e));
        }
        // The kernel has ended it at the former limit: it lives again behind that.
        self.known.insert(name, id);
        self.remake(id, &mut |form| form.allowed = Some(last))
    }
}

impl Maintenance for Xfrm {
    fn resync(&mut self) -> Result<Resynced, PlaneError> {
        self.resync_all()
    }

    fn use_room(&mut self) {
        self.fill_cards();
    }

    /// The monitor tells of policies and SAs that are gone, and [`Maintenance::resync`] puts them back. Only what this
    /// could not put back is left.
    fn restore(&mut self) -> Result<Restored, PlaneError> {
        if self.fault.is_none() {
            return Ok(Restored::default());
        }
        let Resynced { sas, policies, .. } = self.resync_all()?;
        Ok(Restored { sas, policies, ..Restored::default() })
    }

    fn fault(&mut self, sa: SaId) -> Option<String> {
        self.fault.clone().filter(|_| self.ledger.sa(sa).is_some())
    }

    fn network_changed(&mut self) {
        self.config.placement.look_again();
        let lost = self.cards_have_lost();
        if !lost && self.fault.is_none() {
            return;
        }
        match self.resync_all() {
            Ok(done) if lost => {
                tracing::warn!(moved = done.moved, "a network card has lost its SAs")
            }
            Ok(done) => {
                tracing::info!(sas = done.sas, "what could not be put back before is there")
            }
            Err(error) => {
                tracing::error!(%error, "SAs are missing in the kernel; their traffic is blocked");
                (self.notice)(Notice::HostChanged);
            }
        }
    }
}

impl CryptoAccounting for Xfrm {
    fn count_work(&mut self) {
        let sas: Vec<SaId> = self.ledger.sas().map(|sa| sa.id).collect();
        for sa in sas {
            let _ = self.look_at(sa);
        }
    }
}
