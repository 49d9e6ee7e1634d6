//! The part of a gateway on its host that does not depend on the planes of its tunnels: the record of changes, the
//! filter, and the port of ESP in UDP.

use crate::config::{Config, Settings};
use crate::filter::Enforcement;
use crate::port::{FrozenPort, Port};
use crate::refusal::{plane_error, refused};
use esp::filter::{Filter, FilterCounts};
use esp::plane::{FilterWork, PlaneError};
use host::handover::Descriptors;
use host::journal::{DeviceLock, Journal, SharedJournal};
use rustix::thread::CapabilitySet;
use std::io;
use std::sync::Arc;

/// The record of changes, the filter and the port of one gateway. Dropping this undoes all changes on record, unless
/// [`Floor::block_on_drop`] says otherwise. The planes are to be dropped before.
pub struct Floor {
    config: Arc<Config>,
    // In the order in which they end.
    port: Arc<Port>,
    enforcement: Enforcement,
    journal: SharedJournal,
}

/// The state of a floor, as another process goes on with it.
#[derive(Clone, Debug, Default)]
pub struct FrozenFloor {
    /// The filter in force.
    pub filter: Arc<Filter>,
    /// The port.
    pub port: FrozenPort,
}

/// The name of the descriptor of the lock on the device, with the record of changes.
const LOCK: &str = "lock.device";

impl Floor {
    /// The lock on the device, which keeps every other process from it.
    ///
    /// # Errors
    /// If a capability is missing, or another process uses the device.
    pub fn lock(settings: &Settings) -> Result<DeviceLock, PlaneError> {
        check_capabilities()?;
        DeviceLock::require(&settings.state_dir, &settings.device).map_err(plane_error)
    }

    /// Takes the lock on the device, puts the filter in force, and opens the port, in the network namespace of the
    /// calling thread. Needs CAP_NET_ADMIN and CAP_NET_RAW.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock) and [`start_locked`](Self::start_locked).
    pub fn start(config: Config, filter: &Arc<Filter>) -> Result<Self, PlaneError> {
        Self::start_locked(Self::lock(&config.settings)?, config, filter)
    }

    /// As [`start`](Self::start), with a lock that was taken before.
    ///
    /// # Errors
    /// If another process uses the routing table or the port, or the system refuses something.
    pub fn start_locked(
        lock: DeviceLock,
        config: Config,
        filter: &Arc<Filter>,
    ) -> Result<Self, PlaneError> {
        let mut journal = Journal::open(lock).map_err(plane_error)?;
        let Settings { state_dir, table, .. } = &config.settings;
        journal.claim(state_dir, *table).map_err(plane_error)?;
        let config = Arc::new(config);
        // Before anything else: blocked traffic is blocked from the first moment on.
        let enforcement = Enforcement::start(&config, filter, &mut journal)?;
        let port = Arc::new(Port::open(&config)?);
        Ok(Self { config, port, enforcement, journal: SharedJournal::new(journal) })
    }

    /// Leaves everything on the host as it is when this is dropped, until it is [thawed](Self::thaw), and returns the
    /// state with which another process goes on.
    ///
    /// # Errors
    /// If a change of the filter is under way.
    pub fn freeze(&mut self) -> Result<FrozenFloor, PlaneError> {
        if self.enforcement.is_changing() {
            return Err(PlaneError::System {
                what: "handing the filter over".to_owned(),
                why: "a change of it is under way; try again".to_owned(),
            });
        }
        self.journal.lock().freeze();
        Ok(FrozenFloor { filter: Arc::clone(self.filter()), port: self.port.frozen() })
    }

    /// Goes on with everything on the host. No other process may do so.
    pub fn thaw(&mut self) {
        self.journal.lock().thaw();
    }

    /// Gives copies of the lock on the device and of the port's sockets away.
    ///
    /// # Errors
    /// If the system has no more descriptors.
    pub fn give(&self, to: &mut Descriptors) -> io::Result<()> {
        to.add(LOCK, self.journal.lock().descriptor().try_clone_to_owned()?)?;
        self.port.give(to)
    }

