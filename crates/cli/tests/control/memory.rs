//! A gateway without a network: tunnels come up when asked, or fail as a test wants.

use cli::daemon::Gateway;
use esp::datapath::{Datapath, Settings};
use esp::families::Families;
use esp::filter::{Filter, FilterStatus};
use esp::plane::{
    DataPlane, FamilySwitching, Filtering, PacketSummary, Rule, RuleId, Spi, TrafficSelectors,
};
use esp::trace::Trace;
use ike::durations::ExchangeDurations;
use ike::event::{Event, EventKind, Negotiated};
use ike::failure::Failure;
use ike::failure::facts::Unsendable;
use ike::negotiation::suite::{ChildSuite, IkeSuite};
use ike::proof::trust::Trust;
use ike::status::{
    ChildSaStatus, ChildStatus, IkeSaStatus, IkeStatus, Next, PageStart, PastFailure, State,
    StatusPage,
};
use ike::wire::header::IkeSpi;
use ike::{CloseReason, CommandError};
use policy::{ChildTunnel, IkeTunnel, Policy};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, broadcast};
use userspace::workers::Workers;
use vpn::findings::Finding;
use vpn::manual::{ManualSa, ManualSaError, ManualStatus, Removed, SaDirection};
use vpn::planes::Found;
use vpn::{Activation, Begun, Events, GatewayError, Selection};
use xfrm::placement::{Choice, Placed, Placement, Report};

/// The twin of [`vpn::Gateway`]. Whole phase 1 tunnels come and go, whichever child is named.
#[derive(Clone)]
pub struct MemoryGateway {
    state: Arc<Mutex<Inner>>,
    /// Has the rules of the policy it began with, and the filter.
    datapath: Datapath,
    workers: Workers,
    events: broadcast::Sender<Event>,
    /// Pages of the status that are given out, and the notice that one is asked for.
    pages: Arc<(Semaphore, Notify)>,
}

#[derive(Default)]
struct Inner {
    policy: Arc<Policy>,
    /// Rekeys so far, of the phase 1 tunnels that are up.
    up: BTreeMap<String, u64>,
    /// The failure of the next activations of each phase 1 tunnel.
    failing: BTreeMap<String, Failure>,
    findings: Vec<Finding>,
    families: Families,
    stopped: bool,
}

impl MemoryGateway {
    /// A gateway with every tunnel down.
    pub fn new(policy: Arc<Policy>) -> Self {
        let mut datapath = Datapath::new(Settings::default(), Instant::now());
        let children = policy.tunnels.iter().flat_map(|tunnel| &tunnel.children);
        for (id, child) in (0..).map(RuleId).zip(children) {
            let (local, remote) = (child.local.clone(), child.remote.clone());
            let selectors = TrafficSelectors { local, remote };
            let rule = Rule { id, tunnel: child.name.clone(), selectors, trap: false };
            datapath.add_rule(rule).expect("it takes every rule");
        }
        let state = Arc::new(Mutex::new(Inner { policy, ..Inner::default() }));
        let workers = Workers::default();
        let pages = Arc::new((Semaphore::new(Semaphore::MAX_PERMITS), Notify::new()));
        Self { state, datapath, workers, events: broadcast::channel(256).0, pages }
    }

    /// Lets every activation of a phase 1 tunnel fail from now on.
    pub fn fail(&self, tunnel: &str, failure: Failure) {
        self.lock().failing.insert(tunnel.to_owned(), failure);
    }

    /// Lets it have something to tell about the traffic of a child tunnel.
    pub fn find(&self, finding: Finding) {
        self.lock().findings.push(finding);
    }

    /// Gives no page of the status any more until [`MemoryGateway::give_pages`] allows so many.
    pub fn keep_pages(&self) {
        self.pages.0.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Gives so many pages.
    pub fn give_pages(&self, pages: usize) {
        self.pages.0.add_permits(pages);
    }

    /// Waits until a page is asked for.
    pub async fn page_wanted(&self) {
        self.pages.1.notified().await;
    }

    /// Returns `true` after [`Gateway::stop`].
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, tunnel: &str, kind: EventKind) {
        // Nobody may be listening.
        let _ = self.events.send(Event::new(tunnel, kind));
    }
}

