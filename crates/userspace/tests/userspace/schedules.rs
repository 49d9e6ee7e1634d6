//! Workers of both schedules: order within a flow, changes while packets pass, and rest while there is nothing to do.

use crate::network::{Gateway, Network, PATIENCE, inside, tcp_echo, udp, udp_echo};
use crate::{Agreement, RULE, Side, TUNNEL, connect, setup, silent};
use esp::plane::{DataPlane, Encapsulation, Rule, SaId};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use userspace::workers::{Affinity, Change, Count, Schedule, Settings, Workers};
use userspace::{Stage, Wait};

fn change(schedule: Schedule, workers: usize, wait: Wait) -> Change {
    Change {
        workers: Some(Count::Exactly(workers)),
        schedule: Some(schedule),
        wait: Some(wait),
        affinity: None,
    }
}

const COMPLETION: Schedule = Schedule::RunToCompletion;
const PIPELINE: Schedule = Schedule::Pipeline;

/// Every schedule, with one worker and with several, and every way to wait.
pub fn all_changes() -> [Change; 6] {
    [
        change(COMPLETION, 1, Wait::Adaptive),
        change(COMPLETION, 3, Wait::Event),
        change(PIPELINE, 1, Wait::Event),
        change(PIPELINE, 3, Wait::Adaptive),
        change(COMPLETION, 2, Wait::Poll),
        change(PIPELINE, 2, Wait::Poll),
    ]
}

/// Two gateways with SAs, and the workers of each.
pub fn working(network: &Network, form: Agreement) -> ([Gateway; 2], [Workers; 2]) {
    let workers = [Workers::new(Settings::default()), Workers::new(Settings::default())];
    let gateways = [Side::A, Side::B].map(|side| {
        let mut setup = setup(network.state_dir(side as usize));
        setup.plane.workers = workers[side as usize].clone();
        let gateway = Gateway::start(network.space(side as usize), setup, silent());
        gateway.with(move |plane| plane.add_rule(form.rule(side)).expect("the rule is added"));
        gateway
    });
    connect(&gateways, form);
    (gateways, workers)
}

pub fn lost(gateways: &[Gateway; 2]) -> Vec<String> {
    let counters = gateways.iter().flat_map(|gateway| gateway.with(|plane| plane.counters()));
    counters
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name}: {count}"))
        .collect()
}

/// Numbered datagrams through the tunnel, of which only so many are on their way at a time: nothing may be lost, and
/// nothing overtaken.
pub struct Numbered {
    from: UdpSocket,
    to: UdpSocket,
    pub sent: u32,
    received: u32,
}

impl Numbered {
    pub fn new(network: &Network, from: Side) -> Self {
        let bound = |side: Side| udp(network.space(side as usize), side.inner(false));
        let (from, to) = (bound(from), bound(from.other()));
        from.connect(to.local_addr().expect("bound")).expect("connected");
        Self { from, to, sent: 0, received: 0 }
    }

    pub fn send(&mut self, count: u32) {
        for _ in 0..count {
            let mut datagram = [0; 1000];
            datagram[..4].copy_from_slice(&self.sent.to_be_bytes());
            // Long and short ones, so that batches end anywhere.
            let len = if self.sent % 7 == 3 { 40 } else { 1000 };
            self.from.send(&datagram[..len]).expect("the kernel takes it");
            self.sent += 1;
        }
    }

    pub fn receive(&mut self, what: &str) {
        let mut buffer = [0; 2048];
        while self.received < self.sent {
            let length = self.to.recv(&mut buffer).unwrap_or_else(|error| {
                panic!("{what}: {error} after {} of {}", self.received, self.sent)
            });
            assert!(length >= 4);
            let number = u32::from_be_bytes(buffer[..4].try_into().expect("four octets"));
            assert_eq!(number, self.received, "{what}");
            self.received += 1;
        }
    }
}

#[test]
fn a_flow_keeps_its_order_in_every_schedule_and_while_it_changes() {
    let Some(network) = Network::make() else { return };
    let (gateways, workers) = working(&network, TUNNEL);
    let mut flows = [Numbered::new(&network, Side::A), Numbered::new(&network, Side::B)];
    for round in all_changes().iter().chain(&all_changes()) {
        let what = format!("{round:?}");
        for _ in 0..20 {
            flows.iter_mut().for_each(|flow| flow.send(30));
            flows.iter_mut().for_each(|flow| flow.receive(&what));
        }
        // Changed while packets are on their way.
        flows.iter_mut().for_each(|flow| flow.send(60));
        for workers in &workers {
            workers.change(round).expect("changed");
        }
        flows.iter_mut().for_each(|flow| flow.receive(&what));
    }
    assert_eq!(lost(&gateways), Vec::<String>::new());
    for (gateway, workers) in gateways.iter().zip(&workers) {
        let usage = gateway.with(|plane| plane.usage(SaId(1))).expect("the SA exists");
        assert_eq!((usage.packets, usage.refused), (flows[0].sent.into(), 0));
        let report = workers.report();
        for stage in report.stages {
            // Both sides count as many packets. Only Read and Write may count several that were put together as one.
            let whole = u64::from(flows[0].sent);
            let packets = stage.flow.packets;
            // There are no fragments.
            if stage.stage == Stage::Defrag {
                assert_eq!(stage.flow.packets, 0);
                continue;
            }
            let exact = !matches!(stage.stage, Stage::Read | Stage::Write);
            assert!(
                packets == whole || !exact && packets > 0,
                "{:?}: {:?}",
                stage.stage,
                stage.flow
            );
        }
    }
}

