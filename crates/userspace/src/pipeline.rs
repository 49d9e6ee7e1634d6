//! The pipeline: one thread reads, any thread does the cryptography, and batches leave in order.
//!
//! 1. the reader takes batches from the device and the sockets (super-packets, and what a receiving call hands over);
//!    outbound packets get their SA and their sequence numbers there, in order;
//! 2. each batch goes through one bounded queue to whichever worker is free, which seals or opens all of it;
//! 3. batches come out in the order they were read ([`InOrder`]), by the hand of whoever finished the one that was due:
//!    outbound ones to the sockets, inbound ones past the anti-replay window to the device.
//!
//! Batches come from two pools and go back there. A reader that finds none free works on queued batches, so that the
//! number of packets under way is bounded and the kernel's queues hold the rest. One packet alone, with nothing else under way, is not
//! worth handing over: the reader does it.

mod batches;
mod ends;

use super::crypto_engine::CryptoEngine;
use super::event_fd::EventFd;
use super::order::InOrder;
use super::pool::Pool;
use super::queue_pair::{QueuePair, Wire};
use super::requests::Orders;
use super::stage::{Stage, StageStats};
use super::waiting::{Patience, Wait};
use super::watched::{Request, Traffic, Watched};
use super::worker::{DEVICE_BATCH, LONGEST, Shared, WorkerConfig};
use batches::{Incoming, Outgoing};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use ends::{send_out, write_out};
use esp::datapath::{self, SaLookups, stages::Admitted};
use floor::datagrams::BATCH;
use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// Batches of each direction.
const BATCHES: usize = 16;

/// Most messages of one inbound batch where each may hold many packets.
const MESSAGES: usize = 8;

/// The next step of a batch, and its number in its direction.
enum Job {
    Seal(u64, Box<Outgoing>),
    Open(u64, Box<Incoming>),
}

type Sink<T> = Box<dyn FnMut(T) + Send>;

/// The state that the threads of one pipeline share.
pub(super) struct Pipeline {
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
    outgoing: Arc<Pool<Outgoing>>,
    incoming: Arc<Pool<Incoming>>,
    sending: InOrder<Box<Outgoing>, Sink<Box<Outgoing>>>,
    writing: InOrder<Box<Incoming>, Sink<Box<Incoming>>>,
    /// Rung for a reader that found a pool empty.
    freed: Arc<EventFd>,
    /// If it is on, the reader works on requests that are too small for it.
    engine: Option<Arc<CryptoEngine>>,
}

/// The batches and packets under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Depth {
    /// Batches that wait for a worker, of both directions.
    pub queued: usize,
    /// Batches between being read and having left, and how many there may be: out, and in.
    pub outgoing: (usize, usize),
    pub incoming: (usize, usize),
}

thread_local! {
    /// The thread that brings the batch which is due does the work of the last stage, and counts it.
    static GAUGE: RefCell<Arc<StageStats>> = RefCell::default();
}

fn count(stage: Stage, packets: usize, octets: usize, begun: Instant) {
    GAUGE.with_borrow(|stats| stats.count(stage, packets, octets, begun.elapsed()));
}

fn looked_up_inbound(lookups: SaLookups, octets: usize) {
    GAUGE.with_borrow(|stats| stats.looked_up_inbound(lookups, octets));
}

impl Pipeline {
    /// Makes the pipeline, and what its reader puts jobs into: when that is gone the workers end with the last job.
    pub(super) fn new(
        shared: &Arc<Shared>,
        first: &Arc<QueuePair>,
        engine: Option<Arc<CryptoEngine>>,
    ) -> io::Result<(Self, Feed)> {
        let (feed, jobs) = crossbeam_channel::bounded(2 * BATCHES);
        let freed = Arc::new(EventFd::new()?);
        let outgoing = Arc::new(Pool::new(BATCHES, || Outgoing::new(first)));
        let incoming = Arc::new(Pool::new(BATCHES, || Incoming::new(first)));
        let pipeline = Self {
            shared: Arc::clone(shared),
            jobs,
            sending: InOrder::new(BATCHES, send_out(&outgoing, &freed)),
            writing: InOrder::new(
                BATCHES,
                write_out(shared, &incoming, &freed, first.tun.coalesce()),
            ),
            outgoing,
            incoming,
            freed,
            engine,
        };
        Ok((pipeline, Feed(feed)))
    }

    pub(super) fn depth(&self) -> Depth {
        Depth {
            queued: self.jobs.len(),
            outgoing: self.outgoing.used(),
            incoming: self.incoming.used(),
        }
    }

    /// Works on batches until no more can come.
    pub(super) fn work(&self, wait: Wait, orders: &Orders, stats: &Arc<StageStats>) {
        GAUGE.replace(Arc::clone(stats));
        let mut patience = Patience::new(wait);
        orders.rest(true);
        loop {
            let next = if patience.is_awake() {
                match self.jobs.try_recv() {
                    Ok(job) => Some(job),
                    Err(TryRecvError::Disconnected) => return,
                    Err(TryRecvError::Empty) => None,
                }
            } else {
                match self.jobs.recv() {
                    Ok(job) => Some(job),
                    Err(_) => return,
                }
            };
            match next {
                Some(job) => {
                    orders.rest(false);
                    self.does(job);
                    orders.rest(true);
                    patience.load();
                }
                None => patience.in_vain(),
            }
        }
    }