    /// The floor of another process, in the network namespace of the calling thread. It is frozen, and nothing was
    /// changed on the host.
    ///
    /// # Errors
    /// If a descriptor is missing or is another one, or the system refuses something.
    pub fn adopt(
        config: Config,
        FrozenFloor { filter, port }: FrozenFloor,
        from: &mut Descriptors,
    ) -> Result<Self, PlaneError> {
        check_capabilities()?;
        let Settings { state_dir, device, .. } = &config.settings;
        let lock = match from.take(LOCK) {
            Some(sent) => DeviceLock::succeed(state_dir, device, sent).map_err(plane_error)?,
            None => None,
        };
        let lock = lock.ok_or_else(|| PlaneError::System {
            what: format!("taking over {LOCK}"),
            why: format!("the other process has not sent its lock on the device {device}"),
        })?;
        let journal = Journal::succeed(lock).map_err(plane_error)?;
        let config = Arc::new(config);
        let enforcement = Enforcement::adopt(&config, filter)?;
        let port = Arc::new(Port::adopt(&config, &port, from)?);
        Ok(Self { config, port, enforcement, journal: SharedJournal::new(journal) })
    }

    /// The planes have started: a filter that a crashed gateway left is replaced or gone.
    pub fn forget_left_filter(&mut self) {
        self.journal.lock().forget_left_filter();
    }

    /// The settings that hold for all planes.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The port of ESP in UDP.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// The record of changes to the host.
    pub fn journal(&self) -> &SharedJournal {
        &self.journal
    }

    /// The filter in force.
    pub fn filter(&self) -> &Arc<Filter> {
        self.enforcement.filter()
    }

    /// Begins to replace the filter: [`Enforcement::begin`].
    ///
    /// # Errors
    /// See there.
    pub fn begin_filter(&mut self, filter: &Arc<Filter>) -> Result<FilterWork, PlaneError> {
        self.enforcement.begin(filter, &mut self.journal.lock())
    }

    /// Ends the change of the filter that has begun: [`Enforcement::finish`].
    ///
    /// # Errors
    /// See there.
    pub fn finish_filter(
        &mut self,
        outcome: Result<(), PlaneError>,
    ) -> Result<Arc<Filter>, PlaneError> {
        self.enforcement.finish(outcome)
    }

    /// The work that puts the filter's table back: [`Enforcement::table_restoration`].
    pub fn table_restoration(&mut self) -> Option<FilterWork> {
        self.enforcement.table_restoration()
    }

    /// Puts the routing rules for bypassed traffic back.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn restore_routing_rules(&mut self) -> Result<(), PlaneError> {
        self.enforcement.restore_routing_rules(&mut self.journal.lock())
    }

    /// Reads the filter's counters, on any thread.
    pub fn filter_counter_reader(&self) -> impl FnOnce() -> FilterCounts + Send + use<> {
        self.enforcement.counter_reader()
    }

    /// Says whether everything on record stays on the host when this is dropped, as if the process had been killed:
    /// until the next start with the same device cleans up. At first it does not.
    pub fn block_on_drop(&mut self, blocked: bool) {
        self.journal.lock().keep_on_drop(blocked);
    }
}

/// Makes sure that this process may do what the planes must.
fn check_capabilities() -> Result<(), PlaneError> {
    let held = rustix::thread::capabilities(None)
        .map_err(|e| refused("reading this process's capabilities".into(), &e.into()))?
        .effective;
    let needed =
        [(CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"), (CapabilitySet::NET_RAW, "CAP_NET_RAW")];
    let missing: Vec<&str> =
        needed.iter().filter(|(c, _)| !held.contains(*c)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(PlaneError::System {
        what: "starting the userspace plane".to_owned(),
        why: format!(
            "this process lacks {}; run it as root, or grant them (AmbientCapabilities= in a systemd unit)",
            missing.join(" and ")
        ),
    })
}
