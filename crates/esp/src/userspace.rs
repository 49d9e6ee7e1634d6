//! The userspace plane: a TUN device, sockets, and the threads that carry packets between them through a
//! [`Datapath`].
//!
//! What an operator sees of it on the host, all of it undone at shutdown:
//!
//! - a TUN device ([`Config::device`]) without addresses;
//! - a routing table ([`Config::table`]) with a route to the device for the remote side of every rule, and a blackhole
//!   behind each;
//! - one rule per family that sends everything without the mark ([`Config::mark`]) through that table. What the plane
//!   itself sends carries the mark, and so must IKE's sockets;
//! - an nftables table that drops cleartext from the remote side, where nftables is present;
//! - with a filter ([`Config::filter`]) an nftables table, and routing rules before that of the tunnels for what
//!   bypasses them;
//! - loose reverse path filtering on an interface where strict would drop a peer's packets.
//!
//! When the process is killed, the kernel removes device and routes; blackholes and rule remain, so that traffic stops
//! rather than leaks, until the next start cleans up. So does the filter's table.

mod ah;
mod arriving;
mod bell;
mod cleanup;
mod datagrams;
mod filter;
mod guard;
mod host;
mod ike;
mod lane;
mod manners;
mod namespace;
mod netlink;
pub(crate) mod nft;
mod offering;
mod order;
mod outer;
mod pipeline;
mod pool;
pub(crate) mod routes;
mod routing;
mod socket;
mod stage;
mod steering;
mod tun;
mod waiting;
mod worker;
pub mod workers;

pub use host::Host;
pub use ike::{IkeDatagram, IkeReceiver, IkeSender};
pub use offering::Offering;
pub use routes::Devices;
pub(crate) use routes::Routes;
pub(crate) use routing::prefixes;
pub use stage::{Flow, Stage};
pub use waiting::Wait;

use crate::cipher::{Facility, Suite};
use crate::datapath::{Datapath, Inward, Settings};
use crate::discard::Discard;
use crate::encap::inner_mtu;
use crate::filter::{Always, Direction, Filter, FilterStatus};
use crate::offload::Offload;
use crate::path_mtu::{Fit, Outer};
use crate::plane::{
    DataPlane, Encapsulation, InboundSa, Notice, OutboundSa, PacketSummary, Path, PlaneError, Rule,
    RuleId, SaId, Spi, Usage,
};
use crate::trace::{DecidedBy, Trace};
use cleanup::{Change, Journal};
use filter::Enforcement;
use lane::Lane;
use netlink::Netlink;
use outer::{Routers, Wayfinder};
use policy::{KeyBits, Mode};
use routing::Routing;
use rustix::thread::CapabilitySet;
use socket::Port;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;
use tun::Tun;
use worker::{Release, Shared};
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
    /// Routing table for the rules' routes; no one else may use it.
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
    pub crypto: Arc<Facility>,
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

/// A running userspace plane. Dropping it undoes what it did to the host.
pub struct Userspace {
    // Declared in the order in which they are to go: the host's settings, then the device.
    routing: Routing,
    enforcement: Enforcement,
    journal: Journal,
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    datapath: Datapath,
    config: Config,
    mtu: u16,
    rules: BTreeMap<RuleId, Rule>,
    outbound: BTreeMap<SaId, (Suite, Mode)>,
    /// Every SA of either direction.
    installed: BTreeSet<SaId>,
    /// SPIs of those that receive.
    receiving: BTreeMap<SaId, Spi>,
    guard: Option<String>,
}

