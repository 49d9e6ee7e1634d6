//! SAs keyed by hand: their sequence numbers go on over restarts, so that no nonce is used twice.

mod ledger;

pub use esp::manual::{ManualSa, Way};
pub use ledger::LedgerError;

use crate::driver::{GatewayError, WeakHandle};
use esp::manual::{Installed, ManualError, Numbers};
use esp::plane::{DataPlane, ManualKeying, Notice, SaId, Usage};
use ledger::{Fingerprint, Ledger};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use xfrm::REQIDS;

/// Where the ledger of sequence numbers is unless told otherwise.
pub const DEFAULT_LEDGER: &str = "/var/lib/vpnd/sequences";

/// The pause between checks that the ledger is ahead of the sequence numbers in use.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// SAs without IKE. Clones are of the same ones.
#[derive(Clone, Debug, Default)]
pub struct ManualSas(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    sas: Vec<Arc<ManualSa>>,
    path: PathBuf,
    running: Mutex<Option<Running>>,
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
}

/// Manual SAs cannot be used as they are.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManualSaError {
    /// Two SAs of one name and direction.
    #[error("manual SA {name:?} is there twice with direction {}; give one another name", way.name())]
    Twice {
        /// Both.
        name: String,
        /// Both.
        way: Way,
    },
    /// One name, and two kinds of traffic.
    #[error(
        "the two manual SAs {0:?} are not of the same traffic: what is the source of one has to be the destination of the \
         other; correct it, or give one another name"
    )]
    Traffic(String),
    /// One key for two SAs.
    #[error(
        "manual SAs {first} and {second} have the same key: both would use the same nonces with it, which reveals what they \
         encrypt and lets others forge packets (RFC 4106 §3.1, RFC 8221 §3); give each a key of its own, or say \
         insecure_shared_key = true for both if this is a test"
    )]
    SharedKey {
        /// Name and direction.
        first: String,
        /// Name and direction.
        second: String,
    },
    /// A reqid that no operator may give.
    #[error(
        "manual SA {name:?} has reqid {reqid}: 0 is none, and {} to {} are those that vpnd gives itself; take one that no \
         other program uses, as 7",
        REQIDS.start(),
        REQIDS.end()
    )]
    Reqid {
        /// Its name.
        name: String,
        /// Its reqid.
        reqid: u32,
    },
    /// One name, and two reqids.
    #[error("the two manual SAs {0:?} have two reqids; give both the same, or neither one")]
    Reqids(String),
    /// Two names, and one reqid.
    #[error(
        "manual SAs {first:?} and {second:?} both have reqid {reqid}, by which the kernel would take the SAs of one for those \
         of the other; give each name its own"
    )]
    SharedReqid {
        /// A name.
        first: String,
        /// The other.
        second: String,
        /// Theirs.
        reqid: u32,
    },
    /// No sequence number is left.
    #[error(
        "manual SA {0:?} (out) has used all sequence numbers of its key, which must not begin anew; give both sides a new key, \
         or one with esn = true"
    )]
    Exhausted(String),
    /// The ledger of sequence numbers.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The plane refuses one.
    #[error(transparent)]
    Plane(#[from] ManualError),
}

impl ManualSas {
    /// SAs whose sequence numbers are remembered in the file `ledger`.
    ///
    /// # Errors
    /// If they do not go together.
    pub fn new(sas: Vec<ManualSa>, ledger: PathBuf) -> Result<Self, ManualSaError> {
        check(&sas)?;
        let sas = sas.into_iter().map(Arc::new).collect();
        Ok(Self(Arc::new(Inner { sas, path: ledger, running: Mutex::default() })))
    }

    /// Every SA.
    pub fn iter(&self) -> impl Iterator<Item = &ManualSa> {
        self.0.sas.iter().map(|sa| &**sa)
    }