impl Inner {
    fn page(
        &self,
        start: Option<PageStart>,
        count: usize,
    ) -> Result<Option<StatusPage>, GatewayError> {
        if self.stopped {
            return Err(GatewayError::Stopped);
        }
        Ok(StatusPage::of(&self.policy, start, count, |tunnel, children| {
            let (up, failure) = (self.up.get(&tunnel.name), self.failing.get(&tunnel.name));
            let mut whole = picture(tunnel, up.copied(), failure);
            whole.children = whole.children.drain(children).collect();
            whole
        }))
    }

    fn find(&self, name: &str) -> Result<Arc<IkeTunnel>, GatewayError> {
        if self.stopped {
            return Err(GatewayError::Stopped);
        }
        self.policy
            .tunnel(name)
            .or_else(|| self.policy.child(name).map(|(tunnel, _)| tunnel))
            .cloned()
            .ok_or_else(|| CommandError::NoSuchTunnel(name.to_owned(), None).into())
    }
}

impl Gateway for MemoryGateway {
    async fn activate(&self, selection: Selection) -> Result<Vec<Activation>, GatewayError> {
        let mut inner = self.lock();
        let names = match selection {
            Selection::Named(names) => names,
            Selection::All => {
                let startable = inner.policy.tunnels.iter().filter(|t| t.role.may_initiate());
                startable.map(|t| t.name.clone()).collect()
            }
        };
        // One name that is not known, and none is started.
        names.iter().try_for_each(|name| inner.find(name).map(drop))?;
        let mut activations = Vec::new();
        for name in names {
            let tunnel = inner.find(&name)?;
            if !tunnel.role.may_initiate() {
                return Err(CommandError::ResponderOnly(name).into());
            }
            let outcome = match inner.failing.get(&tunnel.name) {
                Some(failure) => Err(failure.clone()),
                None => {
                    inner.up.entry(tunnel.name.clone()).or_insert(0);
                    Ok(())
                }
            };
            let kind = match &outcome {
                Ok(()) => EventKind::Established { suite: Negotiated::Ike(suite(&tunnel)) },
                Err(failure) => EventKind::Failed(failure.clone()),
            };
            self.tell(&tunnel.name, kind);
            activations.push(Activation::new(name, outcome));
        }
        Ok(activations)
    }

    async fn deactivate(&self, name: &str) -> Result<(), GatewayError> {
        let mut inner = self.lock();
        let tunnel = inner.find(name)?;
        if inner.up.remove(&tunnel.name).is_none() {
            return Err(CommandError::NotUp(name.to_owned()).into());
        }
        self.tell(&tunnel.name, EventKind::Closed { reason: CloseReason::Deactivated });
        Ok(())
    }

    async fn start_activate(&self, selection: Selection) -> Result<Vec<Begun>, GatewayError> {
        let begun =
            |activation: Activation| Begun::new(activation.name, activation.outcome.is_ok());
        Ok(self.activate(selection).await?.into_iter().map(begun).collect())
    }

    async fn start_deactivate(&self, name: &str) -> Result<(), GatewayError> {
        self.deactivate(name).await
    }

    async fn lacking(&self) -> Result<Vec<(String, Unsendable)>, GatewayError> {
        Ok(Vec::new())
    }

    async fn rekey(&self, name: &str) -> Result<(), GatewayError> {
        let mut inner = self.lock();
        let tunnel = inner.find(name)?;
        let Some(rekeys) = inner.up.get_mut(&tunnel.name) else {
            return Err(CommandError::NotUp(name.to_owned()).into());
        };
        *rekeys += 1;
        self.tell(&tunnel.name, EventKind::Rekeyed { suite: Negotiated::Ike(suite(&tunnel)) });
        Ok(())
    }

