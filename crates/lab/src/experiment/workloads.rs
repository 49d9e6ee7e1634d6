//! Transactions as the System z document has them: how many, what they cost, and how long each takes, with and without
//! IPsec, with and without the CPU's instructions, polling and waiting for events.

mod sizes;

use super::lab::{Effort, Lab};
use super::software::{self, Sites};
use super::sources::system_z;
use crate::load::transactions::{Clients, Workload};
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::site::{Cipher, Mode, Net, Site, WIRE, Work};
use crate::statistics::{Spread, percentile};
use crate::table::Table;
use policy::{EspEncryption, Integrity, KeyBits, Protection};
use serde::Serialize;
use sizes::SIZES;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The document's; it names them, and what the names say is all that it tells of the first two.
const WORKLOADS: [Workload; 3] = [
    Workload {
        name: "rr200x1k",
        like: "an online transaction",
        request: 200,
        response: 1024,
        connects: false,
    },
    Workload {
        name: "crr64x8k",
        like: "a website request",
        request: 64,
        response: 8192,
        connects: true,
    },
    Workload {
        name: "rr200x32k",
        like: "a database query",
        request: 200,
        response: 32_768,
        connects: false,
    },
];
const CONNECTIONS: [usize; 6] = [1, 2, 4, 8, 16, 32];

const CBC: Net = Net {
    number: 1,
    cipher: Cipher {
        name: "AES-128-CBC + HMAC-SHA256",
        protection: Protection::Esp {
            encryption: EspEncryption::AesCbc(KeyBits::B128),
            integrity: Some(Integrity::HmacSha2_256_128),
        },
    },
    mode: Mode::Tunnel,
    pairs: 1,
};
const GCM: Net = Net { number: 2, cipher: Cipher::AES_128_GCM, mode: Mode::Tunnel, pairs: 1 };

/// One of the states that are compared.
#[derive(Clone, Copy)]
struct State {
    name: &'static str,
    /// None: no IPsec.
    net: Option<Net>,
    cryptography: software::State,
    wait: &'static str,
    style: Style,
}

impl State {
    const fn new(
        name: &'static str,
        net: Option<Net>,
        cryptography: software::State,
        style: Style,
    ) -> Self {
        Self { name, net, cryptography, wait: "event", style }
    }

    /// Those of these that this machine has.
    fn here(states: &[Self]) -> Vec<Self> {
        states.iter().copied().filter(|state| state.cryptography.is_here()).collect()
    }
}

const NONE: &str = "no IPsec";
const CBC_ON: State =
    State::new("CBC, on: AWS-LC", Some(CBC), software::State::InCore, Style::solid(0));
const GCM_ON: State =
    State::new("GCM, on: AWS-LC", Some(GCM), software::State::InCore, Style::solid(2));
const CBC_PORTABLE: State =
    State::new("CBC, off: RustCrypto", Some(CBC), software::State::Portable, Style::solid(1));
const GCM_PORTABLE: State =
    State::new("GCM, off: RustCrypto", Some(GCM), software::State::Portable, Style::solid(4));
const CBC_LIBRARY: State = State::new(
    "CBC, off: AWS-LC's software",
    Some(CBC),
    software::State::Library,
    Style::dashed(1),
);
const GCM_LIBRARY: State = State::new(
    "GCM, off: AWS-LC's software",
    Some(GCM),
    software::State::Library,
    Style::dashed(4),
);
/// Those in which workers wait for events.
const WAITING: [State; 7] = [
    State::new(NONE, None, software::State::InCore, Style::solid(6)),
    CBC_PORTABLE,
    GCM_PORTABLE,
    CBC_LIBRARY,
    GCM_LIBRARY,
    CBC_ON,
    GCM_ON,
];
const POLLING: [State; 3] = [
    State { name: "CBC, polling", wait: "poll", style: Style::dashed(0), ..CBC_ON },
    State { name: "GCM, polling", wait: "poll", style: Style::dashed(2), ..GCM_ON },
    State { name: "GCM, adaptive", wait: "adaptive", style: Style::dashed(3), ..GCM_ON },
];

