//! The userspace plane: a TUN device, sockets, and the threads that carry packets between them through a
//! [`Datapath`].
//!
//! [`Userspace`] is a [`DataPlane`]: key management gives it rules and SAs. The crate `esp` decides about packets and protects
//! them; this crate has the system calls, the threads and everything that is changed on the host. IKE shares UDP port
//! 4500 with ESP and is received by sockets of its own ([`Userspace::ike_receivers`]).
//!
//! ```text
//!  run to completion: every worker does all steps, for its own queue pairs
//!
//!    TUN queue ──► worker: Sender::encapsulate ──► send batch ──► UDP 4500, protocol 50 or 51
//!    sockets   ──► worker: decapsulate_run ──► joined segments ──► TUN queue
//!
//!  pipeline: one reader, any worker for the cryptography, results in order
//!
//!    TUN     ──► reader: admit ─┐             ┌─ seal ───────┐             ┌─ sockets
//!                               ├─► jobs ──► worker          ├─► InOrder ──┤
//!    sockets ──► reader ────────┘             └─ open_ahead ─┘             └─ settle ──► TUN
//! ```
//!
//! # Changes on the host
//!
//! All of these are undone at shutdown. If the kernel protects packets too ([`Config::beside_kernel`]), all but the last exist
//! only while there is a rule:
//!
//! - a TUN device ([`Config::device`]) without addresses;
//! - a routing table ([`Config::table`]) with a route to the device for the remote side of every rule, and a blackhole
//!   behind each;
//! - one rule per family that sends everything without the mark ([`Config::mark`]) through that table. Packets of the
//!   plane itself carry the mark, and so must IKE's sockets;
//! - an nftables table that drops cleartext from the remote side, if nftables is present;
//! - loose reverse path filtering on an interface where strict would drop a peer's packets;
//! - with a filter ([`Config::filter`]) an nftables table, and routing rules before that of the tunnels for bypassed
//!   traffic.
//!
//! When the process is killed, the kernel removes device and routes. The blackholes and the rule remain, so that traffic stops
//! rather than leaks, until the next start cleans up. So does the filter's table.
//!
//! # Examples
//!
//! A plane with three workers, one of them the reader of the pipeline. It needs CAP_NET_ADMIN and CAP_NET_RAW:
//!
//! ```no_run
//! use std::sync::Arc;
//! use userspace::workers::{Count, Schedule, Settings, Workers};
//! use userspace::{Config, Hooks, Userspace};
//!
//! let workers = Workers::new(Settings {
//!     workers: Count::Exactly(3),
//!     schedule: Schedule::Pipeline,
//!     ..Settings::default()
//! });
//! let hooks = Hooks {
//!     notice: Arc::new(|notice| println!("for key management: {notice:?}")),
//!     ike: Arc::new(|_datagram| println!("an IKE message")),
//! };
//! let config = Config { workers: workers.clone(), ..Config::default() };
//! let mut plane = Userspace::start(config, hooks)?;
//! // Rules and SAs are added through `esp::plane::DataPlane`; the first SA starts the workers.
//! for (reason, packets) in plane.counters() {
//!     println!("{reason}: {packets}");
//! }
//! plane.shutdown();
//! # Ok::<(), esp::plane::PlaneError>(())
//! ```
//!
//! Settings have the names that configurations use:
//!
//! ```
//! use userspace::workers::{Schedule, Settings};
//! use userspace::{Offering, Wait};
//!
//! let schedule: Schedule = "pipeline".parse()?;
//! let settings = Settings { schedule, wait: "poll".parse()?, ..Settings::default() };
//! assert_eq!((settings.schedule, settings.wait), (Schedule::Pipeline, Wait::Poll));
//! assert!(settings.number() >= 2);
//! assert_eq!(Offering::UdpGro.name(), "udp-gro");
//! # Ok::<(), String>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Which thread seals and opens in run-to-completion? | `worker.rs`: the worker that has read the packet |
//! | Which thread seals and opens in the pipeline? | `pipeline.rs`, `does`: any worker; the reader too if it finds no free batch or the packet is alone |
//! | Which thread claims sequence numbers and commits the anti-replay window in the pipeline? | `pipeline.rs`: the reader claims; whoever finishes the batch that is due commits (`order.rs`) |
//! | How many workers are there, and on which CPUs? | `workers/settings.rs`; they are started and stopped in `workers.rs` |
//! | How does a worker wait, and with which scheduling policy? | `waiting.rs`; `sched_policy.rs` |
//! | Which routes and rules lead to the TUN device? | `tun_routes.rs`; they are in the journal of the crate `host`, which undoes them after a crash |
//! | Who creates the device, and when does it go? | `device.rs`, `tun.rs`; `plane.rs`, `appear` |
//! | Where does GSO come in? | `tun.rs` (super-packets of the device), `datagrams.rs` (UDP segmentation and GRO); packets are split and joined in `crates/esp/src/segment.rs` and `crates/esp/src/coalesce.rs` |
//! | Which kernel offload can be switched off? | `offering.rs` |
//! | Where are ESP, IKE and keepalives on one port told apart? | `arriving.rs`; `steering.rs` does it in the kernel, by a BPF program |
//! | Which socket and queue gets the packets of an SA? | `steering.rs`, `socket.rs` |
//! | Where is the DF bit set? | decided in `crates/esp/src/outbound/fit_to_mtu.rs`; set by `outer.rs`, `let_fragment`, which `socket.rs` calls |
//! | Where are routers heard and the host's own MTUs asked? | `outer.rs` |
//! | Where is cleartext dropped that should have come protected? | `guard.rs` |
//! | What happens to traffic of no tunnel? | `filter.rs` |
//! | Where are packets counted that the datapath never saw? | `counters` in this file |
//!
//! # Choices worth knowing
//!
//! - **No thread runs without work.** While no SA is up and no rule waits for a packet, there are no workers, and the sockets
//!   take no packets. Those that come are counted as packets with an unknown SPI.
//! - **Workers do not preempt.** They run under SCHED_BATCH: the thread that sends a packet finishes first, and a lone packet
//!   tends to stay on one core. A run-to-completion worker that waited too long for a core switches to normal scheduling
//!   for a second, and for longer (64 s at most) if that happens again and again.
//! - **ESP in UDP is faster than native ESP here**, because UDP has segmentation offload and raw sockets have none. Which of
//!   them an SA uses is agreed by IKE (`crates/ike/src/config.rs`, `Encap`).
//! - **AH leaves as whole IP packets** through raw sockets, because its ICV covers the IP header.
//! - **Don't Fragment.** IPv4 packets that must not be fragmented leave with IP_PMTUDISC_PROBE: the kernel sets the bit and does
//!   not use the path MTU that it has learned itself. The kernel is asked only for the MTU of the interface and of the route.
//! - **Traffic of no tunnel.** The order is: traffic that always passes, the filter's rules, the tunnels, the default of the
//!   address family. Bypassed traffic is led past the device by routing rules, not by marks, so that its source address is
//!   chosen for the route it takes. The filter's nftables table stays in force after a crash and after a failed start.

