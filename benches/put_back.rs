//! The time until `vpnd` has put back what another program has removed. Meanwhile, the held table and the rest hold the
//! traffic.
//!
//! `cargo bench -p vpn-daemon --bench put_back [-- ROUNDS]`, as root. With `-- --test`, everything is removed once.
//!
//! `ip monitor` and `nft monitor` tell of each change as the kernel makes it. A time begins when the first part has
//! gone, and ends when the last one is there again. Both programs, and the threads that read them, come before all
//! others, so that busy loops do not delay what they tell.

use lab::statistics::percentile;
use rustix::process::setpriority_process;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};
use testkit::gateway::{Gateway, PATIENT};
use testkit::policies::site;
use testkit::space::Space;
use testkit::{GATEWAYS, missing};

/// A device that fails again within a second stays away for a moment.
const PAUSE: Duration = Duration::from_millis(1_500);
/// A part that is not back by then does not come back.
const LIMIT: Duration = Duration::from_secs(60);

const TABLE: &str = "inet vpn_guard_vpn0";

/// A part of the host that another program removes.
struct Part {
    name: &'static str,
    /// The commands that remove it.
    removal: &'static [&'static str],
    /// The first message about the removal has these words.
    gone: &'static [&'static str],
    /// Each message about what is put back has these words, and none of [`Part::gone`]'s that begin it.
    back: &'static str,
    /// The command whose output has a line with `back` for each of them.
    listing: &'static str,
}

const PARTS: [Part; 5] = [
    Part {
        name: "routing rules",
        removal: &["ip rule flush", "ip rule add from all lookup main priority 32766"],
        gone: &["Deleted ", "lookup 4500"],
        back: "lookup 4500",
        listing: "ip -4 rule list",
    },
    Part {
        name: "routes",
        removal: &["ip route flush table 4500"],
        gone: &["Deleted ", "table 4500"],
        back: "table 4500",
        listing: "ip -4 route list table all",
    },
    Part {
        name: "device",
        removal: &["ip link del vpn0"],
        gone: &["Deleted ", "vpn0"],
        back: "dev vpn0 table 4500",
        listing: "ip -4 route list table all",
    },
    Part {
        name: "guard",
        removal: &["nft delete table inet vpn_guard_vpn0"],
        gone: &["delete table", TABLE],
        back: "hook postrouting priority 300",
        listing: "nft list table inet vpn_guard_vpn0",
    },
    Part {
        name: "whole ruleset of nftables",
        removal: &["nft flush ruleset"],
        gone: &["delete table", TABLE],
        back: "hook postrouting priority 300",
        listing: "nft list table inet vpn_guard_vpn0",
    },
];

impl Part {
    /// Removes it, and waits until it is there again.
    fn put_back(&self, space: &Space, told: &Receiver<Told>) -> Duration {
        let parts = space.sh(self.listing).lines().filter(|line| line.contains(self.back)).count();
        assert!(parts > 0, "{}: it is there", self.name);
        while told.try_recv().is_ok() {}
        self.removal.iter().for_each(|command| drop(space.sh(command)));
        let mut begun = None;
        let mut back = 0;
        loop {
            let (at, line) = told.recv_timeout(LIMIT).unwrap_or_else(|error| {
                panic!("{}: {back} of {parts} parts are back: {error}", self.name)
            });
            if self.gone.iter().all(|words| line.contains(words)) {
                begun.get_or_insert(at);
                continue;
            }
            back += usize::from(line.contains(self.back) && !line.contains(self.gone[0]));
            if let Some(begun) = begun.filter(|_| back == parts) {
                return at - begun;
            }
        }
    }
}

/// A line of a monitor, and its time.
type Told = (Instant, String);

/// Starts a monitor, and begins to read what it tells.
fn monitor(space: &Space, command: &'static str, tell: &Sender<Told>) -> Running {
    let tell = tell.clone();
    // A thread has the priority and the namespace of the thread that starts it, and so does a program.
    let start = move || {
        setpriority_process(None, -20).expect("as root");
        let mut words = command.split(' ');
        let mut monitor = Command::new(words.next().expect("a program"));
        let monitor = monitor.args(words).stdout(Stdio::piped()).spawn();
        let mut monitor = monitor.expect("it is installed");
        let output = BufReader::new(monitor.stdout.take().expect("it is piped"));
        let mut lines = output.lines().map_while(Result::ok);
        spawn(move || lines.all(|line| tell.send((Instant::now(), line)).is_ok()));
        Running(monitor)
    };
    space.run(move || spawn(start).join().expect("no panic"))
}

/// A program that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> ExitCode {
    if let Some(reason) = missing(GATEWAYS) {
        eprintln!("put_back: {reason}");
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let once = arguments.iter().any(|argument| argument == "--test");
    let rounds = arguments.iter().find_map(|argument| argument.parse().ok());
    let rounds = if once { 1 } else { rounds.unwrap_or(40) };

    let [mut left, _right] = Gateway::pair(&site(), [1, 2], PATIENT);
    left.start();
    let (tell, told) = channel();
    let _monitors = ["ip monitor link route rule", "nft monitor"]
        .map(|command| monitor(&left.space, command, &tell));
    println!(
        "| removed | beside | rounds | median | 90 % | 99 % | longest |\n|---|---|---|---|---|---|---|"
    );
    for loops in [0, 2] {
        let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        let _busy: Vec<Running> = (0..loops).map(|_| Running(busy().expect("a shell"))).collect();
        let beside = if loops == 0 { "nothing" } else { "two busy loops" };
        for part in &PARTS {
            let round = |_| {
                sleep(PAUSE);
                part.put_back(&left.space, &told).as_secs_f64() * 1e3
            };
            let mut times: Vec<f64> = (0..rounds).map(round).collect();
            times.sort_by(f64::total_cmp);
            let at = |share| percentile(&times, share).expect("there is a round");
            let [median, most, nearly_all, longest] = [0.5, 0.9, 0.99, 1.0].map(at);
            println!(
                "| {} | {beside} | {rounds} | {median:.2} ms | {most:.2} ms | {nearly_all:.2} ms | {longest:.2} ms |",
                part.name
            );
        }
    }
    left.stop();
    ExitCode::SUCCESS
}
