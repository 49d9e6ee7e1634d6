//! The SAs in the kernel as the plane and the thread that hears of them both know them.

#![forbid(unsafe_code)]

use super::state::{Name, is_larval};
use esp::plane::{Notice, SaId};
use netlink_packet_xfrm::state::ModifyMessage;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Clones are the same one.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<Mutex<BTreeMap<Name, Entry>>>);

#[derive(Clone, Copy)]
struct Entry {
    sa: SaId,
    /// It has reached its soft limit, and key management knows.
    dying: bool,
    /// It has reached its hard limit, and the kernel has removed it.
    expired: bool,
}

impl Known {
    pub(super) fn insert(&self, name: Name, sa: SaId) {
        self.lock().insert(name, Entry { sa, dying: false, expired: false });
    }

    /// Goes on with an SA of another process.
    pub(super) fn insert_at_limit(&self, name: Name, sa: SaId, dying: bool, expired: bool) {
        self.lock().insert(name, Entry { sa, dying, expired });
    }

    /// Returns whether an SA has reached its soft limit, and whether its hard one.
    pub(super) fn limits_of(&self, name: &Name) -> (bool, bool) {
        self.lock().get(name).map_or((false, false), |entry| (entry.dying, entry.expired))
    }

    pub(super) fn remove(&self, name: &Name) {
        self.lock().remove(name);
    }

    /// Returns `true` if the kernel itself has ended an SA.
    pub(super) fn has_expired(&self, name: &Name) -> bool {
        self.lock().get(name).is_some_and(|entry| entry.expired)
    }

    /// Takes note that an SA has reached a limit, which ends it where that is the hard one.
    pub(super) fn expire(&self, name: &Name, hard: bool) -> Option<SaId> {
        let mut known = self.lock();
        let entry = known.get_mut(name)?;
        entry.dying = true;
        entry.expired |= hard;
        Some(entry.sa)
    }

    /// Takes note that an SA is near its end. Returns `false` if key management knows already, or the SA is not known.
    pub(super) fn begins_to_die(&self, name: &Name) -> bool {
        self.lock().get_mut(name).is_some_and(|entry| !std::mem::replace(&mut entry.dying, true))
    }

    pub(super) fn find(&self, name: &Name) -> Option<SaId> {
        self.lock().get(name).map(|entry| entry.sa)
    }

    /// All of them.
    pub(super) fn names(&self) -> Vec<Name> {
        self.lock().keys().copied().collect()
    }

    /// For the case that reports were lost: finds the SAs that have reached a limit. The states were listed afterwards.
    pub(super) fn missed<'a>(
        &self,
        names: &[Name],
        states: impl Iterator<Item = &'a ModifyMessage>,
    ) -> Vec<Notice> {
        let there: BTreeMap<Name, bool> = states
            .filter(|state| !is_larval(state))
            .map(|state| (Name::of_info(&state.user_sa_info), is_beyond(state)))
            .collect();
        let mut known = self.lock();
        let mut missed = Vec::new();
        for name in names {
            let Some(entry) = known.get_mut(name).filter(|entry| !entry.expired) else { continue };
            match there.get(name) {
                Some(true) if !entry.dying => entry.dying = true,
                // It was near its end, and would else be taken for one that others have removed.
                None if entry.dying => entry.expired = true,
                _ => continue,
            }
            missed.push(Notice::Expiring { sa: entry.sa, hard: entry.expired });
        }
        missed
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `true` if an SA has reached its soft limit.
fn is_beyond(state: &ModifyMessage) -> bool {
    let (now, limits) = (&state.user_sa_info.lifetime_cur, &state.user_sa_info.lifetime_cfg);
    now.bytes >= limits.soft_byte_limit || now.packets >= limits.soft_packet_limit
}
