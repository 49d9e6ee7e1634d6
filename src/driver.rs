//! The tokio shell: sockets, clock and commands around an [`Engine`].

mod addresses;
mod event_senders;
mod filter_change;
mod handle;
mod jobs;
mod nat_t;
mod plane_guard;
mod reachability;
mod replacement;
mod selection;
mod socket;
mod waiting;

pub use event_senders::EventSenders;
pub use handle::{Activation, Begun, GatewayError, Handle, WeakHandle};
pub use jobs::Fetcher;
pub use nat_t::{EspSink, NatT, hear_icmp};
pub use selection::Selection;
pub use socket::SocketError;

use crate::closed::{self, Closed, TellEnd};
use addresses::WatchedHost;
use esp::filter::FilterStatus;
use esp::plane::{DataPlane, Filtering, Maintenance, Notice};
use filter_change::{FilterChanges, FilterDone};
pub(crate) use handle::Command;
use host::IcmpError;
use ike::discard::Discard;
use ike::priority_queue::PriorityQueue;
use ike::proof::Done;
use ike::{Datagram, Engine, Event, Output, Transmit};
use jobs::Jobs;
use plane_guard::PlaneGuard;
use policy::Policy;
use replacement::{Prepared, Replacements};
use socket::{IkeSockets, Received};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use waiting::Waiting;

/// The time that peers have to answer the last Deletes.
const STOP_LIMIT: Duration = Duration::from_secs(3);
/// Reads of the sockets before the next message is answered.
const GATHERED: usize = 64;
/// IKE messages that may wait for the engine; more are dropped, as a full socket would.
const DATAGRAMS: usize = 1024;
/// ICMP messages that may wait for the engine.
const REPORTS: usize = 64;

/// The way from a data plane to its engine. It is cloned into the plane's hooks, may be called on any thread, and
/// never blocks.
#[derive(Clone)]
pub struct Inlet {
    datagrams: mpsc::Sender<Received>,
    notices: mpsc::UnboundedSender<Notice>,
    icmp: mpsc::Sender<IcmpError>,
    overflow: Overflow,
}

impl Inlet {
    /// Hands over an IKE message that came to port 4500, without its non-ESP marker. Dropped if too many wait.
    pub fn datagram(&self, local: SocketAddr, remote: SocketAddr, octets: Vec<u8>) {
        if self.datagrams.try_send(Received { local, remote, octets }).is_err() {
            self.overflow.count(remote);
        }
    }

    /// Hands over an ICMP message about a message of IKE from port 4500; its quotation begins with the header of IKE.
    /// Dropped if too many wait.
    fn icmp(&self, report: IcmpError) {
        let _ = self.icmp.try_send(report);
    }

    /// Hands over a notice.
    pub fn notice(&self, notice: Notice) {
        // The engine has stopped: nobody is left to care.
        let _ = self.notices.send(notice);
    }
}

/// The other end of [`Inlet`].
pub struct Inputs {
    datagrams: mpsc::Receiver<Received>,
    notices: mpsc::UnboundedReceiver<Notice>,
    icmp: mpsc::Receiver<IcmpError>,
    overflow: Overflow,
}

/// Makes both ends, before there is a plane.
pub fn inlet() -> (Inlet, Inputs) {
    let (datagrams, datagrams_out) = mpsc::channel(DATAGRAMS);
    let (notices, notices_out) = mpsc::unbounded_channel();
    let (icmp, icmp_out) = mpsc::channel(REPORTS);
    let overflow = Overflow::default();
    (
        Inlet { datagrams, notices, icmp, overflow: overflow.clone() },
        Inputs { datagrams: datagrams_out, notices: notices_out, icmp: icmp_out, overflow },
    )
}

/// IKE messages that found no room to wait for the engine, on whichever thread.
#[derive(Clone, Default)]
struct Overflow(Arc<AtomicU64>);

