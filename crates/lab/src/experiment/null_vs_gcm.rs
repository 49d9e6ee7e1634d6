//! The measurement of the IPFire document: datagrams through one tunnel on one processor, by their size, without acceleration,
//! with AES-128-GCM, and with a cipher that does nothing; then through up to twelve tunnels on all processors.

use super::lab::{Effort, Lab};
use crate::load::PATIENCE;
use crate::load::datagrams::{Count, Flow, Pace};
use crate::load::streams::Streams;
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::site::{Cipher, Mode, Net, Site, Work};
use crate::statistics::Spread;
use crate::table::Table;
use serde::Serialize;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Octets of the IP packet inside the tunnel: the longest is one that no device has to cut.
const SIZES: [usize; 7] = [64, 128, 256, 512, 1024, 1280, 1400];
/// Of them, where tunnels are counted.
const LARGE: usize = 1400;
/// Octets of the IP and UDP headers.
const HEADERS: usize = 28;
/// The document's largest number of tunnels, and some on the way.
const TUNNELS: [u8; 5] = [1, 2, 4, 8, 12];
/// Datagrams under way, all tunnels together: fewer than the shortest queue holds.
const UNDER_WAY: u64 = 256;

const GCM: Net = net(1, "AES-128-GCM", "ESP_AES128_GCM_16", "NONE");
const GMAC: Net = net(2, "NULL with AES-128-GMAC", "ESP_AES128_GMAC", "NONE");
const HMAC: Net = net(3, "NULL with HMAC-SHA1", "ESP_NULL", "HMAC-SHA1");

/// The command that builds a `vpnd` whose AES-GCM only copies.
pub(super) const BUILD: &str = "cargo build --release -p vpn-cli --bin vpnd --features insecure-null-cipher --target-dir target/null-cipher";

const fn net(
    number: u8,
    name: &'static str,
    encryption: &'static str,
    authentication: &'static str,
) -> Net {
    let cipher = Cipher { name, encryption, authentication };
    Net { number, cipher, mode: Mode::Tunnel, pairs: 12 }
}

/// One of the states that are compared.
#[derive(Clone, Copy)]
struct State {
    name: &'static str,
    net: Net,
    in_core: bool,
    /// By a `vpnd` whose AES-GCM only copies.
    bare: bool,
    style: Style,
}

const OFF: State = State {
    name: "no acceleration",
    net: GCM,
    in_core: false,
    bare: false,
    style: Style::solid(1),
};
const ON: State =
    State { name: "AES-128-GCM", net: GCM, in_core: true, bare: false, style: Style::solid(0) };
const NULL: State = State {
    name: "NULL, no integrity",
    net: GCM,
    in_core: true,
    bare: true,
    style: Style::solid(6),
};
const STATES: [State; 5] = [
    OFF,
    ON,
    NULL,
    State {
        name: GMAC.cipher.name,
        net: GMAC,
        in_core: true,
        bare: false,
        style: Style::dashed(2),
    },
    State {
        name: HMAC.cipher.name,
        net: HMAC,
        in_core: true,
        bare: false,
        style: Style::dashed(3),
    },
];

/// The traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Traffic {
    /// Datagrams, by the octets of their IP packets.
    Datagrams(usize),
    /// One stream of TCP.
    Stream,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
struct Row {
    round: usize,
    state: &'static str,
    tunnels: u8,
    workers: usize,
    traffic: Traffic,
    /// Datagrams that arrived, each second; none for TCP.
    datagrams_s: Option<f64>,
    mbit_s: f64,
    /// Of both daemons.
    cpu_s_per_gb: f64,
}

