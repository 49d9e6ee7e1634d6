//! Answers of the document's sizes, each on a connection of its own: throughput and cost by size.

use super::super::sources::system_z;
use super::{
    CBC_LIBRARY, CBC_ON, CBC_PORTABLE, Figures, GCM_LIBRARY, GCM_ON, GCM_PORTABLE, NONE, Row, State,
};
use crate::load::transactions::Workload;
use crate::plot::{Axis, Panel, Plot, Scale, Series};
use crate::report::Report;
use crate::statistics::Spread;
use crate::table::Table;

/// Connections at a time: enough to keep both hosts busy, and few enough that the slowest ends some while it is
/// measured.
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

/// Software and instructions with the same cipher: the document's own comparison.
pub(super) const PAIRS: [[State; 2]; 4] =
    [[CBC_PORTABLE, CBC_ON], [GCM_PORTABLE, GCM_ON], [CBC_LIBRARY, CBC_ON], [GCM_LIBRARY, GCM_ON]];

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
    let ratio = |pair: [&str; 2], size: &Workload, of: fn(&Row) -> f64| {
        figures.ratio(pair, size.name, CONNECTIONS, of)
    };
    let series = |name: &str, style, of: &dyn Fn(&Workload) -> Option<Spread>| Series {
        name: name.to_owned(),
        style,
        points: sizes.iter().filter_map(|size| Some((kilobytes(size), of(size)?))).collect(),
    };
    let panel = |y: &str, series: Vec<Series>, mark| Panel {
        caption: String::new(),
        x: Axis {
            label: "octets of an answer (KB)".to_owned(),
            scale: Scale::Steps(sizes.iter().map(kilobytes).collect()),
        },
        y: Axis::logarithmic(y),
        series,
        mark,
    };
    let of_states = |of: &dyn Fn(&str, &Workload) -> Option<Spread>| -> Vec<Series> {
        states
            .iter()
            .map(|state| series(state.name, state.style, &|size| of(state.name, size)))
            .collect()
    };
    let cost_of_software = PAIRS.iter().map(|[off, on]| {
        let name = format!("{} ÷ on", off.name);
        series(&name, off.style, &|size| ratio([off.name, on.name], size, Row::cost))
    });
    // The document's own comparison first; it has nothing without encryption.
    report.plot(
        "sizes",
        &Plot {
            title: "Throughput and CPU cost by size of the data".to_owned(),
            quote: system_z::SSL.to_string(),
            panels: vec![
                panel("throughput (Mbit/s)", of_states(&throughput), None),
                panel(
                    "CPU per answer (1 = with instructions)",
                    cost_of_software.collect(),
                    Some((system_z::SSL_CPU, "the document: up to".to_owned())),
                ),
            ],
            columns: 2,
        },
    );
    report.plot(
        "sizes-without",
        &Plot {
            title: "CPU cost by size of the data, relative to no IPsec".to_owned(),
            quote: "The document encrypts in all states, so it has no such figure.".to_owned(),
            panels: vec![panel(
                "CPU per answer (1 = no IPsec)",
                of_states(&|state, size| ratio([state, NONE], size, Row::cost)),
                None,
            )],
            columns: 1,
        },
    );
    let mut table = Table::new([
        "size",
        "state",
        "answers/s",
        "Mbit/s",
        "CPU µs",
        "CPU of software ÷ instructions",
        "answers ÷ no IPsec",
        "CPU ÷ no IPsec",
    ]);
    for size in sizes {
        for State { name, .. } in states {
            let of = |figure: &dyn Fn(&Row) -> f64, digits| {
                let spread = figures.spread(name, size.name, CONNECTIONS, figure);
                spread.map_or_else(|| "–".to_owned(), |spread| spread.show(digits))
            };
            let by = |spread: Option<Spread>| {
                spread.map_or_else(|| "–".to_owned(), |spread| spread.show_ratio(2))
            };
            let pair = PAIRS.iter().find(|[off, _]| off.name == *name);
            let pair = pair.map(|[off, on]| [off.name, on.name]);
            table.row([
                size.name.to_owned(),
                (*name).to_owned(),
                of(&Row::rate, 0),
                of(&|row| mbits(row, size), if size.response < 1_000 { 1 } else { 0 }),
                of(&Row::cost, 0),
                by(pair.and_then(|pair| ratio(pair, size, Row::cost))),
                by(ratio([*name, NONE], size, Row::rate)),
                by(ratio([*name, NONE], size, Row::cost)),
            ]);
        }
    }
    report.table(&table);
    let highest = |pair: [&str; 2], of: fn(&Row) -> f64| {
        Spread::highest(sizes.iter().filter_map(|size| ratio(pair, size, of)))
    };
    let each = |of: &dyn Fn([&str; 2]) -> String| {
        let here = PAIRS.iter().filter(|[off, _]| off.cryptography.is_here());
        let each =
            here.map(|[off, on]| format!("{} times with *{}*", of([off.name, on.name]), off.name));
        each.collect::<Vec<_>>().join(", ")
    };
    report.say(format!(
        "A client asks with 40 octets, {CONNECTIONS} at a time, each on a connection of its own through a tunnel that is up \
         already, unlike the document's SSL session, whose handshakes are part of its figure; the experiment `handshakes` \
         measures the cost of setting up a tunnel. CPU of software relative to that of the instructions, in the dearest \
         case: {}. Throughput by the instructions alone relative to that of software, in the best case: {}. {}",
        each(&|pair| highest(pair, Row::cost)),
        each(&|[off, on]| highest([on, off], Row::rate)),
        system_z::SSL,
    ));
}

/// The size of an answer.
fn kilobytes(size: &Workload) -> f64 {
    size.response as f64 / 1e3
}