/// All that this machine has: those that wait for events, and the others.
fn states() -> [Vec<State>; 2] {
    [State::here(&WAITING), POLLING.to_vec()]
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
struct Row {
    round: usize,
    state: &'static str,
    workload: &'static str,
    connections: usize,
    transactions: usize,
    seconds: f64,
    /// Of both daemons, and of clients and servers.
    cpu_seconds: [f64; 2],
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
}

impl Row {
    fn rate(&self) -> f64 {
        self.transactions as f64 / self.seconds
    }

    /// Microseconds of processor time for one transaction, everything together.
    fn cost(&self) -> f64 {
        (self.cpu_seconds[0] + self.cpu_seconds[1]) * 1e6 / self.transactions as f64
    }
}

/// Measures, and writes what came out.
pub(super) fn run(lab: &Lab) -> Result<Report, String> {
    let rounds = lab.effort.pick(1, 2, 5);
    let settle = Duration::from_millis(lab.effort.pick(5, 40, 80));
    let lasting = Duration::from_millis(lab.effort.pick(20, 200, 400));
    let connections = match lab.effort {
        Effort::Rehearsal => &CONNECTIONS[1..2],
        _ => &CONNECTIONS[..],
    };
    let sizes = match lab.effort {
        Effort::Rehearsal => &SIZES[1..2],
        _ => &SIZES[..],
    };
    let mut sites = Sites::new(|site| site.of_nets(&lab.vpnd, &[CBC, GCM], ""))?;
    let [waiting, polling] = states();
    let all: Vec<State> = waiting.iter().chain(&polling).copied().collect();
    lab.expect(rounds * (all.len() * WORKLOADS.len() + waiting.len()));
    let mut rows = Vec::new();
    for round in 0..rounds {
        for (number, state) in all.iter().enumerate() {
            let site = sites.turn(state.cryptography)?;
            site.set_work(Work { wait: state.wait, ..Work::default() })?;
            let addresses = state.net.map_or(WIRE, |n| [0, 1].map(|end| n.addresses(end)[0]));
            for workload in WORKLOADS {
                lab.step(format!("{}, {}", workload.name, state.name))?;
                for &connections in connections {
                    let case = (addresses, workload, connections);
                    let row = measure(site, case, [settle, lasting])?;
                    rows.push(Row { round, state: state.name, ..row });
                }
            }
            if number >= waiting.len() {
                continue;
            }
            lab.step(format!("40 B to 1 MB, {}", state.name))?;
            for &size in sizes {
                let case = (addresses, size, sizes::CONNECTIONS);
                let row = measure(site, case, [settle, lasting * 2])?;
                rows.push(Row { round, state: state.name, ..row });
            }
        }
    }
    let figures = Figures { rows: &rows, connections };
    let mut report = Report::new("Transactions with and without IPsec");
    write(&mut report, lab, &figures, sizes, lab.rounds(rounds, lasting));
    report.data(&rows);
    Ok(report)
}

fn measure(
    site: &Site,
    (addresses, workload, connections): ([Ipv4Addr; 2], Workload, usize),
    [settle, lasting]: [Duration; 2],
) -> Result<Row, String> {
    let [left, right] = [0, 1].map(|end| site.end(end, addresses[end]));
    let clients = Clients::start(left, right, workload, connections)?;
    let mut used = Vec::new();
    let done = clients.measure(settle, lasting, || used.push(site.used()))?;
    let used = used.into_iter().collect::<Result<Vec<_>, _>>()?;
    let spent = used[1].since(used[0]);
    let times: Vec<f64> = done.times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    let at = |share| {
        percentile(&times, share).ok_or_else(|| {
            let lasted = done.lasted.as_secs_f64();
            format!("no transaction of {} ended within {lasted:.2} s", workload.name)
        })
    };
    Ok(Row {
        round: 0,
        state: "",
        workload: workload.name,
        connections,
        transactions: times.len(),
        seconds: done.lasted.as_secs_f64(),
        cpu_seconds: [
            (spent.daemons[0] + spent.daemons[1]).as_secs_f64(),
            spent.traffic.as_secs_f64(),
        ],
        p50_ms: at(0.5)?,
        p90_ms: at(0.9)?,
        p99_ms: at(0.99)?,
    })
}

/// The measurements, and statistics over them.
struct Figures<'a> {
    rows: &'a [Row],
    connections: &'a [usize],
}

