//! The report about the figures.

use super::figures::{CLOSELY, Case, Figures, SCHEDULES, workers};
use super::measurement::{CBC, COMPLETION, FLOWS, GCM, MIDDLE, PIPELINE, Row, THREE};
use super::mixed::{self, Mixed};
use super::relay::{self, Relayed};
use super::{prediction, schedules};
use crate::experiment::lab::Lab;
use crate::experiment::sources::octeon;
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::site::Cipher;
use crate::statistics::Spread;
use crate::table::Table;

fn style_of(cipher: usize) -> Style {
    // One colour for each key length; lines of ciphers with a MAC are dashed.
    if cipher < 3 {
        Style::solid(cipher)
    } else {
        Style::dashed(cipher % 3 + 3 * usize::from(cipher > 5))
    }
}

pub(super) fn write(
    report: &mut Report,
    lab: &Lab,
    figures: &Figures<'_>,
    (mixed, relayed): (&[Mixed], &[Relayed]),
    rounds: &str,
) {
    report.say(format!(
        "The document measured IPsec (transport mode, ESP with HMAC) with a generator on ports of 2 × 10 Gbit/s. {} Here datagrams of one length go in both directions at once between two hosts on one machine with {} \
         cores, in transport mode over {} flows with an SA each. The flows take turns packet by packet, so that no two that \
         follow each other can be joined (GRO): each packet is sealed, sent, opened and written on its own account, as the \
         document's are. Both gateways, generator and sink share the cores. A length is that of the IP packet before it is \
         protected; rates are of both directions together, and of packets that arrived. {rounds}",
        octeon::LINK,
        lab.machine.cores,
        FLOWS,
    ));
    lengths_and_ciphers(report, figures);
    mixed::write(report, figures, mixed);
    relay::write(report, figures, relayed);
    cores(report, lab, figures);
    schedules::write(report, figures);
    prediction::write(report, lab, figures);
    report.section("All figures");
    report.table(&all(figures));
}

fn lengths_and_ciphers(report: &mut Report, figures: &Figures<'_>) {
    report.section("Packet lengths and ciphers");
    // The document's figure first: the pipeline with all workers.
    let most = figures.most();
    let all = |cipher: &Cipher, length| Case {
        cipher: cipher.name,
        schedule: PIPELINE,
        workers: most,
        length,
    };
    let alone =
        |cipher: &Cipher, length| Case { schedule: COMPLETION, workers: 1, ..all(cipher, length) };
    report.plot(
        "lengths",
        &Plot {
            title: format!(
                "Pipeline, {} for each gateway: packet lengths and ciphers",
                workers(most)
            ),
            quote: octeon::ALGORITHMS.to_string(),
            panels: panels(figures, &all),
            columns: 2,
        },
    );
    report.plot(
        "lengths-alone",
        &Plot {
            title: "Run to completion, one worker: packet lengths and ciphers".to_owned(),
            quote: "The cost of a packet by itself; the document has no such figure.".to_owned(),
            panels: panels(figures, &alone),
            columns: 2,
        },
    );
    let largest = figures.lengths.last().copied().unwrap_or(MIDDLE);
    let compared = |of: Cipher, by: Cipher| {
        let ratio = figures.ratio(all(&of, largest), all(&by, largest));
        ratio.map_or_else(|| "–".to_owned(), |spread| spread.show_ratio(2))
    };
    report.headline(format!(
        "Pipeline, {} for each gateway. Packets per second at {largest} octets: AES-256 relative to AES-128 {} with GCM and \
         {} with CBC; CBC with SHA-1 relative to GCM {}. {}",
        workers(most),
        compared(with_key_256(figures, GCM), GCM),
        compared(with_key_256(figures, CBC), CBC),
        compared(CBC, GCM),
        octeon::ALGORITHMS,
    ));
    let means = |of: &dyn Fn(&Row) -> f64| {
        figures.lengths.iter().map(|l| figures.median(alone(&GCM, *l), of)).collect::<Vec<_>>()
    };
    if let ([short, .., long], Some(first)) =
        (&means(&|row| row.cpu_ns)[..], figures.lengths.first())
    {
        report.say(format!(
            "Most of what a packet costs it costs as such: with AES-128-GCM one of {largest} octets takes {long:.0} ns of both \
             daemons' processor time, one of {first} octets {short:.0} ns.",
        ));
    }
    if !cfg!(feature = "legacy") {
        report.say(
            "DES and 3DES are not in this build: they protect nothing any more (RFC 8221). `vpnd` and `vpn-lab` built with \
             `cargo build --release -p vpn-daemon -p vpn-lab --features legacy` measure them, too.",
        );
    }
}