impl Userspace {
    /// Creates device, sockets and routing. Until rules are added no traffic is touched, and no thread runs before the
    /// first SA, or the first rule that waits for a packet.
    ///
    /// The calling thread's network namespace is the plane's. Needs CAP_NET_ADMIN and CAP_NET_RAW.
    pub fn start(config: Config, hooks: Hooks) -> Result<Self, PlaneError> {
        check_capabilities()?;
        let mut journal = Journal::open(&config.state_dir, &config.device, config.table)?;
        // Before anything else: what is to be closed is closed from the first moment on.
        let enforcement = Enforcement::start(&config, &mut journal)?;
        let port = Port::open(config.natt_port, config.mark, config.beside_kernel, &config.without);
        let port = Arc::new(port?);
        let tun = Tun::create(&config.device, !config.without.contains(&Offering::DeviceOffload))?;

        let outer_mtu = config.outer.mtu();
        // The commonest suite, in UDP over IPv4; SAs that need more lower it.
        let (suite, udp) = (Suite::AesGcm16(KeyBits::B256), Encapsulation::Udp);
        let derived = inner_mtu(outer_mtu.into(), suite, Mode::Tunnel, udp, false);
        let mtu = config.mtu.unwrap_or_else(|| device_mtu(derived));
        let (netlink, index) = configure(&config.device, mtu)
            .map_err(|e| refused(format!("setting up {}", config.device), &e))?;
        let numbers = (config.mark, config.table, config.rule_priority);
        let routing = Routing::start(netlink, index, numbers, &mut journal)?;

        let release =
            Release::new().map_err(|e| refused("making an event descriptor".into(), &e))?;
        let release = Arc::new(release);
        let on_release: Arc<dyn Fn() + Send + Sync> = {
            let release = Arc::clone(&release);
            Arc::new(move || release.want())
        };
        let wayfinder = Wayfinder::new(config.mark)
            .map_err(|e| refused("opening a socket that asks for MTUs".into(), &e))?;
        let (inside, on_answer) = answers();
        let settings = Settings {
            crypto: Arc::clone(&config.crypto),
            outer_mtu: outer_mtu.into(),
            path_mtu: outer_mtu.into(),
            dont_fragment: config.outer.dont_fragment,
            learned_for: config.outer.learned_for,
            system_mtu: Some(Arc::new(move |peer| wayfinder.mtu(peer))),
            natt_port: config.natt_port,
            mss_clamp: config.mss_clamp,
            on_notice: Some(Arc::clone(&hooks.notice)),
            on_answer: Some(on_answer),
            on_release: Some(on_release),
        };
        let datapath = Datapath::new(settings, Instant::now());
        datapath.set_device_mtu(mtu.into());
        datapath.clone().set_filter(Arc::clone(enforcement.filter()))?;
        let shared = Arc::new(Shared {
            datapath: datapath.clone(),
            hooks,
            release,
            unwritten: AtomicU64::new(0),
        });
        let lane = Arc::new(Lane::first(tun, &port)?);
        let _set_once = inside.set((Arc::downgrade(&shared), Arc::downgrade(&lane)));
        config.workers.attach(&config.device, Arc::clone(&shared), Arc::clone(&lane))?;

        let mut plane = Self {
            routing,
            enforcement,
            journal,
            shared,
            lane,
            datapath,
            config,
            mtu,
            rules: BTreeMap::new(),
            outbound: BTreeMap::new(),
            installed: BTreeSet::new(),
            receiving: BTreeMap::new(),
            guard: None,
        };
        plane.start_guard()?;
        plane.journal.filter_is_settled();
        Ok(plane)
    }

    /// Sends IKE messages and keepalives from the port that ESP uses.
    pub fn ike_sender(&self) -> IkeSender {
        IkeSender { port: Arc::clone(self.lane.sockets.port()) }
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
        IkeReceiver::all(&self.shared, &self.lane, routers)
    }

    /// The mark for every socket whose packets must not enter a tunnel.
    pub fn mark(&self) -> u32 {
        self.config.mark
    }

    /// MTU of the device.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Whether cleartext that should have been protected is dropped (RFC 4301 §5.2).
    pub fn inbound_guard(&self) -> bool {
        self.guard.is_some()
    }