    fn does(&self, job: Job) {
        let begun = Instant::now();
        match job {
            Job::Seal(number, mut batch) => {
                batch.seal(&self.shared, begun);
                count(Stage::Seal, batch.send.packets(), batch.send.len(), begun);
                self.sending.put(number, batch);
            }
            Job::Open(number, mut batch) => {
                let octets = batch.open(&self.shared);
                looked_up_inbound(batch.receive.take_lookups(), octets);
                count(Stage::Open, batch.receive.accepted(), octets, begun);
                self.writing.put(number, batch);
            }
        }
    }
}

/// The reader's end of the job queue.
pub(super) struct Feed(Sender<Job>);

/// Reads until it is told to stop, or the device is gone; the feed goes with it. `alone`: there is no other thread.
pub(super) fn read(
    config: &WorkerConfig,
    pipeline: &Pipeline,
    feed: Feed,
    alone: bool,
) -> io::Result<()> {
    GAUGE.replace(Arc::clone(&config.stats));
    let sender = config.shared.datapath.sender();
    let carried = None;
    let feed = &feed.0;
    let mut reader =
        Reader { config, pipeline, sender, feed, alone, carried, sealed: 0, opened: 0 };
    reader.run()
}

struct Reader<'a> {
    config: &'a WorkerConfig,
    pipeline: &'a Pipeline,
    sender: datapath::Sender,
    feed: &'a Sender<Job>,
    alone: bool,
    /// A packet that was admitted, and begins the next batch: it is of the other size than those before it.
    carried: Option<Carried>,
    /// Numbers given out, by direction.
    sealed: u64,
    opened: u64,
}

/// A packet that has been admitted, outside of any batch.
struct Carried {
    packet: Vec<u8>,
    admitted: Admitted,
    is_for_engine: bool,
}

/// The result of an attempt to read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    Nothing,
    /// So many packets, or messages.
    Some(usize),
    /// There was no batch to read to.
    NoRoom,
}

