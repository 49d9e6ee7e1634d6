//! Two engines in this thread: the processor time of each side's handshakes, rekeys, liveness checks and Deletes, and
//! the memory they leave in use.

use crate::{Scale, clock, heap};
use ike::event::EventKind;
use ike::{Config, Event};
use lab::table::Table;
use policy::Group;
use sim::fleet::{End, Fleet, KnownBy, Plan};
use std::time::{Duration, Instant};

/// Handshakes under way at a time.
const AT_A_TIME: u32 = 16;

/// Processor time of each side.
#[derive(Clone, Copy, Default)]
struct Spent {
    hub: Duration,
    spokes: Duration,
}

struct Bench {
    fleet: Fleet,
    now: Instant,
    spent: Spent,
}

impl Bench {
    fn new(plan: &Plan, config: &Config) -> Self {
        let now = Instant::now();
        Self { fleet: Fleet::new(plan, config, now), now, spent: Spent::default() }
    }

    /// Lets both sides talk until they are done, and charges each for its part.
    fn settle(&mut self) -> Vec<Event> {
        let Self { fleet, now, spent } = self;
        let mut told = Vec::new();
        loop {
            let to_hub = clock::charge(&mut spent.spokes, || fleet.collect(End::Spokes, &mut told));
            clock::charge(&mut spent.hub, || fleet.deliver(*now, End::Hub, &to_hub));
            let mut unheard = Vec::new();
            let to_spokes = clock::charge(&mut spent.hub, || fleet.collect(End::Hub, &mut unheard));
            clock::charge(&mut spent.spokes, || fleet.deliver(*now, End::Spokes, &to_spokes));
            if to_hub.is_empty() && to_spokes.is_empty() {
                return told;
            }
        }
    }

    /// Does something to each tunnel, a few at a time, and returns what each side spent on one.
    fn each(&mut self, tunnels: u32, mut work: impl FnMut(&mut Self, u32)) -> (Spent, Vec<Event>) {
        self.spent = Spent::default();
        let mut told = Vec::new();
        for n in 0..tunnels {
            work(self, n);
            if n % AT_A_TIME == AT_A_TIME - 1 || n == tunnels - 1 {
                told.extend(self.settle());
                self.now += Duration::from_millis(1);
            }
        }
        let Spent { hub, spokes } = self.spent;
        (Spent { hub: hub / tunnels, spokes: spokes / tunnels }, told)
    }

    fn connect(&mut self, tunnels: u32) -> Spent {
        let (spent, told) = self.each(tunnels, |bench, n| {
            let Bench { fleet, now, spent } = bench;
            let begun =
                clock::charge(&mut spent.spokes, || fleet.spokes.connect(*now, &Plan::tunnel(n)));
            begun.expect("a tunnel of the policy");
        });
        let up = |e: &&Event| e.child.is_some() && matches!(e.kind, EventKind::Established { .. });
        assert_eq!(told.iter().filter(up).count(), tunnels as usize, "every tunnel came up");
        spent
    }

    fn rekey(&mut self, tunnels: u32, name: fn(u32) -> String) -> Spent {
        let (spent, told) = self.each(tunnels, |bench, n| {
            let Bench { fleet, now, spent } = bench;
            let begun = clock::charge(&mut spent.spokes, || fleet.spokes.rekey(*now, &name(n)));
            begun.expect("it is up");
        });
        let rekeyed = told.iter().filter(|e| matches!(e.kind, EventKind::Rekeyed { .. }));
        assert_eq!(rekeyed.count(), tunnels as usize, "every tunnel was rekeyed");
        spent
    }

    /// Lets time pass, with everything that falls due.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let next = [self.fleet.hub.deadline(), self.fleet.spokes.deadline()];
            let next = next.into_iter().flatten().map(|d| d.at).min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = at.max(self.now);
            let Self { fleet, now, spent } = self;
            clock::charge(&mut spent.hub, || fleet.hub.handle_timeout(*now));
            clock::charge(&mut spent.spokes, || fleet.spokes.handle_timeout(*now));
            self.settle();
        }
        self.now = end;
    }
}

fn calm() -> Config {
    Config { liveness_interval: None, ..Config::default() }
}

fn micros(time: Duration) -> String {
    format!("{:.0}", time.as_secs_f64() * 1e6)
}

fn per_second(time: Duration) -> String {
    format!("{:.0}", 1.0 / time.as_secs_f64())
}

