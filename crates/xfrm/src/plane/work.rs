//! The work of SAs: their counters, their sequence numbers, and the part that crypto providers are told.
//!
//! The counters are the kernel's: the work of an SA counts for the card if the SA is offloaded, and for the kernel
//! otherwise.

#![forbid(unsafe_code)]

use super::{Installed, Xfrm};
use crate::kernel_sa::read;
use crate::state;
use crypto::{Amount, Backend, CryptoProviders, Direction};
use esp::plane::{Notice, SaId, Usage};
use netlink_packet_xfrm::XfrmAttrs;
use netlink_packet_xfrm::state::ModifyMessage;
use std::time::{Instant, SystemTime};

/// The numbers of 32 bits that are skipped when an SA is put back whose last one is not known: it may have sent for
/// half a minute after it was seen last, at eight million packets per second.
const GAP: u64 = 1 << 28;

/// As above, of 64 bits. The peer knows the upper half as long as fewer than 2^32 are skipped (RFC 4303 §A2.2).
const EXTENDED_GAP: u64 = 1 << 30;

impl Xfrm {
    /// Takes note of what an SA has done, and tells key management if few sequence numbers are left.
    pub(super) fn look_at(&mut self, id: SaId) -> Option<Usage> {
        let sa = self.ledger.sa_mut(id)?;
        let (name, binding) = (sa.form.name(), sa.form.binding);
        // One that the kernel no longer has stays as it was seen last.
        if let Ok(Some(state)) = read(&mut *self.kernel, &name, &binding) {
            sa.count(&state, &self.config.crypto);
        }
        if sa.form.has_few_numbers_behind(sa.sequence()) && self.known.begins_to_die(&name) {
            (self.notice)(Notice::Expiring { sa: id, hard: false });
        }
        Some(sa.last)
    }

    /// Counts what a card that does everything has done with an SA, as long as it can be asked.
    pub(super) fn count_in_card(&mut self, id: SaId) {
        let form = self.ledger.sa(id).map(|sa| &sa.form);
        if form.and_then(|form| form.offload).is_some_and(|offload| offload.packet) {
            self.look_at(id);
        }
    }
}

impl Installed {
    /// Takes note of what the kernel says it has done.
    pub(super) fn count(&mut self, state: &ModifyMessage, providers: &CryptoProviders) {
        let now = state::usage(state, Instant::now(), SystemTime::now());
        let (before, last) = (self.before, self.last);
        if let Some(number) = state::last_sequence(state, self.form.inbound) {
            self.seen = self.seen.max(number);
        }
        self.last = Usage {
            // A card may have forgotten it already.
            packets: last.packets.max(before.packets + now.packets),
            bytes: last.bytes.max(before.bytes + now.bytes),
            last_used: now.last_used.or(last.last_used),
            refused: last.refused.max(before.refused + now.refused),
        };
        self.count_backend(providers);
    }

    /// The last sequence number that it is known to have used or received. The kernel tells the number itself, unless a
    /// card does everything: then the packets are counted. Elsewhere their count alone is too low, because a
    /// super-packet counts once and takes a number for each of its segments.
    pub(super) fn sequence(&self) -> u64 {
        let counted = self.last.packets.saturating_sub(self.before.packets);
        self.seen.max(self.form.base.saturating_add(counted))
    }

    /// A sequence number that an SA which sends has not passed since it was looked at.
    pub(super) fn beyond(&self) -> u64 {
        let reached = self.sequence();
        let beyond = match self.form.esn {
            true => reached.saturating_add(EXTENDED_GAP),
            false => reached.saturating_add(GAP).min(u32::MAX.into()),
        };
        // The kernel has ended it there, if it has counted every number.
        let allowed = self.form.allowed.filter(|_| self.form.offload.is_none());
        allowed.map_or(beyond, |allowed| beyond.min(allowed).max(reached))
    }

    /// Has another one in the kernel take its place. Returns the sequence numbers behind which that is to go on;
    /// `ended` is what it was in the end, where that is known.
    pub(super) fn succeed(&mut self, ended: Option<&ModifyMessage>) -> XfrmAttrs {
        let carried = self.last.bytes - self.before.bytes.min(self.last.bytes);
        let (reached, beyond) = (self.sequence(), self.beyond());
        self.before = self.last;
        // The octets that its successor may still carry.
        for limit in [&mut self.form.limits.soft_bytes, &mut self.form.limits.hard_bytes] {
            *limit = limit.map(|limit| limit.saturating_sub(carried).max(1));
        }
        // Of what a card does alone the kernel knows no numbers.
        let by_kernel = self.form.offload.is_none_or(|offload| !offload.packet);
        if let Some(replay) = ended.filter(|_| by_kernel).and_then(state::replay_of_state) {
            self.form.base = reached;
            return replay;
        }
        // An inbound SA takes no older packets; an outbound one skips the numbers that may have been used.
        self.form.base = if self.form.inbound { reached } else { beyond };
        state::replay_from(&self.form, self.form.base)
    }

    /// Takes so many sequence numbers as used or received that it is to begin behind now, and returns those.
    pub(super) fn skip(&mut self, count: u64) -> XfrmAttrs {
        let highest = if self.form.esn { u64::MAX } else { u32::MAX.into() };
        self.form.base = self.form.base.saturating_add(count).min(highest);
        state::replay_from(&self.form, self.form.base)
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
