//! How much TCP the plane carries, by iperf3; for optimised builds, and to be read rather than to pass or fail.

use crate::network::{Network, run};
use crate::{Side, TUNNEL, connect, gateways};
use esp::plane::Encapsulation;
use std::process::{Command, Stdio};
use userspace::workers::{Change, Count, Schedule};

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

fn iperf(network: &Network, streams: &str) -> String {
    let (client, server) = (Side::A.inner(false), Side::B.inner(false));
    let mut listener = Command::new("ip")
        .args(["netns", "exec", network.namespace(1), "iperf3", "-s", "-1", "--forceflush"])
        .args(["-B", &server.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("iperf3 starts");
    let mut output = std::io::BufReader::new(listener.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        let read = std::io::BufRead::read_line(&mut output, &mut line).expect("readable");
        assert!(read > 0, "iperf3 listens");
    }
    let (client, server) = (client.to_string(), server.to_string());
    let arguments = ["-c", &server, "-B", &client, "-t", SECONDS, "-P", streams, "-f", "g"];
    let command = [&["netns", "exec", network.namespace(0), "iperf3"], &arguments[..]].concat();
    let shown = run("ip", &command);
    // The listener's report must go somewhere, or it waits for ever.
    std::io::copy(&mut output, &mut std::io::sink()).expect("readable");
    listener.wait().expect("it ends");
    shown.lines().rev().find(|l| l.contains("receiver")).unwrap_or("no result").to_owned()
}
