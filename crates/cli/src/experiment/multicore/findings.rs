//! What the figures say.

use super::model::{Cost, packets_per_second};
use super::{CBC, COMPLETION, GCM, MIDDLE, PIPELINE, Row};
use crate::experiment::Lab;
use crate::experiment::plot::{Axis, Panel, Plot, Series, Style};
use crate::experiment::report::Report;
use crate::experiment::site::Cipher;
use crate::experiment::statistics::Spread;
use crate::experiment::table::Table;
use esp::userspace::Stage;

/// Cores of the machines that the model is asked about; the document's had 16.
const CORES: [usize; 5] = [1, 2, 4, 8, 16];

/// The stages that are told apart in both schedules: run to completion reads and seals in one go.
const STEPS: [(&str, &[Stage]); 5] = [
    ("read, seal", &[Stage::Read, Stage::Seal]),
    ("send", &[Stage::Send]),
    ("receive", &[Stage::Receive]),
    ("open", &[Stage::Open]),
    ("write", &[Stage::Write]),
];

/// What was measured, looked at from all sides.
pub(super) struct Figures<'a> {
    pub rows: &'a [Row],
    pub lengths: &'a [usize],
    pub ciphers: &'a [Cipher],
    pub workers: &'a [usize],
}

/// Which measurements.
#[derive(Clone, Copy)]
struct Case {
    cipher: &'static str,
    schedule: &'static str,
    workers: usize,
    length: usize,
}

impl Figures<'_> {
    fn spread(&self, case: Case, of: impl Fn(&Row) -> f64) -> Option<Spread> {
        let Case { cipher, schedule, workers, length } = case;
        let fits = |row: &&Row| {
            row.cipher == cipher
                && row.schedule == schedule
                && row.workers == workers
                && row.length == length
        };
        Spread::of(self.rows.iter().filter(fits).map(of))
    }

    fn median(&self, case: Case, of: impl Fn(&Row) -> f64) -> f64 {
        self.spread(case, of).map_or(0.0, |spread| spread.median)
    }

    fn most(&self) -> usize {
        self.workers.last().copied().unwrap_or(1)
    }

    /// A series over packet lengths.
    fn over_lengths(
        &self,
        name: impl Into<String>,
        style: Style,
        case: Case,
        of: fn(&Row) -> f64,
    ) -> Series {
        let at = |n: &usize| Some((*n as f64, self.spread(Case { length: *n, ..case }, of)?));
        Series { name: name.into(), style, points: self.lengths.iter().filter_map(at).collect() }
    }

    /// Nanoseconds of these stages for a packet.
    fn ns(&self, case: Case, stages: &[Stage]) -> f64 {
        self.median(case, |row| ns(row, stages))
    }

    /// Packets that are sealed at once.
    fn batch(&self, case: Case) -> f64 {
        self.median(case, |row| row.stages.get(Stage::Seal.name()).map_or(0.0, |step| step.batch))
    }
}

fn ns(row: &Row, stages: &[Stage]) -> f64 {
    let steps = stages.iter().filter_map(|stage| row.stages.get(stage.name()));
    steps.map(|step| step.ns).sum()
}

fn style_of(cipher: usize) -> Style {
    // One colour for each key length; what has a MAC beside the cipher is dashed.
    if cipher < 3 {
        Style::solid(cipher)
    } else {
        Style::dashed(cipher % 3 + 3 * usize::from(cipher > 5))
    }
}

pub(super) fn write(report: &mut Report, lab: &Lab, figures: &Figures<'_>, rounds: &str) {
    report.say(format!(
        "The document measured IPsec on one processor with 16 cores, between generators on ports of 2 × 10 Gbit/s. Here \
         datagrams of one length go in both directions at once between two hosts on one machine with {} cores, over {} \
         flows with an SA each, in tunnel mode (the document: transport mode; 20 octets less). Both gateways, generator and \
         sink share the cores. A length is that of the IP packet inside the tunnel; rates are of both directions together, \
         and of packets that arrived. {rounds}",
        lab.machine.cores,
        super::FLOWS,
    ));
    lengths_and_ciphers(report, figures);
    cores(report, lab, figures);
    schedules(report, figures);
    stages(report, figures);
    more_cores(report, lab, figures);
    report.section("All figures");
    report.table(&all(figures));
}

