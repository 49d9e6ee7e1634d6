//! The report of the figures, as a document.

use crate::goals;
use crate::measure::Row;
use crate::pictures;
use crate::plan::Part;
use crate::record::Record;
use crate::vpn::Vpn;
use benchkit::{Placement, Wire};
use lab::table::Table;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const INTRODUCTION: &str = "# Tunnels

This page compares `vpnd` with other VPNs in userspace. A tunnel leads from one network namespace to another on the same machine, which also
runs the programs that send and receive. `cargo bench --bench tunnel -- --write` writes this page; the figures of all rounds are
in [tunnel.json](tunnel.json).
";

const EXPLANATION: &str = "Each figure is the median (lowest–highest) of the rounds, in which the VPNs take turns. Unless a row says otherwise, IPsec uses AES-128-GCM
in tunnel mode and UDP; WireGuard uses ChaCha20-Poly1305, OpenVPN AES-256-GCM. The wire is a veth pair, which passes
super-packets. For single packets, tso, gso, gro and tx-udp-segmentation are off at both its ends.

- CPU: CPU seconds of both ends' VPN processes for each gigabyte of one stream.
- UDP: thousands of datagrams per second, at the highest rate at which less than 1 % is lost or still under way 20 ms after the
  last was sent. The number of octets is the payload.
- Ping: ICMP echoes every 2 ms, through the idle tunnel (in five times as many rounds of half the length) and next to one TCP stream.
- Memory: both ends' resident anonymous memory after one stream.
";

const ADDRESSES: &str = "Each row sends datagrams to the same addresses in turn; there are as many addresses as SAs in the last row. One SA covers all of
them, or each SA covers its share. A round's figure is the median of three searches for the highest rate. TCP: one stream through
one SA, while the others are installed.
";

/// The document.
pub fn text(record: &Record, vpns: &[Vpn]) -> String {
    let figures = Figures(&record.rows);
    let standings = goals::standings(&figures, vpns, &record.packets);
    let pictures = pictures::all(&figures, vpns, &standings);
    let picture = |name: &str| {
        let found = pictures.iter().find(|picture| picture.name == name);
        found.map_or(String::new(), |p| format!("![{}]({name}.svg)\n\n", p.plot.title))
    };
    let mut text = format!("{INTRODUCTION}\n{}\n{}", record.machine, notes(record));
    let _ = writeln!(text, "## Measured against targets\n\n{}", goals::table(&standings));
    text += &picture("tunnel-goals");
    for wire in [Wire::SuperPackets, Wire::Packets] {
        for placement in [Placement::Scheduler, Placement::CoreEach] {
            let Some(table) = figures.table(vpns, wire, placement, false) else { continue };
            let _ = writeln!(text, "## On the wire {wire}, {placement}\n");
            if (wire, placement) == (Wire::SuperPackets, Placement::Scheduler) {
                text += &picture("tunnel-tcp");
                text += &["tunnel-cost", "tunnel-udp", "tunnel-rtt"].map(picture).concat();
            }
            let _ = writeln!(text, "{table}");
        }
    }
    if let Some(many) = figures.table(vpns, Wire::SuperPackets, Placement::Scheduler, true) {
        let picture = picture("tunnel-sas");
        let _ = writeln!(text, "## Very many SAs\n\n{picture}{many}\n{ADDRESSES}");
    }
    let _ = writeln!(text, "## How it is measured\n\n{EXPLANATION}");
    text.trim_end().to_owned() + "\n"
}

fn notes(record: &Record) -> String {
    let minutes = record.seconds / 60.0;
    let others = record.others * 100.0;
    let mut text = format!(
        "It took {minutes:.0} minutes, in which other programs and the kernel's threads had {others:.0} % of the processors.\n\n"
    );
    for why in &record.absent {
        let _ = writeln!(text, "Left out: {why}.\n");
    }
    text
}

/// Puts the document, the figures and their pictures there.
pub fn write(directory: &Path, record: &Record, vpns: &[Vpn]) -> Result<(), String> {
    let figures = Figures(&record.rows);
    let standings = goals::standings(&figures, vpns, &record.packets);
    let pictures = pictures::all(&figures, vpns, &standings).into_iter();
    let pictures = pictures.map(|picture| (format!("{}.svg", picture.name), picture.plot.svg()));
    let texts = [("tunnel.md", text(record, vpns)), ("tunnel.json", record.json())];
    let texts = texts.map(|(name, text)| (name.to_owned(), text));
    texts.into_iter().chain(pictures).try_for_each(|(name, text)| {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    })
}

