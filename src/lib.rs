//! An IKEv2 and ESP gateway for Rust services: policy, key management and data plane behind one builder.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let text = std::fs::read_to_string("policy.xml")?;
//! let loaded = policy::xml::read("policy.xml", &text).map_err(|errors| errors.to_string())?;
//! let gateway = vpn::start(loaded.policy.into(), vpn::GatewayConfig::default()).await?;
//! for tunnel in gateway.activate(vec![]).await? {
//!     println!("{}: {:?}", tunnel.name, tunnel.outcome);
//! }
//! gateway.stop().await;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod certificates;
pub mod driver;
pub mod manual;
pub mod revocation;
pub mod store;

pub use esp;
pub use ike;
pub use policy;

use crypto::CryptoProviders;
use driver::{Handle, SocketError};
use esp::filter::Filter;
use esp::path_mtu::Outer;
use esp::plane::PlaneError;
use esp::planes::{KernelPlane, Planes};
use esp::userspace::workers::Workers;
use esp::userspace::{Hooks, IkeReceiver, Offering};
use ike::key_log::Sink;
use ike::proof::trust::Trust;
use manual::{ManualSaError, ManualSas};
use policy::Policy;
use revocation::Lists;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// What a gateway needs besides its policy.
#[derive(Clone, Debug, Default)]
pub struct GatewayConfig {
    /// IKE's timers and limits.
    pub ike: ike::Config,
    /// Whom this side trusts, and the certificates it proves itself by; [`certificates::load`] reads them from files.
    pub trust: Arc<Trust>,
    /// Revocation lists that are in no file; [`revocation::Lists::new`] fetches them.
    pub lists: Arc<Lists>,
    /// Name of the TUN device; default `vpn0`.
    pub device: Option<String>,
    /// The networks between the peers: their MTU, and whether they may fragment.
    pub outer: Outer,
    /// Where a note is kept of what was changed in the system, so that a crash can be cleaned up; default
    /// `/run/vpnd`.
    pub state_dir: Option<PathBuf>,
    /// Who makes the ciphers of ESP. Whoever keeps a clone can change that while the gateway runs, and see what was done.
    pub crypto: Arc<CryptoProviders>,
    /// Who carries the packets. Whoever keeps a clone can see what they do, and change how they work while they do it.
    pub workers: Workers,
    /// Whether tunnels' packets are protected in this process, which is the default, or in the kernel. Whoever keeps a
    /// clone of its report sees what came of it.
    pub planes: esp::planes::Config,
    /// What the kernel offers for many packets at once and is to be left alone; default: nothing.
    pub without: BTreeSet<Offering>,
    /// What happens to traffic that is no tunnel's; default: nothing.
    pub filter: Arc<Filter>,
    /// SAs without IKE. Whoever keeps a clone can see what they do.
    pub manual: ManualSas,
    /// Where the keys of every SA are copied to, for looking into captured packets: whoever has them reads the
    /// traffic. Default: nowhere.
    pub key_sink: Option<Sink>,
}

/// The gateway could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The data plane could not be set up.
    #[error("data plane: {0}")]
    Plane(#[from] PlaneError),
    /// An SA that is keyed by hand cannot be had.
    #[error(transparent)]
    Manual(#[from] ManualSaError),
    /// A socket could not be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The runtime cannot watch a socket.
    #[error(
        "watching the port of ESP in UDP: {0}; is the tokio runtime built with its I/O driver?"
    )]
    Reactor(std::io::Error),
    /// The system gave no randomness.
    #[error("the system's random number generator failed")]
    Randomness,
}

/// Starts a gateway inside the current tokio runtime. The calling thread's network
/// namespace is the gateway's.
///
/// # Errors
/// Where the device, the routes or a socket cannot be had; nothing is left behind.
pub async fn start(policy: Arc<Policy>, config: GatewayConfig) -> Result<Handle, StartError> {
    let mut plane_config = esp::userspace::Config {
        crypto: config.crypto,
        workers: config.workers,
        without: config.without,
        filter: config.filter,
        outer: config.outer,
        ..esp::userspace::Config::default()
    };
    if let Some(device) = config.device {
        plane_config.device = device;
    }
    if let Some(state_dir) = config.state_dir {
        plane_config.state_dir = state_dir;
    }
    let (inlet, inputs) = driver::inlet();
    let hooks = Hooks {
        notice: {
            let (inlet, manual) = (inlet.clone(), config.manual.clone());
            Arc::new(move |notice| {
                manual.tell(&notice);
                inlet.notice(notice);
            })
        },
        ike: Arc::new(move |d| inlet.datagram(d.local, d.remote, d.octets)),
    };
    let seed = seed()?;
    let mark = plane_config.mark;
    // IKE's sockets first: whether another daemon has the ports is known before anything is changed.
    let sockets = driver::Sockets::open(mark)?;
    let mut plane = Planes::start(config.planes, plane_config, hooks)?;
    let manual = config.manual;
    manual.install(&mut plane)?;
    let sender = plane.userspace().ike_sender();
    let listeners = listen_all(plane.userspace().ike_receivers())?;
    let send_nat_t: driver::SendNatT = Box::new(move |t| {
        // Who sends on the port of ESP is gone when the gateway is, and who listens there goes along.
        let _kept = &listeners;
        if t.keepalive {
            sender.send_keepalive(t.local, t.remote)
        } else {
            sender.send_ike(t.local, t.remote, &t.octets)
        }
    });
    let make = |now| {
        let mut engine = ike::Engine::new(policy, config.ike, plane, seed, now);
        // The rules are there: what a crashed gateway has left need not guard them any longer.
        if let Some(kernel) = engine.plane().kernel() {
            kernel.settle();
        }
        engine.replace_trust(config.trust);
        if let Some(sink) = config.key_sink {
            engine.log_keys(sink);
        }
        engine
    };
    let counters = |plane: &mut Planes| plane.userspace().counters();
    let farewell: driver::Farewell<Planes> = {
        let manual = manual.clone();
        Box::new(move |plane| manual.end(plane))
    };
    let fetcher = config.lists.fetcher();
    let handle = driver::start(sockets, inputs, send_nat_t, counters, farewell, fetcher, make);
    tokio::spawn(manual.keep(handle.downgrade()));
    Ok(handle)
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

fn seed() -> Result<[u8; 32], StartError> {
    let mut seed = [0; 32];
    aws_lc_rs::rand::fill(&mut seed).map_err(|_| StartError::Randomness)?;
    Ok(seed)
}