    /// How many packets were dropped, by reason: those of [`Datapath::counters`], and those that [`explanation`] knows.
    pub fn counters(&mut self) -> BTreeMap<&'static str, u64> {
        let mut counters = self.datapath.counters();
        let (unreceived, declined) = self.config.workers.lost();
        // What comes while there is no SA is of none.
        *counters.entry(Discard::UnknownSpi.name()).or_default() += declined;
        counters.insert("unreceived", unreceived);
        counters.insert("unread", self.routing.dropped().unwrap_or(0));
        let port = self.lane.sockets.port();
        counters.insert("unsent", port.unsent.load(Ordering::Relaxed));
        counters.insert("unwritten", self.shared.unwritten.load(Ordering::Relaxed));
        counters
    }

    /// Stops and undoes what was done to the host. Protected traffic is no longer this plane's concern: it takes
    /// whatever other routes there are.
    pub fn shutdown(self) {
        drop(self);
    }

    /// Has the workers work or rest, as there is something for them.
    fn attend(&mut self) -> Result<(), PlaneError> {
        if self.installed.is_empty() && !self.rules.values().any(|rule| rule.trap) {
            self.config.workers.rest();
            return Ok(());
        }
        self.config.workers.begin()
    }

    /// Has the workers begin before an SA is in force, and knows it from then on.
    fn expect_work(&mut self, sa: SaId) -> Result<(), PlaneError> {
        let first = self.installed.insert(sa);
        self.attend().inspect_err(|_| {
            if first {
                self.installed.remove(&sa);
            }
        })
    }

    /// An SA is gone, or was refused.
    fn forget(&mut self, sa: SaId) {
        if self.datapath.usage(sa).is_none() {
            self.installed.remove(&sa);
        }
        if let Err(error) = self.attend() {
            tracing::error!(%error, "no worker runs");
        }
    }

    fn start_guard(&mut self) -> Result<(), PlaneError> {
        if !self.config.inbound_guard {
            return Ok(());
        }
        let name = guard::table(&self.config.device);
        self.journal.record(&Change::Guard(name.clone()))?;
        match self.install_guard(&name) {
            Ok(()) => self.guard = Some(name),
            Err(error) => {
                self.journal.forget(&Change::Guard(name));
                tracing::warn!(
                    %error,
                    "no inbound guard: cleartext that should be protected is not dropped; install nftables for it"
                );
            }
        }
        Ok(())
    }

    fn extend_guard(&self, rule: &Rule) -> Result<(), PlaneError> {
        let Some(name) = &self.guard else { return Ok(()) };
        guard::extend(name, std::slice::from_ref(rule)).map_err(|e| {
            refused(format!("guarding the traffic of {} with nftables", rule.tunnel), &e)
        })
    }

    /// Adds a rule, or one in the place of another, that the guard knows.
    fn add_guarded_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        let id = rule.id;
        // The datapath first: what the routes bring it, it knows. The routes last: they change where traffic goes.
        self.datapath.add_rule(rule.clone())?;
        self.rules.insert(id, rule.clone());
        self.attend()
            .and_then(|()| self.routing.add(&rule))
            .map(|()| self.routing.admit_hosts(&rule, &mut self.journal))
            .inspect_err(|_| self.remove_rule(id))
    }

    fn rebuild_guard(&self) {
        let Some(name) = &self.guard else { return };
        if let Err(error) = self.install_guard(name) {
            tracing::warn!(%error, "the inbound guard still drops cleartext of a rule that is gone");
        }
    }

    fn install_guard(&self, name: &str) -> io::Result<()> {
        let (device, port) = (&self.config.device, self.config.natt_port);
        let host = (device.as_str(), port, self.config.beside_kernel);
        guard::install(name, host, self.enforcement.filter(), self.rules.values())
    }

    /// Lowers the device's MTU if packets of the SA would not fit the outer one.
    fn lower_device_mtu(&mut self, (suite, mode): (Suite, Mode), path: &Path) {
        if self.config.mtu.is_some() {
            return;
        }
        let outer = self.config.outer.mtu().into();
        let fits = inner_mtu(outer, suite, mode, path.encapsulation, path.remote.is_ipv6());
        let mtu = device_mtu(fits);
        if mtu >= self.mtu {
            return;
        }
        match self.routing.set_mtu(mtu) {
            Ok(()) => {
                self.mtu = mtu;
                self.datapath.set_device_mtu(mtu.into());
            }
            Err(error) => tracing::warn!(%error, mtu, "lowering the device's MTU"),
        }
    }
}

