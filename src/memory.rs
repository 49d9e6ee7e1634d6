//! A gateway without network and device, for the tests of programs that command one.
//!
//! It is a [`Gateway`] whose commands a thread carries out in place of the driver. Tunnels come up when they are asked
//! to, or fail as the test wants. Rules, the filter and families are those of a real [`Datapath`].

use crate::closed::{self, Closed, TellEnd};
use crate::driver::{Activation, Begun, Command, EventSenders, GatewayError, Handle, Selection};
use crate::findings::Finding;
use crate::gateway::{FindingsFrom, Gateway, Handles};
use esp::datapath::{Datapath, Settings};
use esp::families::Families;
use esp::plane::{
    DataPlane, FamilySwitching, Filtering, PlaneError, Rule, RuleId, Spi, TrafficSelectors,
};
use ike::durations::ExchangeDurations;
use ike::event::{Event, EventKind, Negotiated};
use ike::failure::Failure;
use ike::negotiation::suite::{ChildSuite, IkeSuite};
use ike::proof::trust::Trust;
use ike::status::{
    ChildSaStatus, ChildStatus, IkeSaStatus, IkeStatus, Next, PageStart, PastFailure, State,
    StatusPage,
};
use ike::wire::header::IkeSpi;
use ike::{CloseReason, CommandError};
use policy::{ChildTunnel, IkeTunnel, Policy};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, oneshot};

/// A gateway in memory, and the test's hold on it. Clones are of the same one.
///
/// Whole phase 1 tunnels come and go, whichever phase 2 tunnel is named. The numbers of tunnels that are up are made
/// up.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ike::failure::{Failure, FailureKind};
///
/// let text = std::fs::read_to_string("tests/policies/site/left.xml")?;
/// let policy = policy::xml::read("left.xml", &text).map_err(|errors| errors.to_string())?.policy;
/// let memory = vpn::MemoryGateway::new(policy);
/// let gateway = memory.gateway().clone();
/// gateway.tunnel("site").activate().await?;
/// gateway.tunnel("site").deactivate().await?;
///
/// memory.fail("site", Failure::new(FailureKind::NoAnswer, String::new()));
/// assert!(gateway.tunnel("site").activate().await.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryGateway {
    gateway: Gateway,
    tunnels: Arc<Mutex<MemoryTunnels>>,
    findings: Arc<Mutex<Vec<Finding>>>,
    page_wanted: Arc<Notify>,
}

/// A phase 1 tunnel that is up.
#[derive(Clone, Copy)]
struct Up {
    /// Rekeys so far.
    rekeys: u64,
    /// The time of its activation. A reader of counts knows by the age whether a tunnel came up again.
    since: Instant,
}

impl Up {
    fn new() -> Self {
        Self { rekeys: 0, since: Instant::now() }
    }

    /// The age of its SAs, which have been there for more than an hour.
    fn age(self) -> Duration {
        self.since.elapsed() + Duration::from_secs(3_700)
    }
}

/// The tunnels, as a test has made them.
#[derive(Default)]
struct MemoryTunnels {
    policy: Arc<Policy>,
    /// The phase 1 tunnels that are up.
    up: BTreeMap<String, Up>,
    /// The failure of the next activations of each phase 1 tunnel.
    failing: BTreeMap<String, Failure>,
    families: Families,
    trust: Arc<Trust>,
    stopped: bool,
    /// The number of pages of the status that may still be given out; `None`: any number.
    pages: Option<usize>,
    /// Pages that were asked for and not given.
    kept: VecDeque<PageRequest>,
}

struct PageRequest {
    start: Option<PageStart>,
    count: usize,
    reply: oneshot::Sender<Option<StatusPage>>,
}

