//! The measurements of the IPFire document: datagrams through one tunnel on one processor, by their size, without
//! acceleration, with AES-128-GCM, and with a cipher that does nothing; then through up to twelve tunnels on all
//! processors.

mod directions;
mod findings;

use super::lab::{Effort, Lab};
use super::software::{self, Sites};
use crate::load::PATIENCE;
use crate::load::datagrams::{Count, Flow, Pace};
use crate::load::streams::Streams;
use crate::plot::{Series, Style};
use crate::report::Report;
use crate::site::{Cipher, Mode, Net, Site, WIRE, Work};
use crate::statistics::Spread;
use policy::{EspEncryption, Integrity, KeyBits, Protection};
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
/// Most datagrams of a tunnel under way.
const UNDER_WAY: u64 = 256;
/// Most of all tunnels together: fewer than the shortest queue holds.
const ALL_UNDER_WAY: u64 = 900;

const GCM: Net = net(1, Cipher::AES_128_GCM);
const GMAC: Net = net(
    2,
    Cipher {
        name: "NULL with AES-128-GMAC",
        protection: Protection::aead(EspEncryption::AesGmac(KeyBits::B128)),
    },
);
const HMAC: Net = net(
    3,
    Cipher {
        name: "NULL with HMAC-SHA1",
        protection: Protection::Esp {
            encryption: EspEncryption::Null,
            integrity: Some(Integrity::HmacSha1_96),
        },
    },
);

/// The command that builds a `vpnd` whose AES-GCM only copies.
pub(super) const BUILD: &str = "cargo build --release -p vpn-daemon --bin vpnd --features insecure-null-cipher --target-dir target/null-cipher";

const fn net(number: u8, cipher: Cipher) -> Net {
    Net { number, cipher, mode: Mode::Tunnel, pairs: 12 }
}

/// One of the states that are compared.
#[derive(Clone, Copy)]
struct State {
    name: &'static str,
    /// None: no IPsec.
    net: Option<Net>,
    cryptography: software::State,
    /// By a `vpnd` whose AES-GCM only copies.
    bare: bool,
    style: Style,
}

impl State {
    const fn new(name: &'static str, net: Option<Net>, style: Style) -> Self {
        Self { name, net, cryptography: software::State::InCore, bare: false, style }
    }

    /// AES-128-GCM without instructions.
    const fn off(cryptography: software::State) -> Self {
        let state = Self::new(cryptography.name(), Some(GCM), cryptography.style());
        Self { cryptography, ..state }
    }
}

const OFF: [State; 2] =
    [State::off(software::State::Portable), State::off(software::State::Library)];
const ON: State = State::new("AES-128-GCM", Some(GCM), Style::solid(0));
const NULL: State =
    State { bare: true, ..State::new("NULL, no integrity", Some(GCM), Style::solid(6)) };
/// The limit of the wire, and of the generator with it.
const BARE: State = State::new("no IPsec", None, Style::dashed(6));
const STATES: [State; 7] = [
    BARE,
    OFF[0],
    OFF[1],
    ON,
    NULL,
    State::new(GMAC.cipher.name, Some(GMAC), Style::dashed(2)),
    State::new(HMAC.cipher.name, Some(HMAC), Style::dashed(3)),
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
    let is_here = |state: &State| state.cryptography.is_here() && (!state.bare || bare.is_some());
    let states: Vec<State> = STATES.into_iter().filter(is_here).collect();
    let mut sites = Sites::new(|site| site.of_nets(&lab.vpnd, &[GCM, GMAC, HMAC], ""))?;
    let mut null = bare.map(|program| Site::with_nets(&program, &[GCM], "")).transpose()?;
    let traffics = sizes.iter().map(|size| Traffic::Datagrams(*size)).chain([Traffic::Stream]);
    let alone = traffics.map(|traffic| (traffic, 1, 1));
    let workers = workers(lab.machine.cores);
    let many = grid(tunnels, &workers).map(|(tunnels, n)| (Traffic::Datagrams(LARGE), tunnels, n));
    let cases: Vec<Case> = alone.chain(many).collect();
    let null_state = null_of(&states);
    let is_measured = |state: &State, (traffic, tunnels, workers): Case| {
        let is_grid = traffic == Traffic::Datagrams(LARGE) && tunnels > 1;
        !is_grid || workers == lab.machine.cores || [ON.name, null_state].contains(&state.name)
    };
    let measured = |case: Case| states.iter().filter(move |s| is_measured(s, case));
    let steps: usize = cases.iter().map(|case| measured(*case).count()).sum();
    let of_cipher = lab.effort.pick(1, 1, rounds);
    lab.expect(rounds * steps + of_cipher * SIZES.len() * 2);
    let ciphers = directions::measure(lab, of_cipher, lasting / 4)?;
    let mut rows = Vec::new();
    for round in 0..rounds {
        for &(traffic, tunnels, workers) in &cases {
            for state in measured((traffic, tunnels, workers)) {
                lab.step(format!("{}, {}", describe(traffic, tunnels), state.name))?;
                let site = match (&mut null, state.bare) {
                    (Some(null), true) => null,
                    _ => sites.turn(state.cryptography)?,
                };
                site.set_work(Work { workers: &workers.to_string(), ..Work::default() })?;
                let row = measure(site, state.net, (traffic, tunnels), [settle, lasting])?;
                rows.push(Row { round, state: state.name, workers, ..row });
            }
        }
    }
    let mut report = Report::new("AES-128-GCM and NULL");
    let figures = Figures { rows: &rows, states: &states, sizes, tunnels, workers: &workers };
    findings::write(&mut report, lab, &figures, &lab.rounds(rounds, lasting));
    directions::write(&mut report, &ciphers);
    report.data(&rows);
    report.data(&ciphers);
    Ok(report)
}