fn lengths_and_ciphers(report: &mut Report, figures: &Figures<'_>) {
    report.section("Packet lengths and ciphers");
    let panel = |label: &str, axis: fn(String) -> Axis, of: fn(&Row) -> f64| Panel {
        caption: String::new(),
        x: Axis::steps("packet length (octets)", figures.lengths),
        y: axis(label.to_owned()),
        series: figures
            .ciphers
            .iter()
            .enumerate()
            .map(|(n, cipher)| {
                let case =
                    Case { cipher: cipher.name, schedule: COMPLETION, workers: 1, length: 0 };
                figures.over_lengths(cipher.name, style_of(n), case, of)
            })
            .collect(),
        mark: None,
    };
    report.plot("lengths", &Plot {
        title: "Throughput by packet length and cipher".to_owned(),
        quote: "The document (AES, DES and 3DES with SHA-1): AES-128 is best, and with hardware the differences are small; \
                20 Gbit/s at 512 octets with 16 cores. The cost of a packet as such decides about small ones."
            .to_owned(),
        panels: vec![
            panel("throughput (Gbit/s)", Axis::linear, Row::gbits),
            panel("packets/s", Axis::linear, |row| row.packets_per_second),
        ],
        columns: 2,
    });
    let best = |cipher: Cipher, length| {
        figures
            .median(Case { cipher: cipher.name, schedule: COMPLETION, workers: 1, length }, |r| {
                r.packets_per_second
            })
    };
    let largest = figures.lengths.last().copied().unwrap_or(MIDDLE);
    report.say(format!(
        "Run to completion, one worker for each gateway. AES-256 beside AES-128 keeps {:.0} % of the packets at {largest} \
         octets with GCM and {:.0} % with CBC; CBC with SHA-1 keeps {:.0} % of those of GCM.",
        100.0 * ratio(best(key_256(figures, 0), largest), best(GCM, largest)),
        100.0 * ratio(best(key_256(figures, 3), largest), best(CBC, largest)),
        100.0 * ratio(best(CBC, largest), best(GCM, largest)),
    ));
    if !cfg!(feature = "legacy") {
        report.say("DES and 3DES are not in this build: they protect nothing any more (RFC 8221). A `vpnd` and `vpnctl` built with `--features legacy` measure them, too.");
    }
}

