//! How much TCP the plane carries, by iperf3; for optimised builds, and to be read rather than to pass or fail.

use crate::network::{Gateway, Network, udp};
use crate::{Side, TUNNEL, connect, gateways, setup, silent};
use esp::plane::{DataPlane, Encapsulation};
use std::process::Command;
use testkit::process::Printing;
use userspace::Stage;
use userspace::workers::{Change, Count, Schedule, Settings, Workers};

/// Of one measurement.
const SECONDS: &str = "4";

#[test]
#[ignore = "a measurement: run it alone, with --release --ignored --nocapture"]
fn throughput() {
    let Some(network) = Network::make() else { return };
    for encapsulation in [Encapsulation::Udp, Encapsulation::Native] {
        let form = crate::Agreement { encapsulation, ..TUNNEL };
        let gateways = gateways(&network, form);
        connect(&gateways, form);
        for streams in ["1", "4"] {
            println!("{encapsulation:?}, {streams} stream(s): {}", iperf(&network, streams));
        }
        for (gateway, side) in gateways.iter().zip([Side::A, Side::B]) {
            let counters = gateway.with(|plane| plane.counters());
            let lost: Vec<_> = counters.iter().filter(|(_, n)| **n > 0).collect();
            println!("{encapsulation:?} {side:?} dropped {lost:?}");
        }
    }
}

#[test]
#[ignore = "a measurement: run it alone, with --release --ignored --nocapture"]
fn schedules() {
    let Some(network) = Network::make() else { return };
    for suite in [crate::GCM, crate::CBC] {
        let form = crate::Agreement { suite, ..TUNNEL };
        let (gateways, workers) = crate::schedules::working(&network, form);
        for round in 0..3 {
            for change in ["completion 1", "completion 2", "pipeline 2", "pipeline 3"] {
                let (schedule, number) = change.split_once(' ').expect("two words");
                let schedule = match schedule {
                    "pipeline" => Schedule::Pipeline,
                    _ => Schedule::RunToCompletion,
                };
                let workers_are = Some(Count::Exactly(number.parse().expect("a number")));
                let to =
                    Change { schedule: Some(schedule), workers: workers_are, ..Change::default() };
                workers.iter().for_each(|w| _ = w.change(&to).expect("changed"));
                for streams in ["1", "4"] {
                    let shown = iperf(&network, streams);
                    println!("{suite} round {round} {change}, {streams} stream(s): {shown}");
                }
            }
        }
        for gateway in &gateways {
            let counters = gateway.with(|plane| plane.counters());
            println!("dropped {:?}", counters.iter().filter(|(_, n)| **n > 0).collect::<Vec<_>>());
        }
    }
}

/// The CPU time of the reading thread for each request, by size, if it does the cryptography and if the engine does.
#[test]
#[ignore = "a measurement: run it alone, with --release --ignored --nocapture"]
fn engine_sizes() {
    const REQUESTS: usize = 20_000;
    let Some(network) = Network::make() else { return };
    let workers = Workers::new(Settings::default());
    let form = TUNNEL;
    let gateways = [Side::A, Side::B].map(|side| {
        let mut setup = setup(network.state_dir(side as usize));
        if side == Side::A {
            setup.plane.workers = workers.clone();
        }
        let gateway = Gateway::start(network.space(side as usize), setup, silent());
        gateway.with(move |plane| plane.add_rule(form.rule(side)).expect("the rule is added"));
        gateway
    });
    connect(&gateways, form);
    let socket = udp(network.space(0), Side::A.inner(false));
    let target = (Side::B.inner(false), 9);
    for size in [64, 256, 512, 1024, 1400, 2800, 5600, 11_200, 22_400, 44_800] {
        crate::kernel_offloads::cut_into(&socket, 1400);
        let cost = |from: u64| {
            workers.set_engine(Some(from)).expect("the threads start");
            let look = || {
                let report = workers.report();
                let time = report.threads.iter().find(|t| t.role == "reader")?.cpu_time;
                let read = report.stages.iter().find(|s| s.stage == Stage::Read)?;
                Some((time?, read.flow.packets))
            };
            // A thread that was just started has no time yet.
            let reader = || {
                loop {
                    match look() {
                        Some(seen) => break seen,
                        None => std::thread::yield_now(),
                    }
                }
            };
            let (before, packets) = reader();
            let request = vec![7; size];
            // Bursts that the device's queue has room for.
            for burst in 1..=REQUESTS / 50 {
                (0..50).for_each(|_| _ = socket.send_to(&request, target));
                let enough = packets + 50 * burst as u64;
                while reader().1 < enough {
                    std::thread::yield_now();
                }
            }
            let (after, read) = reader();
            (after - before) / (read - packets) as u32
        };
        let (here, engine) = (cost(u64::MAX), cost(0));
        println!("{size} octets: here {here:?}, engine {engine:?}");
    }
}

fn iperf(network: &Network, streams: &str) -> String {
    let (client, server) = (Side::A.inner(false), Side::B.inner(false));
    let mut listener = Command::new("iperf3");
    listener.args(["-s", "-1", "--forceflush", "-B", &server.to_string()]);
    let listener = Printing::start(&network.space(1).0, listener);
    let mut listener = listener.expect("iperf3 starts");
    listener.line("Server listening");
    let shown = network
        .space(0)
        .sh(&format!("iperf3 -c {server} -B {client} -t {SECONDS} -P {streams} -f g"));
    // The listener's report must go somewhere, or it waits for ever.
    listener.end();
    shown.lines().rev().find(|l| l.contains("receiver")).unwrap_or("no result").to_owned()
}
