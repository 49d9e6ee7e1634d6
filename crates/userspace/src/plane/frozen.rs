//! A plane that is frozen, and goes on here or in another process.
//!
//! ```text
//!  predecessor                              successor
//!  Userspace::freeze ──► FrozenUserspace ─► Userspace::adopt: frozen, too
//!  Userspace::give ────► descriptors ─────►   │
//!     └──► Userspace::thaw, or dropped        └──► Userspace::thaw, or dropped
//! ```
//!
//! The descriptors are those of the device's queues and of the sockets, in which packets wait meanwhile. Whoever drops a
//! frozen plane on a frozen [`Floor`] changes nothing on the host: device, routes and routing rules stay.

use super::{Beginning, SaForm, Userspace, share};
use crate::config::Config;
use crate::device::{Device, FrozenDevice, Lost};
use crate::hooks::Hooks;
use crate::raw_sockets::RawSockets;
use crate::receivers::Receivers;
use esp::datapath::frozen::FrozenDatapath;
use esp::plane::{Filtering, Ledger, PlaneError, RuleId, SaEntry, SaId};
use floor::{Floor, refused};
use host::handover::Descriptors;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The state of a plane, as another process goes on with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrozenUserspace {
    /// The rules and SAs.
    pub datapath: FrozenDatapath,
    /// The rule of each SA.
    pub rules: BTreeMap<SaId, RuleId>,
    /// The device; `None` if there is none, because the kernel has all tunnels.
    pub device: Option<FrozenDevice>,
    /// The MTU of the device.
    pub mtu: u16,
    /// The losses of devices that are gone.
    pub lost: Lost,
    /// Inner packets that the device did not take.
    pub unwritten: u64,
}

impl Userspace {
    /// Stops carrying packets, and returns the state with which another process goes on. Packets that come wait in the
    /// device and the sockets. Nothing is changed on the host.
    ///
    /// The plane still follows key management, but seals and takes nothing until it is [thawed](Self::thaw). Another
    /// call returns the present state.
    ///
    /// # Errors
    /// If the device has failed, or a worker is stuck, which is waited for no longer than `limit`. The plane then goes
    /// on.
    pub fn freeze(&mut self, limit: Duration) -> Result<FrozenUserspace, PlaneError> {
        if self.shared.failed.load(Ordering::SeqCst) {
            return Err(PlaneError::System {
                what: format!("freezing the packets of {}", self.host.settings.device),
                why: "the device has failed, and is about to be made again; try again".to_owned(),
            });
        }
        let workers = &self.config.workers;
        workers.freeze(limit)?;
        let device = self.device.as_ref();
        Ok(FrozenUserspace {
            datapath: self.datapath.freeze(Instant::now()),
            rules: self.ledger.sas().map(|sa| (sa.id, sa.rule)).collect(),
            device: device.and_then(|device| Some(device.frozen(workers.frozen()?))),
            mtu: self.mtu,
            lost: self.lost,
            unwritten: self.shared.tun_writer.unwritten.load(Ordering::Relaxed),
        })
    }

    /// Gives copies of the device's queues and of the sockets away, but for those of [`Floor::give`].
    ///
    /// # Errors
    /// If the system has no more descriptors.
    pub fn give(&self, to: &mut Descriptors) -> Result<(), PlaneError> {
        let given = self.config.workers.give(to);
        given.map_err(|e| refused("copying the descriptors of the userspace plane".into(), &e))
    }

    /// The plane of another process, which was frozen at `then` by the clock of this process. It is frozen until it is
    /// [thawed](Self::thaw), and nothing was changed on the host.
    ///
    /// The calling thread's network namespace is that of the plane and of `floor`, as for [`start`](Self::start).
    ///
    /// # Errors
    /// If a descriptor is missing or is another one, no plane can have the state, or the device is gone.
    pub fn adopt(
        floor: &Floor,
        config: Config,
        hooks: Hooks,
        frozen: FrozenUserspace,
        from: &mut Descriptors,
        then: Instant,
    ) -> Result<Self, PlaneError> {
        let FrozenUserspace { datapath, rules, device, mtu, lost, unwritten } = frozen;
        let (host, mark) = (Arc::clone(floor.config()), floor.config().settings.mark);
        let ledger = ledger_of(&datapath, &rules)?;
        let raw = match device {
            Some(_) => Some(Arc::new(RawSockets::adopt(mark, from)?)),
            None => None,
        };
        let receivers = Receivers::adopt(Arc::clone(floor.port()), mark, raw.clone());
        let shared = Arc::new(share(&host, &config, hooks, Beginning::Frozen(datapath, then))?);
        shared.tun_writer.unwritten.store(unwritten, Ordering::Relaxed);
        let datapath = shared.datapath.clone();
        datapath.set_device_mtu(mtu.into());
        datapath.clone().set_filter(Arc::clone(floor.filter()))?;
        let device = match (&device, &raw) {
            (Some(device), Some(raw)) => {
                let (to, rules) = ((&receivers, raw), ledger.rules().map(|entry| &entry.rule));
                let settings = &host.settings;
                let adopted = Device::adopt(settings, &config, device, to, &shared, rules, from);
                Some(adopted.inspect_err(|_| config.workers.detach())?)
            }
            _ => None,
        };
        Ok(Self {
            journal: floor.journal().clone(),
            device,
            shared,
            receivers,
            datapath,
            host,
            config,
            mtu,
            ledger,
            stalled_at: None,
            lost,
            replaced_at: None,
            fault: None,
        })
    }

    /// Goes on where it was frozen. No other process may do so.
    ///
    /// # Errors
    /// If the system refuses a thread: no traffic passes then.
    pub fn thaw(&mut self) -> Result<(), PlaneError> {
        // First the datapath: packets that come to a frozen one are lost.
        self.datapath.thaw();
        self.config.workers.thaw()
    }
}

/// The rules and SAs of a datapath, by their names.
fn ledger_of(
    datapath: &FrozenDatapath,
    rules: &BTreeMap<SaId, RuleId>,
) -> Result<Ledger<(), SaForm>, PlaneError> {
    let mut ledger = Ledger::default();
    for rule in &datapath.rules {
        ledger.enter_rule(rule.rule.clone(), ());
    }
    for sa in &datapath.inbound {
        let rule = *rules.get(&sa.id).ok_or(PlaneError::NoSuchSa(sa.id))?;
        let form = SaForm { suite: sa.suite, mode: sa.mode };
        ledger.enter_sa(SaEntry::receiving(sa.id, rule, sa.spi, form));
    }
    for sa in &datapath.outbound {
        let rule = *rules.get(&sa.id).ok_or(PlaneError::NoSuchSa(sa.id))?;
        let form = SaForm { suite: sa.suite, mode: sa.mode };
        ledger.enter_sa(SaEntry::standing_by(sa.id, rule, sa.spi, form));
    }
    // The one that is asked first was promoted last.
    for sa in datapath.rules.iter().flat_map(|rule| rule.serving.iter().rev()) {
        ledger.promote(*sa)?;
    }
    Ok(ledger)
}
