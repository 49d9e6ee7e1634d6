//! What the crypto facility learns of SAs in the kernel.

#![forbid(unsafe_code)]

use super::Installed;
use crate::cipher::{Amount, Direction, Facility, Place};

impl Installed {
    /// Attributes what it has done since the last time to where it is now. To be called before that changes.
    pub(super) fn tell_work(&mut self, facility: &Facility) {
        let done = Amount { operations: self.last.packets, octets: self.last.bytes };
        let more = Amount {
            operations: done.operations.saturating_sub(self.told.operations),
            octets: done.octets.saturating_sub(self.told.octets),
        };
        let direction = if self.form.inbound { Direction::Decrypt } else { Direction::Encrypt };
        let place = if self.form.offload.is_some() { Place::Nic } else { Place::Kernel };
        facility.add_elsewhere(self.form.suite, direction, place, more);
        self.told = done;
    }
}