impl Figures<'_> {
    fn spread(
        &self,
        state: &str,
        workload: &str,
        connections: usize,
        of: impl Fn(&Row) -> f64,
    ) -> Option<Spread> {
        let fits = |row: &&Row| {
            row.state == state && row.workload == workload && row.connections == connections
        };
        Spread::of(self.rows.iter().filter(fits).map(of))
    }

    /// A figure of a state by that of another at as many connections, round by round.
    fn ratio(
        &self,
        [state, by]: [&str; 2],
        workload: &str,
        connections: usize,
        of: impl Fn(&Row) -> f64,
    ) -> Option<Spread> {
        let rows = |state: &str| {
            let state = state.to_owned();
            self.rows.iter().filter(move |row| {
                row.state == state && row.workload == workload && row.connections == connections
            })
        };
        let pairs = rows(state).filter_map(|row| {
            let other = rows(by).find(|other| other.round == row.round)?;
            Some(of(row) / of(other))
        });
        Spread::of(pairs)
    }

    /// A figure of a state by that without IPsec at as many connections.
    fn normalised(
        &self,
        state: &str,
        workload: &str,
        connections: usize,
        of: impl Fn(&Row) -> f64,
    ) -> Option<Spread> {
        self.ratio([state, NONE], workload, connections, of)
    }

    /// A panel for each workload.
    fn panels(
        &self,
        label: &str,
        axis: impl Fn(String) -> Axis,
        states: &[State],
        figure: impl Fn(&str, &str, usize) -> Option<Spread>,
    ) -> Vec<Panel> {
        let panel = |workload: &Workload| Panel {
            caption: format!("{} ({})", workload.name, workload.like),
            x: Axis::steps("parallel connections", self.connections),
            y: axis(label.to_owned()),
            series: states
                .iter()
                .map(|state| {
                    let at = |n: &usize| Some((*n as f64, figure(state.name, workload.name, *n)?));
                    let points = self.connections.iter().filter_map(at).collect();
                    Series { name: state.name.to_owned(), style: state.style, points }
                })
                .collect(),
            mark: None,
        };
        WORKLOADS.iter().map(panel).collect()
    }
}

