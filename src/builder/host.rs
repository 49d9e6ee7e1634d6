//! The data planes of this crate: userspace, the kernel's, or both, with their traces on the host.

use super::{Builder, EngineSettings, StartError, seed};
use crate::closed::Closed;
use crate::driver::{self, NatT, PlaneHooks, Surroundings};
use crate::gateway::{FindingsFrom, Gateway, Handles, TunnelDevice};
use crate::manual::ManualSas;
use crate::planes::{self, Planes};
use crypto::{Choice as CryptoChoice, CryptoProviders};
use esp::filter::Filter;
use esp::manual::SaDirection;
use esp::path_mtu::Outer;
use esp::plane::{Rule, RuleId};
use ike::InvalidSettings;
use policy::Bindings;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use userspace::workers::{Settings as WorkerSettings, Workers};
use userspace::{self, Hooks, IkeReceiver, KernelOffload};
use xfrm::placement::{self, Placement};

/// Settings of the data planes that come with this crate.
#[derive(Clone, Debug)]
pub struct HostPlane {
    /// Without the handles, which are made at the start.
    config: userspace::Config,
    planes: PlaneSettings,
    crypto: CryptoChoice,
    workers: WorkerSettings,
    manual: ManualSas,
    on_drop: OnDrop,
    inbound_guard: bool,
    guard_file: Option<PathBuf>,
    require_guard: bool,
}

impl Default for HostPlane {
    fn default() -> Self {
        Self {
            config: userspace::Config::default(),
            planes: PlaneSettings::default(),
            crypto: CryptoChoice::default(),
            workers: WorkerSettings::default(),
            manual: ManualSas::empty(),
            on_drop: OnDrop::default(),
            inbound_guard: true,
            guard_file: None,
            require_guard: false,
        }
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

/// The plane that protects each tunnel's packets, and the offload to network cards.
#[derive(Clone, Debug, Default)]
pub struct PlaneSettings {
    /// The plane of all tunnels but those below.
    pub choice: planes::Choice,
    /// Tunnels with settings of their own, by the name of the phase 2 tunnel.
    pub tunnels: BTreeMap<String, planes::Tunnel>,
    /// Offload of tunnels in the kernel to network cards.
    pub offload: OffloadSettings,
}

/// Offload of tunnels in the kernel to network cards.
#[derive(Clone, Debug, Default)]
pub struct OffloadSettings {
    /// For all tunnels but those below.
    pub choice: placement::Choice,
    /// Tunnels with settings of their own, by the name of the phase 2 tunnel.
    pub tunnels: BTreeMap<String, placement::Choice>,
    /// SAs keyed by hand with settings of their own.
    pub manual: BTreeMap<(String, SaDirection), placement::Choice>,
}

impl PlaneSettings {
    /// The marks and interfaces by which phase 2 tunnels with equal traffic are told apart. Userspace looks at neither:
    /// a tunnel that may be there takes packets with any.
    pub fn bindings(&self) -> Bindings {
        planes::bindings(&self.tunnels, self.choice)
    }

    /// Where a phase 2 tunnel's packets are protected.
    pub fn choice_of(&self, tunnel: &str) -> planes::Choice {
        self.tunnels.get(tunnel).and_then(|t| t.choice).unwrap_or(self.choice)
    }
}

impl OffloadSettings {
    /// The offload of a phase 2 tunnel.
    pub fn choice_of(&self, tunnel: &str) -> &placement::Choice {
        self.tunnels.get(tunnel).unwrap_or(&self.choice)
    }
}

impl Builder<HostPlane> {
    /// Name of the TUN device. Default: `vpn0`. Two gateways in one network namespace need different devices and
    /// tables.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.plane.config.device = name.into();
        self
    }

    /// MTU of the TUN device. Default: derived from the MTU of the networks between the peers and from the SAs.
    pub fn mtu(mut self, mtu: u16) -> Self {
        self.plane.config.mtu = Some(mtu);
        self
    }

    /// The networks between the peers: their MTU, and whether they may fragment.
    pub fn outer(mut self, outer: Outer) -> Self {
        self.plane.config.outer = outer;
        self
    }

    /// Mark (SO_MARK) of IKE's and ESP's own packets, by which they are led past the tunnels. Default: `0x76706e`.
    pub fn mark(mut self, mark: u32) -> Self {
        self.plane.config.mark = mark;
        self
    }

    /// Routing table for the tunnels' routes, which no other program may use. Default: 4500.
    pub fn table(mut self, table: u32) -> Self {
        self.plane.config.table = table;
        self
    }

    /// Priority of the routing rule that leads to the table. Default: 4500.
    pub fn rule_priority(mut self, priority: u32) -> Self {
        self.plane.config.rule_priority = priority;
        self
    }

    /// Whether nftables drops packets that arrive in the clear although a tunnel should have protected them
    /// (RFC 4301 §5.2). Default: yes.
    pub fn inbound_guard(mut self, wanted: bool) -> Self {
        self.plane.inbound_guard = wanted;
        self
    }

    /// The file in which the definition of the guard in force is kept:
    /// [`guard::Definition::last`](crate::guard::Definition::last) reads it, also after a reboot. It has no keys.
    /// Default: none.
    pub fn guard_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.plane.guard_file = Some(file.into());
        self
    }

    /// Whether a start fails if the guard against cleartext cannot be put in force. Default: no; only a warning is
    /// logged, and routes and policies alone keep the traffic from leaving in the clear.
    pub fn require_guard(mut self, required: bool) -> Self {
        self.plane.require_guard = required;
        self
    }

