//! A running gateway, and the views by which a program looks at it and changes it.

#[cfg(feature = "metrics")]
mod recording;
mod views;

pub use views::{CryptoView, FilterView, ManualView, OffloadView, Tunnel, Tunnels};

use crate::closed::Closed;
use crate::driver::{Command, GatewayError, Handle};
use crate::events::Events;
use crate::findings::{self, Finding};
use crate::listening::{Listener, Listening};
use crate::manual::ManualSas;
use crate::planes::Report;
use crypto::CryptoProviders;
use esp::plane::DataPlane;
use host::facts::{HostFacts, Questions};
use host::firewall::Firewall;
use host::namespace::Namespace;
use ike::durations::ExchangeDurations;
use ike::proof::trust::Trust;
use ike::status::{IkeStatus, State};
use policy::Policy;
use policy::xml::Definitions;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use userspace::workers::Workers;
use xfrm::placement::Placement;

/// A running gateway. Clones are the same gateway.
///
/// It runs in the tokio runtime in which it was started. Its end is [`stop`](Self::stop); if the last clone is dropped
/// without it, the peers are told (Delete), and [`OnDrop`](crate::OnDrop) says what becomes of the traffic.
///
/// All methods may be called from any task or thread, and at the same time. Commands are executed one after another in
/// the order in which they arrive; a command that waits for a peer holds up no other.
#[derive(Clone)]
#[must_use = "a gateway that is dropped ends"]
pub struct Gateway {
    handle: Handle,
    handles: Handles,
}

/// The shared state of the data planes that come with this crate. With a custom data plane it stays as it is by
/// default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handles {
    pub workers: Workers,
    pub crypto: Arc<CryptoProviders>,
    pub placement: Placement,
    pub planes: Report,
    pub manual: ManualSas,
    /// The traffic of the tunnels stays blocked when the gateway is stopped.
    pub blocked: Arc<AtomicBool>,
    pub findings: FindingsFrom,
    /// `None`: the plane or a transport of the caller's listens.
    pub listener: Option<Arc<Listener>>,
}

/// Where the findings about the traffic of tunnels come from.
#[derive(Clone, Debug, Default)]
pub(crate) enum FindingsFrom {
    /// Nowhere: what a custom data plane needs of the host is unknown.
    #[default]
    Nowhere,
    /// The host, as its kernel and its packet filter are.
    Host(TunnelDevice),
    /// A test.
    Given(Arc<Mutex<Vec<Finding>>>),
}

/// The device of the tunnels, and the packet filter of its host.
#[derive(Clone, Debug)]
pub(crate) struct TunnelDevice {
    name: String,
    /// The mark of packets that must not enter it.
    mark: u32,
    /// The packet filter of the host, when it was read last.
    firewall: Arc<Mutex<Option<(Instant, Firewall)>>>,
}

impl TunnelDevice {
    pub(crate) fn new(name: String, mark: u32) -> Self {
        Self { name, mark, firewall: Arc::default() }
    }

    /// The packet filter, read in the network namespace of the calling thread unless that was done less than `age` ago.
    fn firewall(&self, age: Duration) -> Firewall {
        let mut last = self.firewall.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, firewall)) if at.elapsed() < age => firewall.clone(),
            _ => {
                let firewall = host::firewall::read();
                *last = Some((Instant::now(), firewall.clone()));
                firewall
            }
        }
    }
}

impl Gateway {
    pub(crate) fn new(handle: Handle, handles: Handles) -> Self {
        Self { handle, handles }
    }

