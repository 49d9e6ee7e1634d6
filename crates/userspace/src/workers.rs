//! The threads that carry packets: how many, after which schedule, how they wait, and changing all of it while packets
//! pass.
//!
//! There are none while no SA is up and no rule waits for a packet: the sockets then take nothing, and what the device
//! holds when work begins is dropped as packets without an SA are.

mod report;
mod settings;

pub use report::{Depth, Report, StageReport, ThreadReport};
pub use settings::{Affinity, Change, Count, Schedule, Settings, SettingsError};

use super::pipeline::{self, Pipeline};
use super::queue_pair::QueuePair;
use super::refusal::refused;
use super::sched_policy::yield_to_wakers;
use super::stage::{Flow, Stage, StageStats};
use super::steering::fill;
use super::worker::{self, Shared, Stop, WorkerConfig};
use esp::datapath::Lookups;
use esp::plane::PlaneError;
use esp::queue::SendQueue;
use host::namespace::Namespace;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Most packets that are dropped together because nobody reads them: several times what the device holds.
const UNREAD: usize = 4096;

/// The workers of one plane: a handle to look at and to change them, from before the plane starts to after its end.
/// Clones share everything.
#[derive(Clone)]
pub struct Workers(Arc<Mutex<State>>);

struct State {
    settings: Settings,
    plane: Option<Plane>,
    team: Option<Team>,
    /// The counters of teams that are gone.
    past: [Flow; Stage::ALL.len()],
    past_lookups: Lookups,
}

/// The plane that the threads serve.
struct Plane {
    device: String,
    namespace: Option<Namespace>,
    shared: Arc<Shared>,
    queue_pairs: Vec<Arc<QueuePair>>,
    /// Datagrams that full sockets had no room for.
    unreceived: u64,
    /// Datagrams that the sockets have not taken because no SA was up.
    declined: u64,
    /// The part of the sockets' drops that has been counted.
    accounted: u64,
}

/// The threads that run together.
struct Team {
    threads: Vec<Thread>,
    pipeline: Option<Arc<Pipeline>>,
}

struct Thread {
    name: String,
    role: &'static str,
    stop: Arc<Stop>,
    stats: Arc<StageStats>,
    since: Instant,
    /// Its number in `/proc`, once it runs.
    tid: Arc<AtomicU32>,
    /// Settings of its scheduling that the system refused, each with the reason.
    refused: Arc<Mutex<Vec<String>>>,
    handle: JoinHandle<()>,
}

