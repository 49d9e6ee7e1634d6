//! The report about the figures.

use super::{
    ALL_UNDER_WAY, BARE, BUILD, Case, Figures, LARGE, ON, State, Traffic, UNDER_WAY, alone, null_of,
};
use crate::experiment::lab::Lab;
use crate::experiment::software;
use crate::experiment::sources::ipfire;
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::statistics::Spread;
use crate::table::Table;

pub(super) fn write(report: &mut Report, lab: &Lab, figures: &Figures<'_>, rounds: &str) {
    let cores = lab.machine.cores;
    report.say(format!(
        "The document, a page of IPFire, summarises a white paper of Intel of 2010 and measures nothing itself. The paper limited \
         a kernel to one processor: without acceleration, with AES-128-GCM by AES-NI and PCLMULQDQ, and with the cipher NULL, \
         which shows what everything else allows. With twelve connections and six cores it compared AES-128-GCM and NULL. Here both hosts, generator and sink share the {cores} cores of one machine; *one processor* is \
         one worker in each `vpnd`. As many datagrams are sent as arrive: {UNDER_WAY} of each tunnel are under way, and \
         {ALL_UNDER_WAY} of all tunnels at most. {rounds}",
    ));
    report.say(match figures.states.iter().any(|state| state.bare) {
        true => "*NULL, no integrity* is a build of `vpnd` whose AES-GCM only copies (`insecure-null-cipher`). The other \
                 two NULLs are what peers can agree on: no secrecy, but every packet authenticated."
            .to_owned(),
        false => format!(
            "The bare NULL was left out, because no such `vpnd` is there: in a checkout `{BUILD}` makes it. The other two NULLs \
             are what peers can agree on: no secrecy, but every packet authenticated.",
        ),
    });
    report.say(software::STATES);
    headline(report, figures);
    report.section("One tunnel, one worker, by size");
    let rate = |state: &State, size| figures.rate(state.name, alone(size)).map(|s| s.times(1e-3));
    let panel =
        |x: Axis, y: Axis, series| Panel { caption: String::new(), x, y, series, mark: None };
    let sizes = || Axis::steps("packet length (octets)", figures.sizes);
    report.plot(
        "sizes",
        &Plot {
            title: "Throughput of one tunnel by packet size".to_owned(),
            quote: ipfire::ONE_PROCESSOR.to_string(),
            panels: vec![panel(
                sizes(),
                Axis::linear("throughput (Gbit/s of packets)"),
                figures.lines(figures.states, figures.sizes, rate),
            )],
            columns: 1,
        },
    );
    let ratio = |state: &State, size| figures.ratio(state.name, alone(size));
    report.plot(
        "ratio",
        &Plot {
            title: "Throughput of AES-128-GCM relative to NULL, by packet size".to_owned(),
            quote: "One tunnel on one worker; the document has no such figure.".to_owned(),
            panels: vec![Panel {
                mark: Some((1.0, "as NULL".to_owned())),
                ..panel(
                    sizes(),
                    Axis::linear("throughput of AES-128-GCM ÷ NULL"),
                    figures.lines(&figures.nulls(), figures.sizes, ratio),
                )
            }],
            columns: 1,
        },
    );
    report.table(&table(figures));
    report.section("One to twelve tunnels, all cores");
    let numbers: Vec<usize> = figures.tunnels.iter().map(|n| usize::from(*n)).collect();
    let of = |state: &State, n: usize| {
        let tunnels = u8::try_from(n).unwrap_or(u8::MAX);
        let case = (Traffic::Datagrams(LARGE), tunnels, figures.most());
        figures.rate(state.name, case).map(|s| s.times(1e-3))
    };
    report.plot(
        "tunnels",
        &Plot {
            title: "Throughput by number of tunnels, as many workers as cores".to_owned(),
            quote: ipfire::TWELVE.to_string(),
            panels: vec![panel(
                Axis::steps("tunnels", &numbers),
                Axis::linear("throughput (Gbit/s of packets)"),
                figures.lines(figures.states, &numbers, of),
            )],
            columns: 1,
        },
    );
    let mut tunnels = Table::new(["tunnels".to_owned()].into_iter().chain(heads(figures)));
    for number in figures.tunnels {
        let case = (Traffic::Datagrams(LARGE), *number, figures.most());
        tunnels.row([number.to_string()].into_iter().chain(cells(figures, case)));
    }
    report.table(&tunnels);
    report.say(format!(
        "Datagrams of {LARGE} octets; Gbit/s of packets. Both ends, generator and sink have {cores} cores together, so that \
         further workers take from the traffic what they add to the tunnels; the white paper had six for one end. *{}* is the same \
         traffic on the wire between the hosts: as much as generator, sink and wire allow.",
        BARE.name,
    ));
    grid(report, figures);
}

