//! SAs keyed by hand: their sequence numbers go on over restarts, so that no nonce is used twice.

mod change;
mod check;
mod ledger;

pub use change::Removed;
pub use check::ManualSaError;
pub use esp::manual::{ManualSa, SaDirection};
pub use ledger::LedgerError;

use crate::driver::{GatewayError, WeakHandle};
use check::check;
use esp::manual::{Installed, Numbers};
use esp::plane::{DataPlane, ManualKeying, Notice, SaId, Usage};
use ledger::{Fingerprint, Ledger};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Where the ledger of sequence numbers is unless told otherwise.
pub const DEFAULT_LEDGER: &str = "/var/lib/vpnd/sequences";

/// The pause between checks that the ledger is ahead of the sequence numbers in use.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// SAs without IKE. Clones are of the same ones.
#[derive(Clone, Debug, Default)]
pub struct ManualSas(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Those that are there from the start.
    sas: Vec<Arc<ManualSa>>,
    path: PathBuf,
    running: Mutex<Option<Running>>,
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
    /// SAs have been added.
    added: Notify,
    /// The plane is prepared for a rule.
    prepared: Notify,
}

#[derive(Debug)]
struct Running {
    installed: Installed,
    ledger: Ledger,
}

/// The state of a manual SA.
#[derive(Clone, Debug)]
pub struct ManualStatus {
    /// The SA.
    pub sa: Arc<ManualSa>,
    /// Packets and octets since the start.
    pub usage: Usage,
    /// The last sequence number of an outbound SA, over all restarts.
    pub sequence: Option<u64>,
    /// The SA was added while the gateway ran, and is gone when it stops.
    pub added: bool,
}

impl ManualSas {
    /// SAs whose sequence numbers are remembered in the file `ledger`.
    ///
    /// # Errors
    /// If they do not go together.
    pub fn new(sas: Vec<ManualSa>, ledger: PathBuf) -> Result<Self, ManualSaError> {
        check(sas.iter())?;
        let sas = sas.into_iter().map(Arc::new).collect();
        Ok(Self(Arc::new(Inner { sas, path: ledger, ..Inner::default() })))
    }

    /// None, until some are added. Their sequence numbers are remembered in [`DEFAULT_LEDGER`].
    pub(crate) fn empty() -> Self {
        Self(Arc::new(Inner { path: PathBuf::from(DEFAULT_LEDGER), ..Inner::default() }))
    }

