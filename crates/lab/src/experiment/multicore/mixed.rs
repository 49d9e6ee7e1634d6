//! All ciphers at once: a suite for each service, all of them under load in one daemon.

use super::figures::{Case, Figures, SCHEDULES};
use super::measurement::Row;
use super::{HEADERS, UNDER_WAY};
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

/// What a cipher carried beside all others.
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
            quote: "The document supports several algorithms and services at once; it has no such figure.".to_owned(),
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
    let mut sums = Vec::new();
    for (schedule, _) in SCHEDULES {
        let mut sum = 0.0;
        for cipher in figures.ciphers {
            let (by_itself, beside) = (alone(cipher.name, schedule), rate(cipher.name, schedule));
            let share = by_itself.zip(beside).map_or(0.0, |(a, b)| b.median / a.median);
            sum += share;
            table.row([
                cipher.name.to_owned(),
                schedule.to_owned(),
                show(by_itself),
                show(beside),
                format!("{:.0} %", share * 100.0),
            ]);
        }
        sums.push(format!("{:.0} % with {schedule}", sum * 100.0));
    }
    report.table(&table);
    report.say(format!(
        "The tunnels of all {} ciphers are under load at once, in both directions, in one daemon at each end. The shares add up \
         to {}: 100 % means that many suites at once cost nothing by themselves.",
        figures.ciphers.len(),
        sums.join(" and "),
    ));
}