/// Measures, and writes what came out.
pub(super) fn run(lab: &Lab) -> Result<Report, String> {
    let rounds = lab.effort.pick(1, 2, 5);
    let lasting = Duration::from_millis(lab.effort.pick(100, 200, 600));
    let settle = Duration::from_millis(lab.effort.pick(20, 60, 80));
    let (sizes, tunnels) = match lab.effort {
        Effort::Rehearsal => (&SIZES[6..], &TUNNELS[1..2]),
        _ => (&SIZES[..], &TUNNELS[..]),
    };
    let bare = program(lab);
    let states: Vec<State> =
        STATES.into_iter().filter(|state| !state.bare || bare.is_some()).collect();
    let steps = sizes.len() + 1 + tunnels.len();
    lab.expect(rounds * states.len() * steps);
    let mut site = Site::with_nets(&lab.vpnd, &[GCM, GMAC, HMAC], "")?;
    let mut null = bare.map(|program| Site::with_nets(&program, &[GCM], "")).transpose()?;
    let traffics = sizes.iter().map(|size| Traffic::Datagrams(*size)).chain([Traffic::Stream]);
    let alone = traffics.map(|traffic| (traffic, 1, 1));
    let many = tunnels.iter().map(|n| (Traffic::Datagrams(LARGE), *n, lab.machine.cores));
    let cases: Vec<(Traffic, u8, usize)> = alone.chain(many).collect();
    let mut rows = Vec::new();
    for round in 0..rounds {
        for &(traffic, tunnels, workers) in &cases {
            for state in &states {
                lab.step(format!("{}, {}", describe(traffic, tunnels), state.name))?;
                let site = match (&mut null, state.bare) {
                    (Some(null), true) => null,
                    _ => &mut site,
                };
                site.set_in_core(state.in_core)?;
                site.set_work(Work { workers: &workers.to_string(), ..Work::default() })?;
                let row = measure(site, state.net, (traffic, tunnels), [settle, lasting])?;
                rows.push(Row { round, state: state.name, workers, ..row });
            }
        }
    }
    let mut report = Report::new("AES-128-GCM and NULL");
    let figures =
        Figures { rows: &rows, states: &states, sizes, tunnels, cores: lab.machine.cores };
    write(&mut report, &figures, lab.rounds(rounds, lasting));
    report.data(&rows);
    Ok(report)
}

fn describe(traffic: Traffic, tunnels: u8) -> String {
    let plural = if tunnels == 1 { "" } else { "s" };
    match traffic {
        Traffic::Datagrams(size) => format!("{size} octets, {tunnels} tunnel{plural}"),
        Traffic::Stream => "TCP".to_owned(),
    }
}

/// A `vpnd` that was built with the feature `insecure-null-cipher`: beside the usual one, or where the tunnel bench puts it,
/// with the same optimisation.
pub(super) fn program(lab: &Lab) -> Option<PathBuf> {
    let profile = lab.vpnd.parent()?;
    let built = profile.with_file_name("null-cipher").join(profile.file_name()?).join("vpnd");
    let programs = [lab.vpnd.with_file_name("vpnd-null-cipher"), built];
    programs.into_iter().find(|program| program.is_file())
}

fn measure(
    site: &Site,
    net: Net,
    (traffic, tunnels): (Traffic, u8),
    [settle, lasting]: [Duration; 2],
) -> Result<Row, String> {
    let [left, right] = [0, 1].map(|end| net.addresses(end));
    let ends = |pair: usize| (site.end(0, left[pair]), site.end(1, right[pair]));
    let mut used = Vec::new();
    let mut datagrams_s = None;
    let (octets, per_second) = match traffic {
        Traffic::Stream => {
            let (from, to) = ends(0);
            let streams = Streams::start(from, to, 1)?;
            let rate = streams.measure(settle, lasting, || used.push(site.used()))?;
            (rate.octets, rate.per_second)
        }
        Traffic::Datagrams(size) => {
            let share = Pace::UnderWay(UNDER_WAY / u64::from(tunnels));
            let start = |pair| {
                let (from, to) = ends(pair);
                Flow::start(from, to, &[to.address], size - HEADERS, share)
            };
            let flows = (0..usize::from(tunnels)).map(start).collect::<Result<Vec<_>, _>>()?;
            let arrived = || {
                flows.iter().map(Flow::count).map(|Count { received, .. }| received).sum::<u64>()
            };
            sleep(settle);
            used.push(site.used());
            let (begun, before) = (Instant::now(), arrived());
            sleep(lasting);
            // On a busy host, nothing may have arrived yet.
            while arrived() == before && begun.elapsed() < PATIENCE {
                sleep(Duration::from_millis(1));
            }
            let (seconds, count) = (begun.elapsed().as_secs_f64(), arrived() - before);
            used.push(site.used());
            if count == 0 {
                return Err(format!("{}: nothing arrived", describe(traffic, tunnels)));
            }
            datagrams_s = Some(count as f64 / seconds);
            let octets = count as f64 * size as f64;
            (octets, octets / seconds)
        }
    };
    let used = used.into_iter().collect::<Result<Vec<_>, _>>()?;
    let [left, right] = used[1].since(used[0]).daemons;
    Ok(Row {
        round: 0,
        state: "",
        tunnels,
        workers: 1,
        traffic,
        datagrams_s,
        mbit_s: per_second * 8.0 / 1e6,
        cpu_s_per_gb: (left + right).as_secs_f64() / (octets / 1e9),
    })
}

/// The measurements, and statistics over them.
struct Figures<'a> {
    rows: &'a [Row],
    states: &'a [State],
    sizes: &'a [usize],
    tunnels: &'a [u8],
    cores: usize,
}