impl MemoryGateway {
    /// A gateway with every tunnel down. It needs no tokio runtime.
    pub fn new(policy: impl Into<Arc<Policy>>) -> Self {
        let policy = policy.into();
        let (commands, commands_out) = mpsc::channel(64);
        let (tell_end, end) = closed::channel();
        let events = EventSenders::default();
        let handle = Handle::new(commands, events.downgrade(), end);
        let findings = Arc::<Mutex<Vec<Finding>>>::default();
        let from = FindingsFrom::Given(Arc::clone(&findings));
        let gateway = Gateway::new(handle, Handles { findings: from, ..Handles::default() });
        let page_wanted = Arc::<Notify>::default();
        let datapath = datapath(&policy);
        let tunnels = MemoryTunnels { policy, ..MemoryTunnels::default() };
        let tunnels = Arc::new(Mutex::new(tunnels));
        let driver = MemoryDriver {
            tunnels: Arc::clone(&tunnels),
            page_wanted: Arc::clone(&page_wanted),
            datapath,
            events,
        };
        std::thread::spawn(move || driver.run(commands_out, tell_end));
        Self { gateway, tunnels, findings, page_wanted }
    }

    /// The gateway, as the program under test gets it.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Returns `true` after [`Gateway::stop`].
    pub fn is_stopped(&self) -> bool {
        lock(&self.tunnels).stopped
    }

    /// Lets every activation of a phase 1 tunnel fail from now on.
    pub fn fail(&self, tunnel: &str, failure: Failure) {
        lock(&self.tunnels).failing.insert(tunnel.to_owned(), failure);
    }

    /// Lets it have something to tell about the traffic of a phase 2 tunnel.
    pub fn find(&self, finding: Finding) {
        lock(&self.findings).push(finding);
    }

    /// Gives no page of the status any more until [`give_pages`](Self::give_pages) allows so many.
    pub fn keep_pages(&self) {
        lock(&self.tunnels).pages = Some(0);
    }

    /// Gives so many pages, after [`keep_pages`](Self::keep_pages).
    pub fn give_pages(&self, pages: usize) {
        let mut tunnels = lock(&self.tunnels);
        tunnels.pages = tunnels.pages.map(|left| left + pages);
        tunnels.give_pages();
    }

    /// Waits until a page is asked for.
    pub async fn page_wanted(&self) {
        self.page_wanted.notified().await;
    }
}

impl fmt::Debug for MemoryGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryGateway").field("gateway", &self.gateway).finish_non_exhaustive()
    }
}

/// The driver's part of a gateway in memory.
struct MemoryDriver {
    tunnels: Arc<Mutex<MemoryTunnels>>,
    page_wanted: Arc<Notify>,
    /// Has the rules of the policy it began with, and the filter.
    datapath: Datapath,
    events: EventSenders,
}

impl MemoryDriver {
    /// Carries out commands until it is told to stop, or the gateway is dropped.
    fn run(mut self, mut commands: mpsc::Receiver<Command>, tell_end: TellEnd) {
        let closed = loop {
            match commands.blocking_recv() {
                Some(Command::Stop) => break Closed::Stopped,
                Some(command) => self.command(command),
                None => break Closed::Dropped,
            }
        };
        // Listeners and callers see the end at the same time.
        drop((commands, self.events));
        let mut tunnels = lock(&self.tunnels);
        tunnels.up.clear();
        // Those who wait for a page see the end.
        tunnels.kept.clear();
        tunnels.stopped = true;
        drop(tunnels);
        tell_end.tell(closed);
    }