/// Gbit/s and packets per second by length, with a line for each cipher.
fn panels(figures: &Figures<'_>, case: &dyn Fn(&Cipher, usize) -> Case) -> Vec<Panel> {
    let panel = |label: &str, of: fn(&Row) -> f64| Panel {
        caption: String::new(),
        x: Axis::steps("packet length (octets)", figures.lengths),
        y: Axis::linear(label),
        series: figures
            .ciphers
            .iter()
            .enumerate()
            .map(|(n, cipher)| {
                let at = |length| figures.spread(case(cipher, length), of);
                figures.over_lengths(cipher.name, style_of(n), at)
            })
            .collect(),
        mark: None,
    };
    vec![panel("throughput (Gbit/s)", Row::gbits), panel("packets/s", |row| row.packets_per_second)]
}

/// The cipher with the longest key of a family; the family's own where there is no other.
fn with_key_256(figures: &Figures<'_>, family: Cipher) -> Cipher {
    let is_gcm = |cipher: &Cipher| cipher.name.ends_with("GCM");
    let of = |c: &&Cipher| is_gcm(c) == is_gcm(&family) && c.name.starts_with("AES-256");
    figures.ciphers.iter().find(of).copied().unwrap_or(family)
}

fn cores(report: &mut Report, lab: &Lab, figures: &Figures<'_>) {
    report.section("Number of workers");
    let panel = |cipher: Cipher, label: &str, of: &dyn Fn(Case) -> Option<Spread>| {
        let line = |(colour, length): (usize, usize), (schedule, dashed): (&'static str, bool)| {
            let at = |workers: &usize| {
                let case = Case { cipher: cipher.name, schedule, workers: *workers, length };
                Some((*workers as f64, of(case)?))
            };
            Series {
                name: format!("{length} octets, {schedule}"),
                style: Style { colour, dashed },
                points: figures.workers.iter().filter_map(at).collect(),
            }
        };
        let lengths = figures.among(&THREE).into_iter().enumerate();
        Panel {
            caption: cipher.name.to_owned(),
            x: Axis::steps("workers of each gateway", figures.workers),
            y: Axis::linear(label),
            series: lengths.flat_map(|l| SCHEDULES.map(|s| line(l, s))).collect(),
            mark: None,
        }
    };
    let panels = CLOSELY.into_iter().flat_map(|cipher| {
        let rate = |of: fn(&Row) -> f64| move |case| figures.spread(case, of);
        [
            panel(cipher, "throughput (Gbit/s)", &rate(Row::gbits)),
            panel(cipher, "packets/s", &rate(|row| row.packets_per_second)),
            Panel {
                mark: Some((1.0, "linear".to_owned())),
                ..panel(cipher, "scaling efficiency (1 = linear)", &|c| figures.efficiency(c))
            },
        ]
    });
    report.plot(
        "workers",
        &Plot {
            title: "Throughput by number of workers".to_owned(),
            quote: octeon::CORES.to_string(),
            panels: panels.collect(),
            columns: 3,
        },
    );
    let mut table = Table::new([
        "cipher",
        "schedule",
        "octets",
        "workers",
        "packets/s",
        "÷ one worker",
        "efficiency",
    ]);
    for (cipher, schedule) in
        CLOSELY.into_iter().flat_map(|c| SCHEDULES.map(|(schedule, _)| (c, schedule)))
    {
        for &length in figures.lengths {
            let at = |workers| Case { cipher: cipher.name, schedule, workers, length };
            let rate = |workers| figures.median(at(workers), |row| row.packets_per_second);
            let most = figures.most();
            let gain = figures.ratio(at(most), at(1));
            let efficiency = figures.efficiency(at(most));
            table.row([
                cipher.name.to_owned(),
                schedule.to_owned(),
                length.to_string(),
                format!("1 → {most}"),
                format!("{:.0} → {:.0}", rate(1), rate(most)),
                gain.map_or_else(|| "–".to_owned(), |spread| spread.show_ratio(2)),
                efficiency.map_or_else(|| "–".to_owned(), |spread| spread.show(2)),
            ]);
        }
    }
    report.table(&table);
    report.say(format!(
        "Efficiency: packets per second by those of one worker times the number of workers; 1 is linear. The document went up to \
         16 cores; this run went up to {}, as many as the machine has. The same command goes up to 64 on a machine that has them. \
         {}",
        figures.most(),
        match lab.machine.cores < 8 {
            true => format!(
                "**{} cores cannot show scaling:** two gateways with one worker each, generator and sink keep them busy \
                 already, so that a second worker finds no core that is free. The prediction below computes the rates of \
                 a machine with more cores from the cost of a packet.",
                lab.machine.cores
            ),
            false => "Both gateways, generator and sink share the cores: the last of them are not free for workers.".to_owned(),
        }
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
            for (schedule, _) in SCHEDULES {
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
