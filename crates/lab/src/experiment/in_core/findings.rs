//! The report about the figures.

use super::{
    ALGORITHMS, Algorithm, DIRECTIONS, Figures, PARTS, Protection, SAMPLE_ESP, State, alone,
};
use crate::experiment::lab::Lab;
use crate::experiment::sources::{aix, system_z};
use crate::experiment::{generations, software};
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::statistics::Spread;
use crate::table::Table;
use std::time::Duration;

pub(super) fn write(
    report: &mut Report,
    lab: &Lab,
    figures: &Figures<'_>,
    ciphers: &[alone::Row],
    (rounds, lasting): (usize, Duration),
) {
    report.say(format!(
        "The document loads a sample policy (AES-256-GCM in transport mode between two partitions), sends TCP with iperf \
         between a client and a server, and compares `in_core_enabled` 0 and 1. Here the same policy (`config/aix-sample-left.xml`, \
         rekeyed every three minutes as it says) protects one stream of TCP between two hosts, which share the {} cores of \
         one machine. {}",
        lab.machine.cores,
        lab.rounds(rounds, lasting),
    ));
    report.say(software::STATES);
    headline(report, figures);
    report.section("The sample policy, both directions");
    let sample = ALGORITHMS[0].name;
    let both = |direction: &&str, state: State| {
        let rows = figures.of(sample, state, None).filter(|row| row.direction == *direction);
        Spread::of(rows.map(|row| row.mbit_s / 1e3))
    };
    let throughput = || Axis::linear("throughput (Gbit/s)");
    let directions = Axis::groups("direction of the stream", DIRECTIONS);
    report.plot(
        "sample",
        &Plot {
            title: "TCP, AES-256-GCM in transport mode, in-core off and on".to_owned(),
            quote: aix::GAIN.to_string(),
            panels: vec![bars(figures, directions, throughput(), &DIRECTIONS, both)],
            columns: 1,
        },
    );
    algorithms(report, figures);
    alone::write(report, ciphers, figures.states);
    by_cipher(report, figures);
    by_generation(report);
    parts(report, figures);
}

/// A bar in each group for each state.
fn bars<G>(
    figures: &Figures<'_>,
    x: Axis,
    y: Axis,
    groups: &[G],
    of: impl Fn(&G, State) -> Option<Spread>,
) -> Panel {
    let series = figures.states.iter().map(|state| Series {
        name: state.name().to_owned(),
        style: state.style(),
        points: (0_u8..)
            .zip(groups)
            .filter_map(|(at, group)| Some((f64::from(at), of(group, *state)?)))
            .collect(),
    });
    Panel { caption: String::new(), x, y, series: series.collect(), mark: None }
}

fn headline(report: &mut Report, figures: &Figures<'_>) {
    let gain = |off: State| {
        let gain = figures.gain(ALGORITHMS[0].name, off, None)?;
        Some(format!(
            "**{:.1} times** that of *{}* ({:.1} to {:.1} in the rounds; {:.0} % more; {:.1} times by the means of the rounds)",
            gain.median,
            off.name(),
            gain.low,
            gain.high,
            (gain.median - 1.0) * 100.0,
            figures.gain_of_means(ALGORITHMS[0].name, off),
        ))
    };
    let gains: Vec<String> = figures.off().into_iter().filter_map(gain).collect();
    report.headline(format!(
        "Throughput of the sample policy with in-core on: {}. {}",
        gains.join(", and "),
        aix::GAIN,
    ));
}

fn algorithms(report: &mut Report, figures: &Figures<'_>) {
    report.section("All algorithms");
    let names = figures.names();
    let labels = || Axis::groups("algorithm", names.iter().copied());
    let rate = |name: &&str, state| figures.rate(name, state, None).map(|s| s.times(1e-3));
    report.plot(
        "algorithms",
        &Plot {
            title: "TCP by algorithm, in-core off and on".to_owned(),
            quote: format!("{} CBC, 3DES and DES are with HMAC-SHA2-256.", aix::ALGORITHMS),
            panels: vec![bars(
                figures,
                labels(),
                Axis::linear("throughput (Gbit/s)"),
                &names,
                rate,
            )],
            columns: 1,
        },
    );
    // The document has a figure of the sample's algorithm alone.
    let sample = Spread::of([aix::LEAST_GAIN]).map(|gain| (0.0, gain));
    let document = Series {
        name: "the document: more than".to_owned(),
        style: Style::dashed(6),
        points: sample.into_iter().collect(),
    };
    let gain = |off: State| Series {
        name: format!("on ÷ {}", off.name()),
        style: off.style(),
        points: (0_u8..)
            .zip(&names)
            .filter_map(|(at, name)| Some((f64::from(at), figures.gain(name, off, None)?)))
            .collect(),
    };
    report.plot(
        "gain",
        &Plot {
            title: "Throughput with in-core relative to without".to_owned(),
            quote: format!("{} {}", aix::GAIN, aix::ALGORITHMS),
            panels: vec![Panel {
                caption: String::new(),
                x: labels(),
                y: Axis::linear("throughput, on / off"),
                series: figures.off().into_iter().map(gain).chain([document]).collect(),
                mark: None,
            }],
            columns: 1,
        },
    );
    report.table(&table(figures));
    report.say(
        "GMAC authenticates and does not encrypt: without the instructions it costs less than GCM, so that they save less. AH \
         goes through raw sockets, which take no super-packets: each packet costs system calls of its own, beside which its \
         GMAC weighs less still. CBC, with HMAC-SHA2-256, is what GCM took the place of; the document has no figure of it. \
         CPU: processor time of both daemons for each gigabyte. The document has a figure of GCM-256 alone; with the other \
         eight it expects similar performance.",
    );
}

