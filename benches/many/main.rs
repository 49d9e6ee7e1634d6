//! A gateway with very many tunnels: loading and changing their policy, their memory, and the answers about them. It
//! makes a table of `docs/understand/scale.md`.
//!
//! `cargo bench -p vpn-daemon --bench many [-- TUNNELS [peers]]`, as root. With `-- --test`, a few tunnels do all of it
//! once. All tunnels have one peer; with `peers`, each has a peer of its own.
//!
//! The policy of either gateway is a directory of a hundred files. A row has a goal where there is one, and the ratio of
//! the figure to it: up to 1 is good.

mod policies;
mod table;

use benchkit::{Reading, Watcher, used};
use control::client::{Client, ClientError};
use control::protocol::{Command, Reply};
use policies::{LEFT, Part, Policies, RIGHT_NETWORK};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};
use table::{Table, Unit};
use testkit::gateway::{Gateway, PATIENT};
use testkit::{GATEWAYS, missing};

/// The goals for 100,000 tunnels, in seconds and in octets.
const LOAD: f64 = 5.0;
const RELOAD: f64 = 0.3;
const STALL: f64 = 0.05;
const ANSWER: f64 = 0.2;
const DEFINED: f64 = 5_000.0;
const UP: f64 = 6_000.0;

/// Tunnels that a reload changes.
const CHANGED: usize = 100;
/// A command waits three minutes at most, which are not enough for all tunnels of a slow machine.
const ACTIVATIONS: usize = 20;
/// The endpoint tells a text again for a second.
const PAUSE: Duration = Duration::from_millis(1_100);

/// Changes the tunnels of a file for a round.
type Change = fn(&mut Part, usize);