    /// The tunnels of the policy: their state, and commands to start, rekey and end them.
    pub fn tunnels(&self) -> Tunnels<'_> {
        Tunnels::new(&self.handle)
    }

    /// A tunnel, by the name of a phase 1 tunnel or of a phase 2 tunnel. The name is looked up by each command.
    pub fn tunnel<'a>(&'a self, name: &'a str) -> Tunnel<'a> {
        self.tunnels().get(name)
    }

    /// The threads of the userspace plane: their work and their settings. With a custom data plane there are none.
    pub fn workers(&self) -> &Workers {
        &self.handles.workers
    }

    /// Where the planes of this crate protect packets: in this process, in the kernel, or in a network card.
    pub fn offload(&self) -> OffloadView<'_> {
        OffloadView::new(&self.handle, &self.handles)
    }

    /// The filter for traffic that belongs to no tunnel.
    pub fn filter(&self) -> FilterView<'_> {
        FilterView::new(&self.handle)
    }

    /// The crypto providers of ESP and AH, with their counters.
    pub fn crypto(&self) -> CryptoView<'_> {
        CryptoView::new(&self.handle, &self.handles)
    }

    /// SAs without IKE.
    pub fn manual(&self) -> ManualView<'_> {
        ManualView::new(&self.handle, &self.handles)
    }

    /// Where peers can begin with a gateway [inside of this process](crate::Builder::in_process), and why they cannot.
    /// `None`: another gateway, which listens on UDP 500 and 4500 at every address, or one with a transport of the
    /// caller's.
    pub fn listening(&self) -> Option<Listening> {
        self.handles.listener.as_ref().map(|listener| listener.listening())
    }

    /// Subscribes to events from now on. [`Builder::subscribe`](crate::Builder::subscribe) subscribes before the start,
    /// and misses none.
    pub fn events(&self) -> Events {
        self.handle.events()
    }

    /// Discarded datagrams (`ike.…`) and packets (`esp.…`) by reason.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn counters(&self) -> Result<BTreeMap<String, u64>, GatewayError> {
        self.handle.ask(Command::Counters).await
    }

    /// The times from requests of this side to the peers' answers, by kind of exchange: the round trips of liveness
    /// checks, and rekeys.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn exchange_durations(&self) -> Result<ExchangeDurations, GatewayError> {
        self.handle.ask(Command::ExchangeDurations).await
    }

    /// Explains a phase 1 tunnel with its phase 2 tunnels, or with the one of that name only: why it is down, what it
    /// waits for, what has failed and what helps. `None`: the policy has no tunnel of that name. The cures name elements
    /// of a policy file without their lines: [`diagnosis::tunnel::explain`] takes a status and the file's
    /// [`Definitions`], which tell them. [`findings`](Self::findings) looks for the reasons why no packets pass
    /// through a tunnel that is up.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn why(&self, name: &str) -> Result<Option<diagnosis::Tunnel>, GatewayError> {
        let status = self.tunnel(name).status().await?;
        Ok(status.map(|status| {
            let only = (status.name != name).then_some(name);
            diagnosis::tunnel::explain(&status, only, &Definitions::default())
        }))
    }

    /// Reasons why packets do not pass through the tunnels of a phase 1 tunnel that are up, or may not pass. `policy`
    /// is the one in force: the findings compare the agreed traffic with it. The packet filter is read again if it was
    /// read longer than `age` ago, which takes the milliseconds that `nft` needs. With a custom data plane, there are
    /// no findings.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn findings(
        &self,
        tunnel: &IkeStatus,
        policy: &Policy,
        age: Duration,
    ) -> Result<Vec<Finding>, GatewayError> {
        let device = match &self.handles.findings {
            FindingsFrom::Nowhere => return Ok(Vec::new()),
            FindingsFrom::Given(findings) => return Ok(given(findings, tunnel)),
            FindingsFrom::Host(device) => device.clone(),
        };
        let children: BTreeSet<&str> = tunnel.children.iter().map(|child| &*child.name).collect();
        let placed = self.handles.placement.sas_of(|tunnel| children.contains(tunnel));
        let placed: BTreeSet<&str> = placed.iter().map(|sa| &*sa.tunnel).collect();
        let bindings = self.handles.planes.bindings();
        let subjects = findings::subjects(tunnel, (policy, &bindings), &device.name, |child| {
            placed.contains(child)
        });
        if subjects.is_empty() {
            return Ok(Vec::new());
        }
        let filter = self.filter().status().await?.map(|status| status.filter);
        let questions = findings::questions(&subjects, device.mark);
        // The engine's task is surely in the namespace of the plane.
        let namespace = self.handle.with_plane(|_| Namespace::current()).await?;
        let collected = tokio::task::spawn_blocking(move || match namespace {
            Ok(namespace) => namespace.inside(move || host_facts(&device, age, &questions)),
            // Most processes have one namespace.
            Err(_) => Ok(host_facts(&device, age, &questions)),
        });
        let host = match collected.await {
            Ok(Ok(host)) => host,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the network namespace of the plane cannot be entered");
                HostFacts::default()
            }
            Err(_) => HostFacts::default(),
        };
        let judged =
            subjects.iter().flat_map(|subject| findings::judge(subject, &host, filter.as_deref()));
        Ok(judged.collect())
    }

    /// Replaces the policy. Tunnels that are the same in both keep their SAs; tunnels that are gone or have changed are
    /// closed.
    ///
    /// # Errors
    /// If [`Policy::validate`] refuses the policy: the old one stays in force. If the gateway has ended.
    ///
    /// # Cancellation
    /// If the future is dropped, the policy may or may not be replaced; it is never replaced in part.
    pub async fn replace_policy(&self, policy: impl Into<Arc<Policy>>) -> Result<(), GatewayError> {
        let policy = policy.into();
        Ok(self.handle.ask(|reply| Command::ReplacePolicy(policy, reply)).await??)
    }

    /// Replaces certificates and authorities. SAs that are up stay up; the next authentication uses the new ones.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// If the future is dropped, they may or may not be replaced; never in part.
    pub async fn replace_trust(&self, trust: impl Into<Arc<Trust>>) -> Result<(), GatewayError> {
        let trust = trust.into();
        self.handle.ask(|reply| Command::ReplaceTrust(trust, reply)).await
    }

    /// The certificates and authorities in use.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway.
    pub async fn trust(&self) -> Result<Arc<Trust>, GatewayError> {
        self.handle.ask(Command::Trust).await
    }

    /// Works on the data plane itself, in the task of the engine, between two messages. The engine waits meanwhile, so
    /// `work` should take microseconds; if it panics, the gateway ends.
    ///
    /// # Errors
    /// If the gateway has ended.
    ///
    /// # Cancellation
    /// If the future is dropped, `work` may or may not run.
    pub async fn with_plane<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn DataPlane) -> R + Send + 'static,
    ) -> Result<R, GatewayError> {
        self.handle.with_plane(work).await
    }

    /// Ends the gateway: sends Deletes, waits up to three seconds for the peers' answers, and undoes every change to
    /// the host. Returns once UDP 500 and 4500, the device and the routing table are free, so that the next start finds
    /// them so.
    ///
    /// May be called several times and by several tasks; each call returns at the end. If the gateway has ended
    /// already, it returns at once.
    ///
    /// # Cancellation
    /// If the future is dropped after its first poll, the gateway ends nevertheless; [`closed`](Self::closed) tells
    /// when.
    pub async fn stop(&self) {
        self.handle.stop().await;
    }

    /// As [`stop`](Self::stop), but the traffic of the tunnels stays blocked, as after a crash: the guard and blackhole
    /// routes remain until the next start on the same device, or until they are [released](crate::guard::release). With
    /// a custom data plane this is the same as `stop`.
    ///
    /// # Cancellation
    /// As [`stop`](Self::stop).
    pub async fn stop_blocked(&self) {
        self.handles.blocked.store(true, Ordering::SeqCst);
        self.handle.stop().await;
    }

    /// Waits for the end of the gateway, and says why it ended: by [`stop`](Self::stop), by a panic, or with its
    /// runtime.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the gateway. This future may be awaited in another runtime, which is how
    /// the end of the gateway's own runtime can be seen.
    pub async fn closed(&self) -> Closed {
        self.handle.closed().await
    }
}

/// The findings that a test has given about the phase 2 tunnels that are up.
fn given(findings: &Mutex<Vec<Finding>>, tunnel: &IkeStatus) -> Vec<Finding> {
    let findings = findings.lock().unwrap_or_else(PoisonError::into_inner);
    let of_tunnel = findings.iter().filter(|finding| {
        let mut children = tunnel.children.iter();
        children.any(|child| child.name == finding.child && child.state == State::Established)
    });
    of_tunnel.cloned().collect()
}

/// The facts about the network namespace of the calling thread.
fn host_facts(device: &TunnelDevice, age: Duration, questions: &Questions) -> HostFacts {
    HostFacts { firewall: device.firewall(age), ..host::facts::collect(questions) }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("planes", &self.handles.planes)
            .field("workers", &self.handles.workers)
            .finish_non_exhaustive()
    }
}
