//! The tables of nftables that others have changed or removed are put back. Key management does not wait for that: it
//! is told to look again when the result is there.

#![forbid(unsafe_code)]

use super::guard::Guard;
use super::table_watch::WatchedTable;
use super::{KernelPlane, Planes};
use esp::plane::{DataPlane, FilterWork, Notice, PlaneError, Restored};
use floor::Floor;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

/// The tables that are being put back, and those that could not be.
#[derive(Default)]
pub(super) struct Restoration {
    /// The result for the filter's table, once it is there. `None`: it is not being put back.
    filter: Option<Outcome>,
    /// The tables that could not be put back, until they are.
    faults: BTreeMap<WatchedTable, PlaneError>,
}

type Outcome = Arc<Mutex<Option<Result<(), PlaneError>>>>;

impl<U: DataPlane, K: KernelPlane> Planes<U, K> {
    /// Begins to put back the tables that others have changed. Returns those that are back since the last call.
    pub(super) fn restore_tables(&mut self) -> Result<Restored, PlaneError> {
        let changed = self.watch.take();
        let mut restored = Restored::default();
        let guard = self.guard.as_mut().and_then(Guard::take_restored);
        let filter = self.take_restored_filter().map(|outcome| outcome.map(|()| true));
        for (table, outcome) in [(WatchedTable::Guard, guard), (WatchedTable::Filter, filter)] {
            match outcome {
                None => {}
                Some(Ok(there)) => {
                    restored.tables += usize::from(there);
                    self.restoration.faults.remove(&table);
                }
                Some(Err(error)) => {
                    // It is tried again the next time.
                    self.watch.keep(table);
                    self.restoration.faults.insert(table, error);
                }
            }
        }
        for table in changed {
            match table {
                WatchedTable::Guard => self.begin_restoring_guard(),
                WatchedTable::Filter => self.begin_restoring_filter(),
            }
        }
        self.restoration.faults.values().next().cloned().map_or(Ok(restored), Err)
    }

    /// The reason why the guard is not in force.
    pub(super) fn guard_fault(&self) -> Option<String> {
        self.restoration.faults.get(&WatchedTable::Guard).map(ToString::to_string)
    }

    fn begin_restoring_guard(&mut self) {
        let look_again = look_again(self.notice.clone());
        self.guard.iter_mut().for_each(|guard| guard.begin_restoring(look_again.clone()));
    }

    fn begin_restoring_filter(&mut self) {
        if self.changing_filter.is_some() || self.restoration.filter.is_some() {
            // Its end is told.
            return self.watch.keep(WatchedTable::Filter);
        }
        let Some(work) = self.floor.as_mut().and_then(Floor::table_restoration) else {
            self.restoration.faults.remove(&WatchedTable::Filter);
            return;
        };
        if let Err(error) = self.run_beside(work) {
            self.watch.keep(WatchedTable::Filter);
            let what = "starting a thread that puts the filter back".to_owned();
            let fault = PlaneError::System { what, why: error.to_string() };
            self.restoration.faults.insert(WatchedTable::Filter, fault);
        }
    }

    /// Has a thread of its own do the work, in the network namespace of the calling one.
    fn run_beside(&mut self, work: FilterWork) -> std::io::Result<()> {
        let outcome = Outcome::default();
        let (of_thread, look_again) = (Arc::clone(&outcome), look_again(self.notice.clone()));
        Builder::new().name("filter".to_owned()).spawn(move || {
            *lock(&of_thread) = Some(work.run());
            look_again();
        })?;
        self.restoration.filter = Some(outcome);
        Ok(())
    }

    fn take_restored_filter(&mut self) -> Option<Result<(), PlaneError>> {
        let outcome = lock(self.restoration.filter.as_ref()?).take()?;
        self.restoration.filter = None;
        Some(outcome)
    }
}

fn look_again(
    notice: Option<Arc<dyn Fn(Notice) + Send + Sync>>,
) -> impl Fn() + Clone + Send + 'static {
    move || notice.iter().for_each(|notice| notice(Notice::HostChanged))
}

fn lock(outcome: &Outcome) -> MutexGuard<'_, Option<Result<(), PlaneError>>> {
    outcome.lock().unwrap_or_else(PoisonError::into_inner)
}