    async fn status(&self) -> Result<Vec<IkeStatus>, GatewayError> {
        Ok(self.lock().page(None, usize::MAX)?.expect("the first page").tunnels)
    }

    async fn status_page(
        &self,
        start: Option<PageStart>,
        count: usize,
    ) -> Result<Option<StatusPage>, GatewayError> {
        let (pages, wanted) = &*self.pages;
        wanted.notify_one();
        pages.acquire().await.expect("nobody closes it").forget();
        self.lock().page(start, count)
    }

    async fn status_of(&self, name: &str) -> Result<Option<IkeStatus>, GatewayError> {
        let all = self.status().await?;
        if let Some(tunnel) = all.iter().find(|tunnel| tunnel.name == name) {
            return Ok(Some(tunnel.clone()));
        }
        Ok(all.into_iter().find_map(|mut tunnel| {
            tunnel.children.retain(|child| child.name == name);
            (!tunnel.children.is_empty()).then_some(tunnel)
        }))
    }

    async fn findings(
        &self,
        tunnel: &IkeStatus,
        _policy: &Policy,
        _age: Duration,
    ) -> Result<Vec<Finding>, GatewayError> {
        let of_tunnel = |finding: &&Finding| {
            tunnel.children.iter().any(|c| c.name == finding.child && c.state == State::Established)
        };
        Ok(self.lock().findings.iter().filter(of_tunnel).cloned().collect())
    }

    async fn counters(&self) -> Result<BTreeMap<String, u64>, GatewayError> {
        Ok(BTreeMap::from([("replayed".to_owned(), 3)]))
    }

    async fn exchange_durations(&self) -> Result<ExchangeDurations, GatewayError> {
        Ok(ExchangeDurations::default())
    }

    async fn replace_policy(&self, policy: Arc<Policy>) -> Result<(), GatewayError> {
        let mut inner = self.lock();
        if inner.stopped {
            return Err(GatewayError::Stopped);
        }
        let Inner { policy: old, up, .. } = &mut *inner;
        up.retain(|name, _| policy.tunnel(name).is_some_and(|new| old.tunnel(name) == Some(new)));
        *old = policy;
        Ok(())
    }

    async fn replace_trust(&self, _trust: Arc<Trust>) -> Result<(), GatewayError> {
        if self.lock().stopped { Err(GatewayError::Stopped) } else { Ok(()) }
    }

    async fn families(&self) -> Result<Families, GatewayError> {
        Ok(self.lock().families)
    }

    async fn set_families(&self, families: Families) -> Result<(), GatewayError> {
        self.datapath.clone().set_families(families)?;
        let mut inner = self.lock();
        inner.families = families;
        let Inner { policy, up, .. } = &mut *inner;
        let remote = |name: &str| policy.tunnel(name)?.remote.address;
        up.retain(|name, _| remote(name).is_none_or(|remote| families.has_address(remote)));
        Ok(())
    }

    async fn filter(&self) -> Result<Option<FilterStatus>, GatewayError> {
        Ok(self.datapath.clone().filter_status())
    }

    async fn set_filter(&self, filter: Arc<Filter>) -> Result<(), GatewayError> {
        Ok(self.datapath.clone().set_filter(filter)?)
    }

    async fn trace(&self, packet: PacketSummary) -> Result<Option<Trace>, GatewayError> {
        Ok(self.datapath.clone().trace(&packet))
    }

