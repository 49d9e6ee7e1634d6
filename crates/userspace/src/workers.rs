//! The threads that carry packets: how many, after which schedule, how they wait, and changing all of it while packets
//! pass.
//!
//! There are none while no SA is up and no rule waits for a packet: the sockets then take nothing, and what the device
//! holds when work begins is dropped as packets without an SA are.

mod frozen;
mod plane;
mod report;
mod settings;

pub use frozen::FrozenWorkers;
pub use report::{Depth, Report, StageReport, ThreadReport};
pub use settings::{Affinity, Change, Count, Schedule, Settings, SettingsError};

use super::crypto_engine::{CryptoEngine, CryptoEngineWork};
use super::pipeline::{self, Pipeline};
use super::queue_pair::QueuePair;
use super::requests::Orders;
use super::sched_policy::yield_to_wakers;
use super::stage::{Flow, Stage, StageStats};
use super::worker::{self, Shared, WorkerConfig};
use esp::datapath::{Lookups, SaLookups};
use esp::plane::PlaneError;
use floor::refused;
use frozen::Frozen;
use plane::Plane;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// The workers of one plane: a handle to look at and to change them, from before the plane starts to after its end.
/// Clones share everything.
#[derive(Clone)]
pub struct Workers(Arc<Mutex<State>>);

struct State {
    settings: Settings,
    plane: Option<Plane>,
    team: Option<Team>,
    /// There is no team, whatever there is to do.
    frozen: Option<Frozen>,
    engine: Arc<CryptoEngine>,
    engine_is_on: bool,
    /// The counters of teams that are gone.
    past: [Flow; Stage::ALL.len()],
    past_lookups: (Lookups, SaLookups),
}

/// The threads that run together.
struct Team {
    threads: Vec<Thread>,
    pipeline: Option<Arc<Pipeline>>,
}

