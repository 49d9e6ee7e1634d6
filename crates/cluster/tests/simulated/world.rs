//! Nodes with clocks of their own around a store, and all that happens between them, in virtual time.

use crate::store::{Holder, Store, Time};
use cluster::store::{Answer, NodeId, Request, ServiceId};
use cluster::{Ask, Epoch, Life, Moment, Node, Output, RequestId, Settings, Waiver};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Store,
    Node(NodeId),
}

/// Messages and events by their time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: Time,
    /// Events of one moment come in the order in which they were made.
    order: u64,
}

#[derive(Debug)]
enum What {
    Wake(NodeId),
    Resume(NodeId),
    /// The messages below are of a process, and end with it.
    ToStore {
        from: Holder,
        era: u64,
        id: RequestId,
        request: Request,
    },
    FromStore {
        to: Holder,
        era: u64,
        id: RequestId,
        answer: Answer,
    },
    Ask {
        from: NodeId,
        to: NodeId,
        ask: Ask,
    },
    Waive {
        from: NodeId,
        to: NodeId,
        waiver: Waiver,
    },
    Hint(NodeId),
    Expiry,
}

/// A clock that starts anywhere, and runs at nearly the right rate.
#[derive(Clone, Copy)]
struct Clock {
    offset: Time,
    /// Parts in a million.
    faster: i64,
}

impl Clock {
    fn moment(self, at: Time) -> Moment {
        let drift = i128::from(at) * i128::from(self.faster) / 1_000_000;
        let reading = i128::from(self.offset) + i128::from(at) + drift;
        Moment::new(Duration::from_micros(u64::try_from(reading).expect("a time")))
    }

    /// The first time at which the clock shows this moment.
    fn time(self, moment: Moment) -> Time {
        let reading = moment.since_boot().as_nanos().div_ceil(1000);
        let passed = reading.saturating_sub(u128::from(self.offset));
        let rate = u128::try_from(1_000_000 + self.faster).expect("it runs forwards");
        u64::try_from((passed * 1_000_000).div_ceil(rate) + 1).expect("a time")
    }
}

struct Machine {
    clock: Clock,
    settings: Settings,
    /// `None` while no process runs.
    process: Option<(Life, Node)>,
    /// Inputs that wait for a stopped process to go on.
    stopped: Option<VecDeque<What>>,
    wakes_at: Time,
}

/// The world.
pub struct World {
    pub now: Time,
    pub store: Store,
    pub store_is_up: bool,
    /// Rises when the store is restored: connections from before have ended.
    era: u64,
    machines: BTreeMap<NodeId, Machine>,
    cut: BTreeSet<(End, End)>,
    /// Of 1,000 messages on a link that is cut, so many arrive seconds later.
    pub late: u64,
    events: BinaryHeap<Reverse<(Event, usize)>>,
    waiting: BTreeMap<usize, What>,
    made: usize,
    chance: ChaCha8Rng,
    /// Until when each process may seal for a service, as long as nothing stops it. A process that was killed still may:
    /// its SAs may be in the kernel.
    fences: BTreeMap<(ServiceId, Holder), Time>,
    pub taken: Vec<(Time, ServiceId, NodeId, Epoch)>,
    pub wrong: Vec<String>,
    pub log: Vec<String>,
}

impl World {
    /// Makes nodes 1, 2, … and starts them.
    pub fn new(seed: u64, nodes: u16, services: u32) -> Self {
        let nodes = 1..=nodes;
        let store = Store::new(nodes.clone().map(NodeId), (1..=services).map(ServiceId));
        let mut world = Self {
            now: 1_000_000,
            store,
            store_is_up: true,
            era: 0,
            machines: BTreeMap::new(),
            cut: BTreeSet::new(),
            late: 300,
            events: BinaryHeap::new(),
            waiting: BTreeMap::new(),
            made: 0,
            chance: ChaCha8Rng::seed_from_u64(seed),
            fences: BTreeMap::new(),
            taken: Vec::new(),
            wrong: Vec::new(),
            log: Vec::new(),
        };
        world.plan(500_000, What::Expiry);
        nodes.for_each(|node| world.add(NodeId(node), Settings::default()));
        world
    }

    /// Adds a machine with a process, whether or not it is a member.
    pub fn add(&mut self, node: NodeId, settings: Settings) {
        let offset = self.below(1_000_000_000_000);
        // Ten times what NTP allows.
        let faster = i64::try_from(self.below(10_000)).expect("small") - 5_000;
        let clock = Clock { offset, faster };
        let machine =
            Machine { clock, settings, process: None, stopped: None, wakes_at: Time::MAX };
        self.machines.insert(node, machine);
        self.start(node);
    }

