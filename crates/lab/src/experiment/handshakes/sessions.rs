//! Sessions: a handshake with RSA and an answer, as the document's SSL connections were; with the
//! cryptography in software, with the CPU's instructions, and with the signatures on other CPUs than the packets as
//! well.

use super::wave::{self, Asking};
use super::{over, up};
use crate::experiment::lab::Lab;
use crate::experiment::software::{self, Sites};
use crate::experiment::sources::system_z;
use crate::load::transactions::{Workload, once};
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::site::{Site, Tunnels, Used};
use crate::statistics::Spread;
use crate::table::Table;
use control::client::Client;
use control::protocol::{Command as Ask, WorkersChange};
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::Serialize;
use std::fs;
use std::time::{Duration, Instant};

/// Sessions at a time, each with a tunnel of its own.
const PARALLEL: usize = 3;

const fn of(name: &'static str, response: usize) -> Workload {
    Workload { name, like: "", request: 40, response, connects: true }
}

/// The document's sizes of an answer.
const SIZES: [Workload; 2] = [of("20 KB", 20_000), of("1 MB", 1_000_000)];

/// A state of both daemons.
#[derive(Clone, Copy)]
struct State {
    name: &'static str,
    cryptography: software::State,
    /// Threads that carry no packets, those that sign among them, run on other CPUs than those that do.
    apart: bool,
}

impl State {
    const fn of(cryptography: software::State) -> Self {
        Self { name: cryptography.name(), cryptography, apart: false }
    }
}

const STATES: [State; 4] = [
    State::of(software::State::Portable),
    State::of(software::State::Library),
    State::of(software::State::InCore),
    State {
        name: "on: AWS-LC, signatures on other CPUs",
        apart: true,
        ..State::of(software::State::InCore)
    },
];

/// Those that this machine has.
fn states() -> impl Iterator<Item = State> {
    STATES.into_iter().filter(|state| state.cryptography.is_here())
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    round: usize,
    state: &'static str,
    session: &'static str,
    sessions: usize,
    seconds: f64,
    /// Of both daemons.
    cpu_seconds: f64,
}

impl Row {
    fn rate(&self) -> f64 {
        self.sessions as f64 / self.seconds
    }

    /// Milliseconds of processor time for a session.
    fn cost(&self) -> f64 {
        self.cpu_seconds * 1e3 / self.sessions as f64
    }
}

/// The number of steps of [`run`].
pub(super) fn steps(rounds: usize) -> usize {
    if cpus().is_ok_and(|cpus| cpus.len() > 1) {
        rounds * states().count() * SIZES.len()
    } else {
        0
    }
}

/// Measures all states in turn; nothing where there is one CPU only.
pub(super) fn run(
    lab: &Lab,
    sites: &mut Sites,
    clients: &mut [Client],
    tunnels: &Tunnels,
    rounds: usize,
    lasting: Duration,
) -> Result<Vec<Row>, String> {
    let cpus = cpus()?;
    if cpus.len() < 2 {
        return Ok(vec![]);
    }
    let mut rows = Vec::new();
    let mut others: Vec<Client> = Vec::new();
    if let Some(site) = &mut sites.without {
        for _ in 0..PARALLEL {
            others.push(site.node(0)?.client()?);
        }
    }
    for round in 0..rounds {
        for state in states() {
            let site = sites.turn(state.cryptography)?;
            put(site, state, &cpus)?;
            let clients = match state.cryptography {
                software::State::Library => &mut others[..],
                _ => &mut *clients,
            };
            for size in SIZES {
                lab.step(format!("sessions of {}, {}", size.name, state.name))?;
                let row = measure(site, clients, tunnels, size, lasting)?;
                rows.push(Row { round, state: state.name, ..row });
            }
        }
    }
    let site = sites.turn(software::State::InCore)?;
    for end in [0, 1] {
        place(site, end, &cpus, None)?;
    }
    Ok(rows)
}

/// The CPUs that this process may use.
fn cpus() -> Result<Vec<usize>, String> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(|errno| format!("CPUs: {errno}"))?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect())
}

fn put(site: &mut Site, state: State, cpus: &[usize]) -> Result<(), String> {
    for end in [0, 1] {
        let packets = cpus[end % cpus.len()];
        let others: Vec<usize> = match state.apart {
            true => cpus.iter().copied().filter(|cpu| *cpu != packets).collect(),
            false => vec![packets],
        };
        place(site, end, &others, Some(packets))?;
    }
    Ok(())
}

/// Has the threads of a daemon that carry packets run on one CPU, and the others on these; `None`: on any.
fn place(
    site: &mut Site,
    end: usize,
    others: &[usize],
    packets: Option<usize>,
) -> Result<(), String> {
    let process = site.node(end)?.process();
    // A daemon takes for workers only CPUs that it may run on itself.
    restrict(process, &cpus()?, &|_| true)?;
    let affinity = packets.map_or_else(|| "none".to_owned(), |cpu| cpu.to_string());
    let workers = if packets.is_some() { "1" } else { "auto" };
    let change = WorkersChange {
        workers: Some(workers.to_owned()),
        affinity: Some(affinity),
        ..WorkersChange::default()
    };
    site.ask(end, Ask::WorkersSet(change))?;
    // Threads that are started later have the CPUs of those that start them.
    restrict(process, others, &|name| !name.starts_with("vpn0-"))
}

