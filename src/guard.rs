//! The guard of the tunnels beyond the life of a gateway.
//!
//! The guard is an nftables table that drops the traffic of the tunnels unless it is protected. A gateway puts it in
//! force when it starts and removes it when it is stopped. A host that must never send this traffic in the clear, also
//! not while the gateway is restarted and not at boot, [holds](crate::Builder::hold_guard) the guard: then it outlives
//! every gateway on its device, until it is [released](release).
//!
//! A guard belongs to a TUN device (`vpn0` by default) in the network namespace of the calling thread.

mod watch;

pub use watch::{Watch, Watched};

use crate::builder::{Builder, HostSettings, StartError};
use crate::planes::guard::{Dropped, table};
use crate::planes::{self, Hold};
use floor::plane_error;
use host::SystemError;
use host::journal::{DeviceLock, Journal};
use host::nft;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The state of a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GuardState {
    /// The name of its table in nftables (family `inet`).
    pub table: String,
    /// The table is there.
    pub in_force: bool,
    /// The time since which it is held; `None`: it goes with the gateway, or was left by one that has crashed.
    pub held_since: Option<SystemTime>,
    /// A gateway uses the device.
    pub has_gateway: bool,
    /// Packets that it has dropped instead of letting them leave in the clear.
    pub unprotected_leaving: u64,
    /// Packets that it has dropped because they arrived in the clear (RFC 4301 §5.2).
    pub unprotected_arriving: u64,
}

impl GuardState {
    /// The time for which it has been held; `None` if it is not.
    pub fn held_for(&self) -> Option<Duration> {
        self.held_since.map(|since| since.elapsed().unwrap_or_default())
    }
}

/// The result of [`release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Released {
    /// Nothing was blocked.
    Nothing,
    /// Nothing is blocked any more.
    Now,
    /// A gateway uses the device: its guard goes when it is stopped.
    WithTheGateway,
}

/// The state of the guard of a device.
///
/// # Errors
/// If the state directory cannot be used.
pub fn state(state_dir: &Path, device: &str) -> Result<GuardState, SystemError> {
    let table = table(device);
    let dropped = Dropped::of(&table);
    Ok(GuardState {
        in_force: dropped.in_force,
        held_since: held_since(state_dir, device)?,
        has_gateway: DeviceLock::is_taken(state_dir, device)?,
        unprotected_leaving: dropped.leaving + dropped.translated,
        unprotected_arriving: dropped.arriving,
        table,
    })
}

/// Holds the guard of the gateway that runs on a device. `None`: none runs, and nothing has happened.
///
/// # Errors
/// If the state directory cannot be used.
pub fn hold_of_gateway(state_dir: &Path, device: &str) -> Result<Option<GuardState>, SystemError> {
    let mut taken = DeviceLock::is_taken(state_dir, device)?;
    if taken && watch::runs(state_dir, device)? {
        // A watch has the lock for a moment, too.
        taken = DeviceLock::take(state_dir, device)?.is_none();
    }
    if !taken {
        return Ok(None);
    }
    Hold::of(state_dir, device)?.set()?;
    state(state_dir, device).map(Some)
}

/// The time since which the guard of a device is held; `None` if it is not.
///
/// # Errors
/// If the network namespace cannot be found.
pub fn held_since(state_dir: &Path, device: &str) -> Result<Option<SystemTime>, SystemError> {
    Ok(Hold::of(state_dir, device)?.since())
}

/// Ends the hold on the guard of a device. If no gateway uses the device, everything that blocks the traffic of its
/// tunnels is removed: the guard, and the routes, routing rules, filters and policies of the kernel that a gateway has
/// left. A gateway leaves them if it has crashed, or was stopped with [`stop_blocked`](crate::Gateway::stop_blocked). A
/// [`Watch`] over the guard ends then: this waits until it has been dropped, for half a minute at most.
///
/// # Errors
/// If the system refuses something; the rest is removed all the same.
pub fn release(state_dir: &Path, device: &str) -> Result<Released, StartError> {
    let held = Hold::of(state_dir, device).and_then(|hold| hold.clear()).map_err(plane_error)?;
    let lock = watch::take_after(
        || watch::runs(state_dir, device),
        || DeviceLock::take(state_dir, device),
    );
    let Some(lock) = lock.map_err(plane_error)? else {
        // A watch that does not end may have it instead.
        watch::await_end(state_dir, device).map_err(plane_error)?;
        return Ok(Released::WithTheGateway);
    };
    let table = table(device);
    let blocked = held || nft::exists(&table) || lock.has_record();
    let mut journal = Journal::open(lock).map_err(plane_error)?;
    // No start decides about the filter any more.
    journal.undo_left();
    let of_kernel = xfrm::remove_leftovers();
    // Last: until then nothing has left in the clear.
    let of_guard = nft::remove(&table).map_err(|error| {
        let what = format!("removing the table {table} of nftables");
        plane_error(host::refused(what, &error))
    });
    // With it the lock on the device: a watch sees the release when it has the lock.
    drop(journal);
    let of_watch = watch::await_end(state_dir, device).map_err(plane_error);
    of_guard?;
    of_watch?;
    of_kernel?;
    Ok(if blocked { Released::Now } else { Released::Nothing })
}