    /// Carries out one command. The caller may be gone.
    fn command(&mut self, command: Command) {
        let mut tunnels = lock(&self.tunnels);
        match command {
            Command::Activate(selection, reply) => {
                drop(reply.send(tunnels.activate(&self.events, selection)))
            }
            Command::StartActivate(selection, reply) => {
                let activated = tunnels.activate(&self.events, selection);
                let begun = activated.map(|all| {
                    all.into_iter().map(|a| Begun::new(a.name, a.outcome.is_ok())).collect()
                });
                drop(reply.send(begun));
            }
            Command::Deactivate(name, reply) | Command::StartDeactivate(name, reply) => {
                drop(reply.send(tunnels.deactivate(&self.events, &name)))
            }
            Command::Rekey(name, reply) => drop(reply.send(tunnels.rekey(&self.events, &name))),
            Command::StatusPage(start, count, reply) => {
                self.page_wanted.notify_one();
                tunnels.kept.push_back(PageRequest { start, count, reply });
                tunnels.give_pages();
            }
            Command::StatusOf(name, reply) => drop(reply.send(tunnels.status_of(&name))),
            Command::Lacking(reply) => drop(reply.send(Vec::new())),
            Command::Counters(reply) => {
                drop(reply.send(BTreeMap::from([("replayed".to_owned(), 3)])))
            }
            Command::ExchangeDurations(reply) => drop(reply.send(ExchangeDurations::default())),
            Command::ReplacePolicy(policy, reply) => {
                tunnels.replace_policy(policy);
                drop(reply.send(Ok(())));
            }
            Command::ReplaceTrust(trust, reply) => {
                tunnels.trust = trust;
                let _ = reply.send(());
            }
            Command::Trust(reply) => drop(reply.send(Arc::clone(&tunnels.trust))),
            Command::Families(reply) => drop(reply.send(tunnels.families)),
            Command::SetFamilies(families, reply) => {
                drop(reply.send(tunnels.set_families(&mut self.datapath, families)))
            }
            Command::Filter(reply) => drop(reply.send(self.datapath.filter_status())),
            Command::SetFilter(filter, reply) => drop(reply.send(self.datapath.set_filter(filter))),
            Command::Plane(work) => work(&mut self.datapath),
            Command::Stop => unreachable!("handled where the loop ends"),
        }
    }
}

impl MemoryTunnels {
    fn give_pages(&mut self) {
        while self.pages != Some(0)
            && let Some(PageRequest { start, count, reply }) = self.kept.pop_front()
        {
            self.pages = self.pages.map(|left| left - 1);
            drop(reply.send(self.page(start, count)));
        }
    }

    fn page(&self, start: Option<PageStart>, count: usize) -> Option<StatusPage> {
        StatusPage::of(&self.policy, start, count, |tunnel, children| {
            let (up, failure) = (self.up.get(&tunnel.name), self.failing.get(&tunnel.name));
            let mut whole = picture(tunnel, up.copied(), failure);
            whole.children = whole.children.drain(children).collect();
            whole
        })
    }

    fn status_of(&self, name: &str) -> Option<IkeStatus> {
        let (tunnel, child) = match self.policy.tunnel(name) {
            Some(tunnel) => (tunnel, None),
            None => self.policy.child(name).map(|(tunnel, child)| (tunnel, Some(child)))?,
        };
        let (up, failure) = (self.up.get(&tunnel.name), self.failing.get(&tunnel.name));
        let mut status = picture(tunnel, up.copied(), failure);
        status.children.retain(|c| child.is_none_or(|child| child.name == c.name));
        Some(status)
    }

    fn find(&self, name: &str) -> Result<Arc<IkeTunnel>, GatewayError> {
        self.policy
            .tunnel(name)
            .or_else(|| self.policy.child(name).map(|(tunnel, _)| tunnel))
            .cloned()
            .ok_or_else(|| CommandError::NoSuchTunnel(name.to_owned(), None).into())
    }

