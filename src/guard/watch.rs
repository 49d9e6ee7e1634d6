//! A held guard while no gateway runs on its device: it is put back if another program removes or changes it.
//!
//! A second table with the same flows belongs to the watch, so that nobody else can remove it: it drops the traffic
//! until the guard is put back.
//!
//! While a gateway runs, it has the lock on the device, a second table of its own, and puts its guard back itself. This
//! watch removes its table then, which would not follow the gateway's changes. It waits for the end of the lock's
//! owner, and sees whether the guard is still there.

use super::Definition;
use crate::builder::StartError;
use crate::planes::guard::table;
use crate::planes::{self, Hold};
use floor::plane_error;
use host::SystemError;
use host::journal::{DeviceLock, file_of};
use host::lock::FileLock;
use host::nft;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// The result of [`Watch::look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Watched {
    /// Nothing had to be done.
    Unchanged,
    /// The guard was put back, after another program had removed or changed it.
    PutBack,
    /// A gateway uses the device, and looks after its guard itself.
    ByTheGateway,
    /// The guard is not held any more.
    Released,
    /// The kernel tells of no more changes of nftables: another watch is to be started.
    Ended,
}

/// Keeps a guard in force while no gateway runs on its device.
pub struct Watch {
    definition: Definition,
    table: String,
    hold: Hold,
    nftables: nft::Watch,
    signs: Signs,
    /// The guard with the table of this watch; `None` while a gateway runs.
    held: Option<planes::Held>,
    /// It is there while the watch has a table.
    _watching: FileLock,
}

/// Signs of a guard that is missing, and the way to tell of them.
#[derive(Clone)]
struct Signs {
    /// Another program has changed the table, or ended the process that has the second one.
    changed: Arc<AtomicBool>,
    /// The owner of the device's lock has ended.
    ended: Arc<AtomicBool>,
    /// A thread waits for that.
    awaited: Arc<AtomicBool>,
    notice: Arc<dyn Fn() + Send + Sync>,
}

impl Signs {
    fn tell_of_change(&self) {
        self.changed.store(true, Ordering::SeqCst);
        (self.notice)();
    }
}