/// Everything that a guard follows from: the traffic of the tunnels, and the settings that decide which packets pass.
/// [`Builder::guard`] makes it from a policy, and [`Definition::last`] reads the one that was in force last.
#[derive(Clone, Debug)]
pub struct Definition {
    guard: planes::Definition,
    state_dir: PathBuf,
    /// The file in which the definition of the guard in force is kept.
    file: Option<PathBuf>,
}

impl Definition {
    /// Reads the definition that was in force last from the file of [`GuardSettings::file`](crate::GuardSettings::file), and the time of its last
    /// change.
    ///
    /// # Errors
    /// If the file is not there, or cannot be used.
    pub fn last(file: &Path, state_dir: &Path) -> io::Result<(Self, SystemTime)> {
        let guard = planes::Definition::read(file)?;
        let changed = fs::metadata(file)?.modified()?;
        Ok((Self { guard, state_dir: state_dir.to_owned(), file: Some(file.to_owned()) }, changed))
    }

    /// The TUN device to which the guard belongs.
    pub fn device(&self) -> &str {
        self.guard.device()
    }

    /// Puts the guard in force without starting a gateway, and holds it: a start adopts it, and a stop leaves it, until
    /// [`release`]. If a gateway runs on the device, its guard is held from now on.
    ///
    /// Needs CAP_NET_ADMIN, and blocks the thread for some milliseconds.
    ///
    /// # Errors
    /// If nftables refuses the guard.
    pub fn hold(&self) -> Result<GuardState, StartError> {
        let hold = Hold::of(&self.state_dir, self.device()).map_err(plane_error)?;
        // First: a gateway that is stopped meanwhile leaves its guard.
        hold.set().map_err(plane_error)?;
        let lock = DeviceLock::take(&self.state_dir, self.device()).map_err(plane_error)?;
        if let Some(_lock) = lock {
            // A release may have ended it meanwhile.
            hold.set().map_err(plane_error)?;
            self.leave()?;
            self.write();
        }
        Ok(state(&self.state_dir, self.device()).map_err(plane_error)?)
    }

    /// Puts the guard in force, with the lock on the device. Returns `false` if there is nothing to guard.
    fn leave(&self) -> Result<bool, StartError> {
        Ok(self.guard.leave(&self.state_dir)?)
    }

    /// Takes what was put in force last, if it is of the same device.
    fn refresh(&mut self) {
        let last = self.file.as_deref().and_then(|file| planes::Definition::read(file).ok());
        if let Some(last) = last.filter(|last| last.device() == self.device()) {
            self.guard = last;
        }
    }

    fn write(&self) {
        if let Some(file) = &self.file
            && let Err(error) = self.guard.write(file)
        {
            tracing::warn!(%error, file = %file.display(), "the guard in force is not written down for the next boot");
        }
    }
}

impl Builder<HostSettings> {
    /// Everything that the guard of these tunnels follows from: it can be held without starting a gateway.
    ///
    /// # Errors
    /// If the policy is invalid.
    pub fn guard(self) -> Result<Definition, StartError> {
        let (guard, state_dir, file) = self.of_guard()?;
        Ok(Definition { guard, state_dir, file })
    }

    /// [Holds](Definition::hold) the guard of these tunnels without starting a gateway.
    ///
    /// # Errors
    /// If the policy is invalid, or nftables refuses the guard.
    pub fn hold_guard(self) -> Result<GuardState, StartError> {
        self.guard()?.hold()
    }
}
