//! The time that a scrape takes, and a page of the list, where very many tunnels are up; and how long the engine and
//! packets have to wait meanwhile.
//!
//! `cargo bench -p vpn-daemon --bench watch [-- TUNNELS ROUNDS]`, as root. With `-- --test`, a few tunnels are read once.
//!
//! One gateway has a series for each tunnel, the other as many as it has by default. An engine answers a command as it
//! answers a message: a command of a client that asks all the time shows how long a peer may wait. Packets are echoed
//! through one of the tunnels.

use benchkit::policy::Site;
use benchkit::{Reading, Watcher};
use control::client::Client;
use control::protocol::Command;
use lab::statistics::percentile;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};
use testkit::gateway::{Gateway, PATIENT};
use testkit::{GATEWAYS, missing};

/// Between two readings: a text is told again for a second.
const PAUSE: Duration = Duration::from_millis(1_500);
/// An echo that is not there by then is lost.
const LOST: Duration = Duration::from_secs(2);

/// The address on the left, and the first one on the right; each tunnel has the next one.
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 0);

fn main() -> ExitCode {
    if let Some(reason) = missing(GATEWAYS) {
        eprintln!("watch: {reason}");
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let once = arguments.iter().any(|argument| argument == "--test");
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse::<u16>().ok());
    let (few, many) = ((40, 1), (20_000, 20));
    let (tunnels, rounds) = if once { few } else { many };
    let [tunnels, rounds] = [tunnels, rounds].map(|usual| numbers.next().unwrap_or(usual));

    let policies = [true, false].map(|is_left| policy(tunnels, is_left));
    let [mut left, mut right] = Gateway::pair(&policies, [1, 2], PATIENT);
    right.space.ip("route add local 10.201.0.0/16 dev lo");
    left.space.ip(&format!("addr add {LEFT}/32 dev lo"));
    for (gateway, series) in [(&left, "tunnels = 100000\n"), (&right, "")] {
        let socket = gateway.path("metrics.sock");
        gateway.configure(&format!("[metrics]\nlisten = {socket:?}\n{series}"));
    }
    right.start();
    left.start();
    let begun = Instant::now();
    left.ctl_ok(&["activate"]);
    println!("{tunnels} tunnels were up after {:.1} s\n", begun.elapsed().as_secs_f64());

    let server = right.space.run(|| UdpSocket::bind((RIGHT, 7)).expect("its address"));
    spawn(move || echo(&server));
    let client = left.space.run(|| UdpSocket::bind((LEFT, 0)).expect("its address"));
    client.connect((RIGHT, 7)).expect("there is a route");
    client.set_read_timeout(Some(LOST)).expect("a time");
    let watchers = [
        ("command to the engine", Watcher::begin(asking(&left.path("control.sock")))),
        ("echo through a tunnel", Watcher::begin(move || echoed(&client))),
    ];

    let quiet = Instant::now();
    sleep(PAUSE * u32::from(rounds.min(10)));
    let quiet = quiet..Instant::now();
    let [socket, usual] = [&left, &right].map(|gateway| gateway.path("metrics.sock"));
    let last = format!("/api/tunnels?page={}", tunnels.div_ceil(50));
    let read = [
        ("scrape, a series for each tunnel", &socket, "/metrics"),
        ("scrape, as many series as by default", &usual, "/metrics"),
        ("first page of the list", &socket, "/api/tunnels"),
        ("last page of the list", &socket, &last),
    ];
    let mut readings: [Vec<Reading>; 4] = Default::default();
    for _ in 0..rounds {
        for (readings, (_, socket, path)) in readings.iter_mut().zip(read) {
            sleep(PAUSE);
            readings.push(Reading::of(socket, path));
        }
    }
    println!("| | octets | median | 90 % | longest |\n|---|---|---|---|---|");
    for ((name, ..), readings) in read.iter().zip(&readings) {
        let octets = readings.last().map_or(0, |reading| reading.octets);
        let times = readings.iter().map(|reading| reading.end - reading.begin);
        let [median, most, longest] = shares(times.collect(), [0.5, 0.9, 1.0]);
        println!("| {name} | {octets} | {median} | {most} | {longest} |");
    }
    println!("\n| | | number | median | 99 % | longest |\n|---|---|---|---|---|---|");
    for (name, watcher) in watchers {
        let answers = watcher.end();
        let within = |begin: Instant, end: Instant| {
            answers.iter().filter(move |(at, took)| *at < end && *at + *took > begin)
        };
        let scrapes = readings[0].iter().flat_map(|reading| within(reading.begin, reading.end));
        for (when, answers) in [
            ("nobody reads", within(quiet.start, quiet.end).map(|(_, took)| *took).collect()),
            ("during scrapes", scrapes.map(|(_, took)| *took).collect::<Vec<_>>()),
        ] {
            let number = answers.len();
            let [median, nearly_all, longest] = shares(answers, [0.5, 0.99, 1.0]);
            println!("| {name} | {when} | {number} | {median} | {nearly_all} | {longest} |");
        }
    }
    left.stop();
    right.stop();
    ExitCode::SUCCESS
}

/// These shares of the times, in milliseconds.
fn shares<const N: usize>(times: Vec<Duration>, shares: [f64; N]) -> [String; N] {
    let mut times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    shares.map(|share| percentile(&times, share).map_or("-".into(), |ms| format!("{ms:.2} ms")))
}

/// A command that the engine answers.
fn asking(control: &Path) -> impl FnMut() + Send + 'static {
    let control = PathBuf::from(control);
    let mut client = Client::connect(&control).expect("vpnd listens");
    move || drop(client.ask(Command::ManualSas).expect("an answer"))
}

fn echo(server: &UdpSocket) {
    let mut octets = [0; 64];
    // The namespace goes with the gateway.
    while let Ok((length, from)) = server.recv_from(&mut octets) {
        let _ = server.send_to(&octets[..length], from);
    }
}

fn echoed(client: &UdpSocket) {
    client.send(b"echo").expect("there is room");
    client.recv(&mut [0; 64]).expect("no echo is lost");
}

/// A policy with so many tunnels, each to an address of its own on the right.
fn policy(tunnels: u16, is_left: bool) -> String {
    let mut ends = [[192, 0, 2, 1], [192, 0, 2, 2]].map(Ipv4Addr::from);
    if !is_left {
        ends.reverse();
    }
    let [here, there] = ends;
    let ranges = (0..tunnels).map(|number| {
        let [high, low] = number.to_be_bytes();
        let mut ranges = [[LEFT; 2], [Ipv4Addr::new(10, 201, high, low); 2]];
        if !is_left {
            ranges.reverse();
        }
        ranges
    });
    Site { here, there, esp: "ESP_AES128_GCM_16" }.policy(ranges)
}