/// Handshakes with different groups.
pub fn compare_groups(scale: Scale) -> Table {
    let mut table = Table::new([
        "Key exchange",
        "responder µs",
        "responder handshakes per s and core",
        "initiator µs",
        "both sides' handshakes per s on one core",
    ]);
    let groups = [Group::Curve25519, Group::Ecp256, Group::Ecp384, Group::Modp2048];
    for group in groups {
        let tunnels =
            if group == Group::Curve25519 { scale.handshakes } else { scale.handshakes / 4 };
        let mut bench = Bench::new(&Plan { group, ..Plan::of(tunnels) }, &calm());
        let spent = bench.connect(tunnels);
        table.row(vec![
            group.to_string(),
            micros(spent.hub),
            per_second(spent.hub),
            micros(spent.spokes),
            per_second(spent.hub + spent.spokes),
        ]);
    }
    table.note(
        "A handshake: IKE_SA_INIT and IKE_AUTH with preshared keys, AES-GCM-128, PRF-HMAC-SHA2-256, the Child SA installed \
         in the userspace datapath. Processor time of the engine and the datapath; no sockets.",
    );
    table
}

/// A gateway with as many tunnels as it shall hold.
pub fn many(scale: Scale) -> Table {
    let mut table = Table::new(["", "known by address", "known by identity"]);
    let mut columns = Vec::new();
    for known_by in [KnownBy::Address, KnownBy::Identity] {
        columns.push(fill(&Plan { known_by, ..Plan::of(scale.tunnels) }));
    }
    let [by_address, by_identity] = columns.try_into().unwrap_or_default();
    for ((what, a), (_, b)) in by_address.into_iter().zip(by_identity) {
        table.row(vec![what, a, b]);
    }
    table.note(
        "Times: processor time of one side for one tunnel. Memory: octets in use by the allocator (AWS-LC's included) that \
         are freed when the engine and its datapath are dropped; of a tunnel that is up, what it has more than one that \
         is defined only: IKE SA, Child SA, both ESP SAs and the indexes that lead to them.",
    );
    table
}

fn fill(plan: &Plan) -> Vec<(String, String)> {
    let tunnels = plan.tunnels;
    let mut rows = Vec::new();
    let mut say = |what: &str, value: String| rows.push((what.to_owned(), value));
    // The memory of a hub without SAs.
    let policy = plan.policy(End::Hub);
    let before = heap::in_use();
    let mut spent = Duration::ZERO;
    let empty = clock::charge(&mut spent, || {
        Fleet::start(policy.clone(), &calm(), Instant::now(), [9; 32])
    });
    let defined = heap::in_use() - before;
    drop(empty);
    let per_tunnel = |octets: usize| octets / tunnels as usize;
    say("tunnels", tunnels.to_string());
    say("taking in the policy, ms", format!("{:.0}", spent.as_secs_f64() * 1e3));
    say("octets of a tunnel that is defined", per_tunnel(defined).to_string());
    let config = Config { liveness_interval: Some(Duration::from_secs(30)), ..Config::default() };
    let mut bench = Bench::new(plan, &config);
    let spent = bench.connect(tunnels);
    say("handshake, responder µs", micros(spent.hub));
    say("handshake, initiator µs", micros(spent.spokes));
    bench.spent = Spent::default();
    bench.pass(Duration::from_secs(40));
    say("a sign of life, both sides µs", micros((bench.spent.hub + bench.spent.spokes) / tunnels));
    let idle = 1000;
    let mut spent = Duration::ZERO;
    clock::charge(&mut spent, || {
        for _ in 0..idle {
            bench.fleet.hub.handle_timeout(bench.now);
            std::hint::black_box(bench.fleet.hub.deadline());
        }
    });
    say("asking for the next deadline, ns", (spent.as_nanos() / idle).to_string());
    let spent = bench.rekey(tunnels, Plan::child);
    say("rekey of a Child SA, responder µs", micros(spent.hub));
    let spent = bench.rekey(tunnels, Plan::tunnel);
    say("rekey of an IKE SA, responder µs", micros(spent.hub));
    // Until nothing is left of what was replaced.
    bench.pass(Duration::from_secs(100));
    let mut spent = Duration::ZERO;
    let status = clock::charge(&mut spent, || bench.fleet.hub.status(bench.now));
    assert!(status.iter().all(|t| t.sa.is_some()), "every tunnel is up");
    drop(status);
    say("status of all tunnels, ms", format!("{:.0}", spent.as_secs_f64() * 1e3));
    // The hub is replaced, and so freed; the one in its place holds no tunnel.
    let stand_in = Fleet::start(Default::default(), &calm(), bench.now, [8; 32]);
    let before = heap::in_use();
    drop(std::mem::replace(&mut bench.fleet.hub, stand_in));
    let held = before - heap::in_use();
    say(
        "octets of a tunnel that is up, beyond that",
        per_tunnel(held.saturating_sub(defined)).to_string(),
    );
    drop(bench);
    let mut bench = Bench::new(plan, &calm());
    bench.connect(tunnels);
    let (spent, _) = bench.each(tunnels, |bench, n| {
        bench.fleet.spokes.disconnect(bench.now, &Plan::tunnel(n)).expect("it is up");
    });
    assert!(bench.fleet.hub.is_idle(), "nothing is left");
    say("deletion, responder µs", micros(spent.hub));
    rows
}
