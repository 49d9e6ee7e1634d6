//! The measurement of the AIX document: streams of TCP in both directions through its sample policy, with the
//! processor's instructions for cryptography and without, for each algorithm that the document names, and on parts of a
//! processor.

mod alone;
mod findings;

pub(super) use alone::print;

use super::confinement::Confinement;
use super::lab::{Effort, Lab};
use super::software::{Sites, State};
use crate::load::streams::Streams;
use crate::report::Report;
use crate::site::{Site, WIRE};
use crate::statistics::Spread;
use serde::Serialize;
use std::time::Duration;

/// The document's policy, seen from either end.
const SAMPLE: [&str; 2] = [
    include_str!("../../../../config/aix-sample-left.xml"),
    include_str!("../../../../config/aix-sample-right.xml"),
];
/// The encryption of the document's policy.
const SAMPLE_ESP: &str = "ESP_AES256_GCM_16";

/// An algorithm, and how a policy says it.
#[derive(Clone, Copy)]
struct Algorithm {
    name: &'static str,
    protection: Protection,
}

#[derive(Clone, Copy)]
enum Protection {
    Esp(&'static str),
    /// With HMAC-SHA2-256.
    EspWithMac(&'static str),
    Ah(&'static str),
}

const fn algorithm(name: &'static str, protection: Protection) -> Algorithm {
    Algorithm { name, protection }
}

/// The nine that the document names, the one that they took the place of, with each length of key, and in builds that
/// have it what that took the place of.
const ALGORITHMS: &[Algorithm] = &[
    algorithm("GCM-256", Protection::Esp(SAMPLE_ESP)),
    algorithm("GCM-192", Protection::Esp("ESP_AES192_GCM_16")),
    algorithm("GCM-128", Protection::Esp("ESP_AES128_GCM_16")),
    algorithm("GMAC-256", Protection::Esp("ESP_AES256_GMAC")),
    algorithm("GMAC-192", Protection::Esp("ESP_AES192_GMAC")),
    algorithm("GMAC-128", Protection::Esp("ESP_AES128_GMAC")),
    algorithm("AH-GMAC-256", Protection::Ah("AH_AES_256_GMAC")),
    algorithm("AH-GMAC-192", Protection::Ah("AH_AES_192_GMAC")),
    algorithm("AH-GMAC-128", Protection::Ah("AH_AES_128_GMAC")),
    algorithm("CBC-256", Protection::EspWithMac("ESP_AES_CBC_256")),
    algorithm("CBC-192", Protection::EspWithMac("ESP_AES_CBC_192")),
    algorithm("CBC-128", Protection::EspWithMac("ESP_AES_CBC_128")),
    #[cfg(feature = "legacy")]
    algorithm("3DES", Protection::EspWithMac("ESP_3DES")),
    #[cfg(feature = "legacy")]
    algorithm("DES", Protection::EspWithMac("ESP_DES")),
];

/// Parts of a processor that the document's partitions had.
const PARTS: [f64; 3] = [0.1, 0.5, 1.0];
const DIRECTIONS: [&str; 2] = ["left to right", "right to left"];

/// The hosts with the policy of an algorithm; `admit` is shown them before their daemons start.
fn sites_of(
    lab: &Lab,
    algorithm: &Algorithm,
    admit: impl Fn(&Site) -> Result<(), String>,
) -> Result<Sites, String> {
    let policies = algorithm.policies();
    let up = |mut site: Site| {
        admit(&site)?;
        site.start(&lab.vpnd, &policies, "")?;
        site.activate()?;
        Ok(site)
    };
    Sites::new(up).map_err(|error| format!("{}: {error}", algorithm.name))
}

impl Algorithm {
    /// The sample policy of both ends with this algorithm.
    fn policies(self) -> [String; 2] {
        SAMPLE.map(|sample| match self.protection {
            Protection::Esp(word) => sample.replace(SAMPLE_ESP, word),
            Protection::EspWithMac(word) => sample
                .replace(SAMPLE_ESP, word)
                .replace("ESP_Authentication=\"NONE\"", "ESP_Authentication=\"HMAC-SHA2-256\""),
            Protection::Ah(word) => sample
                .replace(&format!("ESP_Encryption=\"{SAMPLE_ESP}\""), "")
                .replace("ESP_Authentication=\"NONE\"", &format!("ESP_Authentication=\"{word}\""))
                .replace("<IPSecESPProtocol", "<IPSecAHProtocol")
                .replace("ESP_", "AH_"),
        })
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
struct Row {
    round: usize,
    algorithm: &'static str,
    state: &'static str,
    in_core: bool,
    direction: &'static str,
    /// Of each host; none: as many as there are.
    processors: Option<f64>,
    mbit_s: f64,
    /// Of both daemons.
    cpu_s_per_gb: f64,
}

/// Measures, and writes what came out.
pub(super) fn run(lab: &Lab) -> Result<Report, String> {
    let rounds = lab.effort.pick(1, 2, 5);
    let lasting = Duration::from_millis(lab.effort.pick(30, 150, 300));
    let settle = Duration::from_millis(lab.effort.pick(10, 60, 80));
    let states = State::here();
    let (algorithms, parts): (Vec<Algorithm>, &[f64]) = match lab.effort {
        Effort::Rehearsal => (vec![ALGORITHMS[0], ALGORITHMS[8]], &PARTS[1..2]),
        _ => (ALGORITHMS.to_vec(), &PARTS),
    };
    lab.expect(algorithms.len() + rounds * (algorithms.len() + parts.len() + 1) * states.len());
    let (mut rows, mut ciphers) = (Vec::new(), Vec::new());
    let mut sites = Vec::new();
    for algorithm in &algorithms {
        lab.step(format!("setting up {}", algorithm.name))?;
        sites.push((algorithm, sites_of(lab, algorithm, |_| Ok(()))?));
    }
    for round in 0..rounds {
        for &state in &states {
            lab.step(format!("the ciphers alone, {}", state.name()))?;
            ciphers.extend(alone::measure(lab.effort, state, round)?);
        }
        for (algorithm, sites) in &mut sites {
            for &state in &states {
                lab.step(format!("{}, {}", algorithm.name, state.name()))?;
                let site = sites.turn(state)?;
                for direction in [0, 1] {
                    let row = measure(site, state, direction, [settle, lasting])?;
                    rows.push(Row { round, algorithm: algorithm.name, ..row });
                }
            }
        }
    }
    drop(sites);
    // A twentieth of the speed takes a stream longer to find.
    let confined = confined(lab, rounds, [settle * 3, lasting * 2], parts);
    let unlimited = confined.as_ref().err().cloned();
    rows.extend(confined.unwrap_or_default());
    let mut report = Report::new("In-core on and off");
    let figures = Figures { rows: &rows, algorithms: &algorithms, states: &states };
    findings::write(&mut report, lab, &figures, &ciphers, (rounds, lasting));
    if let Some(why) = unlimited {
        report.say(format!("Parts of a processor were not measured: {why}."));
    }
    report.data(&rows);
    report.data(&ciphers);
    Ok(report)
}

/// The sample policy on hosts that have part of a processor each.
fn confined(
    lab: &Lab,
    rounds: usize,
    times: [Duration; 2],
    parts: &[f64],
) -> Result<Vec<Row>, String> {
    // Made first, so that it goes last, when nothing runs in it.
    let confinement = Confinement::new()?;
    let mut sites = sites_of(lab, &ALGORITHMS[0], |site| {
        confinement.admit([0, 1].map(|end| site.end(end, WIRE[end]).space))
    })?;
    let mut rows = Vec::new();
    for round in 0..rounds {
        for &part in parts {
            for state in State::here() {
                lab.step(format!("{part} of a processor, {}", state.name()))?;
                let site = sites.turn(state)?;
                confinement.allow(Some(part))?;
                for direction in [0, 1] {
                    let row = measure(site, state, direction, times);
                    rows.push(Row { round, processors: Some(part), ..row? });
                }
                confinement.allow(None)?;
            }
        }
    }
    Ok(rows)
}

fn measure(
    site: &Site,
    state: State,
    direction: usize,
    [settle, lasting]: [Duration; 2],
) -> Result<Row, String> {
    let ends = [0, 1].map(|end| site.end(end, WIRE[end]));
    let streams = Streams::start(ends[direction], ends[1 - direction], 1)?;
    let mut used = Vec::new();
    let rate = streams.measure(settle, lasting, || used.push(site.used()))?;
    let used = used.into_iter().collect::<Result<Vec<_>, _>>()?;
    let [left, right] = used[1].since(used[0]).daemons;
    Ok(Row {
        round: 0,
        algorithm: ALGORITHMS[0].name,
        state: state.name(),
        in_core: state == State::InCore,
        direction: DIRECTIONS[direction],
        processors: None,
        mbit_s: rate.per_second * 8.0 / 1e6,
        cpu_s_per_gb: (left + right).as_secs_f64() / (rate.octets / 1e9),
    })
}

/// The measurements, and statistics over them.
struct Figures<'a> {
    rows: &'a [Row],
    algorithms: &'a [Algorithm],
    states: &'a [State],
}

impl Figures<'_> {
    fn of<'r>(
        &'r self,
        algorithm: &'r str,
        state: State,
        processors: Option<f64>,
    ) -> impl Iterator<Item = &'r Row> + 'r {
        self.rows.iter().filter(move |row| {
            row.algorithm == algorithm && row.state == state.name() && row.processors == processors
        })
    }

    /// Of both directions, Mbit/s.
    fn rate(&self, algorithm: &str, state: State, processors: Option<f64>) -> Option<Spread> {
        Spread::of(self.of(algorithm, state, processors).map(|row| row.mbit_s))
    }

    /// Seconds of both daemons' processor time for a gigabyte.
    fn cpu(&self, algorithm: &str, state: State) -> Option<Spread> {
        Spread::of(self.of(algorithm, state, None).map(|row| row.cpu_s_per_gb))
    }

    /// The same by the means of all rounds, as the document counts.
    fn gain_of_means(&self, algorithm: &str, off: State) -> f64 {
        let mean = |state| {
            let rates: Vec<f64> = self.of(algorithm, state, None).map(|row| row.mbit_s).collect();
            rates.iter().sum::<f64>() / rates.len().max(1) as f64
        };
        mean(State::InCore) / mean(off).max(1e-9)
    }

    /// Throughput with in-core relative to a state without, round by round and direction by direction.
    fn gain(&self, algorithm: &str, off: State, processors: Option<f64>) -> Option<Spread> {
        let off = self.of(algorithm, off, processors);
        let on = self.of(algorithm, State::InCore, processors);
        Spread::of(off.zip(on).map(|(off, on)| on.mbit_s / off.mbit_s))
    }

    fn names(&self) -> Vec<&'static str> {
        self.algorithms.iter().map(|algorithm| algorithm.name).collect()
    }

    /// Both states without the instructions, as far as this machine has them.
    fn off(&self) -> Vec<State> {
        State::OFF.into_iter().filter(|state| self.states.contains(state)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_makes_a_policy_of_the_sample() {
        let mut suites = Vec::new();
        for algorithm in ALGORITHMS {
            for text in algorithm.policies() {
                let policy = ::policy::xml::read("sample.xml", &text).expect("no errors").policy;
                assert_eq!(policy.tunnels[0].children.len(), 1, "{}", algorithm.name);
                let child = format!("{:?}", policy.tunnels[0].children[0]);
                suites.push(child);
            }
        }
        suites.sort();
        suites.dedup();
        assert_eq!(suites.len(), 2 * ALGORITHMS.len(), "no two are alike");
    }

    #[test]
    fn gains_are_of_the_same_round_and_direction() {
        let row = |state: State, mbit_s| Row {
            round: 0,
            algorithm: "GCM-256",
            state: state.name(),
            in_core: state == State::InCore,
            direction: DIRECTIONS[0],
            processors: None,
            mbit_s,
            cpu_s_per_gb: 1.0,
        };
        let rows = [
            row(State::Portable, 100.0),
            row(State::Library, 300.0),
            row(State::InCore, 900.0),
            row(State::Portable, 200.0),
            row(State::Library, 500.0),
            row(State::InCore, 1000.0),
        ];
        let figures = Figures { rows: &rows, algorithms: ALGORITHMS, states: &State::ALL };
        let gain = |off| figures.gain("GCM-256", off, None).expect("measured");
        let [portable, library] = State::OFF.map(gain);
        assert_eq!([portable.low, portable.median, portable.high], [5.0, 7.0, 9.0]);
        assert_eq!([library.low, library.median, library.high], [2.0, 2.5, 3.0]);
        assert!(figures.gain("GCM-256", State::Library, Some(0.1)).is_none());
        assert_eq!(figures.gain_of_means("GCM-256", State::Library), 1900.0 / 800.0);
        let table = findings::table(&figures).to_string();
        let cell = |algorithm: &str| {
            let line = table.lines().find(|line| line.starts_with(&format!("| {algorithm} ")));
            line.and_then(|line| line.split(" | ").nth(6)).map(str::to_owned)
        };
        assert_eq!(cell("GCM-256").as_deref(), Some("> 4.5"), "{table}");
        for gains in ["GCM-192", "GCM-128", "GMAC-256", "AH-GMAC-128"] {
            assert_eq!(cell(gains).as_deref(), Some("similar expected"), "{table}");
        }
        assert_eq!(cell("CBC-256").as_deref(), Some("–"), "{table}");
        let fewer = Figures { states: &[State::Portable, State::InCore], ..figures };
        assert_eq!(fewer.off(), [State::Portable]);
    }
}