    /// Gives a machine a clock that runs faster than it should, in parts in a million. Its process starts again.
    pub fn set_rate(&mut self, node: NodeId, faster: i64) {
        self.kill(node);
        self.machine(node).clock.faster = faster;
        self.start(node);
    }

    pub fn start(&mut self, node: NodeId) {
        let (life, now) = (Life(self.chance.next_u64()), self.now);
        let machine = self.machine(node);
        if machine.process.is_some() {
            return;
        }
        let process = Node::new(machine.settings, node, life, machine.clock.moment(now));
        machine.process = Some((life, process.expect("the settings are right")));
        machine.stopped = None;
        machine.wakes_at = Time::MAX;
        self.note(format!("{node} starts"));
        self.plan(0, What::Wake(node));
    }

    pub fn kill(&mut self, node: NodeId) {
        self.note(format!("{node} is killed"));
        let machine = self.machine(node);
        machine.process = None;
        machine.stopped = None;
    }

    /// SIGSTOP for a while.
    pub fn stop(&mut self, node: NodeId, micros: Time) {
        let machine = self.machine(node);
        if machine.process.is_some() && machine.stopped.is_none() {
            machine.stopped = Some(VecDeque::new());
            self.note(format!("{node} is stopped for {} ms", micros / 1000));
            self.plan(micros, What::Resume(node));
        }
    }

    pub fn cut(&mut self, from: End, to: End) {
        self.note(format!("no way from {from:?} to {to:?}"));
        self.cut.insert((from, to));
    }

    pub fn cut_both(&mut self, one: End, other: End) {
        self.cut(one, other);
        self.cut(other, one);
    }

    pub fn heal_all(&mut self) {
        self.note("all links work".to_owned());
        self.cut.clear();
    }

    /// Puts a backup in place of the store, which has been down for longer than [`Settings::restore`].
    pub fn restore(&mut self, backup: Store) {
        self.note("the store is restored".to_owned());
        self.store.put_back(backup);
        self.store.elect(self.now);
        self.era += 1;
    }

    pub fn release(&mut self, node: NodeId, service: ServiceId) {
        self.with(node, |process, now| process.release(now, service));
    }

    pub fn set_willing(&mut self, node: NodeId, willing: bool) {
        self.note(format!("{node} is willing: {willing}"));
        self.with(node, |process, now| process.set_willing(now, willing));
    }

    pub fn hint(&mut self, node: NodeId) {
        self.plan(0, What::Hint(node));
    }

    pub fn nodes(&self) -> Vec<NodeId> {
        self.machines.keys().copied().collect()
    }

