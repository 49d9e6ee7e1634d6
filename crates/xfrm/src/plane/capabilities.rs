//! The kernel plane's optional capabilities.

#![forbid(unsafe_code)]

use super::{Installed, Xfrm};
use crate::ranges::REQIDS;
use crate::refusal::refusal;
use crate::state;
use esp::plane::{
    Capabilities, CryptoAccounting, Maintenance, ManualKeying, PlaneError, Restored, Resynced,
    RuleId, SaId,
};
use netlink_packet_xfrm::XfrmMessage;

impl Capabilities for Xfrm {
    fn manual_keying(&mut self) -> Option<&mut dyn ManualKeying> {
        Some(self)
    }

    fn maintenance(&mut self) -> Option<&mut dyn Maintenance> {
        Some(self)
    }

    fn crypto_accounting(&mut self) -> Option<&mut dyn CryptoAccounting> {
        Some(self)
    }
}

impl ManualKeying for Xfrm {
    fn set_reqid(&mut self, rule: RuleId, reqid: u32) -> Result<(), PlaneError> {
        let what = || format!("giving reqid {reqid} to SAs");
        let refused = |why: String| Err(PlaneError::System { what: what(), why });
        if reqid == 0 || REQIDS.contains(&reqid) {
            let (first, last) = (REQIDS.start(), REQIDS.end());
            return refused(format!("0 and {first} to {last} are not to be given by hand"));
        }
        if let Some(other) = self.rules.values().find(|r| r.reqid == reqid && r.rule.id != rule) {
            return refused(format!("those of {} have it", other.rule.tunnel));
        }
        self.rules.get_mut(&rule).ok_or(PlaneError::NoSuchRule(rule))?.reqid = reqid;
        self.hold(rule)
    }

    /// The kernel has no message for it: the SA is deleted and made again, with its sequence number set.
    fn resume(&mut self, id: SaId, used: u64) -> Result<(), PlaneError> {
        let sa = self.sas.get_mut(&id).ok_or(PlaneError::NoSuchSa(id))?;
        let (form, name, binding) = (&sa.form, sa.form.name(), sa.form.binding);
        if form.inbound || sa.serial.is_some() {
            return Err(PlaneError::System {
                what: format!("going on with SA {} after packet {used}", form.spi),
                why: "it is not one that waits to send".to_owned(),
            });
        }
        sa.base = used;
        let message = form.message(&sa.key, Some(state::replay_from(form, used)))?;
        let refused = |e| refusal(format!("going on with SA {:08x}", name.spi), &e);
        self.delete(&name, &binding).map_err(refused)?;
        self.kernel.order(XfrmMessage::AddSa(message)).map_err(refused)
    }

    fn last_sequence(&mut self, id: SaId) -> Option<u64> {
        if self.sas.get(&id)?.form.inbound {
            return None;
        }
        self.read_back(id)?;
        self.look_at(id);
        self.sas.get(&id).map(Installed::sequence)
    }
}

impl Maintenance for Xfrm {
    fn resync(&mut self) -> Result<Resynced, PlaneError> {
        self.resync_all()
    }

    fn use_room(&mut self) {
        self.fill_cards();
    }

    /// The monitor tells of policies and SAs, which [`Maintenance::resync`] puts back; the host has nothing else of this plane.
    fn restore(&mut self) -> Result<Restored, PlaneError> {
        Ok(Restored::default())
    }

    fn fault(&mut self, _: SaId) -> Option<String> {
        None
    }

    fn network_changed(&mut self) {
        self.config.placement.look_again();
        let lost = self.cards_have_lost();
        if !lost && !self.amiss {
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
                tracing::error!(%error, "SAs are missing in the kernel; their traffic is blocked")
            }
        }
    }
}

impl CryptoAccounting for Xfrm {
    fn count_work(&mut self) {
        let sas: Vec<SaId> = self.sas.keys().copied().collect();
        for sa in sas {
            let _ = self.look_at(sa);
        }
    }
}
