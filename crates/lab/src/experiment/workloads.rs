//! Transactions as the System z document has them: how many, what they cost, and how long each takes, with and without
//! IPsec, with and without the CPU's instructions, polling and waiting for events.

mod sizes;

use super::lab::{Effort, Lab};
use super::sources::system_z;
use crate::load::transactions::{Clients, Workload};
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::site::{Cipher, Mode, Net, Site, WIRE, Work};
use crate::statistics::{Spread, percentile};
use crate::table::Table;
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
        encryption: "ESP_AES_CBC_128",
        authentication: "HMAC-SHA2-256",
    },
    mode: Mode::Tunnel,
    pairs: 1,
};
const GCM: Net = Net {
    number: 2,
    cipher: Cipher { name: "AES-128-GCM", encryption: "ESP_AES128_GCM_16", authentication: "NONE" },
    mode: Mode::Tunnel,
    pairs: 1,
};

/// One of the states that are compared.
#[derive(Clone, Copy)]
struct State {
    name: &'static str,
    /// None: no IPsec.
    net: Option<Net>,
    in_core: bool,
    wait: &'static str,
    style: Style,
}

const NONE: &str = "no IPsec";
/// Of the states, those in which workers wait for events.
const WAITING: usize = 5;
const STATES: [State; 8] = [
    State { name: NONE, net: None, in_core: true, wait: "event", style: Style::solid(6) },
    State {
        name: "CBC, portable",
        net: Some(CBC),
        in_core: false,
        wait: "event",
        style: Style::solid(1),
    },
    State {
        name: "GCM, portable",
        net: Some(GCM),
        in_core: false,
        wait: "event",
        style: Style::solid(4),
    },
    State {
        name: "CBC, accelerated",
        net: Some(CBC),
        in_core: true,
        wait: "event",
        style: Style::solid(0),
    },
    State {
        name: "GCM, accelerated",
        net: Some(GCM),
        in_core: true,
        wait: "event",
        style: Style::solid(2),
    },
    State {
        name: "CBC, accelerated, polling",
        net: Some(CBC),
        in_core: true,
        wait: "poll",
        style: Style::dashed(0),
    },
    State {
        name: "GCM, accelerated, polling",
        net: Some(GCM),
        in_core: true,
        wait: "poll",
        style: Style::dashed(2),
    },
    State {
        name: "GCM, accelerated, adaptive",
        net: Some(GCM),
        in_core: true,
        wait: "adaptive",
        style: Style::dashed(3),
    },
];

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
    let mut site = Site::with_nets(&lab.vpnd, &[CBC, GCM], "")?;
    lab.expect(rounds * (STATES.len() * WORKLOADS.len() + WAITING));
    let mut rows = Vec::new();
    for round in 0..rounds {
        for (number, state) in STATES.into_iter().enumerate() {
            site.set_in_core(state.in_core)?;
            site.set_work(Work { wait: state.wait, ..Work::default() })?;
            let addresses = state.net.map_or(WIRE, |n| [0, 1].map(|end| n.addresses(end)[0]));
            for workload in WORKLOADS {
                lab.step(format!("{}, {}", workload.name, state.name))?;
                for &connections in connections {
                    let case = (addresses, workload, connections);
                    let row = measure(&site, case, [settle, lasting])?;
                    rows.push(Row { round, state: state.name, ..row });
                }
            }
            if number >= WAITING {
                continue;
            }
            lab.step(format!("40 B to 1 MB, {}", state.name))?;
            for &size in sizes {
                let case = (addresses, size, sizes::CONNECTIONS);
                let row = measure(&site, case, [settle, lasting * 2])?;
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

    /// A figure of a state by that without IPsec at as many connections.
    fn normalised(
        &self,
        state: &str,
        workload: &str,
        connections: usize,
        of: impl Fn(&Row) -> f64,
    ) -> Option<Spread> {
        let base = self.spread(NONE, workload, connections, &of)?.median;
        Some(self.spread(state, workload, connections, &of)?.times(1.0 / base))
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
         requests and responses, crr: each with a connection). *Portable* is software alone (`in_core_enabled=0`), \
         *accelerated* is what `vpnd` does by default. Workers wait for events unless *polling* or *adaptive* is said.",
    );
    let waiting_for_events = &STATES[..WAITING];
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
            quote: "The same, divided by the rate without IPsec at as many connections.".to_owned(),
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
    let gcm = [STATES[4], STATES[6], STATES[7]];
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
            quote: "A worker that polls takes a core whether there are packets or not.".to_owned(),
            panels: figures.panels(
                "CPU per transaction (µs)",
                Axis::logarithmic,
                &gcm,
                |state, workload, n| figures.spread(state, workload, n, Row::cost),
            ),
            columns: 3,
        },
    );
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
    let middle =
        |spread: Option<Spread>| spread.map_or("–".to_owned(), |s| format!("{:.2}", s.median));
    for workload in WORKLOADS.map(|w| w.name) {
        for &n in figures.connections {
            for state in STATES.map(|s| s.name) {
                let time = |of: fn(&Row) -> f64| middle(figures.spread(state, workload, n, of));
                table.row([
                    workload.to_owned(),
                    n.to_string(),
                    state.to_owned(),
                    cell(figures.spread(state, workload, n, Row::rate), 0),
                    middle(figures.normalised(state, workload, n, Row::rate)),
                    cell(figures.spread(state, workload, n, Row::cost), 1),
                    middle(figures.normalised(state, workload, n, Row::cost)),
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
        let ratio = |workload: &str, n: usize| {
            let cost = |state: &str| Some(figures.spread(state, workload, n, Row::cost)?.median);
            Some(cost(state)? / cost(by)?)
        };
        let all =
            WORKLOADS.iter().flat_map(|w| figures.connections.iter().map(move |n| (w.name, *n)));
        all.filter_map(|(workload, n)| ratio(workload, n)).fold(0.0, f64::max)
    };
    format!(
        "CPU cost of a transaction in software, relative to no IPsec: up to {:.1} times with CBC and HMAC-SHA256 and {:.1} times \
         with GCM. The instructions cut the cost of software to as little as 1/{:.1} with CBC and 1/{:.1} with GCM. {}",
        highest("CBC, portable", NONE),
        highest("GCM, portable", NONE),
        highest("CBC, portable", "CBC, accelerated"),
        highest("GCM, portable", "GCM, accelerated"),
        system_z::COST,
    )
}