/// Numbers of workers: one, half as many as cores, and as many.
fn workers(cores: usize) -> Vec<usize> {
    let mut numbers = vec![1, cores / 2, cores];
    numbers.retain(|n| *n > 0);
    numbers.dedup();
    numbers
}

/// Tunnels and workers in all combinations but one of each, which is measured by size.
fn grid<'a>(tunnels: &'a [u8], workers: &'a [usize]) -> impl Iterator<Item = (u8, usize)> + 'a {
    let all = workers.iter().flat_map(|n| tunnels.iter().map(move |t| (*t, *n)));
    all.filter(|case| *case != (1, 1))
}

/// Datagrams of each tunnel under way.
fn under_way(tunnels: u8) -> u64 {
    UNDER_WAY.min(ALL_UNDER_WAY / u64::from(tunnels))
}

/// The name of the state that the document's NULL is compared with.
fn null_of(states: &[State]) -> &'static str {
    if states.iter().any(|s| s.bare) { NULL.name } else { GMAC.cipher.name }
}

fn describe(traffic: Traffic, tunnels: u8) -> String {
    let plural = if tunnels == 1 { "" } else { "s" };
    match traffic {
        Traffic::Datagrams(size) => format!("{size} octets, {tunnels} tunnel{plural}"),
        Traffic::Stream => "TCP".to_owned(),
    }
}

/// A `vpnd` that was built with the feature `insecure-null-cipher`: beside the usual one, or where the tunnel bench
/// puts it, with the same optimisation.
pub(super) fn program(lab: &Lab) -> Option<PathBuf> {
    let profile = lab.vpnd.parent()?;
    let built = profile.with_file_name("null-cipher").join(profile.file_name()?).join("vpnd");
    let programs = [lab.vpnd.with_file_name("vpnd-null-cipher"), built];
    programs.into_iter().find(|program| program.is_file())
}

fn measure(
    site: &Site,
    net: Option<Net>,
    (traffic, tunnels): (Traffic, u8),
    [settle, lasting]: [Duration; 2],
) -> Result<Row, String> {
    let addresses = [0, 1].map(|end| net.map(|net| net.addresses(end)));
    let address = |end: usize, pair: usize| addresses[end].as_ref().map_or(WIRE[end], |a| a[pair]);
    let ends = |pair: usize| (site.end(0, address(0, pair)), site.end(1, address(1, pair)));
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
            let share = Pace::UnderWay(under_way(tunnels));
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
    workers: &'a [usize],
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

    /// The largest number of workers.
    fn most(&self) -> usize {
        self.workers.last().copied().unwrap_or(1)
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
        self.states
            .iter()
            .copied()
            .filter(|s| s.net.is_some() && ![OFF[0].name, OFF[1].name, ON.name].contains(&s.name))
            .collect()
    }
}

fn alone(size: usize) -> Case {
    (Traffic::Datagrams(size), 1, 1)
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
            Figures { rows: &rows, states: &STATES, sizes: &sizes, tunnels: &[1], workers: &[2] };
        let ratio = |size| figures.ratio(NULL.name, alone(size)).map(|s| s.median);
        assert_eq!([ratio(64), ratio(1400), ratio(512)], [Some(0.8), Some(0.9), None]);
        assert_eq!(figures.nulls().len(), 3);
        let text = findings::table(&figures).to_string();
        assert!(text.contains("| UDP, 64 octets |") && text.contains("0.80 (0.80–0.80)"), "{text}");
    }

    #[test]
    fn many_tunnels_have_enough_under_way() {
        assert_eq!([1, 2, 4, 8, 12].map(under_way), [256, 256, 225, 112, 75]);
        assert_eq!([1, 2, 3, 4, 16].map(|cores| workers(cores).len()), [1, 2, 2, 3, 3]);
        let all: Vec<_> = grid(&[1, 12], &[1, 4]).collect();
        assert_eq!(all, [(12, 1), (1, 4), (12, 4)]);
    }
}
