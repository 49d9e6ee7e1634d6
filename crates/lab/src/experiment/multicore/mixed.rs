//! All ciphers at once: a suite for each service, all of them under load in one daemon.

use super::figures::{Case, Figures, SCHEDULES};
use super::measurement::Row;
use super::{HEADERS, UNDER_WAY};
use crate::experiment::sources::octeon;
use crate::load::PATIENCE;
use crate::load::datagrams::{Flow, Pace};
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::site::{Net, Site};
use crate::statistics::Spread;
use crate::table::Table;
use serde::Serialize;
use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The traffic that a cipher carried beside all others.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Mixed {
    pub round: usize,
    pub schedule: &'static str,
    pub workers: usize,
    pub cipher: &'static str,
    pub length: usize,
    /// Delivered in both directions together, in a second.
    pub beside_others_per_second: f64,
}

/// Sends packets of one length through the tunnels of all ciphers in both directions at once; packets a second of each.
pub(super) fn measure(
    site: &Site,
    nets: &[Net],
    length: usize,
    [settle, lasting]: [Duration; 2],
) -> Result<Vec<(&'static str, f64)>, String> {
    let pace = Pace::UnderWay((UNDER_WAY / nets.len().max(1) as u64).max(8));
    let flow = |net: &Net, from: usize, to: usize| {
        let ends = [from, to].map(|end| site.end(end, Ipv4Addr::UNSPECIFIED));
        Flow::start(ends[0], ends[1], &net.addresses(to), length - HEADERS, pace)
    };
    let flows = nets
        .iter()
        .map(|net| Ok([flow(net, 0, 1)?, flow(net, 1, 0)?]))
        .collect::<Result<Vec<[Flow; 2]>, String>>()?;
    let arrived = || -> Vec<u64> {
        flows.iter().map(|pair| pair.iter().map(|flow| flow.count().received).sum()).collect()
    };
    sleep(settle);
    let (before, begun) = (arrived(), Instant::now());
    sleep(lasting);
    let mut after = arrived();
    // On a busy host, nothing of one of them may have arrived yet.
    while before.iter().zip(&after).any(|(b, a)| a == b) && begun.elapsed() < PATIENCE {
        sleep(Duration::from_millis(5));
        after = arrived();
    }
    let seconds = begun.elapsed().as_secs_f64();
    flows.iter().flatten().for_each(Flow::stop);
    for flow in flows.into_iter().flatten() {
        flow.finish()?;
    }
    let rate = |((net, before), after): ((&Net, &u64), &u64)| match after - before {
        0 => Err(format!("no packet of {} arrived beside the others", net.cipher.name)),
        packets => Ok((net.cipher.name, packets as f64 / seconds)),
    };
    nets.iter().zip(&before).zip(&after).map(rate).collect()
}

pub(super) fn write(report: &mut Report, figures: &Figures<'_>, rows: &[Mixed]) {
    let Some(first) = rows.first() else { return };
    let (length, workers) = (first.length, first.workers);
    let rate = |cipher: &str, schedule: &str| {
        let fits = |row: &&Mixed| row.cipher == cipher && row.schedule == schedule;
        Spread::of(rows.iter().filter(fits).map(|row| row.beside_others_per_second))
    };
    let alone = |cipher: &'static str, schedule| {
        let case = Case { cipher, schedule, workers, length };
        figures.spread(case, |row: &Row| row.packets_per_second)
    };
    report.section("All ciphers at once");
    let bars = |schedule: &'static str, dashed: bool| Series {
        name: schedule.to_owned(),
        style: Style { colour: usize::from(dashed), dashed },
        points: (0_u8..)
            .zip(figures.ciphers)
            .filter_map(|(at, c)| Some((f64::from(at), rate(c.name, schedule)?)))
            .collect(),
    };
    report.plot(
        "mixed",
        &Plot {
            title: format!("All ciphers at once, {length} octets"),
            quote: octeon::SERVICES.to_string(),
            panels: vec![Panel {
                caption: String::new(),
                x: Axis::groups("cipher", figures.ciphers.iter().map(|cipher| cipher.name)),
                y: Axis::linear("packets/s beside all others"),
                series: SCHEDULES.into_iter().map(|(name, dashed)| bars(name, dashed)).collect(),
                mark: None,
            }],
            columns: 1,
        },
    );
    let mut table = Table::new([
        "cipher",
        "schedule",
        "alone, packets/s",
        "beside all others",
        "share of its own rate",
    ]);
    let show = |spread: Option<Spread>| spread.map_or_else(|| "–".to_owned(), |s| s.show(0));
    // Of its own rate in the same round, in percent.
    let share = |cipher: &'static str, schedule: &'static str, round: usize| {
        let case = Case { cipher, schedule, workers, length };
        let fits =
            |row: &&Mixed| (row.cipher, row.schedule, row.round) == (cipher, schedule, round);
        let beside = rows.iter().find(fits)?.beside_others_per_second;
        Some(100.0 * beside / figures.packets_per_second(case, round)?)
    };
    let mut rounds: Vec<usize> = rows.iter().map(|row| row.round).collect();
    rounds.sort_unstable();
    rounds.dedup();
    let mut sums = Vec::new();
    for (schedule, _) in SCHEDULES {
        for cipher in figures.ciphers {
            let shares = rounds.iter().filter_map(|round| share(cipher.name, schedule, *round));
            table.row([
                cipher.name.to_owned(),
                schedule.to_owned(),
                show(alone(cipher.name, schedule)),
                show(rate(cipher.name, schedule)),
                format!("{} %", show(Spread::of(shares))),
            ]);
        }
        let sum = |round: &usize| -> Option<f64> {
            figures.ciphers.iter().map(|cipher| share(cipher.name, schedule, *round)).sum()
        };
        let sum = Spread::of(rounds.iter().filter_map(sum));
        sums.push(format!("{} % with {schedule}", show(sum)));
    }
    report.table(&table);
    report.say(format!(
        "The tunnels of all {} ciphers are under load at once, in both directions, in one daemon at each end. The shares of a \
         round add up to {}: 100 % means that many suites at once cost nothing by themselves; where the rounds lie on both sides \
         of it, no cost is shown.",
        figures.ciphers.len(),
        sums.join(" and "),
    ));
}

#[cfg(test)]
mod tests {
    use super::super::measurement::{CBC, COMPLETION, GCM};
    use super::*;

    #[test]
    fn shares_are_of_the_same_round() {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for (round, factor) in [1.0, 3.0].into_iter().enumerate() {
            for cipher in [GCM.name, CBC.name] {
                alone.push(Row {
                    round,
                    schedule: COMPLETION,
                    workers: 2,
                    cipher,
                    length: 512,
                    packets_per_second: 1000.0 * factor,
                    ..Row::default()
                });
                let beside_others_per_second = 500.0 * factor;
                let schedule = COMPLETION;
                beside.push(Mixed {
                    round,
                    schedule,
                    workers: 2,
                    cipher,
                    length: 512,
                    beside_others_per_second,
                });
            }
        }
        let ciphers = [GCM, CBC];
        let figures =
            Figures { rows: &alone, lengths: &[512], ciphers: &ciphers, workers: &[1, 2] };
        let mut report = Report::new("Title");
        write(&mut report, &figures, &beside);
        let row = "| AES-128-GCM | run-to-completion | 2000 (1000–3000) | 1000 (500–1500) | 50 (50–50) % |";
        assert!(report.text().contains(row), "{}", report.text());
        let sum = "add up to 100 (100–100) % with run-to-completion and – % with pipeline";
        assert!(report.text().contains(sum), "{}", report.text());
    }
}
