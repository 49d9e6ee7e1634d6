use super::datagrams::{Flow, Pace};
use super::streams::Streams;
use super::transactions::{Clients, Workload};
use super::*;
use demo::network;
use std::process::{Command, Stdio};
use std::time::Instant;
use testkit::eventually;

const LEFT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const RIGHT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 20);

/// Two connected namespaces; none where they cannot be made, which is said.
fn spaces() -> Option<[Namespace; 2]> {
    match Namespace::new("left").and_then(|left| Ok([left, Namespace::new("right")?])) {
        Ok(spaces) => {
            network::connect((&spaces[0], LEFT), (&spaces[1], RIGHT)).expect("a wire");
            Some(spaces)
        }
        Err(error) => {
            testkit::skip(&error.to_string());
            None
        }
    }
}

fn ends([left, right]: &[Namespace; 2]) -> [End<'_>; 2] {
    [End { space: left, address: LEFT }, End { space: right, address: RIGHT }]
}

#[test]
fn streams_run_until_they_are_dropped() {
    let Some(spaces) = spaces() else { return };
    let [left, right] = ends(&spaces);
    let streams = [(left, right), (right, left)].map(|(from, to)| Streams::start(from, to, 2));
    for streams in streams.map(|s| s.expect("connections")) {
        eventually("traffic comes", || (streams.received() > 4 << 20).then_some(()));
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
    eventually("traffic comes", || (flow.count().received > 2_000).then_some(()));
    let count = flow.finish().expect("no error");
    // A busy host may lose some all the same; its own counts say how many.
    assert_eq!(count.sent, udp(&spaces[0], "OutDatagrams"));
    assert_eq!(count.received, udp(&spaces[1], "InDatagrams"));
    let begun = Instant::now();
    let flow = Flow::start(left, right, &[RIGHT], 64, Pace::Rate(5_000.0)).expect("sockets");
    eventually("traffic comes", || (flow.count().received >= 200).then_some(()));
    let sent = flow.count().sent;
    assert!(sent as f64 <= begun.elapsed().as_secs_f64() * 5_000.0 + 64.0, "{sent}");
}

/// A counter of UDP in a namespace.
fn udp(space: &Namespace, name: &str) -> u64 {
    let text = space.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
    let text = text.expect("the kernel counts");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, numbers) = (lines.next().expect("names"), lines.next().expect("numbers"));
    let mut fields = names.split(' ').zip(numbers.split(' '));
    let (_, number) = fields.find(|(field, _)| *field == name).expect("it is among them");
    number.parse().expect("a number")
}

#[test]
fn a_lost_datagram_makes_room_in_the_end() {
    let Some(spaces) = spaces() else { return };
    let [left, right] = ends(&spaces);
    // Nobody has the second address: every other datagram goes nowhere.
    let nobody = Ipv4Addr::new(192, 0, 2, 77);
    let flow = Flow::start(left, right, &[RIGHT, nobody], 64, Pace::UnderWay(64)).expect("sockets");
    eventually("traffic comes", || (flow.count().received >= 100).then_some(()));
    let count = flow.count();
    assert!(count.sent > count.received, "{count:?}");
}

/// The rates that iperf3 sends and receives, with so many octets in a datagram and so many datagrams a second;
/// 0: as many as it can.
fn iperf3([left, right]: &[Namespace; 2], octets: usize, rate: u64) -> [f64; 2] {
    let mut server = right.run(|| {
        let mut server = Command::new("iperf3");
        server.args(["-s", "-1", "--forceflush"]).stdout(Stdio::piped());
        server.spawn().expect("iperf3 is installed")
    });
    let mut line = String::new();
    let mut output = io::BufReader::new(server.stdout.as_mut().expect("piped"));
    while !line.contains("listening") {
        line.clear();
        io::BufRead::read_line(&mut output, &mut line).expect("text");
    }
    let bits = (rate * octets as u64 * 8).to_string();
    let client = left.run(move || {
        let mut client = Command::new("iperf3");
        client.args(["-c", &RIGHT.to_string(), "-u", "-t", "1", "-J", "-w", "4M"]);
        client.args(["-l", &octets.to_string(), "-b", &bits]).output().expect("iperf3 is installed")
    });
    server.wait().expect("it ends");
    let report: serde_json::Value = serde_json::from_slice(&client.stdout).expect("JSON");
    let number = |name: &str| report["end"]["sum"][name].as_f64().expect("a number");
    let sent = number("packets");
    [sent, sent - number("lost_packets")].map(|packets| packets / number("seconds"))
}

fn own([left, right]: [End<'_>; 2], octets: usize, pace: Pace) -> [f64; 2] {
    let flow = Flow::start(left, right, &[RIGHT], octets, pace).expect("sockets");
    std::thread::sleep(Duration::from_millis(100));
    let (begun, before) = (Instant::now(), flow.count());
    std::thread::sleep(Duration::from_secs(1));
    let (lasted, after) = (begun.elapsed().as_secs_f64(), flow.count());
    [after.sent - before.sent, after.received - before.received].map(|n| n as f64 / lasted)
}

/// For people: what the generator of datagrams and iperf3 find of one wire, in turns.
#[test]
#[ignore = "a measurement, for a quiet machine and an optimised build: --ignored --nocapture"]
fn datagrams_beside_iperf3() {
    let Some(spaces) = spaces() else { return };
    for octets in [64, 512, 1400] {
        for round in 1..=3 {
            let under_way = own(ends(&spaces), octets, Pace::UnderWay(256));
            let all = iperf3(&spaces, octets, 0);
            let paced =
                [own(ends(&spaces), octets, Pace::Rate(50_000.0)), iperf3(&spaces, octets, 50_000)];
            println!(
                "{octets} octets, round {round}: as many as arrive {under_way:.0?}, iperf3 {all:.0?}; 50,000/s {paced:.0?}"
            );
            for [sent, received] in paced {
                assert!(received > 0.9 * sent && (sent / 50_000.0 - 1.0).abs() < 0.1, "{paced:?}");
            }
        }
    }
}