    /// The nodes whose processes may seal for a service now.
    pub fn open(&self, service: ServiceId) -> Vec<NodeId> {
        let open = self.fences.iter().filter(|((s, _), until)| *s == service && **until > self.now);
        open.map(|((_, (node, _)), _)| *node).collect()
    }

    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now + u64::try_from(duration.as_micros()).expect("a time");
        while let Some(Reverse((event, index))) = self.events.pop() {
            if event.at > end {
                self.events.push(Reverse((event, index)));
                break;
            }
            self.now = event.at;
            let what = self.waiting.remove(&index).expect("it waits");
            self.happen(what);
        }
        self.now = end;
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.chance.next_u64() % bound.max(1)
    }

    pub fn note(&mut self, what: String) {
        self.log.push(format!("{:>10.3} {what}", self.now as f64 / 1e6));
    }

    fn happen(&mut self, what: What) {
        let node = match &what {
            What::Expiry => {
                if self.store_is_up {
                    self.store.expire(self.now);
                }
                return self.plan(500_000, What::Expiry);
            }
            What::ToStore { .. } => return self.reach_store(what),
            What::Resume(node) => return self.resume(*node),
            What::Wake(node) | What::Hint(node) => *node,
            What::FromStore { to: (node, _), .. } => *node,
            What::Ask { to, .. } | What::Waive { to, .. } => *to,
        };
        let machine = self.machine(node);
        if let What::FromStore { to: (_, life), .. } = &what
            && machine.process.as_ref().is_none_or(|(present, _)| present != life)
        {
            return;
        }
        match &mut machine.stopped {
            Some(inbox) => inbox.push_back(what),
            None => self.input(node, what),
        }
    }

    fn reach_store(&mut self, what: What) {
        let What::ToStore { from, era, id, request } = what else { unreachable!() };
        if era != self.era {
            return;
        }
        if !self.store_is_up {
            // Some requests wait until there is a leader.
            if self.below(2) == 0 {
                let later = 100_000 + self.below(1_000_000);
                self.plan(later, What::ToStore { from, era, id, request });
            }
            return;
        }
        let answer = self.store.answer(self.now, &request);
        if let Answer::Claimed(at, epoch) = &answer {
            self.note(format!("the store has {request:?} as {at:?}, {epoch:?}"));
        }
        let to = from;
        self.send(End::Store, End::Node(to.0), What::FromStore { to, era, id, answer });
    }

    /// Ends a stop.
    pub fn resume(&mut self, node: NodeId) {
        let Some(inbox) = self.machine(node).stopped.take() else { return };
        self.note(format!("{node} goes on"));
        inbox.into_iter().for_each(|what| self.input(node, what));
        self.input(node, What::Wake(node));
    }

    fn input(&mut self, node: NodeId, what: What) {
        let (era, wakes_at) = (self.era, self.now);
        if let What::Wake(_) = what {
            let machine = self.machine(node);
            if machine.wakes_at <= wakes_at {
                machine.wakes_at = Time::MAX;
            }
        }
        self.with(node, |process, now| match what {
            What::FromStore { era: of, id, answer, .. } if of == era => {
                process.handle_answer(now, id, answer);
            }
            What::Ask { from, ask, .. } => process.handle_ask(now, from, &ask),
            What::Waive { from, waiver, .. } => process.handle_waiver(now, from, &waiver),
            What::Hint(_) => process.handle_hint(now),
            _ => process.handle_timeout(now),
        });
    }

    /// Gives a running process an input, and carries out its effects.
    fn with(&mut self, node: NodeId, input: impl FnOnce(&mut Node, Moment)) {
        let now = self.now;
        let machine = self.machine(node);
        let clock = machine.clock;
        if machine.stopped.is_some() {
            return;
        }
        let Some((life, process)) = &mut machine.process else { return };
        let life = *life;
        input(process, clock.moment(now));
        let outputs: Vec<Output> = std::iter::from_fn(|| process.poll()).collect();
        let due = clock.time(process.deadline()).max(now + 1);
        if due < machine.wakes_at {
            machine.wakes_at = due;
            self.plan(due - now, What::Wake(node));
        }
        for output in outputs {
            self.carry_out((node, life), clock, output);
        }
    }

    fn carry_out(&mut self, holder: Holder, clock: Clock, output: Output) {
        let from = holder.0;
        match output {
            Output::Request { id, request } => {
                let era = self.era;
                let what = What::ToStore { from: holder, era, id, request };
                self.send(End::Node(from), End::Store, what);
            }
            Output::Ask { to, ask } => {
                self.send(End::Node(from), End::Node(to), What::Ask { from, to, ask });
            }
            Output::Waive { to, waiver } => {
                self.send(End::Node(from), End::Node(to), What::Waive { from, to, waiver });
            }
            Output::Taken { service, claim } => {
                self.note(format!("{from} takes {service}, {:?}", claim.epoch));
                self.taken.push((self.now, service, from, claim.epoch));
            }
            Output::Lost { service } => self.note(format!("{from} loses {service}")),
            Output::StoreWentBack { from: high, to } => {
                self.note(format!("{from} sees that the store went back from {high:?} to {to:?}"));
            }
            Output::Fence { service, until } => {
                let until = if until == Moment::ZERO { 0 } else { clock.time(until) };
                self.fences.insert((service, holder), until);
                self.check_fences(service, holder);
            }
        }
    }

    /// One owner at a time.
    fn check_fences(&mut self, service: ServiceId, holder: Holder) {
        let now = self.now;
        if self.fences[&(service, holder)] <= now {
            return;
        }
        let others = self
            .fences
            .iter()
            .filter(|((s, other), until)| *s == service && *other != holder && **until > now);
        let wrong: Vec<String> = others
            .map(|((_, (other, _)), until)| {
                format!("{} and {other} both have {service} for {} µs", holder.0, until - now)
            })
            .collect();
        for what in wrong {
            self.note(format!("WRONG: {what}"));
            self.wrong.push(what);
        }
    }

    /// Sends a message that may be slow, late or lost.
    fn send(&mut self, from: End, to: End, what: What) {
        let is_cut = self.cut.contains(&(from, to));
        let dice = self.below(1000);
        let delay = match dice {
            // Queued on the way, and delivered when nobody expects it.
            _ if is_cut && dice < self.late => 500_000 + self.below(8_000_000),
            _ if is_cut => return,
            0..10 => return,
            10..30 => self.below(2_000_000),
            _ => 200 + self.below(20_000),
        };
        // TCP loses the messages of a process with it. Those on their way to the store arrive.
        self.plan(delay, what);
    }

    fn plan(&mut self, delay: Time, what: What) {
        self.made += 1;
        let event = Event { at: self.now + delay, order: self.made as u64 };
        self.waiting.insert(self.made, what);
        self.events.push(Reverse((event, self.made)));
    }

    fn machine(&mut self, node: NodeId) -> &mut Machine {
        self.machines.get_mut(&node).expect("there is one")
    }
}