impl Overflow {
    fn count(&self, remote: SocketAddr) {
        tracing::debug!(%remote, "IKE message dropped, too many wait");
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The parts of a plane that the engine does not know: a thread of its own runs what they return, so that the engine
/// goes on.
pub struct PlaneHooks<P> {
    /// Makes a reader of the plane's counters.
    pub counters: fn(&mut P) -> CounterReader,
    /// Prepares the plane for the tunnels of a policy, which the engine gets once this is complete.
    pub expect_policy: fn(&mut P, &Policy) -> Completion,
    /// Prepares the plane in another way if the system has refused the first one.
    pub retry_preparation: fn(&mut P) -> Option<Completion>,
    /// Called when the engine has replaced the policy: the plane lets go of the tunnels that are gone.
    pub forget_former_policy: fn(&mut P) -> Completion,
    /// Adds to a policy what this side knows by itself, before anything else sees the policy.
    pub complete_policy: fn(Arc<Policy>) -> Arc<Policy>,
    /// Called with each policy when it is in force. Returns what there is to say about its tunnels.
    pub follow_policy: PolicyFollower,
}

/// Prepares for the peers of a policy.
pub type PolicyFollower = Box<dyn Fn(&Policy) -> Vec<Event> + Send>;

/// Waits until a change of the plane is complete.
pub type Completion = Box<dyn FnOnce() + Send>;

/// Reads the counters of a plane, by reason. It may wait for another program.
pub type CounterReader = Box<dyn FnOnce() -> BTreeMap<&'static str, u64> + Send>;

/// Sees the plane once more when the engine has stopped, before the plane is dropped.
pub type OnEnd<P> = Box<dyn FnOnce(&mut P, &Closed) + Send>;

/// IKE's sockets on port 500, and the host's news of its addresses.
pub struct Sockets {
    ike: IkeSockets,
    host: Option<WatchedHost>,
}

impl Sockets {
    /// Opens them in the calling thread's network namespace, inside a tokio runtime. `mark` is put on them (SO_MARK),
    /// so that IKE does not enter its own tunnels.
    ///
    /// # Errors
    /// If one cannot be had: its port is taken, or a capability is missing.
    pub fn open(mark: u32) -> Result<Self, SocketError> {
        let ike = IkeSockets::open(ike::IKE_PORT, mark)?;
        let host = WatchedHost::open(mark);
        let host = host.inspect_err(|error| {
            tracing::warn!(%error, "changes of this host's addresses will not be noticed");
        });
        Ok(Self { ike, host: host.ok() })
    }
}

impl Sockets {
    /// No port 500: IKE has only the way of [`NatT`]. The host still has addresses.
    pub fn without_port() -> Self {
        let host = WatchedHost::open(0).inspect_err(|error| {
            tracing::debug!(%error, "changes of this host's addresses will not be noticed");
        });
        Self { ike: IkeSockets::none(), host: host.ok() }
    }
}

/// The surroundings of an engine.
pub struct Surroundings<P> {
    /// IKE's sockets.
    pub sockets: Sockets,
    /// From the plane.
    pub inputs: Inputs,
    /// The other port.
    pub nat_t: NatT,
    /// The parts of the plane that the engine does not know.
    pub plane_hooks: PlaneHooks<P>,
    /// Called before the plane is dropped, also if the runtime ends; not after a panic.
    pub on_end: OnEnd<P>,
    /// Has the revocation lists that the engine's policy wants and that are not loaded.
    pub fetcher: Fetcher,
    /// The engine's policy.
    pub policy: Arc<Policy>,
    /// Where events go.
    pub events: EventSenders,
}

/// Runs an engine, which `make` makes, in the current tokio runtime.
pub fn start<P: DataPlane + Send + 'static>(
    surroundings: Surroundings<P>,
    make: impl FnOnce(Instant) -> Engine<P>,
) -> Handle {
    let Surroundings { sockets, inputs, nat_t, plane_hooks, on_end, fetcher, policy, events } =
        surroundings;
    let (commands, commands_out) = mpsc::channel(64);
    let (replacements, prepared) = Replacements::new();
    let (filter_changes, filter_done) = FilterChanges::new();
    let (tell_end, end) = closed::channel();
    let handle = Handle::new(commands, events.downgrade(), end);
    (plane_hooks.follow_policy)(&policy).into_iter().for_each(|event| events.send(event));
    let (jobs, done) = Jobs::new(fetcher, policy);
    let driver = Driver {
        engine: PlaneGuard::new(make(Instant::now()), on_end),
        sockets: Arc::new(sockets.ike),
        host: sockets.host,
        send_nat_t: nat_t.send,
        plane_hooks,
        jobs,
        replacements,
        filter_changes,
        queue: PriorityQueue::default(),
        overflow: inputs.overflow.clone(),
        waiting: Waiting::default(),
        events,
    };
    let engine = tokio::spawn(driver.run(inputs, commands_out, done, prepared, filter_done));
    tokio::spawn(supervise(engine, nat_t.listeners, nat_t.of_plane, tell_end));
    handle
}

/// Waits for the end of the engine's task, however it ends, and says so once no port is taken any more.
async fn supervise(
    engine: JoinHandle<Closed>,
    mut listeners: JoinSet<()>,
    of_plane: Option<JoinHandle<()>>,
    tell_end: TellEnd,
) {
    let closed = match engine.await {
        Ok(closed) => closed,
        Err(error) => match error.try_into_panic() {
            Ok(payload) => Closed::of_panic(&*payload),
            Err(_cancelled) => Closed::RuntimeEnded,
        },
    };
    if let Closed::Panicked { message } = &closed {
        tracing::error!(%message, "the engine has panicked; traffic of the tunnels stays blocked");
    }
    listeners.shutdown().await;
    if let Some(task) = of_plane {
        // However it has ended: the plane is dropped by now.
        let _ = task.await;
    }
    tell_end.tell(closed);
}

struct Driver<P: DataPlane> {
    engine: PlaneGuard<P>,
    sockets: Arc<IkeSockets>,
    host: Option<WatchedHost>,
    send_nat_t: nat_t::SendNatT,
    plane_hooks: PlaneHooks<P>,
    jobs: Jobs,
    replacements: Replacements,
    filter_changes: FilterChanges,
    queue: PriorityQueue<Received>,
    overflow: Overflow,
    waiting: Waiting,
    events: EventSenders,
}

impl<P: DataPlane + Send + 'static> Driver<P> {
    async fn run(
        mut self,
        mut inputs: Inputs,
        mut commands: mpsc::Receiver<Command>,
        mut done: mpsc::UnboundedReceiver<Done>,
        mut prepared: mpsc::UnboundedReceiver<Prepared>,
        mut filter_done: mpsc::UnboundedReceiver<FilterDone>,
    ) -> Closed {
        self.look_at_addresses();
        let mut deadline = self.drain();
        let mut ending: Option<(Instant, Closed)> = None;
        // Every handle is gone: nobody can stop the engine any more.
        let mut abandoned = false;
        let closed = loop {
            let give_up = ending.as_ref().map(|(give_up, _)| *give_up);
            let wake = [deadline, self.waiting.next(), give_up].into_iter().flatten().min();
            let sockets = Arc::clone(&self.sockets);
            tokio::select! {
                received = sockets.receive() => received.into_iter().for_each(|d| self.sort_in(d)),
                Some(datagram) = inputs.datagrams.recv() => self.sort_in(datagram),
                () = std::future::ready(()), if !self.queue.is_empty() => {
                    self.gather(&mut inputs);
                    if let Some(datagram) = self.queue.pop() {
                        self.datagram(&datagram);
                    }
                }
                Some(report) = inputs.icmp.recv() => self.hear(report),
                Some(notice) = inputs.notices.recv() => self.engine.handle_notice(Instant::now(), notice),
                Some(done) = done.recv() => self.engine.handle_done(Instant::now(), done),
                Some(prepared) = prepared.recv() => self.finish_replacement(Instant::now(), prepared),
                Some(done) = filter_done.recv() => self.filter_changes.finish(self.engine.plane(), done),
                command = commands.recv(), if !abandoned => match command {
                    Some(Command::Stop) => {
                        let give_up = ending.map_or_else(|| self.begin_to_stop(), |(at, _)| at);
                        ending = Some((give_up, Closed::Stopped));
                    }
                    Some(command) => self.command(command),
                    None => {
                        abandoned = true;
                        ending = ending.or_else(|| Some((self.begin_to_stop(), Closed::Dropped)));
                    }
                },
                announced = addresses::changed(self.host.as_ref()) => {
                    self.look_at_addresses();
                    if announced.removed {
                        self.engine.handle_notice(Instant::now(), Notice::HostChanged);
                    }
                }
                () = sleep_until(wake) => self.engine.handle_timeout(Instant::now()),
            }
            self.hear_icmp();
            deadline = self.drain();
            self.waiting.expire(Instant::now());
            if let Some((_, closed)) =
                ending.take_if(|(at, _)| self.engine.is_idle() || *at <= Instant::now())
            {
                break closed;
            }
        };
        let Self { engine, sockets, host, send_nat_t, events, .. } = self;
        drop((sockets, host, send_nat_t));
        // Dropping the plane waits for its threads and undoes its changes to the system.
        let of_plane = closed.clone();
        let ended = tokio::task::spawn_blocking(move || engine.end(&of_plane)).await;
        if let Err(error) = ended
            && let Ok(payload) = error.try_into_panic()
        {
            std::panic::resume_unwind(payload);
        }
        // Listeners see the end of the events once everything else is done.
        drop(events);
        closed
    }