/// Every number of tunnels with every number of workers.
fn grid(report: &mut Report, figures: &Figures<'_>) {
    report.section("Tunnels by workers");
    let null = null_of(figures.states);
    let numbers: Vec<usize> = figures.tunnels.iter().map(|n| usize::from(*n)).collect();
    let case = |n: usize, workers| {
        (Traffic::Datagrams(LARGE), u8::try_from(n).unwrap_or(u8::MAX), workers)
    };
    let panel = |label: &str, of: &dyn Fn(Case) -> Option<Spread>| Panel {
        caption: String::new(),
        x: Axis::steps("tunnels", &numbers),
        y: Axis::linear(label),
        series: figures
            .workers
            .iter()
            .enumerate()
            .map(|(colour, workers)| Series {
                name: format!("{workers} worker{}", if *workers == 1 { "" } else { "s" }),
                style: Style::solid(colour),
                points: numbers
                    .iter()
                    .filter_map(|n| Some((*n as f64, of(case(*n, *workers))?)))
                    .collect(),
            })
            .collect(),
        mark: None,
    };
    report.plot(
        "grid",
        &Plot {
            title: "AES-128-GCM by number of tunnels and workers".to_owned(),
            quote: format!("{} {}", ipfire::ONE_PROCESSOR, ipfire::TWELVE),
            panels: vec![
                panel("throughput (Gbit/s of packets)", &|case| {
                    figures.rate(ON.name, case).map(|s| s.times(1e-3))
                }),
                Panel {
                    mark: Some((1.0, "as NULL".to_owned())),
                    ..panel("throughput of AES-128-GCM ÷ NULL", &|case| figures.ratio(null, case))
                },
            ],
            columns: 2,
        },
    );
    let mut table = Table::new([
        "tunnels".to_owned(),
        "workers".to_owned(),
        format!("{}, Gbit/s", ON.name),
        format!("{null}, Gbit/s"),
        format!("GCM / {null}"),
    ]);
    for &workers in figures.workers {
        for &n in &numbers {
            let case = case(n, workers);
            let rate = |state| show(figures.rate(state, case).map(|s| s.times(1e-3)));
            let ratio = figures.ratio(null, case).map_or("–".into(), |s| s.show_ratio(2));
            table.row([n.to_string(), workers.to_string(), rate(ON.name), rate(null), ratio]);
        }
    }
    report.table(&table);
    let list =
        |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    report.say(format!(
        "Measured are {} tunnels, each with {} workers in each `vpnd`: one, half as many as cores, and as many. With fewer \
         workers than cores only AES-128-GCM and {null} were measured.",
        list(&numbers),
        list(figures.workers),
    ));
}

/// The document compares GCM with NULL on all cores; one tunnel on one worker is beside it.
fn headline(report: &mut Report, figures: &Figures<'_>) {
    let null = null_of(figures.states);
    let Some(&most) = figures.tunnels.last() else { return };
    let Some(&largest) = figures.sizes.last() else { return };
    let ratio = |case| figures.ratio(null, case);
    let (Some(many), Some(one), Some(stream)) = (
        ratio((Traffic::Datagrams(LARGE), most, figures.most())),
        ratio(alone(largest)),
        ratio((Traffic::Stream, 1, 1)),
    ) else {
        return;
    };
    let of_wire = figures.ratio(BARE.name, (Traffic::Datagrams(LARGE), most, figures.most()));
    let of_wire = of_wire.map(|share| {
        format!(
            " This is {} % of the packets that the wire carries here without IPsec.",
            share.times(100.0).show(0),
        )
    });
    report.headline(format!(
        "Throughput of AES-128-GCM relative to {null}, with {most} tunnels on all cores: **{}**.{} {} One tunnel on one worker: \
         {} with datagrams of {largest} octets, and {} with a stream of TCP. A stream passes as super-packets. They make \
         everything but the cipher so cheap that the cost of the cipher shows. A datagram costs system calls of its own, which \
         take much longer than AES-GCM.",
        many.show_ratio(2),
        of_wire.unwrap_or_default(),
        ipfire::TWELVE,
        one.show_ratio(2),
        stream.show_ratio(2),
    ));
}

fn heads(figures: &Figures<'_>) -> Vec<String> {
    let rates = figures.states.iter().map(|state| format!("{}, Gbit/s", state.name));
    let others = compared(figures);
    rates.chain(others.iter().map(|state| format!("GCM / {}", state.name))).collect()
}

fn cells(figures: &Figures<'_>, case: Case) -> Vec<String> {
    let rates =
        figures.states.iter().map(|s| show(figures.rate(s.name, case).map(|s| s.times(1e-3))));
    let ratio = |state: &State| figures.ratio(state.name, case);
    let ratios = compared(figures);
    let ratios = ratios.iter().map(|s| ratio(s).map_or("–".into(), |s| s.show_ratio(2)));
    rates.chain(ratios).collect()
}

fn show(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "–".to_owned(), |spread| spread.show(2))
}

/// The NULLs, and the traffic without IPsec.
fn compared(figures: &Figures<'_>) -> Vec<State> {
    figures.nulls().into_iter().chain([BARE]).collect()
}

pub(super) fn table(figures: &Figures<'_>) -> Table {
    let heads = heads(figures);
    let mut table = Table::new(["traffic".to_owned()].into_iter().chain(heads));
    let datagrams = figures.sizes.iter().map(|size| (format!("UDP, {size} octets"), alone(*size)));
    for (name, case) in datagrams.chain([("TCP".to_owned(), (Traffic::Stream, 1, 1))]) {
        table.row([name].into_iter().chain(cells(figures, case)));
    }
    table
}