fn write(
    report: &mut Report,
    lab: &Lab,
    figures: &Figures<'_>,
    sizes: &[Workload],
    rounds: String,
) {
    report.say(format!(
        "The document measured three workloads between two systems in three states: no IPsec, IPsec in software, and IPsec \
         with the processor's instructions (CPACF). Here both hosts, their `vpnd` and the clients and servers share the {} \
         cores of one machine, so that the rate is what all of them together cost. {rounds}",
        lab.machine.cores,
    ));
    let mut table =
        Table::new(["workload", "stands for", "connection", "request, octets", "response, octets"]);
    for w in WORKLOADS {
        let connection = if w.connects { "one for each" } else { "standing" };
        table.row([w.name, w.like, connection, &w.request.to_string(), &w.response.to_string()]);
    }
    report.table(&table);
    report.say(
        "The document gives the workloads' names and what they stand for; sizes and connections are what the names say (rr: \
         requests and responses, crr: each with a connection). Workers wait for events unless *polling* or *adaptive* is said.",
    );
    report.say(software::STATES);
    let [waiting, _] = states();
    let waiting_for_events = &waiting[..];
    report.section("Transaction rate");
    report.plot(
        "rate",
        &Plot {
            title: "Transaction rate".to_owned(),
            quote: system_z::RATE.to_string(),
            panels: figures.panels(
                "transactions/s",
                Axis::linear,
                waiting_for_events,
                |state, workload, n| figures.spread(state, workload, n, Row::rate),
            ),
            columns: 3,
        },
    );
    report.plot(
        "normalised-rate",
        &Plot {
            title: "Normalised transaction rate".to_owned(),
            quote: format!(
                "{} The rate of each round, divided by that without IPsec at as many connections.",
                system_z::RATE
            ),
            panels: figures.panels(
                "rate (1 = no IPsec)",
                Axis::linear,
                waiting_for_events,
                |state, workload, n| figures.normalised(state, workload, n, Row::rate),
            ),
            columns: 3,
        },
    );
    report.section("CPU cost");
    report.plot(
        "cost",
        &Plot {
            title: "Normalised CPU cost of a transaction".to_owned(),
            quote: system_z::COST.to_string(),
            panels: figures.panels(
                "CPU per transaction (1 = no IPsec)",
                Axis::logarithmic,
                waiting_for_events,
                |state, workload, n| figures.normalised(state, workload, n, Row::cost),
            ),
            columns: 3,
        },
    );
    report.say(
        "Processor time of both daemons, clients and servers, for one transaction, divided by the same without IPsec.",
    );
    report.section("Response time");
    report.plot(
        "response",
        &Plot {
            title: "Median response time".to_owned(),
            quote: system_z::RESPONSE.to_string(),
            panels: figures
                .panels(
                    "response time (ms)",
                    Axis::logarithmic,
                    waiting_for_events,
                    |state, workload, n| figures.spread(state, workload, n, |row| row.p50_ms),
                )
                .into_iter()
                .map(|panel| match panel.caption.starts_with("rr200x32k") {
                    true => Panel {
                        mark: Some((
                            system_z::LONGEST_RESPONSE_MS,
                            "the document with CPACF".to_owned(),
                        )),
                        ..panel
                    },
                    false => panel,
                })
                .collect(),
            columns: 3,
        },
    );
    sizes::write(report, figures, waiting_for_events, sizes);
    report.section("Polling and waiting for events");
    let gcm = [GCM_ON, POLLING[1], POLLING[2]];
    report.plot(
        "polling",
        &Plot {
            title: "Transaction rate, polling and waiting".to_owned(),
            quote: system_z::POLLING.to_string(),
            panels: figures.panels("transactions/s", Axis::linear, &gcm, |state, workload, n| {
                figures.spread(state, workload, n, Row::rate)
            }),
            columns: 3,
        },
    );
    report.plot(
        "polling-cost",
        &Plot {
            title: "CPU cost of a transaction, polling and waiting".to_owned(),
            quote: format!(
                "{} Here a worker that polls takes a core whether there are packets or not.",
                system_z::POLLING
            ),
            panels: figures.panels(
                "CPU per transaction (µs)",
                Axis::logarithmic,
                &gcm,
                |state, workload, n| figures.spread(state, workload, n, Row::cost),
            ),
            columns: 3,
        },
    );
    report.say(format!(
        "The document polled for the answers of an adapter that did the public-key operations of SSL handshakes. There is no such \
         adapter here: the workers of `vpnd` poll their devices and sockets for packets, so that the two have the way of \
         waiting in common and not the work. {} A worker with the adaptive way of waiting is like that thread: it polls under \
         load, and otherwise waits for events. Polling can always be switched on.",
        system_z::POLLING_THREAD,
    ));
    if lab.machine.cores < 4 {
        report.say(format!(
            "Two daemons that poll, clients and servers want four cores; on {} the pollers take from the traffic what they \
             save it in wake-ups. Whether polling pays where cores are free, such a machine cannot show.",
            lab.machine.cores
        ));
    }
    report.section("All figures");
    report.table(&all(figures));
    report.headline(findings(figures));
}