    /// Every SA that is there from the start.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ManualSa> + Clone {
        self.0.sas.iter().map(|sa| &**sa)
    }

    /// The number of these SAs.
    pub fn len(&self) -> usize {
        self.0.sas.len()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.sas.is_empty()
    }

    /// The state of each SA; empty before the gateway has started.
    pub fn status(&self, plane: &mut dyn DataPlane) -> Vec<ManualStatus> {
        let Some(installed) = self.installed() else { return Vec::new() };
        let usage = installed.usage(plane);
        let from_start: BTreeSet<_> = self.0.sas.iter().map(Arc::as_ptr).collect();
        let sas = installed.iter().zip(usage);
        let status = sas.map(|((_, sa), (usage, sequence))| ManualStatus {
            added: !from_start.contains(&Arc::as_ptr(sa)),
            sa: Arc::clone(sa),
            usage,
            sequence,
        });
        status.collect()
    }

    /// Adds them to a plane, to go on where the ledger says.
    pub(crate) fn install(&self, plane: &mut dyn DataPlane) -> Result<(), ManualSaError> {
        if self.is_empty() {
            return Ok(());
        }
        let mut ledger = Ledger::open(&self.0.path)?;
        let numbers = reserve(&mut ledger, &self.0.sas)?;
        let numbers = &mut |sa: &ManualSa| numbers_of(&numbers, sa);
        let installed = Installed::install(plane, &self.0.sas, numbers)?;
        *self.running() = Some(Running { installed, ledger });
        Ok(())
    }

    /// Says what a notice means that is about one of them.
    pub(crate) fn tell(&self, notice: &Notice) {
        if *notice == Notice::Prepared {
            self.0.prepared.notify_waiters();
        }
        let Notice::Expiring { sa, hard } = *notice else { return };
        let running = self.running();
        let Some(running) = running.as_ref() else { return };
        let Some(sa) = running.installed.get(sa) else { return };
        if hard && running.ledger.used(&Fingerprint::of(sa)) < sa.last_sequence() {
            tracing::error!(
                sa = sa.name,
                "nothing is sent until more sequence numbers are on record in {}",
                self.0.path.display()
            );
        } else if hard {
            tracing::error!(
                sa = sa.name,
                "no sequence number is left: nothing is sent any more; give both sides a new key"
            );
        } else {
            tracing::warn!(
                sa = sa.name,
                "an eighth of the sequence numbers is left; give both sides a new key soon"
            );
        }
    }

    /// Keeps the ledger ahead of what is used, until the gateway stops.
    pub(crate) async fn keep(self, gateway: WeakHandle) {
        let mut times = tokio::time::interval(LOOK_EVERY);
        loop {
            // Without such SAs nothing wakes up.
            while !self.sends() {
                self.0.added.notified().await;
            }
            times.tick().await;
            let manual = self.clone();
            let Some(gateway) = gateway.upgrade() else { return };
            let looked: Result<(), GatewayError> =
                gateway.with_plane(move |plane| manual.look(plane)).await;
            if looked.is_err() {
                return;
            }
        }
    }

    /// Returns `true` if one of them sends.
    fn sends(&self) -> bool {
        let running = self.running();
        running
            .as_ref()
            .is_some_and(|r| r.installed.iter().any(|(_, sa)| sa.direction == SaDirection::Out))
    }

    /// Extends what the ledger has where half of it is used, and lets the plane use what is on the disk.
    fn look(&self, plane: &mut dyn DataPlane) {
        let Some(installed) = self.installed() else { return };
        let used: Vec<_> = (installed.iter())
            .filter_map(|(id, sa)| Some((id, sa, plane.manual_keying().last_sequence(id)?)))
            .collect();
        for (id, name, allowed) in self.extend(&used) {
            // A plane that has refused it before is told again.
            if let Err(error) = plane.manual_keying().allow(id, allowed) {
                tracing::error!(%error, sa = name, "it may stop at the sequence numbers that it had before");
            }
        }
    }

    /// Extends the ledger for SAs that have used these numbers. Returns the last number on the disk for each.
    fn extend<'a>(&self, used: &[(SaId, &'a Arc<ManualSa>, u64)]) -> Vec<(SaId, &'a str, u64)> {
        let mut running = self.running();
        let Some(Running { ledger, .. }) = &mut *running else { return Vec::new() };
        let entries: Vec<_> = (used.iter())
            .filter_map(|(_, sa, used)| {
                let fingerprint = Fingerprint::of(sa);
                let enough = used.saturating_add(block(sa) / 2) <= ledger.used(&fingerprint);
                (!enough).then(|| (fingerprint, ahead(sa, *used)))
            })
            .filter(|(fingerprint, number)| *number > ledger.used(fingerprint))
            .collect();
        if !entries.is_empty()
            && let Err(error) = ledger.write(entries.into_iter())
        {
            tracing::error!(
                %error,
                "manual SAs send until they have used the sequence numbers on record, and then nothing"
            );
        }
        let on_record = used
            .iter()
            .map(|(id, sa, _)| (*id, sa.name.as_str(), ledger.used(&Fingerprint::of(sa))));
        on_record.collect()
    }

    /// Notes exactly what was used, so that the next start goes on there.
    pub(crate) fn end(&self, plane: &mut dyn DataPlane) {
        let Some(Running { installed, mut ledger }) = self.running().take() else { return };
        let mut used: BTreeMap<Fingerprint, u64> = BTreeMap::new();
        for (id, sa) in installed.iter() {
            let Some(last) = plane.manual_keying().retire(id) else {
                plane.remove(id);
                continue;
            };
            // Of SAs that share a key, the one that has come furthest.
            let noted = used.entry(Fingerprint::of(sa)).or_default();
            *noted = last.max(*noted);
        }
        if let Err(error) = ledger.write(used.into_iter()) {
            tracing::warn!(%error, "the next start skips sequence numbers of manual SAs");
        }
    }

    /// The SAs that the plane has. A plane that is asked about them may tell of one meanwhile ([`Self::tell`]), so that
    /// no lock may be held then.
    fn installed(&self) -> Option<Installed> {
        self.running().as_ref().map(|running| running.installed.clone())
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sequence numbers that are taken from the ledger at a time: more than go between two looks, few enough that some
/// hundred crashes do not use up a key.
fn block(sa: &ManualSa) -> u64 {
    if sa.esn { 1 << 32 } else { 1 << 24 }
}

/// Puts numbers for these SAs on record, and returns for each key that sends which it may use.
fn reserve(
    ledger: &mut Ledger,
    sas: &[Arc<ManualSa>],
) -> Result<BTreeMap<Fingerprint, Numbers>, ManualSaError> {
    let outbound = sas.iter().filter(|sa| sa.direction == SaDirection::Out);
    let mut numbers = BTreeMap::new();
    for sa in outbound {
        let fingerprint = Fingerprint::of(sa);
        let used = ledger.used(&fingerprint);
        if used >= sa.last_sequence() {
            return Err(ManualSaError::Exhausted(sa.name.clone()));
        }
        numbers.insert(fingerprint, Numbers { used, allowed: ahead(sa, used) });
    }
    // Before the first packet: after a crash nothing that may have been used is free.
    ledger.write(numbers.iter().map(|(fingerprint, of)| (fingerprint.clone(), of.allowed)))?;
    Ok(numbers)
}

/// Those of an SA; without an entry it may use none.
fn numbers_of(numbers: &BTreeMap<Fingerprint, Numbers>, sa: &ManualSa) -> Numbers {
    let none = Numbers { used: 0, allowed: 0 };
    numbers.get(&Fingerprint::of(sa)).copied().unwrap_or(none)
}

fn ahead(sa: &ManualSa, used: u64) -> u64 {
    used.saturating_add(block(sa)).min(sa.last_sequence())
}

#[cfg(test)]
mod tests;