fn main() -> ExitCode {
    if let Some(reason) = missing(GATEWAYS) {
        eprintln!("many: {reason}");
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_test = arguments.iter().any(|argument| argument == "--test");
    let tunnels = arguments.iter().find_map(|argument| argument.parse().ok());
    let tunnels = tunnels.unwrap_or(if is_test { 200 } else { 100_000 });
    let own_peers = arguments.iter().any(|argument| argument == "peers");
    let rounds = if is_test { 1 } else { 10 };
    let policies = Policies { tunnels, own_peers };
    let mut table = Table::default();

    let mut gateways = Gateway::pair(&["", ""].map(str::to_owned), [1, 2], PATIENT);
    let [left, right] = &mut gateways;
    right.space.ip(&format!("route add local {RIGHT_NETWORK} dev lo"));
    left.space.ip(&format!("addr add {LEFT}/32 dev lo"));
    let socket = left.path("metrics.sock");
    left.configure(&format!("[metrics]\nlisten = {socket:?}\n"));
    for (gateway, is_left) in [(&mut *left, true), (&mut *right, false)] {
        gateway.use_directory();
        gateway.write_policy_of("00-common.xml", &policies.common(is_left));
    }

    left.start();
    let empty = memory(left);
    left.stop();
    for number in 0..policies.parts() {
        let part = policies.part(number);
        left.write_policy_of(&part.name(), &part.text(true));
        right.write_policy_of(&part.name(), &part.text(false));
    }
    let begun = Instant::now();
    let directory = left.path("policy.d");
    let directory = directory.to_str().expect("UTF-8");
    let checked = left.vpnd(&["check", "--format", "json", directory]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    table.row("reading and checking the policy", begun.elapsed(), Some(LOAD));
    let begun = Instant::now();
    left.start();
    table.row("start, until it takes commands", begun.elapsed(), None);
    let defined = memory(left);
    let each = |octets: f64| octets / tunnels as f64;
    table.add("memory of a defined tunnel", Unit::Octets, each(defined - empty), Some(DEFINED));
    right.start();
    activate(&gateways, &policies, &mut table);
    let [left, _] = &gateways;
    let up = memory(left);
    table.add("more memory of a tunnel that is up", Unit::Octets, each(up - defined), Some(UP));
    ask(left, &policies, rounds, &mut table);
    reload(left, &policies, rounds, &mut table);

    let of = if own_peers { "peers" } else { "tunnels of one peer" };
    println!("{tunnels} {of}\n\n{table}");
    let begun = Instant::now();
    let [left, right] = &mut gateways;
    left.stop();
    println!("A stop took {:.2} s.", begun.elapsed().as_secs_f64());
    right.stop();
    ExitCode::SUCCESS
}

/// Octets of memory of its own that a daemon has.
fn memory(gateway: &Gateway) -> f64 {
    // Nothing is left of the start by then.
    sleep(PAUSE);
    gateway.process().kilobytes("RssAnon").expect("it runs") as f64 * 1024.0
}

/// Has all tunnels come up.
fn activate(gateways: &[Gateway; 2], policies: &Policies, table: &mut Table) {
    let cost = || {
        let ids = gateways.each_ref().map(|gateway| gateway.process().id());
        ids.map(|id| used(id).expect("it runs").as_secs_f64())
    };
    let (before, begun) = (cost(), Instant::now());
    let is_up = (0..ACTIVATIONS).any(|_| gateways[0].ctl(&["activate"]).status.success());
    assert!(is_up, "not all tunnels came up");
    let (took, after) = (begun.elapsed(), cost());
    table.row("activation of all tunnels", took, None);
    let each = |seconds: f64| seconds / policies.tunnels as f64;
    table.add("activation, time of a tunnel", Unit::Seconds, each(took.as_secs_f64()), None);
    for (end, at) in [("initiator", 0), ("responder", 1)] {
        let of = format!("activation, processor time of a tunnel, {end}");
        table.add(&of, Unit::Seconds, each(after[at] - before[at]), None);
    }
}

/// Asks about tunnels.
fn ask(left: &Gateway, policies: &Policies, rounds: usize, table: &mut Table) {
    let mut client = client(left);
    let status = |name: String| Command::Status { name };
    let [first, last] = [0, policies.tunnels - 1].map(|number| policies.child(number));
    let questions = [
        ("status of the first tunnel", status(first)),
        ("status of the last tunnel", status(last.clone())),
        ("why, last tunnel", Command::Why { name: last }),
        ("status of a name that no tunnel has", status("nobody".to_owned())),
        ("status of the daemon", Command::Overview),
        ("list of all tunnels", Command::List { all: true }),
    ];
    for (what, question) in questions {
        let times = (0..rounds).map(|_| {
            let begun = Instant::now();
            match client.ask(question.clone()) {
                Ok(_) | Err(ClientError::Refused(_)) => begun.elapsed(),
                Err(error) => panic!("{what}: {error}"),
            }
        });
        table.row(what, median(times.collect()), Some(ANSWER));
    }
    let socket = left.path("metrics.sock");
    let last = format!("/api/tunnels?page={}", policies.tunnels.div_ceil(50));
    for (what, path) in [
        ("metrics", "/metrics"),
        ("first page of the list", "/api/tunnels"),
        ("last page of the list", &last),
    ] {
        let times = (0..rounds).map(|_| {
            sleep(PAUSE);
            let reading = Reading::of(&socket, path);
            reading.end - reading.begin
        });
        table.row(what, median(times.collect()), Some(ANSWER));
    }
}

/// Reloads the policy with changes in the last file, while another client asks the engine all the time.
fn reload(left: &Gateway, policies: &Policies, rounds: usize, table: &mut Table) {
    let mut client = client(left);
    let mut reloaded =
        || match client.ask(Command::Reload { dry_run: false, undo_after_seconds: None }) {
            Ok(Reply::Reloaded(_)) => {}
            answer => panic!("the reload: {answer:?}"),
        };
    let changes: [(&str, Change); 3] = [
        ("nothing changed", |_, _| {}),
        ("100 tunnels with another lifetime", |part, round| part.other_lifetime = round % 2 == 0),
        ("100 tunnels in the place of others", |part, round| part.generation = round + 1),
    ];
    let mut part = policies.part(policies.parts() - 1);
    part.changed = CHANGED;
    for (what, change) in changes {
        let (mut times, mut stalls) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            change(&mut part, round);
            left.write_policy_of(&part.name(), &part.text(true));
            let watcher = Watcher::begin(asking(&left.path("control.sock")));
            let begun = Instant::now();
            reloaded();
            times.push(begun.elapsed());
            stalls.extend(watcher.end().into_iter().map(|(_, took)| took).max());
        }
        table.row(&format!("reload, {what}"), median(times), Some(RELOAD));
        let stall = stalls.into_iter().max().unwrap_or_default();
        table.row("the same, longest wait for the engine", stall, Some(STALL));
    }
}

/// A command that the engine answers.
fn asking(control: &Path) -> impl FnMut() + Send + 'static {
    let control = PathBuf::from(control);
    let mut client = Client::connect(&control).expect("vpnd listens");
    move || drop(client.ask(Command::ManualSas).expect("an answer"))
}

fn client(gateway: &Gateway) -> Client {
    Client::connect(&gateway.path("control.sock")).expect("vpnd listens")
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