    fn begin_to_stop(&mut self) -> Instant {
        let now = Instant::now();
        self.engine.stop(now);
        now + STOP_LIMIT
    }

    fn look_at_addresses(&mut self) {
        self.engine.plane().maintenance().network_changed();
        let Some(WatchedHost { host, .. }) = &mut self.host else { return };
        match host.addresses() {
            Ok(addresses) => {
                self.engine
                    .handle_addresses(Instant::now(), &addresses, &mut |peer| host.source_for(peer))
            }
            Err(error) => tracing::warn!(%error, "cannot list this host's addresses"),
        }
    }

    /// Takes in what has come meanwhile, so that urgent messages do not wait behind the others.
    fn gather(&mut self, inputs: &mut Inputs) {
        for _ in 0..GATHERED {
            let received = self.sockets.receive_now();
            let none = received.is_empty();
            received.into_iter().for_each(|d| self.sort_in(d));
            let from_plane = inputs.datagrams.try_recv().ok();
            if none && from_plane.is_none() {
                break;
            }
            from_plane.into_iter().for_each(|d| self.sort_in(d));
        }
    }

    fn sort_in(&mut self, received: Received) {
        let remote = received.remote;
        if !self.queue.push(received, |r| &r.octets) {
            self.overflow.count(remote);
        }
    }