impl Watch {
    /// [Holds](Definition::hold) the guard of a definition, and begins to watch it. `notice` is called on another
    /// thread when [`Watch::look`] is to be called; that is also to be called from time to time, since a release
    /// changes no table while a gateway runs.
    ///
    /// # Errors
    /// If nftables refuses the guard, or its changes cannot be watched.
    pub fn start(
        definition: Definition,
        notice: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, StartError> {
        let table = table(definition.device());
        let signs = Signs {
            changed: Arc::default(),
            // The first owner of the lock may end before its end is awaited.
            ended: Arc::new(AtomicBool::new(true)),
            awaited: Arc::default(),
            notice,
        };
        let of_thread = signs.clone();
        // Before the guard is put in force, so that no change of it is missed.
        let nftables =
            nft::Watch::start(vec![table.clone()], move |_: &str| of_thread.tell_of_change());
        let nftables = nftables
            .map_err(|error| plane_error(host::refused("watching nftables".to_owned(), &error)))?;
        let hold = Hold::of(&definition.state_dir, definition.device()).map_err(plane_error)?;
        // First: a second watch changes nothing.
        let watching = lock(&definition)?;
        definition.hold()?;
        (signs.notice)();
        Ok(Self { definition, table, hold, nftables, signs, held: None, _watching: watching })
    }

    /// Puts the guard back if it is missing, and no gateway does.
    ///
    /// # Errors
    /// If nftables refuses the guard: the next call tries it again.
    pub fn look(&mut self) -> Result<Watched, StartError> {
        if self.hold.since().is_none() {
            return Ok(Watched::Released);
        }
        if self.nftables.has_ended() {
            return Ok(Watched::Ended);
        }
        let changed = self.signs.changed.swap(false, Ordering::SeqCst);
        if !self.signs.ended.swap(false, Ordering::SeqCst) && !changed {
            return Ok(Watched::Unchanged);
        }
        let Some(_lock) = self.definition.lock().map_err(plane_error)? else {
            self.held = None;
            self.await_end();
            return Ok(Watched::ByTheGateway);
        };
        // A release that came first has removed the guard with this lock.
        if self.hold.since().is_none() {
            return Ok(Watched::Released);
        }
        // Of one change, several messages tell.
        let changed = changed | self.signs.changed.swap(false, Ordering::SeqCst);
        let missing = changed || !nft::exists(&self.table);
        // A gateway, or another call of vpnd guard, may have put another policy in force meanwhile.
        self.definition.refresh();
        match self.ensure_in_force(missing) {
            Ok(true) if missing => Ok(Watched::PutBack),
            Ok(_) => Ok(Watched::Unchanged),
            Err(error) => {
                self.signs.changed.store(true, Ordering::SeqCst);
                Err(error)
            }
        }
    }

    /// Puts the guard in force if it is `missing`, and in any case a table of this watch with the same flows. Returns
    /// `false` if there is nothing to guard.
    fn ensure_in_force(&mut self, missing: bool) -> Result<bool, StartError> {
        let definition = &self.definition;
        match self.held.take_if(|held| held.is_of(&definition.guard)) {
            Some(mut held) => {
                let there = if missing { held.restore() } else { held.in_force() };
                self.held = Some(held);
                Ok(there?)
            }
            None => {
                // The name of the table is free again then.
                self.held = None;
                let signs = self.signs.clone();
                let on_loss = Arc::new(move || signs.tell_of_change());
                let held = definition.guard.hold(&definition.state_dir, on_loss)?;
                let there = held.in_force();
                self.held = Some(held);
                Ok(there?)
            }
        }
    }

    /// Has a thread tell of the end of the lock's owner.
    fn await_end(&self) {
        if self.signs.awaited.swap(true, Ordering::SeqCst) {
            return;
        }
        let signs = self.signs.clone();
        let file = file_of(&self.definition.state_dir, self.definition.device(), "plane");
        let thread = std::thread::Builder::new().name("guard-watch".to_owned());
        let spawned = thread.spawn(move || {
            let waited = file.is_ok_and(|file| host::lock::await_unlocked(&file).is_ok());
            signs.awaited.store(false, Ordering::SeqCst);
            signs.ended.store(true, Ordering::SeqCst);
            // If it could not be waited for, the next look sees.
            if waited {
                (signs.notice)();
            }
        });
        if spawned.is_err() {
            self.signs.awaited.store(false, Ordering::SeqCst);
            self.signs.ended.store(true, Ordering::SeqCst);
        }
    }
}

/// The lock of a watch: two of them would have the same table.
fn lock(definition: &Definition) -> Result<FileLock, StartError> {
    let file = lock_file(&definition.state_dir, definition.device()).map_err(plane_error)?;
    let lock = fs::create_dir_all(&definition.state_dir).and_then(|()| FileLock::take(&file));
    let lock = lock.and_then(|lock| {
        lock.ok_or_else(|| {
            io::Error::other("another vpnd guard --watch has it; end that one first")
        })
    });
    Ok(lock.map_err(|error| {
        plane_error(host::refused(format!("locking {}", file.display()), &error))
    })?)
}

fn lock_file(state_dir: &Path, device: &str) -> Result<PathBuf, SystemError> {
    file_of(state_dir, device, "watch")
}

/// Returns `true` if a watch over the guard of a device runs.
pub(super) fn runs(state_dir: &Path, device: &str) -> Result<bool, SystemError> {
    Ok(host::lock::is_locked(&lock_file(state_dir, device)?))
}

/// The time after which a watch over a guard that was released should have ended.
const LIMIT: Duration = Duration::from_secs(30);

/// Calls `take` until it returns something, or has returned nothing although no watch ran. A watch over a guard that was
/// released ends, but has the lock on the device before that for as long as it puts the guard back: on a host whose
/// processors are all busy, for many seconds. After [`LIMIT`], this returns `None` in any case.
pub(super) fn take_after<T, E>(
    watched: impl Fn() -> Result<bool, E>,
    mut take: impl FnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let begun = Instant::now();
    loop {
        // A watch that ends between the two may have had the lock.
        let again = watched()? && begun.elapsed() < LIMIT;
        match take()? {
            None if again => {}
            taken => return Ok(taken),
        }
    }
}

/// Waits until no watch holds the guard of a device, which has been released.
///
/// # Errors
/// If there is still one after a while: its table blocks the traffic.
pub(super) fn await_end(state_dir: &Path, device: &str) -> Result<(), SystemError> {
    let file = lock_file(state_dir, device)?;
    let (told, ended) = mpsc::channel();
    let thread = std::thread::Builder::new().name("guard-release".to_owned());
    let thread = thread.spawn(move || _ = told.send(host::lock::await_unlocked(&file)));
    let outcome = thread.and_then(|_| {
        let told = ended.recv_timeout(LIMIT);
        told.map_err(|_| io::Error::other("vpnd guard --watch does not end; end it"))?
    });
    let table = nft::table("watch", device);
    outcome
        .map_err(|error| host::refused(format!("removing the table {table} of nftables"), &error))
}

impl Definition {
    /// The lock on the device; `None` while a gateway, or another process that changes the guard, has it.
    fn lock(&self) -> Result<Option<DeviceLock>, SystemError> {
        match DeviceLock::is_taken(&self.state_dir, self.device())? {
            true => Ok(None),
            false => DeviceLock::take(&self.state_dir, self.device()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_release_takes_the_lock_after_a_watch_that_has_it_and_not_after_a_gateway() {
        // The watch ends after the lock was tried for the second time.
        let tried = Cell::new(0);
        let watched = || Ok::<_, ()>(tried.get() < 2);
        let take = |free_at| {
            let tried = &tried;
            move || {
                tried.set(tried.get() + 1);
                Ok((tried.get() >= free_at).then_some(()))
            }
        };
        assert_eq!(take_after(watched, take(3)), Ok(Some(())));
        tried.set(0);
        assert_eq!(take_after(watched, take(4)), Ok(None), "a gateway has it");
        assert_eq!(tried.get(), 3);
        tried.set(2);
        assert_eq!(take_after(watched, take(4)), Ok(None), "there was no watch");
        assert_eq!(tried.get(), 3);
        assert_eq!(take_after(|| Err("refused"), || Ok(Some(()))), Err("refused"));
    }
}
