//! The report of the figures.

use crate::Row;
use crate::subject::Kind;
use benchkit::Placement;
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
const COLUMNS: [(&str, usize, f64, Figure); 9] = [
    ("out Gbit/s", 2, 1e3, |row| row.out),
    ("in Gbit/s", 2, 1e3, |row| row.back),
    ("CPU s/GB", 2, 1.0, |row| row.cpu),
    ("round trip µs", 0, 1.0, |row| row.trip),
    ("connections", 0, 1.0, |row| row.open.map(|open| open as f64)),
    ("all Gbit/s", 2, 1e3, |row| row.many),
    ("slowest ÷ median", 2, 1.0, |row| row.fair),
    ("idle KB", 0, 1e3, |row| row.idle),
    ("busy KB", 0, 1e3, |row| row.memory),
];

/// The figures that have a target: that of the library by that of another way, or alone.
const TARGETS: [(&str, Option<Kind>, Figure, Bound); 9] = [
    ("one stream out, by that of onetun", Some(Kind::OneTun), |row| row.out, Bound::Least(3.0)),
    ("one stream in, by that of onetun", Some(Kind::OneTun), |row| row.back, Bound::Least(3.0)),
    ("one stream out, by that of netstack", Some(Kind::Netstack), |row| row.out, Bound::Least(1.0)),
    ("one stream in, by that of netstack", Some(Kind::Netstack), |row| row.back, Bound::Least(1.0)),
    (
        "one stream out, by that of the TUN device",
        Some(Kind::Tun),
        |row| row.out,
        Bound::Least(0.5),
    ),
    (
        "one stream in, by that of the TUN device",
        Some(Kind::Tun),
        |row| row.back,
        Bound::Least(0.5),
    ),
    (
        "idle round trip, by that of the TUN device",
        Some(Kind::Tun),
        |row| row.trip,
        Bound::Most(1.0),
    ),
    ("many connections: slowest ÷ median", None, |row| row.fair, Bound::Least(0.5)),
    ("many connections: all together, by one", None, |row| Some(row.many? / row.out?), Bound::None),
];

/// The limit of a target.
#[derive(Clone, Copy)]
enum Bound {
    Least(f64),
    Most(f64),
    None,
}

impl Bound {
    /// The limit as a text, and whether a median keeps it.
    fn judge(self, median: f64) -> [String; 2] {
        let told = |kept: bool| if kept { "yes" } else { "**no**" }.to_owned();
        match self {
            Self::Least(least) => [format!("at least {least}"), told(median >= least)],
            Self::Most(most) => [format!("at most {most}"), told(median <= most)],
            Self::None => ["–".to_owned(), "–".to_owned()],
        }
    }
}

fn spread(rows: &[Row], way: Kind, placement: Placement, figure: Figure) -> Option<Spread> {
    let fits = |row: &&Row| row.way == way.name() && row.placement == placement;
    Spread::of(rows.iter().filter(fits).filter_map(figure))
}

/// A figure of the library in each round, by that of another way in the same round where one is named.
fn compared(
    rows: &[Row],
    by: Option<Kind>,
    placement: Placement,
    figure: Figure,
) -> Option<Spread> {
    let of = |way: Kind| {
        rows.iter().filter(move |row| row.way == way.name() && row.placement == placement)
    };
    Spread::of(of(Kind::Inside).filter_map(|row| {
        let Some(by) = by else { return figure(row) };
        let other = of(by).find(|other| other.round == row.round)?;
        Some(figure(row)? / figure(other)?)
    }))
}

/// The report.
pub fn report(rows: &[Row], ways: &[Kind], absent: &[String], connections: usize) -> Report {
    let mut report = Report::new("Sockets over tunnels");
    report.say(
        "A program on the left host has TCP connections through a tunnel to a server behind the right gateway; two \
         namespaces and a veth pair that passes super-packets. *vpn, in the process* is the library: gateway, TCP and \
         program are one process without a device, a route or a privilege. *vpnd proxy*, *onetun* (boringtun and \
         smoltcp) and *wireguard-go, netstack* (with gVisor's TCP) forward a port of the left host, over whose loopback \
         device the program reaches them. *vpnd, TUN device* is the daemon; the program uses the host's TCP. The right \
         gateway is `vpnd` with a TUN device for those of IPsec (AES-128-GCM in UDP), and Tailscale's wireguard-go for \
         those of WireGuard (ChaCha20-Poly1305). Each figure is the median (lowest to highest) of the rounds, in which all \
         take turns. CPU is that of both ends' programs; of a gateway in the process with the program's own. A round trip \
         is that of one octet every 2 ms.",
    );
    report.say(format!(
        "The last five columns are of {connections} connections that one program opens, and that send at once, as much as \
         they can: how many come about within 10 s, their throughput together, the octets of the slowest by those of the \
         one in the middle in the same time, and the memory of the left end's program for each connection, before its \
         traffic and with it. The kernel, which has the connections of *vpnd, TUN device*, does not tell theirs. Its own \
         buffers, at the server and of the connections to programs that forward, have at most 512 KiB each meanwhile \
         (`tcp_rmem`, `tcp_wmem`): otherwise they take all of its memory for TCP (`tcp_mem`), and every connection of the \
         machine slows down."
    ));
    for why in absent {
        let mut lines = why.lines();
        report.say(format!("Left out: {}.", lines.next().unwrap_or_default()));
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
    let all = format!("{connections} streams from the client together");
    report.plot(
        "throughput",
        &Plot {
            title: "TCP throughput and round trips through sockets over a tunnel".to_owned(),
            quote: "The program is the client.".to_owned(),
            panels: vec![
                panel("one stream from the client", "throughput (Gbit/s)", 1e3, |row| row.out),
                panel("one stream to the client", "throughput (Gbit/s)", 1e3, |row| row.back),
                panel(&all, "throughput (Gbit/s)", 1e3, |row| row.many),
                panel("round trip through an idle tunnel", "µs", 1.0, |row| row.trip),
            ],
            columns: 2,
        },
    );
    let show = |by: Kind, figure: Figure| {
        compared(rows, Some(by), Placement::Scheduler, figure)
            .map_or_else(|| "not measured".to_owned(), |ratio| ratio.show_ratio(2))
    };
    let said = |by: Kind| {
        let [out, back] = [show(by, |row| row.out), show(by, |row| row.back)];
        format!("{}: {out} and {back}", by.name())
    };
    report.headline(format!(
        "One connection of the library, out and in, by that of others, left to the scheduler: {}.",
        [Kind::OneTun, Kind::Netstack, Kind::Tun, Kind::Proxy].map(said).join("; ")
    ));
    report.section("Measured against targets");
    let heads = ["the library", "target", "left to the scheduler", "", "a core for each end", ""];
    let mut table = Table::new(heads.map(str::to_owned));
    for (what, by, figure, bound) in TARGETS {
        let judged = PLACEMENTS.map(|placement| {
            let found = compared(rows, by, placement, figure);
            let kept = found.map(|spread| bound.judge(spread.median)[1].clone());
            [found.map(|spread| spread.show(2)), kept].map(|cell| cell.unwrap_or("–".to_owned()))
        });
        let cells = [what.to_owned(), bound.judge(0.0)[0].clone()].into_iter();
        table.row(cells.chain(judged.into_iter().flatten()));
    }
    report.table(&table);
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