/// Has those threads of a process run on these CPUs that have such a name.
fn restrict(process: u32, cpus: &[usize], which: &dyn Fn(&str) -> bool) -> Result<(), String> {
    let refused = |errno: Errno| format!("a daemon's CPUs: {errno}");
    let mut set = CpuSet::new();
    cpus.iter().try_for_each(|cpu| set.set(*cpu)).map_err(refused)?;
    let tasks = format!("/proc/{process}/task");
    for task in fs::read_dir(&tasks).map_err(|error| format!("{tasks}: {error}"))?.flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let number = task.file_name().to_str().and_then(|number| number.parse().ok());
        let Some(number) = number.filter(|_| which(&name)) else { continue };
        match sched_setaffinity(Pid::from_raw(number), &set) {
            // A thread that has just ended.
            Err(Errno::ESRCH) => {}
            outcome => outcome.map_err(refused)?,
        }
    }
    Ok(())
}

/// Measures waves of sessions until they have taken so long.
fn measure(
    site: &Site,
    clients: &mut [Client],
    tunnels: &Tunnels,
    size: Workload,
    lasting: Duration,
) -> Result<Row, String> {
    let session = |ask: &mut Asking<'_>, n: u8| {
        up(ask, &tunnels.name(n))?;
        let behind = |end: usize| site.end(end, tunnels.behind(n, end));
        once(behind(0), behind(1), size)
    };
    let used = || site.used().map(|Used { daemons: [left, right], .. }| left + right);
    let mut connections: Vec<Asking<'_>> = clients.iter_mut().take(PARALLEL).map(over).collect();
    let (mut sessions, mut lasted, mut spent) = (0, Duration::ZERO, Duration::ZERO);
    while lasted < lasting {
        let (before, begun) = (used()?, Instant::now());
        sessions += wave::run(&mut connections, tunnels, session)?.len();
        lasted += begun.elapsed();
        spent += used()?.saturating_sub(before);
        wave::delete(&mut connections[0], tunnels)?;
    }
    Ok(Row {
        round: 0,
        state: "",
        session: size.name,
        sessions,
        seconds: lasted.as_secs_f64(),
        cpu_seconds: spent.as_secs_f64(),
    })
}

pub(super) fn write(report: &mut Report, rows: &[Row], cores: usize) {
    if rows.is_empty() {
        return;
    }
    let spread = |state: &str, size: &str, of: &dyn Fn(&Row) -> f64| {
        let fits = |row: &&Row| row.state == state && row.session == size;
        Spread::of(rows.iter().filter(fits).map(of))
    };
    let ratio = |state: &str, by: &str, size: &str, of: &dyn Fn(&Row) -> f64| {
        let pairs = rows.iter().filter(|row| row.state == state && row.session == size);
        Spread::of(pairs.filter_map(|row| {
            let same =
                |other: &&Row| (other.state, other.session, other.round) == (by, size, row.round);
            Some(of(row) / of(rows.iter().find(same)?))
        }))
    };
    report.section("Sessions: a handshake and an answer");
    let panel = |label: &str, of: &dyn Fn(&Row) -> f64| Panel {
        caption: String::new(),
        x: Axis::groups("octets of the answer", SIZES.map(|size| size.name)),
        y: Axis::logarithmic(label),
        series: states()
            .map(|state| Series {
                name: state.name.to_owned(),
                style: if state.apart { Style::solid(2) } else { state.cryptography.style() },
                points: (0_u8..)
                    .zip(SIZES)
                    .filter_map(|(at, s)| Some((f64::from(at), spread(state.name, s.name, of)?)))
                    .collect(),
            })
            .collect(),
        mark: None,
    };
    report.plot(
        "sessions",
        &Plot {
            title: "Sessions with RSA-2048 and AES-128-GCM".to_owned(),
            quote: system_z::SSL.to_string(),
            panels: vec![
                panel("sessions/s", &Row::rate),
                panel("CPU of both daemons (ms per session)", &Row::cost),
            ],
            columns: 2,
        },
    );
    let show = |spread: Option<Spread>, digits| {
        spread.map_or_else(|| "–".to_owned(), |spread| spread.show(digits))
    };
    let by = |spread: Option<Spread>| {
        spread.map_or_else(|| "–".to_owned(), |spread| spread.show_ratio(2))
    };
    let off = || states().filter(|state| software::State::OFF.contains(&state.cryptography));
    let mut heads = vec!["answer".to_owned(), "state".to_owned(), "sessions/s".to_owned()];
    heads.extend(off().map(|off| format!("÷ {}", off.name)));
    heads.push("CPU ms per session".to_owned());
    heads.extend(off().map(|off| format!("CPU of {} ÷ this", off.name)));
    let mut table = Table::new(heads);
    for size in SIZES {
        for State { name, .. } in states() {
            let mut row = vec![size.name.to_owned(), name.to_owned()];
            row.push(show(spread(name, size.name, &Row::rate), 0));
            row.extend(off().map(|off| by(ratio(name, off.name, size.name, &Row::rate))));
            row.push(show(spread(name, size.name, &Row::cost), 2));
            row.extend(off().map(|off| by(ratio(off.name, name, size.name, &Row::cost))));
            table.row(row);
        }
    }
    report.table(&table);
    report.say(format!(
        "{PARALLEL} sessions at a time: a tunnel with RSA-2048 certificates comes up and carries one answer over TCP, as an SSL \
         connection of the document did. Tunnels are deleted together, outside the measured time. {} Its accelerator did the signatures; here other CPUs do: in the last state \
         only those threads of a daemon that carry packets run on one CPU, and those that sign, negotiate and command have the \
         other CPUs of this machine. In the other states all threads of a daemon run on one CPU. {} Off and on are for packets \
         and for the ciphers of IKE; signatures are AWS-LC's in all states.",
        system_z::SSL,
        software::STATES,
    ));
    if cores < 3 {
        report.say(
            "**Two CPUs cannot show a gain by other CPUs:** the other CPU of one daemon is the one that carries the packets of \
             the other, so that no signature has a CPU that is free.",
        );
    }
}