    fn datagram(&mut self, received: &Received) {
        let Received { local, remote, ref octets } = *received;
        self.engine.handle_datagram(Instant::now(), Datagram { local, remote, octets });
    }

    fn command(&mut self, command: Command) {
        let now = Instant::now();
        match command {
            Command::Activate(selection, reply) => {
                self.waiting.activate(&mut self.engine, now, &selection, reply)
            }
            Command::StartActivate(selection, reply) => {
                drop(reply.send(waiting::start_activate(&mut self.engine, now, &selection)))
            }
            Command::Deactivate(name, reply) => {
                self.waiting.deactivate(&mut self.engine, now, name, reply)
            }
            Command::StartDeactivate(name, reply) => {
                let begun = self.engine.disconnect(now, &name);
                drop(reply.send(begun.map(drop).map_err(GatewayError::from)));
            }
            Command::Rekey(name, reply) => self.waiting.rekey(&mut self.engine, now, name, reply),
            Command::Lacking(reply) => drop(reply.send(self.lacking())),
            Command::StatusPage(start, count, reply) => {
                drop(reply.send(self.engine.status_page(now, start, count)))
            }
            Command::StatusOf(name, reply) => drop(reply.send(self.engine.status_of(now, &name))),
            Command::Counters(reply) => self.tell_counters(reply),
            Command::ExchangeDurations(reply) => {
                // The caller may be gone.
                let _ = reply.send(*self.engine.exchange_durations());
            }
            Command::ReplacePolicy(policy, reply) => self.begin_replacement(policy, reply),
            Command::ReplaceTrust(trust, reply) => {
                self.engine.replace_trust(trust);
                let _ = reply.send(());
            }
            Command::Families(reply) => drop(reply.send(self.engine.families())),
            Command::SetFamilies(families, reply) => {
                drop(reply.send(self.engine.set_families(now, families)))
            }
            Command::Trust(reply) => drop(reply.send(Arc::clone(self.engine.trust()))),
            Command::Filter(reply) => self.tell_filter(reply),
            Command::SetFilter(filter, reply) => {
                self.filter_changes.begin(self.engine.plane(), filter, reply)
            }
            Command::Plane(work) => work(self.engine.plane()),
            Command::Stop => unreachable!("handled where the loop ends"),
        }
    }

