//! From a policy and settings to a running gateway.
//!
//! The order of a start: runtime and settings are checked, IKE's sockets are opened, the data plane blocks what the
//! policy wants protected, SAs keyed by hand are installed, the port of ESP in UDP is listened to, and the engine runs.

mod custom;
mod host;
mod in_process;
mod runtime;
mod start_error;

pub use custom::{CustomPlane, PlaneInlet};
pub use host::{HostSettings, OnDrop};
pub use in_process::InProcess;
pub use start_error::StartError;

use crate::driver::{self, Fetcher};
use crate::events::Events;
use crate::gateway::Gateway;
use crate::revocation::Lists;
use esp::plane::DataPlane;
use ike::InvalidSettings;
use ike::key_log::Sink;
use ike::proof::trust::Trust;
use policy::Policy;
use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The settings of a gateway. `D` is its data plane: [`HostSettings`], the planes that come with this crate, or
/// [`CustomPlane`].
#[must_use = "a builder does nothing before start()"]
pub struct Builder<D = HostSettings> {
    engine: EngineSettings,
    plane: D,
}

/// The settings that do not depend on the data plane.
struct EngineSettings {
    policy: Arc<Policy>,
    ike: ike::Config,
    natt_port: Option<u16>,
    trust: Arc<Trust>,
    lists: Arc<Lists>,
    key_log: Option<Sink>,
    events: driver::EventSenders,
}

impl Builder {
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        let engine = EngineSettings {
            policy,
            ike: ike::Config::default(),
            natt_port: None,
            trust: Arc::default(),
            lists: Arc::default(),
            key_log: None,
            events: driver::EventSenders::default(),
        };
        Self { engine, plane: HostSettings::default() }
    }

    /// Replaces the data planes of this crate by one of the caller's. The settings of the host (device, routes, workers
    /// and so on) are then the business of that plane, and no longer settings of this builder.
    ///
    /// [`PlaneInlet`] is how the plane tells the engine something; make it first, since the plane will need it.
    pub fn data_plane<P: DataPlane + Send + 'static>(
        self,
        plane: P,
        inlet: PlaneInlet,
    ) -> Builder<CustomPlane<P>> {
        Builder { engine: self.engine, plane: CustomPlane::new(plane, inlet) }
    }

    /// Replaces the data planes of this crate by one inside of this process: no device, no route, no privilege. Only
    /// sockets of the [`Network`](net::Network) that the start returns use the tunnels, and nothing else of the host
    /// does.
    pub fn in_process(self) -> Builder<InProcess> {
        Builder { engine: self.engine, plane: InProcess::default() }
    }
}

impl<D> Builder<D> {
    /// Timers and limits of IKE. Default: [`ike::Config::default`].
    pub fn ike(mut self, config: ike::Config) -> Self {
        self.engine.ike = config;
        self
    }

    /// UDP port of ESP, and of IKE behind NATs; the peers must use the same. Default: [`ike::Config::natt_port`] of
    /// [`ike`](Self::ike), which is 4500 by default.
    pub fn natt_port(mut self, port: u16) -> Self {
        self.engine.natt_port = Some(port);
        self
    }

    /// The authorities that this side trusts, and the certificates by which it proves its identity. Default: none,
    /// which is enough for pre-shared keys. [`certificates::load`](crate::certificates::load) reads them from files.
    pub fn trust(mut self, trust: impl Into<Arc<Trust>>) -> Self {
        self.engine.trust = trust.into();
        self
    }

    /// Revocation lists that are in no file. Default: they are fetched when a certificate names their address.
    pub fn revocation_lists(mut self, lists: impl Into<Arc<Lists>>) -> Self {
        self.engine.lists = lists.into();
        self
    }

    /// Copies the keys of every SA to `sink`, so that captured packets can be decrypted. Anybody who has them reads the
    /// traffic. Default: keys stay in the engine and in the plane.
    pub fn log_keys(mut self, sink: Sink) -> Self {
        self.engine.key_log = Some(sink);
        self
    }

    /// Subscribes to the gateway's events from the very first one.
    pub fn subscribe(&self) -> Events {
        self.engine.events.subscribe().into()
    }

    /// Subscribes to the gateway's events, and to each step of its own exchanges
    /// ([`EventKind::Exchange`](ike::EventKind::Exchange)), for those who measure them.
    pub fn subscribe_with_exchanges(&self) -> Events {
        self.engine.events.subscribe_with_exchanges().into()
    }
}

impl EngineSettings {
    /// Applies the settings that override others, and checks what can be checked without touching the system.
    fn check(&mut self) -> Result<(), StartError> {
        self.ike.natt_port = self.natt_port.unwrap_or(self.ike.natt_port);
        self.policy.validate().map_err(InvalidSettings::from)?;
        self.ike.validate().map_err(InvalidSettings::from)?;
        runtime::check()
    }

    /// The constructor of the engine, the fetcher of revocation lists, and the channels of the events.
    fn into_parts<P: DataPlane>(
        self,
        plane: P,
        seed: [u8; 32],
    ) -> (impl FnOnce(Instant) -> ike::Engine<P>, Fetcher, driver::EventSenders) {
        let Self { policy, ike, natt_port: _, trust, lists, key_log, events } = self;
        let tells_exchanges = events.has_exchanges();
        let make = move |now| {
            let mut engine = ike::Engine::new(policy, ike, plane, seed, now)
                .expect("the policy and the configuration were checked first");
            engine.set_clock(now, SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
            engine.replace_trust(trust);
            if let Some(sink) = key_log {
                engine.log_keys(sink);
            }
            if tells_exchanges {
                engine.tell_exchanges();
            }
            engine
        };
        (make, lists.fetcher(), events)
    }
}

fn seed() -> Result<[u8; 32], StartError> {
    let mut seed = [0; 32];
    crypto::try_fill_random(&mut seed).map_err(|_| StartError::Randomness)?;
    Ok(seed)
}

impl<D: fmt::Debug> fmt::Debug for Builder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("tunnels", &self.engine.policy.tunnels.len())
            .field("ike", &self.engine.ike)
            .field("logs_keys", &self.engine.key_log.is_some())
            .field("plane", &self.plane)
            .finish_non_exhaustive()
    }
}

impl Gateway {
    /// Begins to describe a gateway with this policy.
    pub fn builder(policy: impl Into<Arc<Policy>>) -> Builder {
        Builder::new(policy.into())
    }
}