impl DataPlane for Userspace {
    fn add_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        let id = rule.id;
        if self.rules.contains_key(&id) {
            self.add_guarded_rule(rule)?;
            self.rebuild_guard();
            return Ok(());
        }
        self.extend_guard(&rule)?;
        self.add_guarded_rule(rule)
    }

    /// As one by one, but with nftables asked once.
    fn add_rules(&mut self, rules: Vec<Rule>) -> Vec<(RuleId, PlaneError)> {
        let guarded = match &self.guard {
            // Which of them nftables does not take shows one by one.
            Some(name) => guard::extend(name, &rules).is_ok(),
            None => true,
        };
        let add = |rule: Rule| {
            let id = rule.id;
            let added = if guarded { self.add_guarded_rule(rule) } else { self.add_rule(rule) };
            Some((id, added.err()?))
        };
        rules.into_iter().filter_map(add).collect()
    }

    fn rename_rule(&mut self, rule: RuleId, to: RuleId) {
        let Some(renamed) = self.rules.remove(&rule) else { return };
        self.datapath.rename_rule(rule, to);
        self.routing.rename(rule, to);
        self.rules.insert(to, Rule { id: to, ..renamed });
    }

    fn set_trap(&mut self, rule: RuleId) {
        if let Some(rule) = self.rules.get_mut(&rule) {
            rule.trap = true;
        }
        // What has waited in the device until now has waited for nothing, and asks for nothing.
        if let Err(error) = self.attend() {
            tracing::error!(%error, "packets that wait for a tunnel are not seen");
        }
        self.datapath.set_trap(rule);
    }

    fn remove_rule(&mut self, rule: RuleId) {
        self.routing.remove(rule);
        if self.rules.remove(&rule).is_some() {
            self.rebuild_guard();
        }
        self.datapath.remove_rule(rule);
        if let Err(error) = self.attend() {
            tracing::error!(%error, "no worker runs");
        }
    }

    /// Lets the packets of a peer in that the kernel would drop because its own address lies in the remote side of a
    /// rule.
    fn expect_peer(&mut self, peer: IpAddr) {
        self.routing.admit_peer(peer, &mut self.journal);
    }

    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        self.routing.admit_peer(sa.path.remote.ip(), &mut self.journal);
        let (id, spi) = (sa.id, sa.spi);
        self.expect_work(id)?;
        let port = Arc::clone(self.lane.sockets.port());
        port.claim(spi.0).and_then(|()| self.datapath.add_inbound(sa)).inspect_err(|_| {
            if !self.receiving.values().any(|other| *other == spi) {
                port.disclaim(spi.0);
            }
            self.forget(id);
        })?;
        self.receiving.insert(id, spi);
        Ok(())
    }

    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError> {
        let (id, rule, path, form) = (sa.id, sa.rule, sa.path, (sa.suite, sa.mode));
        self.lower_device_mtu(form, &path);
        self.routing.refresh(rule);
        self.expect_work(id)?;
        self.datapath.add_outbound(sa).inspect_err(|_| self.forget(id))?;
        self.outbound.insert(id, form);
        Ok(())
    }

    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError> {
        self.datapath.promote(sa)
    }

    fn resume(&mut self, sa: SaId, used: u64) -> Result<(), PlaneError> {
        self.datapath.resume(sa, used)
    }

    fn last_sequence(&mut self, sa: SaId) -> Option<u64> {
        self.datapath.last_sequence(sa)
    }

    fn relocate(&mut self, sa: SaId, path: Path) -> Result<(), PlaneError> {
        if let Some(form) = self.outbound.get(&sa) {
            self.lower_device_mtu(*form, &path);
        }
        self.routing.admit_peer(path.remote.ip(), &mut self.journal);
        self.datapath.relocate(sa, path)
    }

    fn remove(&mut self, sa: SaId) -> Option<Usage> {
        self.outbound.remove(&sa);
        if let Some(spi) = self.receiving.remove(&sa) {
            self.lane.sockets.port().disclaim(spi.0);
        }
        let usage = self.datapath.remove(sa);
        self.forget(sa);
        usage
    }

    fn usage(&mut self, sa: SaId) -> Option<Usage> {
        // Asked now and then, as long as there is an SA.
        self.datapath.age_paths(Instant::now());
        self.datapath.usage(sa)
    }

    fn fit(&mut self, sa: SaId) -> Option<Fit> {
        let fit = self.datapath.fit(sa)?;
        Some(Fit { inner_mtu: fit.inner_mtu.min(self.mtu.into()), ..fit })
    }

    fn set_filter(&mut self, filter: Arc<Filter>) -> Result<(), PlaneError> {
        self.enforcement.apply(&filter, &mut self.journal)?;
        self.rebuild_guard();
        self.datapath.set_filter(filter)
    }

    fn filter(&mut self) -> Option<FilterStatus> {
        Some(FilterStatus {
            filter: Arc::clone(self.enforcement.filter()),
            counts: self.enforcement.counts(),
            inbound_guard: self.inbound_guard(),
        })
    }

    fn trace(&mut self, packet: &PacketSummary) -> Option<Trace> {
        let mut trace = self.datapath.trace(packet)?;
        trace.inbound_guard = self.inbound_guard();
        for (course, way) in
            [(&mut trace.leaving, Direction::Out), (&mut trace.arriving, Direction::In)]
        {
            let by_tunnel = matches!(course.decided_by, DecidedBy::Tunnel { .. });
            let always = Always::of(packet, way, self.config.natt_port);
            if let Some(always) = always.filter(|a| !(by_tunnel && a.yields_to_tunnels())) {
                course.decided_by = DecidedBy::Always(always);
                course.sas.clear();
            }
        }
        Some(trace)
    }
}

