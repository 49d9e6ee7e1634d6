//! The measurement of the AIX document: streams of TCP in both directions through its sample policy, with the processor's
//! instructions for cryptography and without, for each algorithm that gains by them, and on parts of a processor.

use super::confinement::Confinement;
use super::lab::{Effort, Lab};
use crate::load::streams::Streams;
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::site::{Site, WIRE};
use crate::statistics::Spread;
use crate::table::Table;
use serde::Serialize;
use std::time::Duration;

/// The document's policy, seen from either end.
const SAMPLE: [&str; 2] = [
    include_str!("../../../../config/aix-sample-left.xml"),
    include_str!("../../../../config/aix-sample-right.xml"),
];
/// The encryption of the document's policy.
const SAMPLE_ESP: &str = "ESP_AES256_GCM_16";
/// "More than 350 %" better.
const DOCUMENT: f64 = 4.5;

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

/// The nine that the document names, and the one that they took the place of, with each length of key.
const ALGORITHMS: [Algorithm; 12] = [
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
];

/// Parts of a processor that the document's partitions had.
const PARTS: [f64; 3] = [0.1, 0.5, 1.0];
const STATES: [(bool, &str, Style); 2] =
    [(false, "in-core off", Style::dashed(1)), (true, "in-core on", Style::solid(0))];
