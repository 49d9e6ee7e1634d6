//! Puts back what others have removed from the kernel.

#![forbid(unsafe_code)]

use super::policies::tell;
use super::spd::Change;
use super::{Xfrm, refusal, state};
use crate::plane::{PlaneError, SaId};
use netlink_packet_xfrm::XfrmMessage;

impl Xfrm {
    /// Puts everything back that is missing in the kernel: SAs, with sequence numbers behind those last seen, and policies.
    /// Returns how many of each. SAs that the kernel itself has ended stay away.
    ///
    /// # Errors
    /// Where the kernel refuses one; the others are put back all the same.
    pub fn restore(&mut self) -> Result<(usize, usize), PlaneError> {
        // First what keeps traffic from leaking.
        let policies = self.restore_policies();
        let states = self.restore_states();
        Ok((states?, policies?))
    }

    pub(super) fn restore_policies(&mut self) -> Result<usize, PlaneError> {
        let (mut missing, mut outcome) = (0, Ok(()));
        let policies: Vec<Change> = self.spd.in_force().collect();
        for change in &policies {
            match self.kernel.ask(change.question()) {
                Ok(_) => continue,
                Err(error) if error.is_absent() => missing += 1,
                Err(_) => {}
            }
            outcome = outcome.and(tell(&mut *self.kernel, change));
        }
        outcome.map(|()| missing)
    }

    pub(super) fn restore_states(&mut self) -> Result<usize, PlaneError> {
        let (mut states, mut outcome) = (0, Ok(()));
        let ids: Vec<SaId> = self.sas.keys().copied().collect();
        for id in ids {
            if self.has_expired(id) {
                continue;
            }
            let is_there = self.read_back(id).is_some();
            let outcome_of_one = match is_there {
                // Its policies may be what could not be had.
                true => self.fit_policies(id),
                false => self.put_back(id),
            };
            if outcome_of_one.is_ok() {
                states += usize::from(!is_there);
                self.tell_found(id);
            }
            outcome = outcome.and(outcome_of_one);
        }
        outcome.map(|()| states)
    }

    /// Gives the kernel an SA again that others have removed.
    pub(super) fn put_back(&mut self, id: SaId) -> Result<(), PlaneError> {
        // A packet that asks for it meanwhile would leave a note of that in its place.
        self.pause(id)?;
        if self.read_back(id).is_none() {
            let sa = self.sas.get_mut(&id).ok_or(PlaneError::NoSuchSa(id))?;
            sa.before = sa.last;
            let replay = state::replay_resumed(&sa.form, &sa.last);
            let (message, spi) = (sa.form.message(&sa.key, Some(replay))?, sa.form.spi);
            self.kernel
                .order(XfrmMessage::AddSa(message))
                .map_err(|e| refusal(format!("putting SA {spi} back"), &e))?;
        }
        self.fit_policies(id)
    }

    /// Whether the kernel itself has ended an SA, at a limit.
    pub(super) fn has_expired(&self, id: SaId) -> bool {
        self.sas.get(&id).is_some_and(|sa| self.known.has_expired(&sa.form.name()))
    }
}