impl Drop for Userspace {
    fn drop(&mut self) {
        self.config.workers.detach();
    }
}

/// Where answers for hosts behind the tunnel are written, once it is there.
type Inside = Arc<OnceLock<(Weak<Shared>, Weak<Lane>)>>;

/// Writes what it is given to the device, which is to be named later.
fn answers() -> (Inside, Inward) {
    let inside = Inside::default();
    let device = Arc::clone(&inside);
    let write = move |packet: &[u8]| {
        if let Some((shared, lane)) = device.get()
            && let (Some(shared), Some(lane)) = (shared.upgrade(), lane.upgrade())
        {
            shared.write(&lane.tun, packet, Offload::NONE);
        }
    };
    (inside, Arc::new(write))
}

/// Brings the device up, with nothing of its own on it: no addresses, no router discovery, no redirects.
fn configure(device: &str, mtu: u16) -> io::Result<(Netlink, u32)> {
    let mut netlink = Netlink::open()?;
    let index =
        netlink.link_index(device)?.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    // They go with the device, and none is vital: a family may be missing.
    for (setting, value) in [
        // Whose reverse path is the device passes even strict filtering; loose spares the odd asymmetric case.
        ("ipv4", "rp_filter", "2"),
        ("ipv4", "send_redirects", "0"),
        ("ipv6", "addr_gen_mode", "1"),
        ("ipv6", "accept_ra", "0"),
    ]
    .map(|(family, name, value)| (format!("/proc/sys/net/{family}/conf/{device}/{name}"), value))
    {
        if let Err(error) = std::fs::write(&setting, value) {
            tracing::debug!(%error, setting, "not set");
        }
    }
    netlink.set_mtu(index, mtu)?;
    netlink.set_up(index)?;
    Ok((netlink, index))
}

/// The device's MTU for inner packets of at most so many octets. Below what IPv6 needs, the kernel would switch IPv6
/// off; there the outer packets are fragmented instead.
fn device_mtu(inner: usize) -> u16 {
    u16::try_from(inner).unwrap_or(u16::MAX).max(IPV6_MTU)
}

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

/// An error of the system, with advice where the cause is a common one.
fn refused(what: String, error: &io::Error) -> PlaneError {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; are CAP_NET_ADMIN and CAP_NET_RAW granted?",
        Some(libc::EBUSY) => "; another process uses it: stop that one or choose another name",
        Some(libc::EADDRINUSE) => "; another IPsec daemon may be running: stop it first",
        Some(libc::ENOENT | libc::ENODEV) if what.contains("TUN") => "; is the tun module loaded?",
        _ => "",
    };
    PlaneError::System { what, why: format!("{error}{advice}") }
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

    #[test]
    fn errors_say_what_to_do() {
        let error = refused(
            "binding UDP port 4500".into(),
            &io::Error::from_raw_os_error(libc::EADDRINUSE),
        );
        let shown = error.to_string();
        assert!(shown.starts_with("binding UDP port 4500: "), "{shown}");
        assert!(shown.ends_with("stop it first"), "{shown}");
    }
}