    /// The number of SAs.
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
        let with = |((_, sa), (usage, sequence)): ((SaId, &Arc<ManualSa>), _)| ManualStatus {
            sa: Arc::clone(sa),
            usage,
            sequence,
        };
        installed.iter().zip(usage).map(with).collect()
    }

    /// Adds them to a plane, to go on where the ledger says.
    pub(crate) fn install(&self, plane: &mut dyn DataPlane) -> Result<(), ManualSaError> {
        if self.is_empty() {
            return Ok(());
        }
        let mut ledger = Ledger::open(&self.0.path)?;
        let used: BTreeMap<Fingerprint, u64> = (self.0.sas.iter())
            .filter(|sa| sa.way == Way::Out)
            .map(|sa| (Fingerprint::of(sa), ledger.used(&Fingerprint::of(sa))))
            .collect();
        let of = |sa: &ManualSa| used.get(&Fingerprint::of(sa)).copied().unwrap_or(0);
        let outbound = || self.0.sas.iter().filter(|sa| sa.way == Way::Out);
        if let Some(sa) = outbound().find(|sa| of(sa) >= sa.last_sequence()) {
            return Err(ManualSaError::Exhausted(sa.name.clone()));
        }
        // Before the first packet: after a crash nothing that may have been used is free.
        ledger.write(outbound().map(|sa| (Fingerprint::of(sa), ahead(sa, of(sa)))))?;
        let mut numbers =
            |sa: &ManualSa| Numbers { used: of(sa), allowed: ledger.used(&Fingerprint::of(sa)) };
        let installed = Installed::install(plane, &self.0.sas, &mut numbers)?;
        *self.running() = Some(Running { installed, ledger });
        Ok(())
    }

    /// Says what a notice means that is about one of them.
    pub(crate) fn tell(&self, notice: &Notice) {
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
        if self.0.sas.iter().all(|sa| sa.way == Way::In) {
            return;
        }
        let mut times = tokio::time::interval(LOOK_EVERY);
        loop {
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
        let on_record = |sa: &ManualSa| ledger.used(&Fingerprint::of(sa));
        used.iter().map(|(id, sa, _)| (*id, sa.name.as_str(), on_record(sa))).collect()
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

fn ahead(sa: &ManualSa, used: u64) -> u64 {
    used.saturating_add(block(sa)).min(sa.last_sequence())
}

fn check(sas: &[ManualSa]) -> Result<(), ManualSaError> {
    let called = |sa: &ManualSa| format!("{:?} ({})", sa.name, sa.way.name());
    let mut names: BTreeMap<&str, &ManualSa> = BTreeMap::new();
    let mut ways: BTreeSet<(&str, Way)> = BTreeSet::new();
    let mut reqids: BTreeMap<u32, &str> = BTreeMap::new();
    // Of those with one key, one that does not consent to that where there is one.
    let mut keys: BTreeMap<&[u8], &ManualSa> = BTreeMap::new();
    for sa in sas {
        let name = || sa.name.clone();
        if !ways.insert((&sa.name, sa.way)) {
            return Err(ManualSaError::Twice { name: name(), way: sa.way });
        }
        let other = *names.entry(&sa.name).or_insert(sa);
        if other.selectors != sa.selectors {
            return Err(ManualSaError::Traffic(name()));
        }
        if other.reqid != sa.reqid {
            return Err(ManualSaError::Reqids(name()));
        }
        if let Some(reqid) = sa.reqid {
            if reqid == 0 || REQIDS.contains(&reqid) {
                return Err(ManualSaError::Reqid { name: name(), reqid });
            }
            let first = *reqids.entry(reqid).or_insert(&sa.name);
            if first != sa.name {
                let (first, second) = (first.to_owned(), name());
                return Err(ManualSaError::SharedReqid { first, second, reqid });
            }
        }
        if let Some(other) = keys.get(sa.key.expose()) {
            let consent = sa.shared_key && other.shared_key;
            if sa.counts_nonces() && !consent {
                return Err(ManualSaError::SharedKey { first: called(other), second: called(sa) });
            }
        }
        let first = keys.entry(sa.key.expose()).or_insert(sa);
        if first.shared_key {
            *first = sa;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