const DIRECTIONS: [&str; 2] = ["left to right", "right to left"];

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
    let lasting = Duration::from_millis(lab.effort.pick(30, 200, 400));
    let settle = Duration::from_millis(lab.effort.pick(10, 60, 100));
    let (algorithms, parts): (Vec<Algorithm>, &[f64]) = match lab.effort {
        Effort::Rehearsal => (vec![ALGORITHMS[0], ALGORITHMS[8]], &PARTS[1..2]),
        _ => (ALGORITHMS.to_vec(), &PARTS),
    };
    lab.expect(algorithms.len() + rounds * (algorithms.len() + parts.len()) * STATES.len());
    let mut rows = Vec::new();
    let mut sites = Vec::new();
    for algorithm in &algorithms {
        lab.step(format!("setting up {}", algorithm.name))?;
        let mut site = Site::bare()?;
        site.start(&lab.vpnd, &algorithm.policies(), "")?;
        site.activate().map_err(|error| format!("{}: {error}", algorithm.name))?;
        sites.push((algorithm, site));
    }
    for round in 0..rounds {
        for (algorithm, site) in &mut sites {
            for (in_core, state, _) in STATES {
                lab.step(format!("{}, {state}", algorithm.name))?;
                site.set_in_core(in_core)?;
                for direction in [0, 1] {
                    let row = measure(site, direction, [settle, lasting])?;
                    rows.push(Row { round, algorithm: algorithm.name, in_core, ..row });
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
    write(&mut report, lab, &Figures { rows: &rows, algorithms: &algorithms }, rounds, lasting);
    if let Some(why) = unlimited {
        report.say(format!("Parts of a processor were not measured: {why}."));
    }
    report.data(&rows);
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
    let mut site = Site::bare()?;
    confinement.admit([0, 1].map(|end| site.end(end, WIRE[end]).space))?;
    site.start(&lab.vpnd, &ALGORITHMS[0].policies(), "")?;
    site.activate()?;
    let mut rows = Vec::new();
    for round in 0..rounds {
        for &part in parts {
            for (in_core, state, _) in STATES {
                lab.step(format!("{part} of a processor, {state}"))?;
                site.set_in_core(in_core)?;
                confinement.allow(Some(part))?;
                for direction in [0, 1] {
                    let row = measure(&site, direction, times);
                    rows.push(Row { round, in_core, processors: Some(part), ..row? });
                }
                confinement.allow(None)?;
            }
        }
    }
    Ok(rows)
}

fn measure(site: &Site, direction: usize, [settle, lasting]: [Duration; 2]) -> Result<Row, String> {
    let ends = [0, 1].map(|end| site.end(end, WIRE[end]));
    let streams = Streams::start(ends[direction], ends[1 - direction], 1)?;
    let mut used = Vec::new();
    let rate = streams.measure(settle, lasting, || used.push(site.used()))?;
    let used = used.into_iter().collect::<Result<Vec<_>, _>>()?;
    let [left, right] = used[1].since(used[0]).daemons;
    Ok(Row {
        round: 0,
        algorithm: ALGORITHMS[0].name,
        in_core: false,
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
}

impl Figures<'_> {
    fn of<'r>(
        &'r self,
        algorithm: &'r str,
        in_core: bool,
        processors: Option<f64>,
    ) -> impl Iterator<Item = &'r Row> + 'r {
        self.rows.iter().filter(move |row| {
            row.algorithm == algorithm && row.in_core == in_core && row.processors == processors
        })
    }

    /// Of both directions, Mbit/s.
    fn rate(&self, algorithm: &str, in_core: bool, processors: Option<f64>) -> Option<Spread> {
        Spread::of(self.of(algorithm, in_core, processors).map(|row| row.mbit_s))
    }

    /// Throughput with in-core relative to without, round by round and direction by direction.
    fn gain(&self, algorithm: &str, processors: Option<f64>) -> Option<Spread> {
        let off = self.of(algorithm, false, processors);
        let on = self.of(algorithm, true, processors);
        Spread::of(off.zip(on).map(|(off, on)| on.mbit_s / off.mbit_s))
    }

    fn names(&self) -> Vec<&'static str> {
        self.algorithms.iter().map(|algorithm| algorithm.name).collect()
    }

    /// A bar for each group with in-core off and on.
    fn bars<G>(
        &self,
        names: Vec<String>,
        groups: &[G],
        of: impl Fn(&G, bool) -> Option<Spread>,
        y: Axis,
        x: &str,
    ) -> Panel {
        let series = STATES.map(|(in_core, name, style)| Series {
            name: name.to_owned(),
            style,
            points: (0_u8..)
                .zip(groups)
                .filter_map(|(at, group)| Some((f64::from(at), of(group, in_core)?)))
                .collect(),
        });
        Panel {
            caption: String::new(),
            x: Axis::groups(x, names),
            y,
            series: series.to_vec(),
            mark: None,
        }
    }
}

const QUOTE: &str = "The document: more than 350 % better with in-core on, on POWER8 (0.5 core), POWER9 (0.1 core) and POWER10 \
                     (1 core), iperf in both directions, the mean of five rounds.";

fn write(report: &mut Report, lab: &Lab, figures: &Figures<'_>, rounds: usize, lasting: Duration) {
    report.say(format!(
        "The document loads a sample policy (AES-256-GCM in transport mode between two partitions), sends TCP with iperf in \
         both directions, and compares `in_core_enabled` 0 and 1. Here the same policy (`config/aix-sample-left.xml`, \
         rekeyed every three minutes as it says) protects one stream of TCP between two hosts, which share the {} cores of \
         one machine; in-core is what `vpnctl crypto set` changes while the daemons run. {}",
        lab.machine.cores,
        lab.rounds(rounds, lasting),
    ));
    let sample = ALGORITHMS[0].name;
    if let Some(gain) = figures.gain(sample, None) {
        report.headline(format!(
            "Throughput of the sample policy with in-core on relative to in-core off: **{:.1} times** ({:.1} to {:.1} in \
             the rounds), {:.0} % better, where the document says more than 350 %.",
            gain.median,
            gain.low,
            gain.high,
            (gain.median - 1.0) * 100.0,
        ));
    }
    report.section("The sample policy, both directions");
    let both = |direction: &&str, in_core: bool| {
        let rows = figures.of(sample, in_core, None).filter(|row| row.direction == *direction);
        Spread::of(rows.map(|row| row.mbit_s / 1e3))
    };
    let names = DIRECTIONS.map(str::to_owned).to_vec();
    let throughput = || Axis::linear("throughput (Gbit/s)");
    report.plot(
        "sample",
        &Plot {
            title: "TCP, AES-256-GCM in transport mode, in-core off and on".to_owned(),
            quote: QUOTE.to_owned(),
            panels: vec![figures.bars(
                names,
                &DIRECTIONS,
                both,
                throughput(),
                "direction of the stream",
            )],
            columns: 1,
        },
    );
    report.section("All algorithms");
    let names = figures.names();
    let labels: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let rate = |name: &&str, in_core| figures.rate(name, in_core, None).map(|s| s.times(1e-3));
    report.plot(
        "algorithms",
        &Plot {
            title: "TCP by algorithm, in-core off and on".to_owned(),
            quote: "The document names the algorithms that gain: GCM, GMAC and AH with GMAC, each with 128, 192 and 256 bits. \
                    CBC is with HMAC-SHA2-256."
                .to_owned(),
            panels: vec![figures.bars(labels.clone(), &names, rate, throughput(), "algorithm")],
            columns: 1,
        },
    );
    let gains = (0_u8..).zip(&names);
    let gains = gains.filter_map(|(at, name)| Some((f64::from(at), figures.gain(name, None)?)));
    report.plot(
        "gain",
        &Plot {
            title: "Throughput with in-core relative to without".to_owned(),
            quote: QUOTE.to_owned(),
            panels: vec![Panel {
                caption: String::new(),
                x: Axis::groups("algorithm", labels),
                y: Axis::linear("throughput, on / off"),
                series: vec![Series {
                    name: "on / off".to_owned(),
                    style: STATES[1].2,
                    points: gains.collect(),
                }],
                mark: Some((DOCUMENT, "the document: more than 350 % better".to_owned())),
            }],
            columns: 1,
        },
    );
    report.table(&table(figures));
    report.say(
        "GMAC authenticates and does not encrypt: without the instructions it costs less than GCM, so that they save less. AH \
         goes through raw sockets, which take no super-packets: each packet costs system calls of its own, beside which its \
         GMAC weighs less still. CBC, with HMAC-SHA2-256, is what GCM took the place of; the document has no figure of it. \
         CPU: processor time of both daemons for each gigabyte.",
    );
    parts(report, figures);
}

/// Part of a processor for each host.
fn parts(report: &mut Report, figures: &Figures<'_>) {
    let sample = ALGORITHMS[0].name;
    let measured = |part: &f64| figures.rate(sample, true, Some(*part)).is_some();
    let parts: Vec<f64> = PARTS.into_iter().filter(measured).collect();
    if parts.is_empty() {
        return;
    }
    report.section("On part of a processor");
    report.say(
        "Each host - its daemon and the program that sends or receives - is in a control group that lets it run for this part \
         of every 10 ms, as the document's partitions were.",
    );
    let rate =
        |part: &f64, in_core| figures.rate(sample, in_core, Some(*part)).map(|s| s.times(1e-3));
    // Each with an axis of its own: what they have in common is the ratio.
    let panel = |part: &f64| {
        let name = format!("{part} core");
        let y = Axis::linear("throughput (Gbit/s)");
        figures.bars(vec![name], &[*part], rate, y, "processors of each host")
    };
    report.plot(
        "parts",
        &Plot {
            title: "TCP, AES-256-GCM, on part of a processor for each host".to_owned(),
            quote: QUOTE.to_owned(),
            panels: parts.iter().map(panel).collect(),
            columns: parts.len(),
        },
    );
    let mut table =
        Table::new(["each host has", "off Mbit/s", "on Mbit/s", "on / off", "document"]);
    for part in parts {
        let rate = |on| figures.rate(sample, on, Some(part)).map_or("–".into(), |s| s.show(0));
        let gain = figures.gain(sample, Some(part)).map_or("–".into(), |s| s.show(1));
        table.row([format!("{part} core"), rate(false), rate(true), gain, "> 4.5".to_owned()]);
    }
    report.table(&table);
}

fn table(figures: &Figures<'_>) -> Table {
    let mut table = Table::new([
        "algorithm",
        "off Mbit/s",
        "on Mbit/s",
        "on / off",
        "document",
        "off, CPU s/GB",
        "on, CPU s/GB",
    ]);
    for name in figures.names() {
        let show = |spread: Option<Spread>, digits| spread.map_or("–".into(), |s| s.show(digits));
        let cpu = |on| Spread::of(figures.of(name, on, None).map(|row| row.cpu_s_per_gb));
        let document = if name.starts_with("CBC") { "–" } else { "> 4.5" };
        table.row([
            name.to_owned(),
            show(figures.rate(name, false, None), 0),
            show(figures.rate(name, true, None), 0),
            show(figures.gain(name, None), 1),
            document.to_owned(),
            show(cpu(false), 2),
            show(cpu(true), 2),
        ]);
    }
    table
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
        let row = |in_core, mbit_s| Row {
            round: 0,
            algorithm: "GCM-256",
            in_core,
            direction: DIRECTIONS[0],
            processors: None,
            mbit_s,
            cpu_s_per_gb: 1.0,
        };
        let rows = [row(false, 100.0), row(true, 900.0), row(false, 200.0), row(true, 1000.0)];
        let figures = Figures { rows: &rows, algorithms: &ALGORITHMS };
        let gain = figures.gain("GCM-256", None).expect("measured");
        assert_eq!([gain.low, gain.median, gain.high], [5.0, 7.0, 9.0]);
        assert!(figures.gain("GCM-256", Some(0.1)).is_none());
        let mut report = Report::new("");
        write_all(&mut report, &figures);
    }

    fn write_all(report: &mut Report, figures: &Figures<'_>) {
        report.table(&table(figures));
        parts(report, figures);
    }
}
