//! How long a peer waits for the answer to its sign of life while others knock: once with everything in one queue, and
//! once as the driver has it, where handshakes wait until nothing else does.

use crate::clock;
use ike::priority_queue::PriorityQueue;
use ike::{Config, Datagram, Engine, EventKind, Output, Transmit};
use lab::table::Table;
use policy::{Group, Policy};
use sim::fleet::{End, Fleet, Plan};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Signs of life that are asked for.
const SAMPLES: u32 = 20;
/// Messages that are answered between two of them.
const BETWEEN: u32 = 25;
/// Tunnels for them to be about, the friend's included; more than are needed.
const TUNNELS: u32 = 4_000;

/// Datagrams that wait for the gateway.
enum Queue {
    One(VecDeque<Transmit>),
    Priority(PriorityQueue<Transmit>),
}

impl Queue {
    fn push(&mut self, sent: Transmit) {
        match self {
            Self::One(queue) => queue.push_back(sent),
            Self::Priority(queue) => assert!(queue.push(sent, |s| &s.octets), "there is room"),
        }
    }

    fn pop(&mut self) -> Option<Transmit> {
        match self {
            Self::One(queue) => queue.pop_front(),
            Self::Priority(queue) => queue.pop(),
        }
    }
}

struct Scene {
    fleet: Fleet,
    friend: Engine<esp::datapath::Datapath>,
    queue: Queue,
    now: Instant,
    /// Processor time of the gateway.
    spent: Duration,
    next: u32,
}

fn hand<P: esp::plane::DataPlane>(engine: &mut Engine<P>, now: Instant, sent: &Transmit) {
    let datagram = Datagram { local: sent.remote, remote: sent.local, octets: &sent.octets };
    engine.handle_datagram(now, datagram);
}

impl Scene {
    fn new(plan: &Plan, queue: Queue) -> Self {
        let now = Instant::now();
        let open =
            Config { cookie_threshold: 10_000, half_open_limit: 10_000, ..Config::default() };
        let calm = Config { liveness_interval: None, ..open.clone() };
        let lively = Config { liveness_interval: Some(Duration::from_secs(1)), ..open };
        let fleet = Fleet::new(plan, &calm, now);
        let first = Policy { tunnels: vec![plan.policy(End::Spokes).tunnels[0].clone()] };
        let friend = Fleet::start(first.into(), &lively, now, [7; 32]);
        let mut scene = Self { fleet, friend, queue, now, spent: Duration::ZERO, next: 1 };
        scene.friend.connect(now, &Plan::tunnel(0)).expect("a tunnel of the policy");
        while scene.friend_speaks() {
            scene.answer_one();
        }
        scene
    }

    /// Whether the friend had something to say.
    fn friend_speaks(&mut self) -> bool {
        let mut any = false;
        loop {
            match self.friend.poll() {
                Output::Transmit(sent) => {
                    any = true;
                    self.queue.push(sent);
                }
                Output::Event(_) => {}
                Output::Job(job) => unreachable!("the friend has a preshared key: {job:?}"),
                Output::Wait(_) => return any,
            }
        }
    }

    fn knock(&mut self) {
        assert!(self.next < TUNNELS, "a tunnel that is not up yet");
        let name = Plan::tunnel(self.next);
        self.next += 1;
        self.fleet.spokes.connect(self.now, &name).expect("a tunnel of the policy");
        self.post();
    }

    fn post(&mut self) {
        let mut told = Vec::new();
        let mail = self.fleet.collect(End::Spokes, &mut told);
        mail.into_iter().for_each(|sent| self.queue.push(sent));
        let up =
            |e: &&ike::Event| e.child.is_some() && matches!(e.kind, EventKind::Established { .. });
        for _ in 0..told.iter().filter(up).count() {
            self.knock();
        }
    }

    /// Has the gateway answer one message; `true` if it was the friend's.
    fn answer_one(&mut self) -> bool {
        let Some(sent) = self.queue.pop() else { return false };
        let Self { fleet, now, spent, .. } = self;
        let answers = clock::charge(spent, || {
            hand(&mut fleet.hub, *now, &sent);
            fleet.collect(End::Hub, &mut Vec::new())
        });
        let of_friend = sent.local.ip() == Plan::address(0);
        for answer in &answers {
            match of_friend {
                true => hand(&mut self.friend, self.now, answer),
                false => hand(&mut self.fleet.spokes, self.now, answer),
            }
        }
        self.post();
        of_friend
    }

    /// Processor time of the gateway from a question of the friend to the answer.
    fn delay(&mut self) -> Duration {
        (0..BETWEEN).for_each(|_| _ = self.answer_one());
        self.now += Duration::from_secs(1);
        self.friend.handle_timeout(self.now);
        let before = self.spent;
        assert!(self.friend_speaks(), "the friend asks for a sign of life");
        while !self.answer_one() {}
        self.spent - before
    }
}

/// The delays with both ways of queueing.
pub fn measure() -> Table {
    let mut table = Table::new([
        "Key exchange",
        "handshakes under way",
        "one queue: median ms",
        "longest ms",
        "by urgency: median ms",
        "longest ms",
    ]);
    for group in [Group::Curve25519, Group::Ecp384, Group::Modp2048] {
        for under_way in [0, 16, 64] {
            let plan = Plan { group, ..Plan::of(TUNNELS) };
            let mut row = vec![group.to_string(), under_way.to_string()];
            for queue in [Queue::One(VecDeque::new()), Queue::Priority(PriorityQueue::default())] {
                let mut scene = Scene::new(&plan, queue);
                (0..under_way).for_each(|_| scene.knock());
                let mut delays: Vec<_> = (0..SAMPLES).map(|_| scene.delay()).collect();
                delays.sort();
                let ms = |d: Duration| format!("{:.2}", d.as_secs_f64() * 1e3);
                row.extend([ms(delays[delays.len() / 2]), ms(delays[delays.len() - 1])]);
            }
            table.row(row);
        }
    }
    table.note(
        "From a question of an established peer to the gateway's answer, in processor time of the gateway, whose engine \
         has one thread; each handshake that ends is followed by another.",
    );
    table
}
