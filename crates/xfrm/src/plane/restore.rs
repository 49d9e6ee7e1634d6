//! Puts back what others have removed from the kernel.
//!
//! Policies and SAs are put back without a negotiation. Until the policies are there again, nftables drops the traffic
//! that they protected (`crates/floor/src/guard.rs`).

#![forbid(unsafe_code)]

use super::Xfrm;
use crate::kernel_sa::give;
use crate::netlink::refusal;
use crate::offload::Offload;
use crate::ownership;
use crate::policies::tell;
use crate::spd::Change;
use crate::state::Name;
use esp::plane::{PlaneError, SaId};
use std::collections::BTreeMap;

impl Xfrm {
    /// Puts everything back that is missing in the kernel: SAs, with sequence numbers behind those last seen, and
    /// policies. Returns how many of each. SAs that the kernel itself has ended stay away.
    ///
    /// # Errors
    /// Where the kernel refuses one; the others are put back all the same.
    pub fn restore_missing(&mut self) -> Result<(usize, usize), PlaneError> {
        // First what keeps traffic from leaking.
        let policies = self.restore_policies();
        let states = self.restore_sas();
        Ok((states?, policies?))
    }

    pub(super) fn restore_policies(&mut self) -> Result<usize, PlaneError> {
        let (mut missing, mut outcome) = (0, Ok(()));
        let there = ownership::policies(&mut *self.kernel)
            .map_err(|e| refusal("listing the kernel's policies".to_owned(), &e))?;
        let policies: Vec<Change> = self.spd.in_force().collect();
        for change in policies.iter().filter(|change| !there.contains(&change.name())) {
            missing += 1;
            outcome = outcome.and(tell(&mut *self.kernel, change));
        }
        outcome.map(|()| missing)
    }

    pub(super) fn restore_sas(&mut self) -> Result<usize, PlaneError> {
        let (mut states, mut outcome) = (0, Ok(()));
        let there = self.states()?;
        let ids: Vec<(SaId, Name)> = self.ledger.sas().map(|sa| (sa.id, sa.form.name())).collect();
        for (id, name) in ids {
            if self.has_expired(id) {
                continue;
            }
            let is_there = there.contains_key(&name);
            let outcome_of_one = match is_there {
                // Its policies may be what could not be had.
                true => self.fit_policies(id),
                false => self.restore_sa(id),
            };
            if outcome_of_one.is_ok() {
                states += usize::from(!is_there);
                self.tell_found(id);
            }
            outcome = outcome.and(outcome_of_one);
        }
        outcome.map(|()| states)
    }

    /// All SAs that the kernel has, and its reports of their offload.
    pub(super) fn states(&mut self) -> Result<BTreeMap<Name, Option<Offload>>, PlaneError> {
        ownership::states(&mut *self.kernel)
            .map_err(|e| refusal("listing the kernel's SAs".to_owned(), &e))
    }

    /// Gives the kernel an SA again that others have removed.
    pub(super) fn restore_sa(&mut self, id: SaId) -> Result<(), PlaneError> {
        // A packet that asks for it meanwhile would leave a note of that in its place.
        self.pause(id)?;
        if self.read_back(id).is_none() {
            let sa = self.ledger.sa_mut(id).ok_or(PlaneError::NoSuchSa(id))?;
            let replay = sa.succeed(None);
            give(&mut *self.kernel, (&sa.form, &sa.key), &replay, "putting back")?;
        }
        self.fit_policies(id)
    }

    /// Returns `true` if the kernel itself has ended an SA, at a limit.
    pub(super) fn has_expired(&self, id: SaId) -> bool {
        self.ledger.sa(id).is_some_and(|sa| self.known.has_expired(&sa.form.name()))
    }
}
