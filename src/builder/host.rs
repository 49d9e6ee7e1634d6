//! The data planes of this crate: userspace, the kernel's, or both, with their traces on the host.

use super::{Builder, EngineSettings, StartError, seed};
use crate::closed::Closed;
use crate::driver::{self, NatT, PlaneHooks, Surroundings};
use crate::gateway::{FindingsFrom, Gateway, Handles, TunnelDevice};
use crate::manual::ManualSas;
use crate::planes::{self, GuardSettings, PlaneSettings, Planes};
use crypto::{Choice as CryptoChoice, CryptoProviders};
use esp::filter::Filter;
use esp::plane::{Rule, RuleId};
use ike::InvalidSettings;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use userspace::workers::{Settings as WorkerSettings, Workers};
use userspace::{self, Hooks, IkeReceiver};

/// Settings of the data planes that come with this crate, and of their traces on the host.
///
/// Two gateways in one network namespace need different devices and tables.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// The device, the routing, the mark and the record of changes, which all planes, guard and filter share. Default:
    /// [`floor::Settings::default`].
    pub floor: floor::Settings,
    /// The plane of this process, and the networks between the peers. Default: [`userspace::Settings::default`].
    pub userspace: userspace::Settings,
    /// The guard against cleartext.
    pub guard: GuardSettings,
    /// The filter for traffic that belongs to no tunnel. It can be replaced while the gateway runs:
    /// [`Gateway::filter`]. Default: such traffic is left alone.
    pub filter: Arc<Filter>,
    /// The crypto provider of each cipher. The choice can be changed while the gateway runs: [`Gateway::crypto`].
    pub crypto: CryptoChoice,
    /// The threads that carry packets. They can be changed while the gateway runs: [`Gateway::workers`].
    pub workers: WorkerSettings,
    /// Where packets are protected: in this process, which is the default, in the kernel, or in a network card.
    pub planes: PlaneSettings,
    /// SAs without IKE. Default: none.
    pub manual: ManualSas,
    /// Whether the tunnels' traffic stays blocked if the gateway is dropped without [`Gateway::stop`]. Default: yes.
    pub on_drop: OnDrop,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            floor: floor::Settings::default(),
            userspace: userspace::Settings::default(),
            guard: GuardSettings::default(),
            filter: Arc::default(),
            crypto: CryptoChoice::default(),
            workers: WorkerSettings::default(),
            planes: PlaneSettings::default(),
            // The default of this type has no ledger, so that no SA can be added.
            manual: ManualSas::empty(),
            on_drop: OnDrop::default(),
        }
    }
}

impl HostSettings {
    /// Refuses values with which a start or an end would change what belongs to others, or leave it without a guard.
    fn check(&self) -> Result<(), StartError> {
        let floor::Settings { device, table, mark, .. } = &self.floor;
        let (setting, value, why) = match (table, mark) {
            _ if device.contains('"') => (
                "device",
                format!("{device:?}"),
                "nftables cannot name it in the rules of the guard",
            ),
            (0, _) => ("table", "0".to_owned(), "the kernel reads 0 as the main table"),
            (253..=255, _) => ("table", table.to_string(), "it belongs to the system"),
            (_, 0) => ("mark", "0".to_owned(), "every packet has it that has no other"),
            _ => return Ok(()),
        };
        Err(StartError::Setting { setting, value, why })
    }
}

/// Whether the tunnels' traffic stays blocked if the gateway or its runtime is dropped without [`Gateway::stop`].
///
/// A panic of the engine always keeps the traffic blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDrop {
    /// It stays blocked until the next start on the same device, as after a crash: blackhole routes and the guard
    /// against cleartext remain.
    #[default]
    Block,
    /// Every change to the host is undone, and the traffic takes whatever other routes there are, in the clear.
    Release,
}

impl Builder<HostSettings> {
    /// The settings of the data planes, and of their traces on the host.
    pub fn host(mut self, settings: HostSettings) -> Self {
        self.plane = settings;
        self
    }

    /// Starts the gateway inside the current tokio runtime, in the network namespace of the calling thread.
    ///
    /// Needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE.
    ///
    /// # Errors
    /// If the runtime lacks a driver, or if a socket, the device or a route cannot be made; nothing is left behind
    /// then.
    ///
    /// # Cancellation
    /// The future completes the first time it is polled: it starts nothing, or all. It blocks the thread for some
    /// milliseconds while the kernel and nftables are set up.
    pub async fn start(self) -> Result<Gateway, StartError> {
        let Self { mut engine, plane: settings } = self;
        engine.check()?;
        settings.check()?;
        start(engine, settings)
    }
}