impl Workers {
    /// Workers that are to be as these say, once there is work.
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(Mutex::new(State {
            settings,
            plane: None,
            team: None,
            past: Default::default(),
            past_lookups: Lookups::default(),
        })))
    }

    /// Their settings.
    pub fn settings(&self) -> Settings {
        self.lock().settings.clone()
    }

    /// Changes how they work, without losing a packet: what is under way is finished in its order, and what comes
    /// meanwhile waits in the kernel's queues. Blocks for about a millisecond.
    ///
    /// # Errors
    /// Where a CPU is not to be had or the system refuses; everything is then as before.
    pub fn change(&self, change: &Change) -> Result<Settings, SettingsError> {
        let mut state = self.lock();
        let settings = change.applied_to(&state.settings);
        settings.check()?;
        let before = std::mem::replace(&mut state.settings, settings.clone());
        if state.team.is_some() && before != settings {
            state.disband();
            let outcome = state.widen().and_then(|()| state.assemble());
            if let Err(error) = outcome {
                state.settings = before;
                if state.team.is_none()
                    && let Err(error) = state.assemble()
                {
                    tracing::error!(%error, "no worker is left; no traffic passes until a restart");
                }
                return Err(SettingsError::System(error));
            }
        }
        Ok(settings)
    }

    /// A report of their present work.
    pub fn report(&self) -> Report {
        self.lock().report()
    }

    /// Lets them work for a plane.
    pub(super) fn attach(
        &self,
        device: &str,
        shared: Arc<Shared>,
        first: Arc<QueuePair>,
    ) -> Result<(), PlaneError> {
        let mut state = self.lock();
        state.settings.check().map_err(|error| PlaneError::System {
            what: "setting up the workers".to_owned(),
            why: error.to_string(),
        })?;
        if state.plane.is_some() {
            return Err(PlaneError::System {
                what: "setting up the workers".to_owned(),
                why: "these workers serve another plane; give each its own".to_owned(),
            });
        }
        first.close();
        first.sockets.port().steer(1)?;
        let namespace = Namespace::current()
            .inspect_err(|error| tracing::debug!(%error, "the network namespace has no name"))
            .ok();
        let mut plane = Plane {
            device: device.to_owned(),
            namespace,
            shared,
            queue_pairs: vec![first],
            unreceived: 0,
            declined: 0,
            accounted: 0,
        };
        // Some sockets are older than this device.
        plane.accounted = plane.dropped();
        state.plane = Some(plane);
        Ok(())
    }

    /// Ends all work for the plane.
    pub(super) fn detach(&self) {
        let mut state = self.lock();
        state.disband();
        state.plane = None;
    }

    /// Has them begin, if they have not.
    pub(super) fn begin(&self) -> Result<(), PlaneError> {
        let mut state = self.lock();
        if state.team.is_some() {
            return Ok(());
        }
        let opened = state.plane.as_mut().map_or(Ok(()), Plane::open);
        let begun = opened.and_then(|()| state.widen()).and_then(|()| state.assemble());
        begun.inspect_err(|_| {
            if let Some(plane) = &mut state.plane {
                plane.close();
                plane.narrow();
            }
        })
    }

    /// Has them rest until they are to [begin](Self::begin).
    pub(super) fn rest(&self) {
        let mut state = self.lock();
        if state.team.is_none() {
            return;
        }
        state.disband();
        let Some(plane) = &mut state.plane else { return };
        plane.close();
        // What waits in queue_pairs that go is not to go without being counted.
        let going = plane.queue_pairs.iter().skip(1).cloned().collect();
        if let Err(error) = state.drain(going) {
            tracing::debug!(%error, "what waited in the queue_pairs is lost");
        }
        if let Some(plane) = &mut state.plane {
            plane.narrow();
        }
    }

    /// Drops and counts the packets that wait in the device while nobody reads it: no SA is up that could carry them, and no
    /// tunnel waits for a packet.
    pub(super) fn discard_unread(&self) {
        let state = self.lock();
        if let (None, Some(plane)) = (&state.team, &state.plane)
            && let Err(error) = plane.discard_unread()
        {
            tracing::debug!(%error, "the packets that wait in the device are not counted");
        }
    }

    /// Datagrams that full sockets had no room for, and those that came while no SA was up.
    pub(super) fn lost(&self) -> (u64, u64) {
        let mut state = self.lock();
        let open = state.team.is_some();
        state.plane.as_mut().map_or((0, 0), |plane| {
            plane.account(open);
            (plane.unreceived, plane.declined)
        })
    }

    /// A thread that panicked left nothing half done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Workers {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workers").field(&self.settings()).finish()
    }
}

impl State {
    /// Opens the queue_pairs that the settings ask for; nobody works. Those that are too many stay, because packets may wait
    /// in them.
    fn widen(&mut self) -> Result<(), PlaneError> {
        let Some(plane) = &mut self.plane else { return Ok(()) };
        let wanted = match self.settings.schedule {
            Schedule::RunToCompletion => self.settings.number(),
            Schedule::Pipeline => 1,
        };
        let before = plane.queue_pairs.clone();
        if wanted <= before.len() {
            return Ok(());
        }
        plane.widen(wanted)?;
        // The kernel now sends some flows another way. What it sent the old way comes first.
        self.drain(before)
    }

    /// Brings to its end what waits in queue_pairs that nobody serves.
    fn drain(&mut self, queue_pairs: Vec<Arc<QueuePair>>) -> Result<(), PlaneError> {
        let Some(plane) = &self.plane else { return Ok(()) };
        if queue_pairs.is_empty() {
            return Ok(());
        }
        let stats = Arc::new(StageStats::default());
        let failed = |e: io::Error| refused("emptying the queue_pairs".to_owned(), &e);
        let post = WorkerConfig {
            shared: Arc::clone(&plane.shared),
            queue_pairs,
            releases: false,
            wait: self.settings.wait,
            stop: Arc::new(Stop::new().map_err(failed)?),
            stats: Arc::clone(&stats),
        };
        worker::drain(&post).map_err(failed)?;
        self.retire(&stats);
        Ok(())
    }