    fn activate(
        &mut self,
        events: &EventSenders,
        selection: Selection,
    ) -> Result<Vec<Activation>, GatewayError> {
        let names = match selection {
            Selection::Named(names) => names,
            Selection::All => {
                let startable = self.policy.tunnels.iter().filter(|t| t.role.may_initiate());
                startable.map(|t| t.name.clone()).collect()
            }
        };
        // One name that is not known, and none is started.
        names.iter().try_for_each(|name| self.find(name).map(drop))?;
        let mut activations = Vec::new();
        for name in names {
            let tunnel = self.find(&name)?;
            if !tunnel.role.may_initiate() {
                return Err(CommandError::ResponderOnly(name).into());
            }
            let outcome = match self.failing.get(&tunnel.name) {
                Some(failure) => Err(failure.clone()),
                None => {
                    self.up.entry(tunnel.name.clone()).or_insert_with(Up::new);
                    Ok(())
                }
            };
            let kind = match &outcome {
                Ok(()) => EventKind::Established { suite: Negotiated::Ike(suite(&tunnel)) },
                Err(failure) => EventKind::Failed(failure.clone()),
            };
            events.send(Event::new(&tunnel.name, kind));
            activations.push(Activation::new(name, outcome));
        }
        Ok(activations)
    }

    fn deactivate(&mut self, events: &EventSenders, name: &str) -> Result<(), GatewayError> {
        let tunnel = self.find(name)?;
        if self.up.remove(&tunnel.name).is_none() {
            return Err(CommandError::NotUp(name.to_owned()).into());
        }
        let kind = EventKind::Closed { reason: CloseReason::Deactivated };
        events.send(Event::new(&tunnel.name, kind));
        Ok(())
    }

    fn rekey(&mut self, events: &EventSenders, name: &str) -> Result<(), GatewayError> {
        let tunnel = self.find(name)?;
        let Some(up) = self.up.get_mut(&tunnel.name) else {
            return Err(CommandError::NotUp(name.to_owned()).into());
        };
        up.rekeys += 1;
        let kind = EventKind::Rekeyed { suite: Negotiated::Ike(suite(&tunnel)) };
        events.send(Event::new(&tunnel.name, kind));
        Ok(())
    }

    fn replace_policy(&mut self, policy: Arc<Policy>) {
        let Self { policy: old, up, .. } = self;
        up.retain(|name, _| policy.tunnel(name).is_some_and(|new| old.tunnel(name) == Some(new)));
        *old = policy;
    }

    fn set_families(
        &mut self,
        datapath: &mut Datapath,
        families: Families,
    ) -> Result<(), PlaneError> {
        datapath.set_families(families)?;
        let Self { policy, up, .. } = self;
        up.retain(|name, _| {
            let remote = policy.tunnel(name).and_then(|tunnel| tunnel.remote.address);
            remote.is_none_or(|remote| families.has_address(remote))
        });
        self.families = families;
        Ok(())
    }
}

/// A datapath with the rules of a policy.
fn datapath(policy: &Policy) -> Datapath {
    let mut datapath = Datapath::new(Settings::default(), Instant::now());
    let children = policy.tunnels.iter().flat_map(|tunnel| &tunnel.children);
    for (id, child) in (0..).map(RuleId).zip(children) {
        let (local, remote) = (child.local.clone(), child.remote.clone());
        let selectors = TrafficSelectors { local, remote };
        let rule = Rule { id, tunnel: child.name.clone(), selectors, trap: false };
        datapath.add_rule(rule).expect("it takes every rule");
    }
    datapath
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first choice of its first proposal.
fn suite(tunnel: &IkeTunnel) -> IkeSuite {
    let proposal = &tunnel.proposals[0];
    let integrity = proposal.integrity.first().copied();
    IkeSuite::new(proposal.encryption[0], integrity, proposal.prf[0], proposal.groups[0])
}

fn picture(tunnel: &IkeTunnel, up: Option<Up>, failure: Option<&Failure>) -> IkeStatus {
    let state = if up.is_some() { State::Established } else { State::Down };
    let ago = Duration::from_secs(12);
    let mut status = IkeStatus::new(&tunnel.name);
    status.state = state;
    status.local_id = tunnel.local.identity.to_string();
    status.remote_id = tunnel.remote.identity.to_string();
    status.local_address = tunnel.local.address;
    status.remote_address = tunnel.remote.address;
    status.sa = up.map(|up| {
        let spis = (IkeSpi(0x1122_3344_5566_7788), IkeSpi(0x99aa_bbcc_ddee_ff00));
        let [local, remote] = [tunnel.local.address, tunnel.remote.address].map(|address| {
            SocketAddr::new(address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), 500)
        });
        let mut sa = IkeSaStatus::new(spis, local, remote);
        sa.suite = Some(suite(tunnel));
        sa.established_for = Some(up.age());
        sa.rekey_in = Some(Duration::from_secs(25_000));
        sa.expires_in = Some(Duration::from_secs(28_800));
        sa.rekeys = up.rekeys;
        sa
    });
    status.children = tunnel.children.iter().map(|child| picture_of(child, state, up)).collect();
    status.last_failure = failure.map(|failure| (failure.clone(), ago));
    status.failures = failure.map(|f| PastFailure::new(f.clone(), ago)).into_iter().collect();
    status
}