fn start(engine: EngineSettings, settings: HostSettings) -> Result<Gateway, StartError> {
    let HostSettings { floor, userspace, guard, filter, crypto, workers, planes, manual, on_drop } =
        settings;
    let planes = planes::Config::new(planes, guard, filter);
    let mark = floor.mark;
    let blocked = Arc::new(AtomicBool::new(false));
    let handles = Handles {
        workers: Workers::new(workers),
        crypto: Arc::new(CryptoProviders::new(crypto)),
        placement: planes.placement.clone(),
        planes: planes.report.clone(),
        manual: manual.clone(),
        blocked: Arc::clone(&blocked),
        findings: FindingsFrom::Host(TunnelDevice::new(floor.device.clone(), mark)),
        listener: None,
    };
    let crypto = Arc::clone(&handles.crypto);
    let engine = EngineSettings { ike: ike::Config { crypto, ..engine.ike }, ..engine };
    let floor = floor::Config {
        settings: floor,
        natt_port: engine.ike.natt_port,
        ..floor::Config::default()
    };
    let userspace = userspace::Config {
        settings: userspace,
        crypto: Arc::clone(&handles.crypto),
        workers: handles.workers.clone(),
    };
    let (inlet, inputs) = driver::inlet();
    let hearing = inlet.clone();
    let hooks = Hooks {
        notice: {
            let (inlet, manual) = (inlet.clone(), manual.clone());
            Arc::new(move |notice| {
                manual.tell(&notice);
                inlet.notice(notice);
            })
        },
        ike: Arc::new(move |d| inlet.datagram(d.local, d.remote, d.octets)),
    };
    let seed = seed()?;
    // IKE's sockets first: whether another daemon has the ports is known before anything is changed.
    let sockets = driver::Sockets::open(mark)?;
    let defined = planes::rules_of(&engine.policy);
    let mut plane = Planes::start(planes, floor, userspace, hooks, &defined, &by_hand(&manual))?;
    manual.install(&mut plane)?;
    let sender = plane.userspace().ike_sender();
    let mut listeners =
        listen_all(plane.userspace().ike_receivers()).inspect_err(|_| manual.end(&mut plane))?;
    driver::hear_icmp(engine.ike.natt_port, &hearing, &mut listeners);
    // From here on the gateway runs.
    plane.block_on_drop(on_drop == OnDrop::Block);
    let policy = Arc::clone(&engine.policy);
    let (make, fetcher, events) = engine.into_parts(plane, seed);
    let make = |now| {
        let mut engine = make(now);
        engine.plane().remove_remains();
        engine
    };
    let surroundings = Surroundings {
        sockets,
        inputs,
        nat_t: NatT {
            send: Box::new(move |t| match t.keepalive {
                true => sender.send_keepalive(t.local, t.remote),
                false => sender.send_ike(t.local, t.remote, &t.octets),
            }),
            listeners,
            of_plane: None,
        },
        plane_hooks: PlaneHooks {
            counters: Planes::counter_reader,
            expect_policy: Planes::expect_policy,
            retry_preparation: Planes::retry_preparation,
            forget_former_policy: Planes::forget_former_policy,
            complete_policy: |policy| policy,
            follow_policy: Box::new(|_| Vec::new()),
        },
        on_end: {
            let manual = manual.clone();
            Box::new(move |plane, closed| {
                manual.end(plane);
                if *closed == Closed::Stopped {
                    plane.block_on_drop(blocked.load(Ordering::SeqCst));
                }
            })
        },
        fetcher,
        policy,
        events,
    };
    let handle = driver::start(surroundings, make);
    tokio::spawn(manual.keep(handle.downgrade()));
    Ok(Gateway::new(handle, handles))
}

impl Builder<HostSettings> {
    /// Everything that the guard of these tunnels follows from, the state directory, and the file for the definition.
    pub(crate) fn of_guard(
        self,
    ) -> Result<(planes::Definition, PathBuf, Option<PathBuf>), StartError> {
        let Self { engine, plane: settings } = self;
        engine.policy.validate().map_err(InvalidSettings::from)?;
        settings.check()?;
        let natt_port = engine.natt_port.unwrap_or(engine.ike.natt_port);
        let HostSettings { floor, guard, filter, planes, manual, .. } = settings;
        let rules = planes::rules_of(&engine.policy).into_iter().chain(by_hand(&manual));
        let file = guard.file.clone();
        let planes = planes::Config::new(planes, guard, filter);
        let floor = floor::Config { settings: floor, natt_port, ..floor::Config::default() };
        let definition = planes::definition_of(&planes, &floor, rules);
        Ok((definition, floor.settings.state_dir, file))
    }
}

/// The rules that the SAs keyed by hand are going to have. Their numbers do not matter yet.
fn by_hand(manual: &ManualSas) -> Vec<Rule> {
    manual.iter().map(|sa| sa.rule(RuleId(0))).collect()
}

/// Receives IKE messages on the port of ESP for as long as the returned tasks are kept.
fn listen_all(receivers: Vec<IkeReceiver>) -> Result<JoinSet<()>, StartError> {
    let mut tasks = JoinSet::new();
    for receiver in receivers {
        let socket =
            receiver.socket().and_then(UdpSocket::from_std).map_err(StartError::Reactor)?;
        tasks.spawn(listen(socket, receiver));
    }
    Ok(tasks)
}

async fn listen(socket: UdpSocket, mut receiver: IkeReceiver) {
    // It fails only when the runtime ends.
    while socket.readable().await.is_ok() {
        let read = || match receiver.receive() {
            true => Ok(()),
            false => Err(std::io::ErrorKind::WouldBlock.into()),
        };
        let _nothing_more = socket.try_io(Interest::READABLE, read);
    }
}
