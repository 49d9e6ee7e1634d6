//! The work of SAs: their counters, their sequence numbers, and the part that crypto providers are told.

#![forbid(unsafe_code)]

use super::{Installed, Xfrm};
use crate::state;
use crypto::{Amount, Backend, CryptoProviders, Direction};
use esp::plane::{DataPlane, SaId, Usage};
use netlink_packet_xfrm::XfrmAttrs;
use netlink_packet_xfrm::state::ModifyMessage;
use std::time::{Instant, SystemTime};

/// The number of sequence numbers that are skipped when an SA is put back whose last one is not known: it may have sent long
/// after it was seen last.
const GAP: u64 = 1 << 24;

impl Xfrm {
    /// Counts what a card that does everything has done with an SA, as long as it can be asked.
    pub(super) fn count_in_card(&mut self, id: SaId) {
        let form = self.sas.get(&id).map(|sa| &sa.form);
        if form.and_then(|form| form.offload).is_some_and(|offload| offload.packet) {
            self.usage(id);
        }
    }
}

impl Installed {
    /// Takes note of what the kernel says it has done.
    pub(super) fn count(&mut self, state: &ModifyMessage, providers: &CryptoProviders) {
        let now = state::usage(state, Instant::now(), SystemTime::now());
        let (before, last) = (self.before, self.last);
        self.last = Usage {
            // A card may have forgotten it already.
            packets: last.packets.max(before.packets + now.packets),
            bytes: last.bytes.max(before.bytes + now.bytes),
            last_used: now.last_used.or(last.last_used),
            refused: last.refused.max(before.refused + now.refused),
        };
        self.count_backend(providers);
    }

    /// The last sequence number that it has used, as far as its packets were counted.
    pub(super) fn sequence(&self) -> u64 {
        self.last.packets + self.skipped
    }

    /// Has another one in the kernel take its place. Returns the sequence numbers behind which that is to go on; `ended` is
    /// what it was in the end, where that is known.
    pub(super) fn succeed(&mut self, ended: Option<&ModifyMessage>) -> XfrmAttrs {
        let carried = self.last.bytes - self.before.bytes.min(self.last.bytes);
        self.before = self.last;
        // What it may still carry.
        for limit in [&mut self.form.limits.soft_bytes, &mut self.form.limits.hard_bytes] {
            *limit = limit.map(|limit| limit.saturating_sub(carried).max(1));
        }
        // Of what a card does alone the kernel knows no numbers.
        let by_kernel = self.form.offload.is_none_or(|offload| !offload.packet);
        if let Some(replay) = ended.filter(|_| by_kernel).and_then(state::replay_of_state) {
            return replay;
        }
        if self.form.inbound {
            // None that is older.
            return state::replay_from(&self.form, self.last.packets);
        }
        self.skipped += GAP;
        state::replay_from(&self.form, self.sequence())
    }

    /// Attributes what it has done since the last time to where it is now. To be called before that changes.
    fn count_backend(&mut self, providers: &CryptoProviders) {
        let done = Amount { operations: self.last.packets, octets: self.last.bytes };
        let more = Amount {
            operations: done.operations.saturating_sub(self.told.operations),
            octets: done.octets.saturating_sub(self.told.octets),
        };
        let direction = if self.form.inbound { Direction::Decrypt } else { Direction::Encrypt };
        let backend = if self.form.offload.is_some() { Backend::Nic } else { Backend::Kernel };
        providers.add_elsewhere(self.form.suite, direction, backend, more);
        self.told = done;
    }
}