/// One row for each state, workload and number of connections.
fn all(figures: &Figures<'_>) -> Table {
    let mut table = Table::new([
        "workload",
        "connections",
        "state",
        "transactions/s",
        "rate ÷ no IPsec",
        "CPU µs",
        "CPU ÷ no IPsec",
        "p50 ms",
        "p90 ms",
        "p99 ms",
    ]);
    let cell = |spread: Option<Spread>, digits| spread.map_or("–".to_owned(), |s| s.show(digits));
    let by = |spread: Option<Spread>| spread.map_or("–".to_owned(), |s| s.show_ratio(2));
    let middle =
        |spread: Option<Spread>| spread.map_or("–".to_owned(), |s| format!("{:.2}", s.median));
    for workload in WORKLOADS.map(|w| w.name) {
        for &n in figures.connections {
            for state in states().iter().flatten().map(|state| state.name) {
                let time = |of: fn(&Row) -> f64| middle(figures.spread(state, workload, n, of));
                table.row([
                    workload.to_owned(),
                    n.to_string(),
                    state.to_owned(),
                    cell(figures.spread(state, workload, n, Row::rate), 0),
                    by(figures.normalised(state, workload, n, Row::rate)),
                    cell(figures.spread(state, workload, n, Row::cost), 1),
                    by(figures.normalised(state, workload, n, Row::cost)),
                    time(|row| row.p50_ms),
                    time(|row| row.p90_ms),
                    time(|row| row.p99_ms),
                ]);
            }
        }
    }
    table
}

/// The document's sentences beside what was measured.
fn findings(figures: &Figures<'_>) -> String {
    let highest = |state: &str, by: &str| {
        let all =
            WORKLOADS.iter().flat_map(|w| figures.connections.iter().map(move |n| (w.name, *n)));
        let ratio = |(workload, n)| figures.ratio([state, by], workload, n, Row::cost);
        Spread::highest(all.filter_map(ratio))
    };
    let software = |state: State, by: &str| {
        let is_here = state.cryptography.is_here();
        is_here.then(|| format!("{} with *{}*", highest(state.name, by), state.name))
    };
    let by_none = [CBC_PORTABLE, GCM_PORTABLE, CBC_LIBRARY, GCM_LIBRARY]
        .into_iter()
        .filter_map(|state| software(state, NONE));
    let by_own = sizes::PAIRS.iter().filter_map(|[off, on]| software(*off, on.name));
    format!(
        "CPU cost of a transaction in software, relative to no IPsec, in the dearest case: {}. Relative to the instructions with \
         the same cipher: {}. {}",
        by_none.collect::<Vec<_>>().join(", "),
        by_own.collect::<Vec<_>>().join(", "),
        system_z::COST,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(round: usize, state: &'static str, workload: &'static str, cpu: f64) -> Row {
        Row {
            round,
            state,
            workload,
            connections: sizes::CONNECTIONS,
            transactions: 1_000_000,
            seconds: 1.0,
            cpu_seconds: [cpu, 0.0],
            p50_ms: 1.0,
            p90_ms: 1.0,
            p99_ms: 1.0,
        }
    }

    #[test]
    fn states_are_compared_round_by_round_and_with_their_own_cipher() {
        let size = SIZES[1].name;
        let costs = [(NONE, 1.0), (CBC_PORTABLE.name, 12.0), (CBC_ON.name, 3.0)];
        let mut rows = Vec::new();
        for (round, factor) in [1.0, 2.0].into_iter().enumerate() {
            rows.extend(costs.map(|(state, cpu)| row(round, state, size, cpu * factor)));
        }
        rows[2].cpu_seconds[0] = 4.0;
        let figures = Figures { rows: &rows, connections: &[] };
        let mut report = Report::new("Title");
        sizes::write(&mut report, &figures, &WAITING, &SIZES[1..2]);
        let text = report.text();
        let software = "| 20 KB | CBC, off: RustCrypto | 1000000 (1000000–1000000) | 160000 (160000–160000) | 18 (12–24) \
                        | 3.50 (3.00–4.00) | 1.00 (1.00–1.00) | 12.00 (12.00–12.00) |";
        assert!(text.contains(software), "{text}");
        assert!(text.contains("3.5 (3.0–4.0) times with *CBC, off: RustCrypto*"), "{text}");
        assert!(text.contains("sizes.svg") && text.contains("sizes-without.svg"), "{text}");
    }
}