/// The conditions of a measurement: traffic, number of tunnels and number of workers.
type Case = (Traffic, u8, usize);

impl Figures<'_> {
    fn of<'r>(&'r self, state: &'r str, case: Case) -> impl Iterator<Item = &'r Row> + 'r {
        self.rows.iter().filter(move |row| {
            row.state == state && (row.traffic, row.tunnels, row.workers) == case
        })
    }

    fn rate(&self, state: &str, case: Case) -> Option<Spread> {
        Spread::of(self.of(state, case).map(|row| row.mbit_s))
    }

    /// AES-128-GCM by another, round by round.
    fn ratio(&self, by: &str, case: Case) -> Option<Spread> {
        let pairs = self.of(ON.name, case).zip(self.of(by, case));
        Spread::of(pairs.map(|(gcm, other)| gcm.mbit_s / other.mbit_s))
    }

    /// A line for each of the states.
    fn lines(
        &self,
        states: &[State],
        values: &[usize],
        of: impl Fn(&State, usize) -> Option<Spread>,
    ) -> Vec<Series> {
        let line = |state: &State| Series {
            name: state.name.to_owned(),
            style: state.style,
            points: values.iter().filter_map(|v| Some((*v as f64, of(state, *v)?))).collect(),
        };
        states.iter().map(line).collect()
    }

    /// The states that AES-128-GCM is compared with.
    fn nulls(&self) -> Vec<State> {
        self.states.iter().copied().filter(|s| ![OFF.name, ON.name].contains(&s.name)).collect()
    }
}

fn alone(size: usize) -> Case {
    (Traffic::Datagrams(size), 1, 1)
}

const QUOTE: &str = "The document: on one processor AES-128-GCM with AES-NI and PCLMULQDQ carries almost exactly the same as \
                     NULL.";

fn write(report: &mut Report, figures: &Figures<'_>, rounds: String) {
    report.say(format!(
        "The document measures strongSwan in IPFire, first one tunnel on one processor, then up to twelve tunnels on six, at \
         10 Gbit/s: without acceleration, with AES-128-GCM by AES-NI and PCLMULQDQ, and with the cipher NULL, which shows \
         what everything else allows. Here both hosts, generator and sink share the {} cores of one machine; *one processor* \
         is one worker in each `vpnd`. As many datagrams are sent as arrive, {UNDER_WAY} under way. {rounds}",
        figures.cores,
    ));
    report.say(match figures.states.iter().any(|state| state.bare) {
        true => "*NULL, no integrity* is a build of `vpnd` whose AES-GCM only copies (`insecure-null-cipher`). The other \
                 two NULLs are what peers can agree on: no secrecy, but every packet authenticated."
            .to_owned(),
        false => format!(
            "The bare NULL was left out, because no such `vpnd` is there: in a checkout `{BUILD}` makes it. The other two NULLs \
             are what peers can agree on: no secrecy, but every packet authenticated.",
        ),
    });
    let null = if figures.states.iter().any(|s| s.bare) { NULL.name } else { GMAC.cipher.name };
    if let Some(&largest) = figures.sizes.last() {
        let datagrams = figures.ratio(null, alone(largest));
        let stream = figures.ratio(null, (Traffic::Stream, 1, 1));
        if let (Some(datagrams), Some(stream)) = (datagrams, stream) {
            report.headline(format!(
                "Throughput of AES-128-GCM relative to {null}: **{:.2}** with datagrams of {largest} octets and **{:.2}** \
                 with a stream of TCP, where the document says almost exactly the same. A stream passes as super-packets, which make \
                 everything but the cipher so cheap that the cipher shows; a datagram costs system calls of its own, beside \
                 which AES-GCM is lost.",
                datagrams.median, stream.median,
            ));
        }
    }
    report.section("One tunnel, one worker, by size");
    let rate = |state: &State, size| figures.rate(state.name, alone(size)).map(|s| s.times(1e-3));
    let panel =
        |x: Axis, y: Axis, series| Panel { caption: String::new(), x, y, series, mark: None };
    let sizes = || Axis::steps("packet length (octets)", figures.sizes);
    report.plot(
        "sizes",
        &Plot {
            title: "Throughput of one tunnel by packet size".to_owned(),
            quote: QUOTE.to_owned(),
            panels: vec![panel(
                sizes(),
                Axis::linear("throughput (Gbit/s of packets)"),
                figures.lines(figures.states, figures.sizes, rate),
            )],
            columns: 1,
        },
    );
    let ratio = |state: &State, size| figures.ratio(state.name, alone(size));
    report.plot(
        "ratio",
        &Plot {
            title: "Throughput of AES-128-GCM relative to NULL, by packet size".to_owned(),
            quote: QUOTE.to_owned(),
            panels: vec![Panel {
                mark: Some((1.0, "the document: almost exactly the same".to_owned())),
                ..panel(
                    sizes(),
                    Axis::linear("throughput of AES-128-GCM ÷ NULL"),
                    figures.lines(&figures.nulls(), figures.sizes, ratio),
                )
            }],
            columns: 1,
        },
    );
    report.table(&table(figures));
    report.section("One to twelve tunnels, all cores");
    let numbers: Vec<usize> = figures.tunnels.iter().map(|n| usize::from(*n)).collect();
    let of = |state: &State, n: usize| {
        let tunnels = u8::try_from(n).unwrap_or(u8::MAX);
        let case = (Traffic::Datagrams(LARGE), tunnels, figures.cores);
        figures.rate(state.name, case).map(|s| s.times(1e-3))
    };
    report.plot(
        "tunnels",
        &Plot {
            title: "Throughput by number of tunnels, as many workers as cores".to_owned(),
            quote: "The document: with up to twelve tunnels on six processors about 9.6 Gbit/s of the card's 10.".to_owned(),
            panels: vec![panel(
                Axis::steps("tunnels", &numbers),
                Axis::linear("throughput (Gbit/s of packets)"),
                figures.lines(figures.states, &numbers, of),
            )],
            columns: 1,
        },
    );
    let mut tunnels = Table::new(["tunnels".to_owned()].into_iter().chain(heads(figures)));
    for number in figures.tunnels {
        let case = (Traffic::Datagrams(LARGE), *number, figures.cores);
        tunnels.row([number.to_string()].into_iter().chain(cells(figures, case)));
    }
    report.table(&tunnels);
    report.say(format!(
        "Datagrams of {LARGE} octets; Gbit/s of packets. Both ends, generator and sink have {} cores together, so that further \
         workers take from the traffic what they add to the tunnels; the document had six for one end. {UNDER_WAY} datagrams are \
         under way in all: the more tunnels share them, the fewer of one tunnel follow each other and pass together.",
        figures.cores,
    ));
}