#![deny(unsafe_code)]

mod ah;
mod arriving;
mod datagrams;
mod device;
mod event_fd;
mod filter;
mod guard;
mod ike;
mod offering;
mod order;
mod outer;
mod pipeline;
mod plane;
mod pool;
mod queue_pair;
mod refusal;
mod sched_policy;
mod socket;
mod stage;
mod steering;
mod sync;
mod tun;
mod tun_routes;
mod waiting;
mod worker;
pub mod workers;

pub use ike::{IkeDatagram, IkeReceiver, IkeSender};
pub use offering::Offering;
pub use stage::{Flow, Stage};
pub use waiting::Wait;

use crypto::{CryptoProviders, Suite};
use device::{Device, Lost};
use esp::datapath::{Datapath, Inward, Settings};
use esp::discard::Discard;
use esp::encap::inner_mtu;
use esp::filter::Filter;
use esp::gso::Gso;
use esp::path_mtu::Outer;
use esp::plane::{DataPlane, Encapsulation, Notice, PlaneError, Rule, RuleId, SaId, Spi};
use filter::Enforcement;
use host::journal::Journal;
use host::nft;
use outer::{Routers, Wayfinder};
use policy::{KeyBits, Mode};
use refusal::{check_capabilities, plane_error, refused};
use socket::Port;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use worker::{Release, Shared, TunWriter};
use workers::Workers;

/// The smallest MTU of a device that carries IPv6 (RFC 8200 §5).
const IPV6_MTU: u16 = 1280;