/// The cipher with the longest key of a family that begins there; the first where there is no other.
fn key_256(figures: &Figures<'_>, first: usize) -> Cipher {
    let family = if first == 0 { GCM } else { CBC };
    let of =
        |c: &&Cipher| c.authentication == family.authentication && c.name.starts_with("AES-256");
    figures.ciphers.iter().find(of).copied().unwrap_or(family)
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

fn cores(report: &mut Report, lab: &Lab, figures: &Figures<'_>) {
    report.section("Number of workers");
    let panel = |cipher: Cipher| Panel {
        caption: cipher.name.to_owned(),
        x: Axis::steps("workers of each gateway", figures.workers),
        y: Axis::linear("throughput (Gbit/s)"),
        series: [(COMPLETION, 0), (PIPELINE, 1)]
            .into_iter()
            .flat_map(|(schedule, colour)| {
                let lengths = [(64, true), (MIDDLE, false), (1280, false)];
                lengths
                    .into_iter()
                    .enumerate()
                    .filter(|(_, (l, _))| figures.lengths.contains(l))
                    .map(move |(n, (length, _))| {
                        let style = Style { colour: colour + 2 * n, dashed: schedule == PIPELINE };
                        let at = |workers: &usize| {
                            let case =
                                Case { cipher: cipher.name, schedule, workers: *workers, length };
                            Some((*workers as f64, figures.spread(case, Row::gbits)?))
                        };
                        let points = figures.workers.iter().filter_map(at).collect();
                        Series { name: format!("{length} octets, {schedule}"), style, points }
                    })
            })
            .collect(),
        mark: None,
    };
    report.plot(
        "workers",
        &Plot {
            title: "Throughput by number of workers".to_owned(),
            quote: "The document: nearly linear from 1 to 16 cores.".to_owned(),
            panels: vec![panel(GCM), panel(CBC)],
            columns: 2,
        },
    );
    let mut table =
        Table::new(["cipher", "schedule", "octets", "workers", "packets/s", "efficiency"]);
    for (cipher, schedule) in [GCM, CBC].into_iter().flat_map(|c| [(c, COMPLETION), (c, PIPELINE)])
    {
        for &length in figures.lengths {
            let at = |workers| {
                let case = Case { cipher: cipher.name, schedule, workers, length };
                figures.median(case, |row| row.packets_per_second)
            };
            let most = figures.most();
            let efficiency = ratio(at(most), at(1) * most as f64);
            table.row([
                cipher.name.to_owned(),
                schedule.to_owned(),
                length.to_string(),
                format!("1 → {most}"),
                format!("{:.0} → {:.0}", at(1), at(most)),
                format!("{efficiency:.2}"),
            ]);
        }
    }
    report.table(&table);
    report.say(format!(
        "Efficiency: packets per second by those of one worker times the number of workers; 1 is linear. {}",
        match lab.machine.cores < 8 {
            true => format!(
                "**{} cores cannot show scaling:** two gateways with one worker each, generator and sink keep them busy \
                 already, so that a second worker finds no core that is free. What a machine with more cores would do is \
                 worked out below from what a packet costs.",
                lab.machine.cores
            ),
            false => "Both gateways, generator and sink share the cores: the last of them are not free for workers.".to_owned(),
        }
    ));
}

fn schedules(report: &mut Report, figures: &Figures<'_>) {
    report.section("Pipeline and run to completion");
    let most = figures.most();
    let panel = |cipher: &Cipher| {
        let mut series = Vec::new();
        let mut numbers = vec![1];
        numbers.extend((most > 1).then_some(most));
        for (schedule, colour) in [(COMPLETION, 0), (PIPELINE, 1)] {
            for &workers in &numbers {
                let style = Style { colour, dashed: workers == 1 && most > 1 };
                let plural = if workers == 1 { "" } else { "s" };
                let case = Case { cipher: cipher.name, schedule, workers, length: 0 };
                let name = format!("{schedule}, {workers} worker{plural}");
                series.push(figures.over_lengths(name, style, case, Row::gbits));
            }
        }
        Panel {
            caption: cipher.name.to_owned(),
            x: Axis::steps("packet length (octets)", figures.lengths),
            y: Axis::linear("throughput (Gbit/s)"),
            series,
            mark: None,
        }
    };
    report.plot("schedules", &Plot {
        title: "Pipeline and run to completion".to_owned(),
        quote: "The document: the pipeline is faster at every size, and the gap grows with the length.".to_owned(),
        panels: figures.ciphers.iter().map(panel).collect(),
        columns: 3,
    });
    let mut heads = vec!["pipeline ÷ run to completion".to_owned()];
    heads.extend(figures.lengths.iter().map(|length| format!("{length} octets")));
    let mut table = Table::new(heads);
    for cipher in figures.ciphers {
        for &workers in figures.workers {
            let mut row = vec![format!("{}, workers: {workers}", cipher.name)];
            for &length in figures.lengths {
                let at = |schedule| {
                    let case = Case { cipher: cipher.name, schedule, workers, length };
                    figures.median(case, |row| row.packets_per_second)
                };
                row.push(format!("{:.2}", ratio(at(PIPELINE), at(COMPLETION))));
            }
            table.row(row);
        }
    }
    report.table(&table);
}

fn stages(report: &mut Report, figures: &Figures<'_>) {
    report.section("What each stage costs a packet");
    let most = figures.most();
    let lengths: Vec<usize> =
        [64, MIDDLE, 1280].into_iter().filter(|l| figures.lengths.contains(l)).collect();
    let panel = |(cipher, length): (Cipher, usize)| Panel {
        caption: format!("{}, {length} octets", cipher.name),
        x: Axis::groups("stage", STEPS.map(|(name, _)| name)),
        y: Axis::linear("time (ns per packet)"),
        series: [(COMPLETION, 0), (PIPELINE, 1)]
            .into_iter()
            .map(|(schedule, colour)| {
                let case = Case { cipher: cipher.name, schedule, workers: most, length };
                let steps = STEPS.iter().enumerate();
                let points = steps.filter_map(|(n, (_, stages))| {
                    Some((n as f64, figures.spread(case, |row| ns(row, stages))?))
                });
                Series {
                    name: schedule.to_owned(),
                    style: Style::solid(colour),
                    points: points.collect(),
                }
            })
            .collect(),
        mark: None,
    };
    let panels = [GCM, CBC].into_iter().flat_map(|c| lengths.iter().map(move |l| (c, *l)));
    report.plot("stages", &Plot {
        title: format!("Time of each stage, workers for each gateway: {most}"),
        quote: "The document's stages: defragmentation, decryption, lookup, processing, encryption, output. Here reading \
                includes lookup and sequence number, and writing the anti-replay window."
            .to_owned(),
        panels: panels.map(panel).collect(),
        columns: lengths.len().max(1),
    });
    report.say(
        "From the counters of `vpnctl workers`: time by the clock of both daemons, for each packet delivered. Where threads \
         outnumber cores it includes the time in which a thread was not on a processor; *CPU* below does not.",
    );
    let mut table = Table::new([
        "cipher",
        "octets",
        "schedule",
        "read, seal",
        "send",
        "receive",
        "open",
        "write",
        "CPU ns",
        "reader's CPU ns",
        "packets per batch sealed",
        "wake-ups per 1,000 packets",
    ]);
    for (cipher, length) in
        [GCM, CBC].into_iter().flat_map(|c| lengths.iter().map(move |l| (c, *l)))
    {
        for schedule in [COMPLETION, PIPELINE] {
            let case = Case { cipher: cipher.name, schedule, workers: most, length };
            let mut row = vec![cipher.name.to_owned(), length.to_string(), schedule.to_owned()];
            row.extend(STEPS.map(|(_, stages)| format!("{:.0}", figures.ns(case, stages))));
            row.push(format!("{:.0}", figures.median(case, |r| r.cpu_ns)));
            row.push(format!("{:.0}", figures.median(case, |r| r.reader_ns)));
            row.push(format!("{:.1}", figures.batch(case)));
            row.push(format!("{:.1}", figures.median(case, |r| r.wakeups)));
            table.row(row);
        }
    }
    report.table(&table);
    for (cipher, length) in
        [GCM, CBC].into_iter().flat_map(|c| lengths.iter().map(move |l| (c, *l)))
    {
        report.say(cause(figures, cipher, length));
    }
}

/// Why one schedule carries more than the other, from the counters.
fn cause(figures: &Figures<'_>, cipher: Cipher, length: usize) -> String {
    let workers = figures.most();
    let case = |schedule| Case { cipher: cipher.name, schedule, workers, length };
    let [completion, pipeline] = [COMPLETION, PIPELINE].map(case);
    let rate = |case| figures.median(case, |row| row.packets_per_second);
    let share = ratio(rate(pipeline), rate(completion));
    let cpu = |case| figures.median(case, |row| row.cpu_ns);
    let difference =
        |of: fn(&Row) -> f64| figures.median(pipeline, of) - figures.median(completion, of);
    let mut steps = STEPS.map(|(name, stages)| {
        (name, figures.ns(pipeline, stages) - figures.ns(completion, stages))
    });
    steps.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let [(first, most), (second, less), ..] = steps;
    format!(
        "**{}, {length} octets:** the pipeline delivers {share:.2} of what run to completion delivers. A packet costs it \
         {:+.0} ns of CPU; the stages that differ most are {first} ({most:+.0} ns) and {second} ({less:+.0} ns). {:.1} \
         packets are sealed at once instead of {:.1}, and for 1,000 packets workers are woken {:.1} times instead of {:.1}: \
         {}",
        cipher.name,
        difference(|row| row.cpu_ns),
        figures.batch(pipeline),
        figures.batch(completion),
        figures.median(pipeline, |row| row.wakeups),
        figures.median(completion, |row| row.wakeups),
        match (share, ratio(cpu(pipeline), cpu(completion))) {
            (s, c) if s < 0.97 && c > 1.03 => {
                "handing batches over makes a packet dearer than spreading its cryptography gains."
            }
            (s, _) if s < 0.97 => {
                "a packet is not dearer, so that what is missing is time in which threads waited for each other."
            }
            (s, c) if s > 1.03 && c < 0.97 =>
                "a packet is cheaper, since threads sleep and wake less often.",
            (s, _) if s > 1.03 =>
                "more cores were at work at once, which pays for handing batches over.",
            _ => "what handing over costs and what spreading gains cancel out.",
        },
    )
}

fn more_cores(report: &mut Report, lab: &Lab, figures: &Figures<'_>) {
    report.section("What more cores would do");
    let most = figures.most();
    let cost = |cipher: Cipher, schedule, length| {
        let case = Case { cipher: cipher.name, schedule, workers: most, length };
        let serial = if schedule == PIPELINE { figures.median(case, |r| r.reader_ns) } else { 0.0 };
        Cost { packet: figures.median(case, |row| row.cpu_ns), serial }
    };
    let gbits = |cost, cores, length: usize| {
        let value = packets_per_second(cost, cores) * length as f64 * 8.0 / 1e9;
        Spread { low: value, median: value, high: value }
    };
    let panel = |cipher: Cipher| Panel {
        caption: cipher.name.to_owned(),
        x: Axis::steps("cores of one gateway", &CORES),
        y: Axis::linear("predicted throughput (Gbit/s)"),
        series: [(COMPLETION, 0), (PIPELINE, 1)]
            .into_iter()
            .flat_map(|(schedule, colour)| {
                [(64, 4), (MIDDLE, 0)].into_iter().filter(|(l, _)| figures.lengths.contains(l)).map(
                    move |(length, shade)| {
                        let cost = cost(cipher, schedule, length);
                        let points = CORES.map(|n| (n as f64, gbits(cost, n, length))).to_vec();
                        let style = Style { colour: colour + shade, dashed: schedule == PIPELINE };
                        Series { name: format!("{length} octets, {schedule}"), style, points }
                    },
                )
            })
            .collect(),
        mark: Some((
            20.0,
            "the document: 20 Gbit/s, 512 octets, AES-128 + SHA-1, 16 cores".to_owned(),
        )),
    };
    report.plot("model", &Plot {
        title: "Predicted throughput with more cores".to_owned(),
        quote: "The document: 20 Gbit/s full duplex (the limit of its ports) at 512 octets with 16 cores.".to_owned(),
        panels: vec![panel(GCM), panel(CBC)],
        columns: 2,
    });
    report.say(
        "The model: in a gateway that has `n` cores to itself, one worker on each and enough flows for all, run to completion \
         carries `2n / c` packets per second in both directions together, `c` being the processor time of sealing a packet and \
         opening it (*CPU ns* above). The pipeline carries the same with its own `c`, but at most `2 / r`, `r` being what its \
         one reader spends on a packet. It assumes that cores do not slow each other down through memory and locks, that the \
         network hands packets over for as little as here, and that generators are elsewhere.",
    );
    let mut table = Table::new([
        "cipher",
        "octets",
        "schedule",
        "c, ns",
        "r, ns",
        "1 core",
        "2",
        "4",
        "8",
        "16 cores, Gbit/s",
    ]);
    for cipher in [GCM, CBC] {
        for &length in figures.lengths {
            for schedule in [COMPLETION, PIPELINE] {
                let cost = cost(cipher, schedule, length);
                let mut row = vec![cipher.name.to_owned(), length.to_string(), schedule.to_owned()];
                row.extend([cost.packet, cost.serial].map(|ns| format!("{ns:.0}")));
                row.extend(CORES.map(|n| format!("{:.2}", gbits(cost, n, length).median)));
                table.row(row);
            }
        }
    }
    report.table(&table);
    let case = Case { cipher: GCM.name, schedule: COMPLETION, workers: 1, length: MIDDLE };
    let measured = figures.median(case, |row| row.packets_per_second);
    let all = figures.median(case, |row| row.cpu_ns + row.traffic_ns);
    let possible = lab.machine.cores as f64 * 1e9 / all.max(1.0);
    report.say(format!(
        "How far to trust it: with generator and sink included, a packet of {MIDDLE} octets takes {all:.0} ns of processor time \
         (AES-128-GCM, one worker), so that {} cores could carry {possible:.0} packets per second; {measured:.0} were measured, \
         {:.0} %. The rest is time in which cores waited for each other.",
        lab.machine.cores,
        100.0 * ratio(measured, possible),
    ));
}

/// One row for each case.
fn all(figures: &Figures<'_>) -> Table {
    let mut table = Table::new([
        "cipher",
        "octets",
        "schedule",
        "workers",
        "packets/s",
        "Gbit/s",
        "loss %",
        "CPU ns",
        "generator and sink, ns",
    ]);
    for cipher in figures.ciphers {
        for &length in figures.lengths {
            for schedule in [COMPLETION, PIPELINE] {
                for &workers in figures.workers {
                    let case = Case { cipher: cipher.name, schedule, workers, length };
                    let Some(rate) = figures.spread(case, |row| row.packets_per_second) else {
                        continue;
                    };
                    table.row([
                        cipher.name.to_owned(),
                        length.to_string(),
                        schedule.to_owned(),
                        workers.to_string(),
                        rate.show(0),
                        format!("{:.3}", figures.median(case, Row::gbits)),
                        format!("{:.2}", figures.median(case, |row| row.loss * 100.0)),
                        format!("{:.0}", figures.median(case, |row| row.cpu_ns)),
                        format!("{:.0}", figures.median(case, |row| row.traffic_ns)),
                    ]);
                }
            }
        }
    }
    table
}