/// The figure of slides 10 and 11: throughput and cost by cipher.
fn by_cipher(report: &mut Report, figures: &Figures<'_>) {
    let among = ["DES", "3DES", "CBC-128", "CBC-256", "GCM-128", "GCM-256"];
    let names: Vec<&str> =
        among.into_iter().filter(|name| figures.names().contains(name)).collect();
    let labels = || Axis::groups("cipher", names.iter().copied());
    let rate = |name: &&str, state| figures.rate(name, state, None).map(|s| s.times(1e-3));
    let cost = |name: &&str, state| figures.cpu(name, state);
    report.section("Throughput and CPU cost by cipher");
    report.plot(
        "ciphers",
        &Plot {
            title: "Throughput and CPU cost by cipher".to_owned(),
            quote: format!(
                "{} Here RC4 is missing: it is no cipher of ESP.",
                system_z::CIPHERS.of("System z")
            ),
            panels: vec![
                bars(figures, labels(), Axis::logarithmic("throughput (Gbit/s)"), &names, rate),
                bars(
                    figures,
                    labels(),
                    Axis::logarithmic("CPU of both daemons (s per GB)"),
                    &names,
                    cost,
                ),
            ],
            columns: 2,
        },
    );
    match cfg!(feature = "legacy") {
        true => report.say(
            "No processor here has instructions for DES and 3DES: their states differ in the HMAC alone. RFC 8221 forbids \
             them; they are here for the comparison, and in builds with the feature `legacy` alone.",
        ),
        false => report.say(
            "DES and 3DES are not in this build: they protect nothing any more (RFC 8221). `vpnd` and `vpn-lab` built with \
             `cargo build --release -p vpn-daemon -p vpn-lab --features legacy` measure them, too.",
        ),
    }
}

/// The table of slide 12, for this architecture.
fn by_generation(report: &mut Report) {
    report.section("Ciphers by generation of processors");
    report.say(system_z::GENERATIONS.of("System z"));
    generations::write(report);
}

/// Part of a processor for each host.
fn parts(report: &mut Report, figures: &Figures<'_>) {
    let sample = ALGORITHMS[0].name;
    let measured = |part: &f64| figures.rate(sample, State::InCore, Some(*part)).is_some();
    let parts: Vec<f64> = PARTS.into_iter().filter(measured).collect();
    if parts.is_empty() {
        return;
    }
    report.section("On part of a processor");
    report.say(
        "Each host - its daemon and the program that sends or receives - is in a control group that lets it run for this part \
         of every 10 ms, as the document's partitions were.",
    );
    let rate = |part: &f64, state| figures.rate(sample, state, Some(*part)).map(|s| s.times(1e-3));
    // Each with an axis of its own: they have the ratio in common.
    let panel = |part: &f64| {
        let x = Axis::groups("processors of each host", [format!("{part} core")]);
        bars(figures, x, Axis::linear("throughput (Gbit/s)"), &[*part], rate)
    };
    report.plot(
        "parts",
        &Plot {
            title: "TCP, AES-256-GCM, on part of a processor for each host".to_owned(),
            quote: aix::GAIN.to_string(),
            panels: parts.iter().map(panel).collect(),
            columns: parts.len(),
        },
    );
    let mut heads = vec!["each host has".to_owned()];
    heads.extend(figures.states.iter().map(|state| format!("{}, Mbit/s", state.name())));
    heads.extend(figures.off().iter().map(|off| format!("on ÷ {}", off.name())));
    heads.push("document".to_owned());
    let mut table = Table::new(heads);
    for part in parts {
        let show = |spread: Option<Spread>, digits| spread.map_or("–".into(), |s| s.show(digits));
        let mut row = vec![format!("{part} core")];
        row.extend(figures.states.iter().map(|s| show(figures.rate(sample, *s, Some(part)), 0)));
        row.extend(figures.off().iter().map(|off| {
            let gain = figures.gain(sample, *off, Some(part));
            gain.map_or("–".into(), |gain| gain.show_ratio(1))
        }));
        row.push(least_gain());
        table.row(row);
    }
    report.table(&table);
}

/// The document's gain, in the words of a table.
fn least_gain() -> String {
    format!("> {}", aix::LEAST_GAIN)
}

/// The document's words about an algorithm.
fn document(algorithm: Algorithm) -> String {
    match algorithm.protection {
        Protection::Esp(SAMPLE_ESP) => least_gain(),
        Protection::Esp(_) | Protection::Ah(_) => "similar expected".to_owned(),
        Protection::EspWithMac(_) => "–".to_owned(),
    }
}

pub(super) fn table(figures: &Figures<'_>) -> Table {
    let mut heads = vec!["algorithm".to_owned()];
    heads.extend(figures.states.iter().map(|state| format!("{}, Mbit/s", state.name())));
    heads.extend(figures.off().iter().map(|off| format!("on ÷ {}", off.name())));
    heads.push("document".to_owned());
    heads.extend(figures.states.iter().map(|state| format!("{}, CPU s/GB", state.name())));
    let mut table = Table::new(heads);
    for algorithm in figures.algorithms {
        let name = algorithm.name;
        let show = |spread: Option<Spread>, digits| spread.map_or("–".into(), |s| s.show(digits));
        let gain = |off: &State| {
            figures.gain(name, *off, None).map_or("–".into(), |gain| gain.show_ratio(1))
        };
        let mut row = vec![name.to_owned()];
        row.extend(figures.states.iter().map(|s| show(figures.rate(name, *s, None), 0)));
        row.extend(figures.off().iter().map(gain));
        row.push(document(*algorithm));
        row.extend(figures.states.iter().map(|s| show(figures.cpu(name, *s), 2)));
        table.row(row);
    }
    table
}