/// How the plane appears on the host.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the TUN device.
    pub device: String,
    /// MTU of the device; `None` derives it from the outer MTU and the SAs.
    pub mtu: Option<u16>,
    /// The networks between the peers.
    pub outer: Outer,
    /// Mark of the packets that must not enter a tunnel: those of this plane, and those of IKE.
    pub mark: u32,
    /// Routing table for the rules' routes; no other program may use it.
    pub table: u32,
    /// Priority of the routing rule that leads to the table.
    pub rule_priority: u32,
    /// UDP port of ESP in UDP and of IKE with the non-ESP marker (RFC 3948).
    pub natt_port: u16,
    /// Directory of the record of what was changed on the host.
    pub state_dir: PathBuf,
    /// Whether cleartext that should have been protected is dropped with nftables (RFC 4301 §5.2).
    pub inbound_guard: bool,
    /// What happens to traffic that is no tunnel's.
    pub filter: Arc<Filter>,
    /// Whether TCP's MSS is lowered to what fits the tunnel.
    pub mss_clamp: bool,
    /// Whether the kernel protects packets, too: it takes ESP in UDP whose SPIs are none of this plane's, and what it has
    /// opened is let in.
    pub beside_kernel: bool,
    /// What of the kernel's is to be left alone.
    pub without: BTreeSet<Offering>,
    /// Where ciphers come from.
    pub crypto: Arc<CryptoProviders>,
    /// Who carries the packets; a clone of it shows them and changes how they work.
    pub workers: Workers,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            device: "vpn0".to_owned(),
            mtu: None,
            outer: Outer::default(),
            mark: 0x0076_706e,
            table: 4500,
            rule_priority: 4500,
            natt_port: 4500,
            state_dir: "/run/vpnd".into(),
            inbound_guard: true,
            filter: Arc::default(),
            mss_clamp: true,
            beside_kernel: false,
            without: BTreeSet::new(),
            crypto: Arc::default(),
            workers: Workers::default(),
        }
    }
}

/// Whom the plane tells what; called on its worker threads, so neither may block.
#[derive(Clone)]
pub struct Hooks {
    /// Takes notices for key management.
    pub notice: Arc<dyn Fn(Notice) + Send + Sync>,
    /// Takes IKE messages.
    pub ike: Arc<dyn Fn(IkeDatagram) + Send + Sync>,
}

/// One sentence on a counter of [`Userspace::counters`] that is none of the datapath's.
pub fn explanation(counter: &str) -> Option<&'static str> {
    match counter {
        "unsent" => Some("Outbound: an ESP packet that the socket did not take."),
        "unwritten" => Some("Inbound: a packet that the TUN device did not take."),
        "unread" => {
            Some("Outbound: a packet that came faster than it was read, or while no SA was up.")
        }
        "unreceived" => Some("Inbound: a datagram that came faster than it was read."),
        _ => None,
    }
}

/// A running userspace plane. Dropping it undoes what it did to the host, unless [`Userspace::block_on_drop`] says otherwise.
pub struct Userspace {
    // Declared in the order in which they are to go: the host's settings, then the device.
    enforcement: Enforcement,
    journal: Journal,
    device: Option<Device>,
    shared: Arc<Shared>,
    port: Arc<Port>,
    datapath: Datapath,
    config: Config,
    mtu: u16,
    rules: BTreeMap<RuleId, Rule>,
    outbound: BTreeMap<SaId, (Suite, Mode)>,
    /// Every SA of either direction.
    installed: BTreeSet<SaId>,
    /// SPIs of those that receive.
    receiving: BTreeMap<SaId, Spi>,
    /// By devices that are gone.
    lost: Lost,
}

impl fmt::Debug for Userspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Userspace")
            .field("rules", &self.rules.len())
            .field("device", &self.config.device)
            .field("mtu", &self.mtu)
            .finish_non_exhaustive()
    }
}

impl Userspace {
    /// Opens sockets, and creates device and routing, beside the kernel's plane with the first rule only. Until rules are
    /// added no traffic is touched, and no thread runs before the first SA, or the first rule that waits for a packet.
    ///
    /// The calling thread's network namespace is the plane's. Needs CAP_NET_ADMIN and CAP_NET_RAW.
    pub fn start(config: Config, hooks: Hooks) -> Result<Self, PlaneError> {
        check_capabilities()?;
        let mut journal = Journal::open(&config.state_dir, &config.device).map_err(plane_error)?;
        journal.claim(&config.state_dir, config.table).map_err(plane_error)?;
        // Before anything else: what is to be closed is closed from the first moment on.
        let enforcement = Enforcement::start(&config, &mut journal)?;
        let port = Port::open(config.natt_port, config.mark, config.beside_kernel, &config.without);
        let port = Arc::new(port?);
        // The commonest suite, in UDP over IPv4; SAs that need more lower it.
        let (suite, udp) = (Suite::AesGcm16(KeyBits::B256), Encapsulation::Udp);
        let derived = inner_mtu(config.outer.mtu().into(), suite, Mode::Tunnel, udp, false);
        let mtu = config.mtu.unwrap_or_else(|| device_mtu(derived));

        let shared = Arc::new(share(&config, hooks)?);
        let datapath = shared.datapath.clone();
        datapath.set_device_mtu(mtu.into());
        datapath.clone().set_filter(Arc::clone(enforcement.filter()))?;
        let (rules, outbound, installed, receiving, lost) = Default::default();
        let mut plane = Self {
            enforcement,
            journal,
            device: None,
            shared,
            port,
            datapath,
            config,
            mtu,
            rules,
            outbound,
            installed,
            receiving,
            lost,
        };
        if !plane.config.beside_kernel {
            plane.appear()?;
        }
        plane.journal.filter_is_settled();
        Ok(plane)
    }

