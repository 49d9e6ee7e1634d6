use super::datagrams::{Flow, Pace};
use super::streams::Streams;
use super::transactions::{Clients, Workload};
use super::*;
use crate::demo::network;
use std::time::Instant;

const LEFT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const RIGHT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 20);

/// Two connected namespaces; none where they cannot be made, which is said unless all tests are required.
fn spaces() -> Option<[Namespace; 2]> {
    let made = Namespace::new("left").and_then(|left| Ok([left, Namespace::new("right")?]));
    match made {
        Ok([left, right]) => {
            network::connect((&left, LEFT), (&right, RIGHT)).expect("a wire");
            Some([left, right])
        }
        Err(error) if std::env::var("VPN_TEST_REQUIRE").is_ok_and(|v| v == "all") => {
            panic!("{error}")
        }
        Err(error) => {
            eprintln!("left out: {error}");
            None
        }
    }
}

fn ends([left, right]: &[Namespace; 2]) -> [End<'_>; 2] {
    [End { space: left, address: LEFT }, End { space: right, address: RIGHT }]
}

fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it never happens");
        std::thread::yield_now();
    }
}

#[test]
fn streams_run_until_they_are_dropped() {
    let Some(spaces) = spaces() else { return };
    let [left, right] = ends(&spaces);
    let streams = [(left, right), (right, left)].map(|(from, to)| Streams::start(from, to, 2));
    for streams in streams.map(|s| s.expect("connections")) {
        until(|| streams.received() > 4 << 20);
    }
}

#[test]
fn transactions_are_timed() {
    let Some(spaces) = spaces() else { return };
    let [left, right] = ends(&spaces);
    for connects in [false, true] {
        let workload = Workload { name: "", like: "", request: 64, response: 8192, connects };
        let clients = Clients::start(left, right, workload, 3).expect("connections");
        let mut marks = 0;
        let short = Duration::from_millis(20);
        let done = clients.measure(short, 2 * short, || marks += 1).expect("answers");
        assert!(marks == 2 && done.lasted >= 2 * short && !done.times.is_empty());
        assert!(done.times.is_sorted() && done.times[0] > Duration::ZERO);
    }
}

#[test]
fn datagrams_are_counted_where_they_arrive() {
    let Some(spaces) = spaces() else { return };
    let [left, right] = ends(&spaces);
    let flow = Flow::start(left, right, &[RIGHT], 1280, Pace::UnderWay(64)).expect("sockets");
    until(|| flow.count().received > 2_000);
    let count = flow.finish().expect("no error");
    assert_eq!(count.sent, count.received, "on a wire without loss");
    let begun = Instant::now();
    let flow = Flow::start(left, right, &[RIGHT], 64, Pace::Rate(5_000.0)).expect("sockets");
    until(|| flow.count().received >= 200);
    let sent = flow.count().sent;
    assert!(sent as f64 <= begun.elapsed().as_secs_f64() * 5_000.0 + 64.0, "{sent}");
}

#[test]
fn what_is_lost_makes_room_in_the_end() {
    let Some(spaces) = spaces() else { return };
    let [left, right] = ends(&spaces);
    // Nobody has the second address: every other datagram goes nowhere.
    let nobody = Ipv4Addr::new(192, 0, 2, 77);
    let flow = Flow::start(left, right, &[RIGHT, nobody], 64, Pace::UnderWay(64)).expect("sockets");
    until(|| flow.count().received >= 100);
    let count = flow.count();
    assert!(count.sent > count.received, "{count:?}");
}