#[test]
fn a_flow_keeps_its_order_by_way_of_the_engine() {
    let Some(network) = Network::make() else { return };
    let (gateways, workers) = working(&network, TUNNEL);
    let mut flows = [Numbered::new(&network, Side::A), Numbered::new(&network, Side::B)];
    let switch = |from: Option<u64>| {
        for workers in &workers {
            workers.set_engine(from).expect("the threads start");
            assert_eq!(workers.engine_is_on(), from.is_some());
        }
    };
    // Requests of one size go there, of both, of none; and it goes on and off under way.
    let sizes = [Some(500), Some(0), Some(1 << 20), None, Some(500)];
    for from in sizes.iter().cycle().take(2 * sizes.len()) {
        let what = format!("engine from {from:?}");
        flows.iter_mut().for_each(|flow| flow.send(60));
        switch(*from);
        flows.iter_mut().for_each(|flow| flow.receive(&what));
        for _ in 0..10 {
            flows.iter_mut().for_each(|flow| flow.send(30));
            flows.iter_mut().for_each(|flow| flow.receive(&what));
        }
    }
    assert_eq!(lost(&gateways), Vec::<String>::new());
    for (gateway, flow) in gateways.iter().zip(&flows) {
        let usage = gateway.with(|plane| plane.usage(SaId(1))).expect("the SA exists");
        assert_eq!((usage.packets, usage.refused), (flow.sent.into(), 0));
    }

    // Only requests that are large enough are counted.
    let work = || [0, 1].map(|side: usize| workers[side].engine_work());
    let before = work();
    let first = flows[0].sent;
    flows.iter_mut().for_each(|flow| flow.send(70));
    flows.iter_mut().for_each(|flow| flow.receive("counted"));
    let large = (first..first + 70).filter(|n| n % 7 != 3).count() as u64;
    for (before, after) in before.iter().zip(work()) {
        assert_eq!(after.sealed.requests - before.sealed.requests, large);
        assert_eq!(after.sealed.octets - before.sealed.octets, large * 1028);
        assert!(after.opened.requests > before.opened.requests);
    }
    let roles = workers[0].report().threads.into_iter().map(|t| t.role).collect::<Vec<_>>();
    assert!(roles.contains(&"crypto") && roles.contains(&"reader"), "{roles:?}");
    switch(None);
    flows.iter_mut().for_each(|flow| flow.send(70));
    flows.iter_mut().for_each(|flow| flow.receive("off again"));
    let off = work();
    assert_eq!(off.map(|w| w.sealed), work().map(|w| w.sealed));
}

#[test]
fn the_batches_of_one_flow_go_to_every_thread_that_is_free() {
    let Some(network) = Network::make() else { return };
    let (gateways, workers) = working(&network, TUNNEL);
    workers[0].change(&change(PIPELINE, 4, Wait::Event)).expect("changed");
    let mut flow = Numbered::new(&network, Side::A);
    let sealed = || {
        let threads = workers[0].report().threads.into_iter().filter(|t| t.role == "crypto");
        let packets = threads.map(|thread| {
            let seal = thread.stages.iter().find(|(stage, _)| *stage == Stage::Seal);
            seal.map_or(0, |(_, flow)| flow.packets)
        });
        packets.collect::<Vec<_>>()
    };
    // Nobody assigns a batch to a thread: the flow goes on until each has had one.
    let deadline = Instant::now() + PATIENCE;
    while sealed().contains(&0) {
        assert!(Instant::now() < deadline, "a thread never gets a batch: {:?}", sealed());
        flow.send(60);
        flow.receive("one flow");
    }
    assert_eq!(sealed().len(), 3);
    assert_eq!(lost(&gateways), Vec::<String>::new());
}