impl Reader<'_> {
    fn run(&mut self) -> io::Result<()> {
        let WorkerConfig { shared, queue_pairs, orders, .. } = self.config;
        let (release, freed) = (Some(&*shared.release), Some(&*self.pipeline.freed));
        let mut watched = Watched::new(queue_pairs, self.config.wait, orders, release, freed)?;
        let mut full = false;
        loop {
            match watched.wait(!full)? {
                Request::End => return Ok(()),
                Request::Release => self.release(queue_pairs),
                Request::Nothing => {}
            }
            let mut moved = 0;
            let retry = std::mem::take(&mut full);
            for (Traffic { queue_pair, socket, .. }, ready) in watched.traffic() {
                if !retry && !ready {
                    continue;
                }
                let read = match socket {
                    None => self.read_device(queue_pair)?,
                    Some((wire, socket)) => self.read_socket(queue_pair, wire, socket),
                };
                match read {
                    Read::Nothing => {}
                    Read::Some(packets) => moved += packets,
                    Read::NoRoom => full = true,
                }
            }
            // Rather than wait for others, do what they have not begun.
            while (full || self.alone)
                && let Ok(job) = self.pipeline.jobs.try_recv()
            {
                self.pipeline.does(job);
                full = false;
            }
            watched.moved(moved);
        }
    }

    fn read_device(&mut self, queue_pair: &Arc<QueuePair>) -> io::Result<Read> {
        let Some(batch) = self.pipeline.outgoing.take() else { return Ok(Read::NoRoom) };
        let mut read = self.read_batch(queue_pair, batch)?;
        while self.carried.is_some() {
            let batch = self.outgoing();
            read += self.read_batch(queue_pair, batch)?;
        }
        Ok(if read == 0 { Read::Nothing } else { Read::Some(read) })
    }

    /// Reads packets into a batch and hands it over; returns how many packets the device had. With the engine, all
    /// packets of a batch are for it, or none is: the first of the others is carried over to the next batch.
    fn read_batch(
        &mut self,
        queue_pair: &Arc<QueuePair>,
        mut batch: Box<Outgoing>,
    ) -> io::Result<usize> {
        let begun = Instant::now();
        batch.queue_pair = Arc::clone(queue_pair);
        // Before an SA is looked up: a rekey waits for the batches that may send on the former SA.
        batch.under_way = Some(self.config.batches.begin_for_others());
        let (mut read, mut octets) = (0, 0);
        let mut for_engine = self.carried.take().map(|carried| {
            batch.carry(&carried.packet, carried.admitted);
            carried.is_for_engine
        });
        while read < DEVICE_BATCH && batch.used + LONGEST <= batch.buffer.len() {
            let room = batch.used..batch.used + LONGEST;
            let Some((length, offload)) = queue_pair.tun.read(&mut batch.buffer[room])? else {
                break;
            };
            read += 1;
            octets += length;
            let range = batch.used..batch.used + length;
            let packet = &mut batch.buffer[range.clone()];
            let Some(admitted) = self.sender.admit(begun, packet, offload) else { continue };
            let is_for_engine = self.pipeline.engine.as_ref().is_some_and(|e| e.takes(length));
            if *for_engine.get_or_insert(is_for_engine) != is_for_engine {
                // The packet has its sequence number already, so it comes first in the next batch.
                let packet = packet.to_vec();
                self.carried = Some(Carried { packet, admitted, is_for_engine });
                break;
            }
            batch.used = range.end;
            batch.packets.push((range, admitted));
        }
        if read == 0 && batch.packets.is_empty() {
            batch.under_way = None;
            self.pipeline.outgoing.give(batch);
            return Ok(0);
        }
        count(Stage::Read, read, octets, begun);
        self.config.stats.looked_up(self.sender.take_lookups(), octets);
        let executor = match (&self.pipeline.engine, for_engine) {
            (Some(engine), Some(true)) => {
                engine.count_sealed(batch.packets.len(), batch.used);
                Executor::FreeThread
            }
            (Some(_), _) => Executor::Reader,
            (None, _) if read == 1 && octets < LONE => Executor::ReaderIfAlone,
            (None, _) => Executor::FreeThread,
        };
        self.hand_over(executor, |reader| {
            reader.sealed += 1;
            Job::Seal(reader.sealed - 1, batch)
        });
        Ok(read)
    }

    /// A free batch; works on what is queued until there is one.
    fn outgoing(&self) -> Box<Outgoing> {
        loop {
            match self.pipeline.outgoing.take() {
                Some(batch) => return batch,
                None => match self.pipeline.jobs.try_recv() {
                    Ok(job) => self.pipeline.does(job),
                    Err(_) => std::thread::yield_now(),
                },
            }
        }
    }

    fn read_socket(
        &mut self,
        queue_pair: &Arc<QueuePair>,
        wire: Wire,
        socket: &socket2::Socket,
    ) -> Read {
        let Some(mut batch) = self.pipeline.incoming.take() else { return Read::NoRoom };
        let begun = Instant::now();
        batch.queue_pair = Arc::clone(queue_pair);
        batch.wire = wire;
        let limit = if wire.coalesces() { MESSAGES } else { BATCH };
        batch.received = batch.ring.receive(socket.as_fd(), limit).unwrap_or_else(|error| {
            tracing::debug!(%error, "receiving");
            0
        });
        let received = batch.received;
        if received == 0 {
            self.pipeline.incoming.give(batch);
            return Read::Nothing;
        }
        let (packets, octets) = batch.ring.amount(received);
        count(Stage::Receive, packets, octets, begun);
        let executor = match &self.pipeline.engine {
            Some(engine) if batch.is_for(engine) => {
                engine.count_opened(received, octets);
                Executor::FreeThread
            }
            Some(_) => Executor::Reader,
            None if received == 1 && octets < LONE => Executor::ReaderIfAlone,
            None => Executor::FreeThread,
        };
        self.hand_over(executor, |reader| {
            reader.opened += 1;
            Job::Open(reader.opened - 1, batch)
        });
        Read::Some(received)
    }

    /// Sends the packets that were kept for an SA, behind what was read before.
    fn release(&mut self, queue_pairs: &[Arc<QueuePair>]) {
        let Some(queue_pair) = queue_pairs.first() else { return };
        let mut batch = self.outgoing();
        batch.queue_pair = Arc::clone(queue_pair);
        batch.under_way = Some(self.config.batches.begin_for_others());
        self.config.shared.datapath.flush_held(Instant::now(), &mut batch.send);
        self.hand_over(Executor::ReaderIfAlone, |reader| {
            reader.sealed += 1;
            Job::Seal(reader.sealed - 1, batch)
        });
    }

    fn hand_over(&mut self, executor: Executor, job: impl FnOnce(&mut Self) -> Job) {
        let job = job(self);
        let is_here = match executor {
            Executor::Reader => true,
            // The one batch that is in use is this.
            Executor::ReaderIfAlone => {
                let depth = self.pipeline.depth();
                depth.outgoing.0 + depth.incoming.0 == 1
            }
            Executor::FreeThread => false,
        };
        if is_here {
            return self.pipeline.does(job);
        }
        // There is room for every batch there is, and somebody who takes it: this thread.
        if let Err(error) = self.feed.send(job) {
            self.pipeline.does(error.into_inner());
        }
    }
}

/// The threads that may work on a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Executor {
    /// The reader.
    Reader,
    /// The reader, if nothing else is under way.
    ReaderIfAlone,
    /// A thread that is free.
    FreeThread,
}

/// Octets of a packet or message that is not worth handing over, if it is alone.
const LONE: usize = 2048;