fn picture_of(child: &ChildTunnel, state: State, up: Option<Up>) -> ChildStatus {
    let mut status = ChildStatus::new(&child.name, child.mode);
    status.state = state;
    status.local = child.local.clone();
    status.remote = child.remote.clone();
    status.sa = up.map(|up| {
        let proposal = &child.proposals[0];
        let spis = (Spi(0x1000_0001), Spi(0x2000_0002));
        let suite = ChildSuite::new(proposal.protection);
        let mut sa = ChildSaStatus::new(suite, spis, proposal.lifetime);
        (sa.packets_in, sa.packets_out) = (1_200, 3_400);
        (sa.bytes_in, sa.bytes_out) = (1_572_864, 52_428_800);
        sa.refused = 1;
        sa.established_for = up.age();
        sa.rekey_in = Some(Duration::from_secs(90));
        sa.expires_in = Some(Duration::from_secs(180));
        sa.rekeys = up.rekeys;
        sa
    });
    status.next = up.is_none().then_some(Next::Command { deactivated: false });
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_twin_does_as_the_engine_promises() {
        let text = include_str!("../tests/policies/site/left.xml");
        let text = text.replace("IKE_Role=\"Both\"", "IKE_Role=\"Responder\"");
        let policy = policy::xml::read("left.xml", &text).expect("valid").policy;
        let memory = MemoryGateway::new(policy);
        let tunnels = memory.gateway().tunnels();
        assert!(tunnels.activate(Selection::All).await.expect("nothing to start").is_empty());
        let error = tunnels.activate(["site"]).await.expect_err("a responder");
        assert!(error.to_string().contains("only the peer may start it"), "{error}");
        memory.gateway().stop().await;
        assert_eq!(memory.gateway().closed().await, Closed::Stopped);
        assert!(tunnels.status().await.is_err());
    }

    #[tokio::test]
    async fn a_reading_begins_again_if_the_policy_is_replaced_meanwhile() {
        let text = include_str!("../tests/policies/site/left.xml");
        let small = policy::xml::read("left.xml", text).expect("valid").policy;
        let numbered = |number: usize| {
            let mut tunnel = IkeTunnel::clone(&small.tunnels[0]);
            tunnel.name = format!("site{number}");
            Arc::new(tunnel)
        };
        let memory = MemoryGateway::new(Policy { tunnels: (0..200).map(numbered).collect() });
        let gateway = memory.gateway().clone();
        assert_eq!(gateway.tunnels().status().await.expect("it runs").len(), 200);
        memory.page_wanted().await;

        memory.keep_pages();
        let reader = gateway.clone();
        let reading = tokio::spawn(async move { reader.tunnels().status().await });
        memory.page_wanted().await;
        memory.give_pages(1);
        memory.page_wanted().await;
        gateway.replace_policy(small).await.expect("it is valid");
        memory.give_pages(100);
        let status = reading.await.expect("no panic").expect("it runs");
        assert_eq!(status.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["site"]);
    }
}