    /// Whether the MSS of TCP connections is lowered to what fits the tunnel. Default: yes.
    pub fn mss_clamp(mut self, wanted: bool) -> Self {
        self.plane.config.mss_clamp = wanted;
        self
    }

    /// Directory of the record of changes to the host, by which the next start cleans up after a crash. Default:
    /// `/run/vpnd`.
    pub fn state_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.plane.config.state_dir = directory.into();
        self
    }

    /// Features of the kernel for many packets at once that are not used. Default: all are used.
    pub fn without(mut self, offloads: BTreeSet<KernelOffload>) -> Self {
        self.plane.config.without = offloads;
        self
    }

    /// Rules for traffic that belongs to no tunnel. Default: such traffic is left alone.
    pub fn filter(mut self, filter: impl Into<Arc<Filter>>) -> Self {
        self.plane.config.filter = filter.into();
        self
    }

    /// Chooses the crypto provider of each cipher. The choice can be changed while the gateway runs:
    /// [`Gateway::crypto`].
    pub fn crypto(mut self, choice: CryptoChoice) -> Self {
        self.plane.crypto = choice;
        self
    }

    /// The threads that carry packets. Can be changed while the gateway runs: [`Gateway::workers`].
    pub fn workers(mut self, settings: WorkerSettings) -> Self {
        self.plane.workers = settings;
        self
    }

    /// Where packets are protected: in this process, which is the default, in the kernel, or in a network card.
    pub fn planes(mut self, settings: PlaneSettings) -> Self {
        self.plane.planes = settings;
        self
    }

    /// SAs without IKE. Default: none.
    pub fn manual(mut self, sas: ManualSas) -> Self {
        self.plane.manual = sas;
        self
    }

    /// Whether the tunnels' traffic stays blocked if the gateway is dropped without [`Gateway::stop`]. Default: yes.
    pub fn on_drop(mut self, on_drop: OnDrop) -> Self {
        self.plane.on_drop = on_drop;
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
        let Self { mut engine, plane } = self;
        engine.check()?;
        check(&plane.config)?;
        start(engine, plane)
    }
}

/// Refuses values with which a start or an end would change what belongs to others.
fn check(config: &userspace::Config) -> Result<(), StartError> {
    let refused = |setting, value: u32, why| {
        Err(StartError::Setting { setting, value: value.to_string(), why })
    };
    match config.table {
        0 => return refused("table", 0, "the kernel reads 0 as the main table"),
        table @ 253..=255 => return refused("table", table, "it belongs to the system"),
        _ => {}
    }
    match config.mark {
        0 => refused("mark", 0, "every packet has it that has no other"),
        _ => Ok(()),
    }
}

fn start(engine: EngineSettings, plane: HostPlane) -> Result<Gateway, StartError> {
    let HostPlane {
        config,
        planes,
        crypto,
        workers,
        manual,
        on_drop,
        inbound_guard,
        guard_file,
        require_guard,
    } = plane;
    let planes = planes::Config { require_guard, ..choices(planes, inbound_guard, guard_file) };
    let blocked = Arc::new(AtomicBool::new(false));
    let handles = Handles {
        workers: Workers::new(workers),
        crypto: Arc::new(CryptoProviders::new(crypto)),
        placement: planes.placement.clone(),
        planes: planes.report.clone(),
        manual: manual.clone(),
        blocked: Arc::clone(&blocked),
        findings: FindingsFrom::Host(TunnelDevice::new(config.device.clone(), config.mark)),
        listener: None,
    };
    let crypto = Arc::clone(&handles.crypto);
    let engine = EngineSettings { ike: ike::Config { crypto, ..engine.ike }, ..engine };
    let config = userspace::Config {
        crypto: Arc::clone(&handles.crypto),
        workers: handles.workers.clone(),
        natt_port: engine.ike.natt_port,
        ..config
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
    let sockets = driver::Sockets::open(config.mark)?;
    let defined = planes::rules_of(&engine.policy);
    let mut plane = Planes::start(planes, config, hooks, &defined, &by_hand(&manual))?;
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

impl Builder<HostPlane> {
    /// Everything that the guard of these tunnels follows from, the state directory, and the file for the definition.
    pub(crate) fn of_guard(
        self,
    ) -> Result<(planes::Definition, PathBuf, Option<PathBuf>), StartError> {
        let Self { engine, plane } = self;
        engine.policy.validate().map_err(InvalidSettings::from)?;
        check(&plane.config)?;
        let HostPlane { config, planes, manual, inbound_guard, guard_file, .. } = plane;
        let natt_port = engine.natt_port.unwrap_or(engine.ike.natt_port);
        let config = userspace::Config { natt_port, ..config };
        let rules = planes::rules_of(&engine.policy).into_iter().chain(by_hand(&manual));
        let planes = choices(planes, inbound_guard, guard_file.clone());
        let definition = planes::definition_of(&planes, &config, rules);
        Ok((definition, config.state_dir, guard_file))
    }
}

fn choices(
    planes: PlaneSettings,
    inbound_guard: bool,
    guard_file: Option<PathBuf>,
) -> planes::Config {
    let OffloadSettings { choice, tunnels, manual } = planes.offload;
    planes::Config {
        choice: planes.choice,
        tunnels: planes.tunnels,
        placement: Placement::with_manual(choice, tunnels, manual),
        inbound_guard,
        guard_file,
        ..planes::Config::default()
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