/// Columns: figure, head, digits behind the point, and divisor.
const COLUMNS: [(&str, &str, usize, f64); 13] = [
    ("tcp1", "TCP 1 Gbit/s", 2, 1e3),
    ("tcp4", "TCP 4 Gbit/s", 2, 1e3),
    ("both", "both ways Gbit/s", 2, 1e3),
    ("cpu", "CPU s/GB", 2, 1.0),
    ("spread", "UDP 1300 to all addresses kpps", 0, 1e3),
    ("udp64", "UDP 64 kpps", 0, 1e3),
    ("udp512", "UDP 512 kpps", 0, 1e3),
    ("udp1400", "UDP 1400 kpps", 0, 1e3),
    ("ping-p50", "ping p50 µs", 0, 1.0),
    ("ping-p99", "p99 µs", 0, 1.0),
    ("loaded-p50", "p50 under load µs", 0, 1.0),
    ("loaded-p99", "p99 under load µs", 0, 1.0),
    ("memory", "memory MB", 1, 1e3),
];

/// The lowest, the median and the highest.
pub fn spread(values: impl IntoIterator<Item = f64>) -> Option<[f64; 3]> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (*values.first()?, *values.last()?);
    let middle = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
    Some([low, middle, high])
}

/// All figures of all rounds.
pub struct Figures<'a>(pub &'a [Row]);

impl Figures<'_> {
    /// A figure with the rounds it was measured in.
    pub fn rounds(
        &self,
        vpn: &str,
        wire: Wire,
        placement: Placement,
        figure: &str,
    ) -> Vec<(u32, f64)> {
        let fits = |row: &&Row| {
            row.vpn == vpn && row.wire == wire && row.placement == placement && row.figure == figure
        };
        self.0.iter().filter(fits).map(|row| (row.round, row.value)).collect()
    }

    /// Lowest, median and highest of a figure.
    pub fn spread(
        &self,
        vpn: &str,
        wire: Wire,
        placement: Placement,
        figure: &str,
    ) -> Option<[f64; 3]> {
        let rounds = self.rounds(vpn, wire, placement, figure);
        spread(rounds.into_iter().map(|(_, value)| value))
    }

    /// The best of the competitors.
    pub fn best(
        &self,
        vpns: &[Vpn],
        wire: Wire,
        placement: Placement,
        figure: &str,
        less: bool,
    ) -> Option<String> {
        let found = vpns.iter().filter(|vpn| vpn.is_peer()).filter_map(|vpn| {
            Some((&vpn.name, self.spread(&vpn.name, wire, placement, figure)?[1]))
        });
        let best = match less {
            true => found.min_by(|a, b| a.1.total_cmp(&b.1)),
            false => found.max_by(|a, b| a.1.total_cmp(&b.1)),
        };
        best.map(|(name, _)| name.clone())
    }

    /// The figures over a wire in a placement, if there are any; of very many addresses or of one.
    pub fn table(
        &self,
        vpns: &[Vpn],
        wire: Wire,
        placement: Placement,
        addresses: bool,
    ) -> Option<Table> {
        let vpns: Vec<&Vpn> =
            vpns.iter().filter(|vpn| (vpn.part == Part::Addresses) == addresses).collect();
        let is_there = |(figure, ..): &&(&str, &str, usize, f64)| {
            vpns.iter().any(|vpn| self.spread(&vpn.name, wire, placement, figure).is_some())
        };
        let columns: Vec<_> = COLUMNS.iter().filter(is_there).collect();
        if columns.is_empty() {
            return None;
        }
        let heads: Vec<&str> = ["VPN"].into_iter().chain(columns.iter().map(|c| c.1)).collect();
        let mut table = Table::new(heads);
        for vpn in vpns {
            let cell = |column: &&(&str, &str, usize, f64)| {
                let &&(figure, _, digits, unit) = column;
                match self.spread(&vpn.name, wire, placement, figure) {
                    Some([low, median, high]) => format!(
                        "{:.digits$} ({:.digits$}–{:.digits$})",
                        median / unit,
                        low / unit,
                        high / unit,
                    ),
                    None => "–".into(),
                }
            };
            let cells: Vec<String> = columns.iter().map(cell).collect();
            if cells.iter().any(|cell| cell != "–") {
                table.row([vpn.name.clone()].into_iter().chain(cells));
            }
        }
        Some(table)
    }
}
