//! Answers of the document's sizes, each on a connection of its own: throughput and cost by size.

use super::super::sources::system_z;
use super::{Figures, Row, State};
use crate::load::transactions::Workload;
use crate::plot::{Axis, Panel, Plot, Scale, Series};
use crate::report::Report;
use crate::statistics::Spread;
use crate::table::Table;

/// Connections at a time: enough to keep both hosts busy, and few enough that the slowest ends some while it is measured.
pub(super) const CONNECTIONS: usize = 4;

const fn of(name: &'static str, response: usize) -> Workload {
    Workload { name, like: "", request: 40, response, connects: true }
}

/// The document's sizes of data; 40 octets are there to see what the handshake costs.
pub(super) const SIZES: [Workload; 5] = [
    of("40 B", 40),
    of("20 KB", 20_000),
    of("250 KB", 250_000),
    of("500 KB", 500_000),
    of("1 MB", 1_000_000),
];

fn mbits(row: &Row, size: &Workload) -> f64 {
    row.rate() * size.response as f64 * 8.0 / 1e6
}

pub(super) fn write(
    report: &mut Report,
    figures: &Figures<'_>,
    states: &[State],
    sizes: &[Workload],
) {
    report.section("By size of the data");
    let throughput = |state: &str, size: &Workload| {
        figures.spread(state, size.name, CONNECTIONS, |row| mbits(row, size))
    };
    let cost =
        |state: &str, size: &Workload| figures.normalised(state, size.name, CONNECTIONS, Row::cost);
    let panel = |y: Axis, of: &dyn Fn(&str, &Workload) -> Option<Spread>| Panel {
        caption: String::new(),
        x: Axis {
            label: "octets of an answer (KB)".to_owned(),
            scale: Scale::Steps(sizes.iter().map(kilobytes).collect()),
        },
        y,
        series: states
            .iter()
            .map(|state| Series {
                name: state.name.to_owned(),
                style: state.style,
                points: sizes
                    .iter()
                    .filter_map(|s| Some((kilobytes(s), of(state.name, s)?)))
                    .collect(),
            })
            .collect(),
        mark: None,
    };
    report.plot(
        "sizes",
        &Plot {
            title: "Throughput and CPU cost by size of the data".to_owned(),
            quote: system_z::SSL.to_string(),
            panels: vec![
                panel(Axis::logarithmic("throughput (Mbit/s)"), &throughput),
                panel(Axis::logarithmic("CPU per answer (1 = no IPsec)"), &cost),
            ],
            columns: 2,
        },
    );
    let mut table = Table::new([
        "size",
        "state",
        "answers/s",
        "Mbit/s",
        "÷ no IPsec",
        "CPU µs",
        "CPU ÷ no IPsec",
    ]);
    for size in sizes {
        let rate = |row: &Row| row.rate();
        for State { name, .. } in states {
            let of = |figure: &dyn Fn(&Row) -> f64, digits| {
                let spread = figures.spread(name, size.name, CONNECTIONS, figure);
                spread.map_or_else(|| "–".to_owned(), |spread| spread.show(digits))
            };
            let by = |spread: Option<Spread>| {
                spread.map_or_else(|| "–".to_owned(), |spread| format!("{:.2}", spread.median))
            };
            table.row([
                size.name.to_owned(),
                (*name).to_owned(),
                of(&rate, 0),
                of(&|row| mbits(row, size), if size.response < 1_000 { 1 } else { 0 }),
                by(figures.normalised(name, size.name, CONNECTIONS, rate)),
                of(&Row::cost, 0),
                by(cost(name, size)),
            ]);
        }
    }
    report.table(&table);
    let highest = |ratio: &dyn Fn(&Workload) -> Option<f64>| {
        sizes.iter().filter_map(ratio).fold(0.0, f64::max)
    };
    let median = |spread: Option<Spread>| spread.map(|spread| spread.median);
    let gain = |family: &str| {
        let [on, off] = ["accelerated", "portable"].map(|how| format!("{family}, {how}"));
        highest(&|size| Some(median(throughput(&on, size))? / median(throughput(&off, size))?))
    };
    let dear = |family: &str| {
        let [off, on] = ["portable", "accelerated"].map(|how| format!("{family}, {how}"));
        highest(&|size| Some(median(cost(&off, size))? / median(cost(&on, size))?))
    };
    report.say(format!(
        "A client asks with 40 octets, {CONNECTIONS} at a time, each on a connection of its own through a tunnel that is up \
         already, unlike the document's SSL session, whose handshakes are part of its figure; the experiment `handshakes` \
         measures the cost of setting up a tunnel. Software takes up to {:.1} times the CPU of the instructions with CBC and \
         {:.1} times with GCM. The instructions alone make the throughput up to {:.1} times that of software with CBC and {:.1} \
         times with GCM. {}",
        dear("CBC"),
        dear("GCM"),
        gain("CBC"),
        gain("GCM"),
        system_z::SSL,
    ));
}

/// The size of an answer.
fn kilobytes(size: &Workload) -> f64 {
    size.response as f64 / 1e3
}