struct Thread {
    name: String,
    role: &'static str,
    orders: Arc<Orders>,
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
            frozen: None,
            engine: Arc::new(CryptoEngine::new(0)),
            engine_is_on: false,
            past: Default::default(),
            past_lookups: Default::default(),
        })))
    }

    /// Their settings.
    pub fn settings(&self) -> Settings {
        self.lock().settings.clone()
    }

    /// Changes how they work, without losing a packet: packets under way are finished in their order, and packets that
    /// come meanwhile wait in the kernel's queues. Blocks for about a millisecond.
    ///
    /// # Errors
    /// Where a CPU is not available or the system refuses; everything is then as before.
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

    /// Switches the engine on for requests of so many octets and above, or off (`None`). While it is on, one thread
    /// reads and works on smaller requests, and at least one other works on the rest, whatever the schedule of the
    /// settings is. No packet is lost or overtaken. Blocks for about a millisecond if it goes on or off.
    ///
    /// # Errors
    /// If the system refuses a thread; everything is then as before.
    pub fn set_engine(&self, from: Option<u64>) -> Result<(), SettingsError> {
        let mut state = self.lock();
        let before = state.engine_is_on;
        if let Some(octets) = from {
            state.engine.take_from(octets);
        }
        state.engine_is_on = from.is_some();
        if state.team.is_none() || before == state.engine_is_on {
            return Ok(());
        }
        state.disband();
        let outcome = state.widen().and_then(|()| state.assemble());
        outcome.map_err(|error| {
            state.engine_is_on = before;
            if state.team.is_none()
                && let Err(error) = state.assemble()
            {
                tracing::error!(%error, "no worker is left; no traffic passes until a restart");
            }
            SettingsError::System(error)
        })
    }

    /// Returns `true` if the engine is on.
    pub fn engine_is_on(&self) -> bool {
        self.lock().engine_is_on
    }

    /// The work that the engine was given since the start.
    pub fn engine_work(&self) -> CryptoEngineWork {
        self.lock().engine.work()
    }

    /// A report of their present work.
    pub fn report(&self) -> Report {
        self.lock().report()
    }

    /// Calls every thread, which answers in its next round; a thread that waits for packets is woken for that. Returns
    /// the names of those that have not answered the last call: they are stuck. May block for as long as a thread that
    /// is stuck is waited for.
    pub fn roll_call(&self) -> Vec<String> {
        let state = self.lock();
        let threads = state.team.iter().flat_map(|team| &team.threads);
        threads.filter(|thread| !thread.orders.call()).map(|thread| thread.name.clone()).collect()
    }

    /// Lets them work for a plane.
    pub(super) fn attach(
        &self,
        device: &str,
        shared: Arc<Shared>,
        first: Arc<QueuePair>,
    ) -> Result<(), PlaneError> {
        let mut state = self.lock();
        state.may_serve()?;
        first.close();
        first.sockets.port().steer(1)?;
        let mut plane = Plane::of(device, shared, vec![first]);
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
        state.frozen = None;
    }

    /// Has them begin, if they have not.
    pub(super) fn begin(&self) -> Result<(), PlaneError> {
        let mut state = self.lock();
        if let Some(frozen) = &mut state.frozen {
            frozen.works = true;
            return Ok(());
        }
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
        if let Some(frozen) = &mut state.frozen {
            frozen.works = false;
            return;
        }
        if state.team.is_none() {
            return;
        }
        state.disband();
        state.close();
    }

    /// Drops and counts the packets that wait in the device while nobody reads it: no SA is up that could carry them,
    /// and no tunnel waits for a packet.
    pub(super) fn discard_unread(&self) {
        let state = self.lock();
        if let (None, None, Some(plane)) = (&state.team, &state.frozen, &state.plane)
            && let Err(error) = plane.discard_unread()
        {
            tracing::debug!(%error, "the packets that wait in the device are not counted");
        }
    }

    /// Datagrams that full sockets had no room for, and those that came while no SA was up.
    pub(super) fn lost(&self) -> (u64, u64) {
        let mut state = self.lock();
        let open = state.takes_packets();
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
    /// # Errors
    /// If the settings cannot be, or there is a plane.
    fn may_serve(&self) -> Result<(), PlaneError> {
        self.settings.check().map_err(|error| PlaneError::System {
            what: "setting up the workers".to_owned(),
            why: error.to_string(),
        })?;
        match self.plane {
            None => Ok(()),
            Some(_) => Err(PlaneError::System {
                what: "setting up the workers".to_owned(),
                why: "these workers serve another plane; give each its own".to_owned(),
            }),
        }
    }

    /// The schedule in force: the engine is a part of the pipeline.
    fn schedule(&self) -> Schedule {
        if self.engine_is_on { Schedule::Pipeline } else { self.settings.schedule }
    }

    /// The number of threads in force: with the engine there is one beside the reader.
    fn number(&self) -> usize {
        self.settings.number().max(if self.engine_is_on { 2 } else { 1 })
    }

    /// Opens the queue pairs that the settings ask for; nobody works. Those that are too many stay, because packets may
    /// wait in them.
    fn widen(&mut self) -> Result<(), PlaneError> {
        let wanted = match self.schedule() {
            Schedule::RunToCompletion => self.number(),
            Schedule::Pipeline => 1,
        };
        let Some(plane) = &mut self.plane else { return Ok(()) };
        let before = plane.queue_pairs.clone();
        if wanted <= before.len() {
            return Ok(());
        }
        plane.widen(wanted)?;
        // The kernel now steers some flows to other queue pairs. Packets in the old ones come first.
        self.drain(before)
    }

    /// Brings to its end what waits in queue pairs that nobody serves.
    fn drain(&mut self, queue_pairs: Vec<Arc<QueuePair>>) -> Result<(), PlaneError> {
        let Some(plane) = &self.plane else { return Ok(()) };
        if queue_pairs.is_empty() {
            return Ok(());
        }
        let stats = Arc::new(StageStats::default());
        let config = WorkerConfig {
            batches: plane.shared.under_way.worker(),
            shared: Arc::clone(&plane.shared),
            queue_pairs,
            releases: false,
            wait: self.settings.wait,
            orders: Arc::new(
                Orders::new()
                    .map_err(|error| refused("emptying the queue pairs".to_owned(), &error))?,
            ),
            stats: Arc::clone(&stats),
        };
        worker::drain(&config)
            .map_err(|error| refused("emptying the queue pairs".to_owned(), &error))?;
        self.retire(&stats);
        Ok(())
    }

    /// Takes nothing any more; nobody works.
    fn close(&mut self) {
        let Some(plane) = &mut self.plane else { return };
        plane.close();
        // Packets that wait in queue pairs that go must not be lost without being counted.
        let going = plane.queue_pairs.iter().skip(1).cloned().collect();
        if let Err(error) = self.drain(going) {
            tracing::debug!(%error, "the packets that waited in the queue pairs are lost");
        }
        if let Some(plane) = &mut self.plane {
            plane.narrow();
        }
    }

    /// Keeps what somebody has counted who counts no more.
    fn retire(&mut self, stats: &StageStats) {
        for (past, stage) in self.past.iter_mut().zip(Stage::ALL) {
            *past += stats.flow(stage);
        }
        self.past_lookups.0 += stats.lookups();
        self.past_lookups.1 += stats.inbound_lookups();
    }

    fn assemble(&mut self) -> Result<(), PlaneError> {
        let Some(plane) = &self.plane else { return Ok(()) };
        let (schedule, number) = (self.schedule(), self.number());
        let engine = self.engine_is_on.then(|| Arc::clone(&self.engine));
        let mut team = Team { threads: Vec::new(), pipeline: None };
        let outcome = match schedule {
            Schedule::RunToCompletion => team.run_to_completion(plane, &self.settings, number),
            Schedule::Pipeline => team.pipeline(plane, &self.settings, number, engine),
        };
        let outcome = outcome.map_err(|e| refused("starting a worker thread".to_owned(), &e));
        self.team = Some(team);
        outcome.inspect_err(|_| self.disband())
    }

    /// Stops all threads; they finish what they have begun.
    fn disband(&mut self) {
        let Some(team) = self.team.take() else { return };
        for thread in &team.threads {
            thread.orders.end();
        }
        for thread in team.threads {
            if thread.handle.join().is_err() {
                tracing::error!(thread = thread.name, "a worker thread had panicked");
            }
            self.retire(&thread.stats);
        }
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
            self.start(plane, settings, "worker", |orders, stats| {
                let shared = Arc::clone(&plane.shared);
                let of_thread = Arc::clone(&shared);
                let config = WorkerConfig {
                    batches: shared.under_way.worker(),
                    shared,
                    queue_pairs,
                    releases: index == 0,
                    wait: settings.wait,
                    orders,
                    stats,
                };
                move || of_thread.take_outcome(worker::run(&config))
            })?;
        }
        Ok(())
    }

    fn pipeline(
        &mut self,
        plane: &Plane,
        settings: &Settings,
        number: usize,
        engine: Option<Arc<CryptoEngine>>,
    ) -> io::Result<()> {
        let Some(first) = plane.queue_pairs.first() else { return Ok(()) };
        let (pipeline, feed) = Pipeline::new(&plane.shared, first, engine)?;
        let pipeline = Arc::new(pipeline);
        let wait = settings.wait;
        for _ in 1..number {
            let pipeline = Arc::clone(&pipeline);
            self.start(plane, settings, "crypto", |orders, stats| {
                move || pipeline.work(wait, &orders, &stats)
            })?;
        }
        self.pipeline = Some(Arc::clone(&pipeline));
        let (shared, queue_pairs) = (Arc::clone(&plane.shared), plane.queue_pairs.clone());
        self.start(plane, settings, "reader", |orders, stats| {
            let of_thread = Arc::clone(&shared);
            let batches = shared.under_way.worker();
            let config =
                WorkerConfig { shared, queue_pairs, releases: true, wait, orders, stats, batches };
            move || of_thread.take_outcome(pipeline::read(&config, &pipeline, feed, number == 1))
        })
    }

    fn start<W: FnOnce() + Send + 'static>(
        &mut self,
        plane: &Plane,
        settings: &Settings,
        role: &'static str,
        work: impl FnOnce(Arc<Orders>, Arc<StageStats>) -> W,
    ) -> io::Result<()> {
        let index = self.threads.len();
        let (orders, stats) = (Arc::new(Orders::new()?), Arc::new(StageStats::default()));
        let tid = Arc::new(AtomicU32::new(0));
        let refused = Arc::new(Mutex::new(Vec::new()));
        let cpu = settings.affinity.cpu(index);
        let work = work(Arc::clone(&orders), Arc::clone(&stats));
        let name = format!("{}-{index}", plane.device);
        let handle = std::thread::Builder::new().name(name.clone()).spawn({
            let (tid, refused) = (Arc::clone(&tid), Arc::clone(&refused));
            let of_thread = Arc::clone(&orders);
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
                // Not after a panic.
                of_thread.rest(true);
            }
        })?;
        let since = Instant::now();
        self.threads.push(Thread { name, role, orders, stats, since, tid, refused, handle });
        Ok(())
    }
}

fn stay_on(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}