    /// Keeps what somebody has counted who counts no more.
    fn retire(&mut self, stats: &StageStats) {
        for (past, stage) in self.past.iter_mut().zip(Stage::ALL) {
            *past += stats.flow(stage);
        }
        self.past_lookups += stats.lookups();
    }

    fn assemble(&mut self) -> Result<(), PlaneError> {
        let Some(plane) = &self.plane else { return Ok(()) };
        let number = self.settings.number();
        let mut team = Team { threads: Vec::new(), pipeline: None };
        let outcome = match self.settings.schedule {
            Schedule::RunToCompletion => team.run_to_completion(plane, &self.settings, number),
            Schedule::Pipeline => team.pipeline(plane, &self.settings, number),
        };
        let outcome = outcome.map_err(|e| refused("starting a worker thread".to_owned(), &e));
        self.team = Some(team);
        outcome.inspect_err(|_| self.disband())
    }

    /// Stops all threads; they finish what they have begun.
    fn disband(&mut self) {
        let Some(team) = self.team.take() else { return };
        for thread in &team.threads {
            thread.stop.want();
        }
        for thread in team.threads {
            if thread.handle.join().is_err() {
                tracing::error!(thread = thread.name, "a worker thread had panicked");
            }
            self.retire(&thread.stats);
        }
    }
}

impl Plane {
    /// Begins to take packets.
    fn open(&mut self) -> Result<(), PlaneError> {
        self.account(false);
        self.discard_unread()?;
        let Some(first) = self.queue_pairs.first() else { return Ok(()) };
        first.reopen().map_err(|e| refused("opening the sockets of ESP".into(), &e))?;
        first.sockets.port().leave_to_kernel()
    }

    /// Nobody has read the device since the last SA went, and its packets have waited for none.
    fn discard_unread(&self) -> Result<(), PlaneError> {
        let Some(first) = self.queue_pairs.first() else { return Ok(()) };
        let (mut packet, mut none) = (vec![0; worker::LONGEST], SendQueue::new(0));
        // Who sends without end is not waited for.
        for _ in 0..UNREAD {
            let read = first.tun.read(&mut packet);
            let read = read.map_err(|e| refused("reading the TUN device".into(), &e))?;
            let Some((length, offload)) = read else { break };
            let packet = &mut packet[..length];
            let datapath = &self.shared.datapath;
            let _ = datapath.encapsulate(Instant::now(), packet, offload, &mut none);
        }
        Ok(())
    }

    /// Takes no more.
    fn close(&mut self) {
        self.account(true);
        let Some(first) = self.queue_pairs.first() else { return };
        self.queue_pairs.iter().for_each(|queue_pair| queue_pair.close());
        if let Err(error) = first.sockets.port().steer(1) {
            tracing::debug!(%error, "steering ESP to the first queue_pair");
        }
    }

    /// Gives up all queue_pairs but the first.
    fn narrow(&mut self) {
        self.account(false);
        self.queue_pairs.truncate(1);
        self.accounted = self.dropped();
    }

    /// Puts what the sockets have dropped down to one cause or the other.
    fn account(&mut self, open: bool) {
        let dropped = self.dropped();
        let more = dropped.saturating_sub(self.accounted);
        *(if open { &mut self.unreceived } else { &mut self.declined }) += more;
        self.accounted = dropped;
    }

    fn widen(&mut self, wanted: usize) -> Result<(), PlaneError> {
        let Some(first) = self.queue_pairs.first().map(Arc::clone) else { return Ok(()) };
        while self.queue_pairs.len() < wanted {
            let another = || first.another();
            let queue_pair = match &self.namespace {
                Some(namespace) => namespace.inside(another).map_err(|e| {
                    refused("entering the network namespace of the plane".into(), &e)
                })??,
                None => another()?,
            };
            self.queue_pairs.push(Arc::new(queue_pair));
        }
        first.sockets.port().steer(self.queue_pairs.len())
    }