    /// Sends IKE messages and keepalives from the port that ESP uses.
    pub fn ike_sender(&self) -> IkeSender {
        IkeSender { port: Arc::clone(&self.port) }
    }

    /// Receives IKE messages on that port, and what routers say of packets that were too long for them. No thread of the
    /// plane does: whoever starts the plane is to wait for them, and to let these go when it ends.
    pub fn ike_receivers(&self) -> Vec<IkeReceiver> {
        let routers = match self.config.outer.learned_for.map(|_| Routers::listen()) {
            Some(Ok(routers)) => routers,
            Some(Err(error)) => {
                tracing::warn!(%error, "what networks say of their MTUs is not heard");
                Vec::new()
            }
            None => Vec::new(),
        };
        IkeReceiver::all(&self.shared, &self.port, routers)
    }

    /// The mark for every socket whose packets must not enter a tunnel.
    pub fn mark(&self) -> u32 {
        self.config.mark
    }

    /// MTU of the device.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Whether cleartext that should have been protected is dropped (RFC 4301 §5.2), where there are rules.
    pub fn inbound_guard(&self) -> bool {
        match &self.device {
            Some(device) => device.has_guard(),
            None => self.config.inbound_guard && nft::available(),
        }
    }

    /// How many packets were dropped, by reason: those of [`Datapath::counters`], and those that [`explanation`] knows.
    pub fn counters(&mut self) -> BTreeMap<&'static str, u64> {
        let mut counters = self.datapath.counters();
        let (unreceived, declined) = self.config.workers.lost();
        let Lost { unread: unread_before, unreceived: before, declined: declined_before } =
            self.lost;
        // What comes while there is no SA is of none.
        *counters.entry(Discard::UnknownSpi.name()).or_default() += declined + declined_before;
        counters.insert("unreceived", unreceived + before);
        let routing = self.device.as_mut().map(|device| &mut device.routing);
        let unread = routing.and_then(|routing| routing.dropped().ok()).unwrap_or(0);
        counters.insert("unread", unread + unread_before);
        counters.insert("unsent", self.port.unsent.load(Ordering::Relaxed));
        counters.insert("unwritten", self.shared.inside.unwritten.load(Ordering::Relaxed));
        counters
    }

    /// Says whether the rules' traffic stays blocked when this is dropped, as if the process had been killed: until the next
    /// start with the same device cleans up. At first it does not.
    pub fn block_on_drop(&mut self, blocked: bool) {
        self.journal.keep_on_drop(blocked);
    }

    /// Stops and undoes what was done to the host. Protected traffic is no longer this plane's concern: it takes
    /// whatever other routes there are.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Userspace {
    fn drop(&mut self) {
        self.config.workers.detach();
    }
}

/// The datapath, and what workers share.
fn share(config: &Config, hooks: Hooks) -> Result<Shared, PlaneError> {
    let release = Release::new().map_err(|e| refused("making an event descriptor".into(), &e))?;
    let release = Arc::new(release);
    let on_release: Arc<dyn Fn() + Send + Sync> = {
        let release = Arc::clone(&release);
        Arc::new(move || release.want())
    };
    let wayfinder = Wayfinder::new(config.mark)
        .map_err(|e| refused("opening a socket that asks for MTUs".into(), &e))?;
    let inside = Arc::new(TunWriter::default());
    let on_answer: Inward = {
        let inside = Arc::clone(&inside);
        Arc::new(move |packet: &[u8]| inside.write(packet, Gso::NONE))
    };
    let outer_mtu = config.outer.mtu().into();
    let settings = Settings {
        crypto: Arc::clone(&config.crypto),
        outer_mtu,
        path_mtu: outer_mtu,
        dont_fragment: config.outer.dont_fragment,
        learned_for: config.outer.learned_for,
        system_mtu: Some(Arc::new(move |peer| wayfinder.mtu(peer))),
        natt_port: config.natt_port,
        mss_clamp: config.mss_clamp,
        on_notice: Some(Arc::clone(&hooks.notice)),
        on_answer: Some(on_answer),
        on_release: Some(on_release),
    };
    Ok(Shared { datapath: Datapath::new(settings, Instant::now()), hooks, release, inside })
}

/// The device's MTU for inner packets of at most so many octets. Below what IPv6 needs, the kernel would switch IPv6
/// off; there the outer packets are fragmented instead.
fn device_mtu(inner: usize) -> u16 {
    u16::try_from(inner).unwrap_or(u16::MAX).max(IPV6_MTU)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_always_carries_ipv6() {
        assert_eq!(device_mtu(0), 1280);
        assert_eq!(device_mtu(1419), 1419);
        assert_eq!(device_mtu(100_000), u16::MAX);
    }
}