    /// Answers with all counters, once those of the plane have been read.
    fn tell_counters(&mut self, reply: oneshot::Sender<BTreeMap<String, u64>>) {
        let ike = self.ike_counters();
        let plane = (self.plane_hooks.counters)(self.engine.plane());
        tokio::task::spawn_blocking(move || {
            let plane = plane().into_iter().map(|(name, count)| (format!("esp.{name}"), count));
            let _ = reply.send(ike.into_iter().chain(plane).collect());
        });
    }

    /// Answers with the filter, once its counters have been read.
    fn tell_filter(&mut self, reply: oneshot::Sender<Option<FilterStatus>>) {
        let read = self.engine.plane().filtering().filter_reader();
        tokio::task::spawn_blocking(move || drop(reply.send(read())));
    }

    fn ike_counters(&self) -> Vec<(String, u64)> {
        let overflow = self.overflow.0.load(Ordering::Relaxed);
        let discards = self.engine.discards();
        let counters = Discard::ALL.iter().map(|discard| {
            let count = match discard {
                Discard::TooManyWaiting => overflow,
                other => discards.get(other.name()).copied().unwrap_or(0),
            };
            (format!("ike.{}", discard.name()), count)
        });
        counters.collect()
    }

    /// Does what the engine asks for. Returns when the engine wants to be woken.
    #[must_use]
    fn drain(&mut self) -> Option<Instant> {
        loop {
            match self.engine.poll() {
                Output::Transmit(transmit) => self.send(&transmit),
                Output::Job(job) => self.jobs.start(job),
                Output::Event(event) => {
                    let under_way = self.engine.is_under_way(&event.tunnel);
                    self.waiting.see(&event, under_way);
                    self.events.send(event);
                }
                Output::Wait(deadline) => return deadline.map(|deadline| deadline.at),
            }
        }
    }

    fn send(&mut self, transmit: &Transmit) {
        // Without sockets of its own for port 500, the other way carries both ports.
        let nat_t = transmit.local.port() != ike::IKE_PORT || self.sockets.are_absent();
        let sent = if nat_t { (self.send_nat_t)(transmit) } else { self.sockets.send(transmit) };
        if let Err(error) = &sent {
            tracing::debug!(%error, remote = %transmit.remote, "IKE message not sent");
        }
        let sent = sent.map_err(|error| self.cause(transmit, &error));
        self.engine.handle_sent(Instant::now(), transmit, sent);
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