    /// The total of packets that the sockets have dropped.
    fn dropped(&self) -> u64 {
        let sockets = self.queue_pairs.iter().flat_map(|queue_pair| queue_pair.readable());
        sockets.map(|(_, socket)| fill(socket).dropped).sum()
    }
}

impl Team {
    fn run_to_completion(
        &mut self,
        plane: &Plane,
        settings: &Settings,
        number: usize,
    ) -> io::Result<()> {
        for index in 0..number {
            let queue_pairs =
                plane.queue_pairs.iter().skip(index).step_by(number).cloned().collect();
            self.start(plane, settings, "worker", |stop, stats| {
                let shared = Arc::clone(&plane.shared);
                let of_thread = Arc::clone(&shared);
                let post = WorkerConfig {
                    shared,
                    queue_pairs,
                    releases: index == 0,
                    wait: settings.wait,
                    stop,
                    stats,
                };
                move || of_thread.take_outcome(worker::run(&post))
            })?;
        }
        Ok(())
    }

    fn pipeline(&mut self, plane: &Plane, settings: &Settings, number: usize) -> io::Result<()> {
        let Some(first) = plane.queue_pairs.first() else { return Ok(()) };
        let (pipeline, feed) = Pipeline::new(&plane.shared, first)?;
        let pipeline = Arc::new(pipeline);
        let wait = settings.wait;
        for _ in 1..number {
            let pipeline = Arc::clone(&pipeline);
            self.start(plane, settings, "crypto", |_, stats| move || pipeline.work(wait, &stats))?;
        }
        self.pipeline = Some(Arc::clone(&pipeline));
        let (shared, queue_pairs) = (Arc::clone(&plane.shared), plane.queue_pairs.clone());
        self.start(plane, settings, "reader", |stop, stats| {
            let of_thread = Arc::clone(&shared);
            let post = WorkerConfig { shared, queue_pairs, releases: true, wait, stop, stats };
            move || of_thread.take_outcome(pipeline::read(&post, &pipeline, feed, number == 1))
        })
    }

    fn start<W: FnOnce() + Send + 'static>(
        &mut self,
        plane: &Plane,
        settings: &Settings,
        role: &'static str,
        work: impl FnOnce(Arc<Stop>, Arc<StageStats>) -> W,
    ) -> io::Result<()> {
        let index = self.threads.len();
        let (stop, stats) = (Arc::new(Stop::new()?), Arc::new(StageStats::default()));
        let tid = Arc::new(AtomicU32::new(0));
        let refused = Arc::new(Mutex::new(Vec::new()));
        let cpu = settings.affinity.cpu(index);
        let work = work(Arc::clone(&stop), Arc::clone(&stats));
        let name = format!("{}-{index}", plane.device);
        let handle = std::thread::Builder::new().name(name.clone()).spawn({
            let (tid, refused) = (Arc::clone(&tid), Arc::clone(&refused));
            let refuse = move |text| refused.lock().unwrap_or_else(PoisonError::into_inner).push(text);
            move || {
                tid.store(
                    rustix::thread::gettid().as_raw_nonzero().get() as u32,
                    Ordering::Relaxed,
                );
                if let Some(cpu) = cpu
                    && let Err(error) = stay_on(cpu)
                {
                    tracing::warn!(%error, cpu, "a worker cannot be kept on its CPU, and runs on any");
                    refuse(format!("the system refused to keep it on CPU {cpu}: {error}"));
                }
                if let Err(error) = yield_to_wakers() {
                    tracing::warn!(%error, "a worker could not set SCHED_BATCH: it preempts the thread that wakes it");
                    refuse(format!("the system refused to set SCHED_BATCH: {error}"));
                }
                work();
            }
        })?;
        let since = Instant::now();
        self.threads.push(Thread { name, role, stop, stats, since, tid, refused, handle });
        Ok(())
    }
}

fn stay_on(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}
