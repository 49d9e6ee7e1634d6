//! The report of the figures.

use crate::Row;
use crate::subject::Kind;
use crate::wire::Placement;
use lab::machine::Machine;
use lab::plot::{Axis, Panel, Plot, Series, Style};
use lab::report::Report;
use lab::statistics::Spread;
use lab::table::Table;
use std::path::Path;

const PLACEMENTS: [Placement; 2] = [Placement::Scheduler, Placement::CoreEach];
const STYLES: [Style; 5] =
    [Style::solid(0), Style::dashed(0), Style::solid(6), Style::solid(3), Style::solid(2)];

type Figure = fn(&Row) -> Option<f64>;

/// Head of a column, digits behind the point, divisor, figure.
const COLUMNS: [(&str, usize, f64, Figure); 7] = [
    ("out Gbit/s", 2, 1e3, |row| Some(row.out)),
    ("in Gbit/s", 2, 1e3, |row| Some(row.back)),
    ("CPU s/GB", 2, 1.0, |row| Some(row.cpu)),
    ("all connections Gbit/s", 2, 1e3, |row| Some(row.many)),
    ("slowest ÷ median", 2, 1.0, |row| Some(row.fair)),
    ("KB for a connection", 0, 1e3, |row| row.memory),
    ("round trip µs", 0, 1.0, |row| Some(row.trip)),
];

fn spread(rows: &[Row], way: Kind, placement: Placement, figure: Figure) -> Option<Spread> {
    let fits = |row: &&Row| row.way == way.name() && row.placement == placement;
    Spread::of(rows.iter().filter(fits).filter_map(figure))
}

/// A figure by that of another way, round by round.
fn ratio(rows: &[Row], by: Kind, placement: Placement, figure: Figure) -> Option<Spread> {
    let of = |way: Kind| {
        rows.iter().filter(move |row| row.way == way.name() && row.placement == placement)
    };
    Spread::of(of(Kind::Inside).filter_map(|row| {
        let other = of(by).find(|other| other.round == row.round)?;
        Some(figure(row)? / figure(other)?)
    }))
}

/// The report.
pub fn report(rows: &[Row], ways: &[Kind], absent: &[String], connections: usize) -> Report {
    let mut report = Report::new("Sockets over tunnels");
    report.say(format!(
        "A program on the left host has TCP connections through a tunnel to a server behind the right gateway; two \
         namespaces and a veth pair that passes super-packets. *vpn, in the process* is the library: gateway, TCP and \
         program are one process without a device, a route or a privilege. *vpnd proxy*, *onetun* (boringtun and \
         smoltcp) and *wireguard-go, netstack* (with gVisor's TCP) forward a port of the left host, over whose loopback \
         device the program reaches them. *vpnd, TUN device* is the daemon; the program uses the host's TCP. The right \
         gateway is `vpnd` with a TUN device for those of IPsec (AES-128-GCM in UDP), and Tailscale's wireguard-go for \
         those of WireGuard (ChaCha20-Poly1305). Each figure is the median (lowest to highest) of the rounds, in which all \
         take turns. CPU is that of both ends' programs; of a gateway in the process with the program's own. The last \
         three columns but one are of {connections} connections that send at once."
    ));
    for why in absent {
        report.say(format!("Left out: {why}."));
    }
    let panel = |caption: &str, label: &str, unit: f64, figure: Figure| Panel {
        caption: caption.to_owned(),
        x: Axis::groups("where both ends run", PLACEMENTS.map(|placement| placement.to_string())),
        y: Axis::linear(label),
        series: (ways.iter().zip(STYLES))
            .map(|(way, style)| Series {
                name: way.name().to_owned(),
                style,
                points: (0_u8..)
                    .zip(PLACEMENTS)
                    .filter_map(|(at, placement)| {
                        let spread = spread(rows, *way, placement, figure)?;
                        Some((f64::from(at), spread.times(1.0 / unit)))
                    })
                    .collect(),
            })
            .collect(),
        mark: None,
    };
    report.plot(
        "throughput",
        &Plot {
            title: "One connection".to_owned(),
            quote: "From the program to the server, and back.".to_owned(),
            panels: vec![
                panel("out", "throughput (Gbit/s)", 1e3, |row| Some(row.out)),
                panel("in", "throughput (Gbit/s)", 1e3, |row| Some(row.back)),
            ],
            columns: 2,
        },
    );
    let show = |by: Kind, figure: Figure| {
        ratio(rows, by, Placement::Scheduler, figure)
            .map_or_else(|| "not measured".to_owned(), |ratio| ratio.show_ratio(2))
    };
    let said = |by: Kind| {
        let [out, back] = [show(by, |row| Some(row.out)), show(by, |row| Some(row.back))];
        format!("{}: {out} and {back}", by.name())
    };
    report.headline(format!(
        "One connection of the library, out and in, by that of others, left to the scheduler: {}.",
        [Kind::OneTun, Kind::Netstack, Kind::Tun, Kind::Proxy].map(said).join("; ")
    ));
    for placement in PLACEMENTS {
        let mut name = placement.to_string();
        name[..1].make_ascii_uppercase();
        report.section(&name);
        let heads = ["way".to_owned()].into_iter();
        let mut table = Table::new(heads.chain(COLUMNS.map(|column| column.0.to_owned())));
        for way in ways {
            let cells = COLUMNS.map(|(_, digits, unit, figure)| {
                let spread = spread(rows, *way, placement, figure);
                spread.map_or_else(|| "–".to_owned(), |s| s.times(1.0 / unit).show(digits))
            });
            table.row([way.name().to_owned()].into_iter().chain(cells));
        }
        report.table(&table);
    }
    report.data(rows);
    report
}

/// Writes it.
pub fn write(report: &Report, directory: &Path) -> Result<(), String> {
    let how = "cargo bench --bench sockets";
    let path = report.write(directory, &Machine::look(), how)?;
    println!("{}{}", report.summary(), path.display());
    Ok(())
}