    async fn with_plane<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn DataPlane) -> R + Send + 'static,
    ) -> Result<R, GatewayError> {
        Ok(work(&mut self.datapath.clone()))
    }

    async fn manual_sas(&self) -> Result<Vec<ManualStatus>, GatewayError> {
        Ok(Vec::new())
    }

    async fn add_manual_sas(
        &self,
        _sas: Vec<ManualSa>,
        _offload: BTreeMap<(String, SaDirection), Choice>,
    ) -> Result<(), GatewayError> {
        Err(ManualSaError::NoLedger.into())
    }

    async fn remove_manual_sas(
        &self,
        name: &str,
        _keep_blocked: bool,
    ) -> Result<Removed, GatewayError> {
        Err(ManualSaError::Unknown { name: name.to_owned(), names: Vec::new() }.into())
    }

    fn blocked_by_hand(&self) -> Vec<String> {
        Vec::new()
    }

    fn workers(&self) -> &Workers {
        &self.workers
    }

    fn planes(&self) -> Found {
        Found::default()
    }

    fn cards(&self) -> Report {
        Placement::default().report()
    }

    fn placed(&self) -> Vec<Placed> {
        Vec::new()
    }

    async fn stop(&self, _blocked: bool) {
        let mut inner = self.lock();
        inner.up.clear();
        inner.stopped = true;
    }

    fn events(&self) -> Events {
        self.events.subscribe().into()
    }
}

/// The first choice of its first proposal.
fn suite(tunnel: &IkeTunnel) -> IkeSuite {
    let proposal = &tunnel.proposals[0];
    let integrity = proposal.integrity.first().copied();
    IkeSuite::new(proposal.encryption[0], integrity, proposal.prf[0], proposal.groups[0])
}

fn picture(tunnel: &IkeTunnel, rekeys: Option<u64>, failure: Option<&Failure>) -> IkeStatus {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let at = |address: Option<IpAddr>| SocketAddr::new(address.unwrap_or(any), 500);
    let state = if rekeys.is_some() { State::Established } else { State::Down };
    let ago = Duration::from_secs(12);
    let mut status = IkeStatus::new(&tunnel.name);
    status.state = state;
    status.local_id = tunnel.local.identity.to_string();
    status.remote_id = tunnel.remote.identity.to_string();
    status.local_address = tunnel.local.address;
    status.remote_address = tunnel.remote.address;
    status.sa = rekeys.map(|rekeys| {
        let spis = (IkeSpi(0x1122_3344_5566_7788), IkeSpi(0x99aa_bbcc_ddee_ff00));
        let (local, remote) = (at(tunnel.local.address), at(tunnel.remote.address));
        let mut sa = IkeSaStatus::new(spis, local, remote);
        sa.suite = Some(suite(tunnel));
        sa.established_for = Some(Duration::from_secs(3_700));
        sa.rekey_in = Some(Duration::from_secs(25_000));
        sa.expires_in = Some(Duration::from_secs(28_800));
        sa.rekeys = rekeys;
        sa
    });
    status.children =
        tunnel.children.iter().map(|child| picture_of(child, state, rekeys)).collect();
    status.last_failure = failure.map(|failure| (failure.clone(), ago));
    status.failures = failure.map(|f| PastFailure::new(f.clone(), ago)).into_iter().collect();
    status
}

fn picture_of(child: &ChildTunnel, state: State, rekeys: Option<u64>) -> ChildStatus {
    let mut status = ChildStatus::new(&child.name, child.mode);
    status.state = state;
    status.local = child.local.clone();
    status.remote = child.remote.clone();
    status.sa = rekeys.map(|rekeys| {
        let proposal = &child.proposals[0];
        let spis = (Spi(0x1000_0001), Spi(0x2000_0002));
        let suite = ChildSuite::new(proposal.protection);
        let mut sa = ChildSaStatus::new(suite, spis, proposal.lifetime);
        (sa.packets_in, sa.packets_out) = (1_200, 3_400);
        (sa.bytes_in, sa.bytes_out) = (1_572_864, 52_428_800);
        sa.refused = 1;
        sa.established_for = Duration::from_secs(3_700);
        sa.rekey_in = Some(Duration::from_secs(90));
        sa.expires_in = Some(Duration::from_secs(180));
        sa.rekeys = rekeys;
        sa
    });
    status.next = rekeys.is_none().then_some(Next::Command { deactivated: false });
    status
}