#[test]
fn every_schedule_carries_every_form() {
    let Some(network) = Network::make() else { return };
    let native = Agreement { encapsulation: Encapsulation::Native, suite: crate::CBC, ..TUNNEL };
    let six = Agreement { outer_v6: true, inner_v6: true, ..TUNNEL };
    for form in [native, six] {
        let (gateways, workers) = working(&network, form);
        let (a, b) = form.ends(Side::A);
        let [ns_a, ns_b] = [network.space(0), network.space(1)];
        for change in [change(COMPLETION, 2, Wait::Adaptive), change(PIPELINE, 3, Wait::Event)] {
            for workers in &workers {
                workers.change(&change).expect("changed");
            }
            udp_echo((ns_a, a), (ns_b, b), &[35, 1200, 3000]);
            tcp_echo((ns_a, a), (ns_b, b), 300_000);
            assert_eq!(lost(&gateways), Vec::<String>::new(), "{form:?} {change:?}");
        }
    }
}

#[test]
fn no_thread_runs_while_there_is_nothing_to_protect() {
    let Some(network) = Network::make() else { return };
    let workers = Workers::new(Settings::default());
    let mut setup = setup(network.state_dir(0));
    setup.plane.workers = workers.clone();
    setup.floor.settings.device = "idle0".to_owned();
    let gateway = Gateway::start(network.space(0), setup, silent());
    let rule = Rule { trap: false, ..TUNNEL.rule(Side::A) };
    gateway.with(move |plane| plane.add_rule(rule).expect("the rule is added"));
    assert_eq!(threads("idle0-").len(), 0);
    // Nobody reads this one, and it is not sent once somebody does.
    let sender = udp(network.space(0), Side::A.inner(false));
    sender.send_to(b"too early", (Side::B.inner(false), 9)).expect("the kernel takes it");

    gateway.with(|plane| plane.add_inbound(TUNNEL.inbound(Side::A)).expect("the SA is added"));
    assert_eq!(gateway.with(|plane| plane.counters())["no_sa"], 1);
    gateway.with(|plane| plane.add_outbound(TUNNEL.outbound(Side::A)).expect("the SA is added"));
    let number = workers.settings().number();
    let running = appeared("idle0-", number);
    // With an SA and without packets they sleep: no wake-up in a while, after the start has settled.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = wakeups(&running);
        std::thread::sleep(Duration::from_millis(100));
        if wakeups(&running) == before {
            break;
        }
        assert!(Instant::now() < deadline, "an idle worker wakes up");
    }
    assert_eq!(gateway.with(|plane| plane.usage(SaId(2))).expect("the SA exists").packets, 0);

    gateway.with(|plane| _ = plane.remove(SaId(1)));
    assert_eq!(threads("idle0-").len(), number);
    gateway.with(|plane| _ = plane.remove(SaId(2)));
    assert_eq!(threads("idle0-").len(), 0);
    gateway.with(|plane| plane.set_trap(RULE));
    appeared("idle0-", number);
    gateway.with(|plane| plane.remove_rule(RULE));
    assert_eq!(threads("idle0-").len(), 0);
}

#[test]
fn workers_stay_on_their_cpus_and_a_missing_cpu_changes_nothing() {
    let Some(network) = Network::make() else { return };
    let (_gateways, workers) = working(&network, TUNNEL);
    let on = |cpus: Vec<usize>| Change { affinity: Some(Affinity::new(cpus)), ..Change::default() };
    let settings = workers[0].change(&on(vec![0])).expect("there is a first CPU");
    udp_echo(
        (network.space(0), Side::A.inner(false)),
        (network.space(1), Side::B.inner(false)),
        &[100],
    );
    let threads = workers[0].report().threads;
    assert!(!threads.is_empty() && threads.iter().all(|t| t.cpu == Some(0)), "{threads:?}");
    let error = workers[0].change(&on(vec![9999])).expect_err("there is no such CPU").to_string();
    assert!(error.contains("CPU 9999 is not one"), "{error}");
    assert_eq!(workers[0].settings(), settings);
    // Lanes that are opened later belong to the plane's namespace, whichever thread asks for them.
    let asked = workers[0].clone();
    inside(network.space(1), move || {
        asked.change(&change(COMPLETION, 4, Wait::Event)).expect("changed");
    });
    udp_echo(
        (network.space(0), Side::A.inner(false)),
        (network.space(1), Side::B.inner(false)),
        &[100, 1000],
    );
}

/// The numbers of this process's threads whose names begin so.
fn threads(prefix: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("readable");
    let tasks =
        tasks.map(|task| task.expect("readable").file_name().into_string().expect("digits"));
    tasks
        .filter(|tid| {
            let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm"));
            name.is_ok_and(|name| name.starts_with(prefix))
        })
        .collect()
}

/// The same, once there are so many: a thread takes its name only when it runs.
fn appeared(prefix: &str, number: usize) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let there = threads(prefix);
        if there.len() == number {
            return there;
        }
        assert!(Instant::now() < deadline, "{} of {number} threads", there.len());
        std::thread::yield_now();
    }
}

fn wakeups(threads: &[String]) -> u64 {
    let of = |tid: &String| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status"));
        let status = status.expect("the thread runs");
        let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        line.expect("there is one").trim().parse::<u64>().expect("a number")
    };
    threads.iter().map(of).sum()
}
