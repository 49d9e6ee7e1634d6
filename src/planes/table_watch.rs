//! The tables of nftables that other programs have changed, until they are put back.

#![forbid(unsafe_code)]

use super::guard::{self, OnLoss};
use esp::plane::Notice;
use host::nft;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A table of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WatchedTable {
    /// It keeps the traffic of the tunnels from passing in the clear.
    Guard,
    /// It filters the traffic outside of tunnels.
    Filter,
}

/// The changed tables, and the thread that hears of changes.
#[derive(Default)]
pub(super) struct TableWatch {
    changed: Arc<Mutex<BTreeSet<WatchedTable>>>,
    /// `None` in tests, and where the kernel has no nftables.
    _watch: Option<nft::Watch>,
}

impl TableWatch {
    /// Watches the tables of a device, and tells key management of changes.
    pub(super) fn start(device: &str, notice: Arc<dyn Fn(Notice) + Send + Sync>) -> Self {
        let changed = Arc::new(Mutex::new(BTreeSet::new()));
        let of_thread = Arc::clone(&changed);
        let (guard, filter) = (guard::table(device), nft::table("filter", device));
        let watch = nft::Watch::start(vec![guard.clone(), filter], move |name| {
            let table = if name == guard { WatchedTable::Guard } else { WatchedTable::Filter };
            report(&of_thread, table, &*notice);
        });
        let watch = watch.inspect_err(
            |error| tracing::info!(%error, "changes of nftables by other programs are not noticed"),
        );
        Self { changed, _watch: watch.ok() }
    }

    /// Makes a function that reports a table which lacks something, as if another program had changed it.
    pub(super) fn reporter(
        &self,
        table: WatchedTable,
        notice: Arc<dyn Fn(Notice) + Send + Sync>,
    ) -> OnLoss {
        let changed = Arc::clone(&self.changed);
        Arc::new(move || report(&changed, table, &*notice))
    }

    /// Takes the tables that have changed since the last call.
    pub(super) fn take(&self) -> BTreeSet<WatchedTable> {
        std::mem::take(&mut *lock(&self.changed))
    }

    /// Returns `true` if a table has changed since it was taken last.
    pub(super) fn has(&self, table: WatchedTable) -> bool {
        lock(&self.changed).contains(&table)
    }

    /// Keeps a table that could not be put back for the next call.
    pub(super) fn keep(&self, table: WatchedTable) {
        lock(&self.changed).insert(table);
    }
}

/// Tells key management of a changed table. One notice is enough, however many parts of the table have changed.
fn report(changed: &Mutex<BTreeSet<WatchedTable>>, table: WatchedTable, notice: &dyn Fn(Notice)) {
    if lock(changed).insert(table) {
        notice(Notice::HostChanged);
    }
}

fn lock(changed: &Mutex<BTreeSet<WatchedTable>>) -> MutexGuard<'_, BTreeSet<WatchedTable>> {
    changed.lock().unwrap_or_else(PoisonError::into_inner)
}