fn heads(figures: &Figures<'_>) -> Vec<String> {
    let rates = figures.states.iter().map(|state| format!("{}, Gbit/s", state.name));
    rates.chain(figures.nulls().iter().map(|state| format!("GCM / {}", state.name))).collect()
}

fn cells(figures: &Figures<'_>, case: Case) -> Vec<String> {
    let show = |spread: Option<Spread>| spread.map_or("–".into(), |s| s.show(2));
    let rates =
        figures.states.iter().map(|s| show(figures.rate(s.name, case).map(|s| s.times(1e-3))));
    let nulls = figures.nulls();
    rates.chain(nulls.iter().map(|state| show(figures.ratio(state.name, case)))).collect()
}

fn table(figures: &Figures<'_>) -> Table {
    let heads = heads(figures);
    let mut table =
        Table::new(["traffic".to_owned()].into_iter().chain(heads).chain(["document".to_owned()]));
    let datagrams = figures.sizes.iter().map(|size| (format!("UDP, {size} octets"), alone(*size)));
    for (name, case) in datagrams.chain([("TCP".to_owned(), (Traffic::Stream, 1, 1))]) {
        let cells = cells(figures, case);
        let said = "GCM almost exactly the same as NULL".to_owned();
        table.row([name].into_iter().chain(cells).chain([said]));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gcm_is_compared_with_every_null_at_every_size() {
        let row = |state, size, mbit_s| Row {
            round: 0,
            state,
            tunnels: 1,
            workers: 1,
            traffic: Traffic::Datagrams(size),
            datagrams_s: Some(1.0),
            mbit_s,
            cpu_s_per_gb: 1.0,
        };
        let rows = [
            row(ON.name, 64, 80.0),
            row(NULL.name, 64, 100.0),
            row(ON.name, 1400, 900.0),
            row(NULL.name, 1400, 1000.0),
        ];
        let sizes = [64, 1400];
        let figures =
            Figures { rows: &rows, states: &STATES, sizes: &sizes, tunnels: &[1], cores: 2 };
        let ratio = |size| figures.ratio(NULL.name, alone(size)).map(|s| s.median);
        assert_eq!([ratio(64), ratio(1400), ratio(512)], [Some(0.8), Some(0.9), None]);
        assert_eq!(figures.nulls().len(), 3);
        let text = table(&figures).to_string();
        assert!(text.contains("| UDP, 64 octets |") && text.contains("0.80 (0.80–0.80)"), "{text}");
    }
}
