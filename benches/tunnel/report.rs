//! What the figures say: tables, and how far the product is from where it is to be.

use crate::measure::Row;
use crate::table::Table;
use crate::vpn::{STRONGSWAN, TAILSCALE, VPND, VPND_NULL, Vpn};
use crate::wire::{Placement, Wire};
use std::fmt::Write as _;

/// Columns: figure, head, digits behind the point, and what it is divided by.
const COLUMNS: [(&str, &str, usize, f64); 11] = [
    ("tcp1", "TCP 1 Gbit/s", 2, 1e3),
    ("tcp4", "TCP 4 Gbit/s", 2, 1e3),
    ("both", "both ways Gbit/s", 2, 1e3),
    ("cpu", "CPU s/GB", 2, 1.0),
    ("udp64", "UDP 64 kpps", 0, 1e3),
    ("udp512", "UDP 512 kpps", 0, 1e3),
    ("udp1400", "UDP 1400 kpps", 0, 1e3),
    ("ping-p50", "ping p50 µs", 0, 1.0),
    ("ping-p99", "p99 µs", 0, 1.0),
    ("loaded-p99", "p99 under load µs", 0, 1.0),
    ("memory", "memory MB", 1, 1e3),
];

/// Figures of which less is better.
const LESS: [&str; 5] = ["cpu", "ping-p50", "ping-p99", "loaded-p99", "memory"];

/// All figures of all rounds.
pub struct Figures<'a>(pub &'a [Row]);

impl Figures<'_> {
    /// Lowest, median and highest of a figure.
    fn spread(
        &self,
        vpn: &str,
        wire: Wire,
        placement: Placement,
        figure: &str,
    ) -> Option<[f64; 3]> {
        let fits = |row: &&Row| {
            row.vpn == vpn && row.wire == wire && row.placement == placement && row.figure == figure
        };
        let mut values: Vec<f64> = self.0.iter().filter(fits).map(|row| row.value).collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
        Some([low, middle, high])
    }

    fn median(&self, vpn: &str, wire: Wire, placement: Placement, figure: &str) -> Option<f64> {
        self.spread(vpn, wire, placement, figure).map(|[_, median, _]| median)
    }

    /// One table for each wire and placement that was measured.
    pub fn tables(&self, vpns: &[Vpn]) -> String {
        let mut text = String::new();
        for wire in [Wire::SuperPackets, Wire::Packets] {
            for placement in [Placement::Scheduler, Placement::CoreEach] {
                let of = |figure: &str| {
                    let here = |row: &Row| row.wire == wire && row.placement == placement;
                    self.0.iter().any(|row| here(row) && row.figure == figure)
                };
                let columns: Vec<_> = COLUMNS.iter().filter(|column| of(column.0)).collect();
                if columns.is_empty() {
                    continue;
                }
                let heads: Vec<&str> =
                    ["VPN"].into_iter().chain(columns.iter().map(|c| c.1)).collect();
                let mut table = Table::new(&heads);
                for vpn in vpns {
                    let cell = |column: &&(&str, &str, usize, f64)| {
                        let &&(figure, _, digits, unit) = column;
                        match self.spread(vpn.name, wire, placement, figure) {
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
                        table.row([vpn.name.to_owned()].into_iter().chain(cells).collect());
                    }
                }
                let _ = writeln!(text, "## {}\n\n{table}", heading(wire, placement));
            }
        }
        text
    }

    /// The best of the competitors, by name.
    fn best<'v>(
        &self,
        vpns: &'v [Vpn],
        wire: Wire,
        placement: Placement,
        figure: &str,
    ) -> Option<(&'v str, f64)> {
        let found = vpns
            .iter()
            .filter(|vpn| vpn.is_peer())
            .filter_map(|vpn| Some((vpn.name, self.median(vpn.name, wire, placement, figure)?)));
        match LESS.contains(&figure) {
            true => found.min_by(|a, b| a.1.total_cmp(&b.1)),
            false => found.max_by(|a, b| a.1.total_cmp(&b.1)),
        }
    }

    /// The product's figures by those of others.
    pub fn ratios(&self, vpns: &[Vpn]) -> Table {
        use Placement::{CoreEach, Scheduler};
        use Wire::{Packets, SuperPackets};
        let mut table =
            Table::new(&["figure", "wire and placement", "beside", "ratio", "at least", "aim"]);
        let mut row =
            |name: &str, figure: &str, wire, placement, other: Option<&str>, goals: [&str; 2]| {
                let Some(ours) = self.median(VPND, wire, placement, figure) else { return };
                let other = match other {
                    Some(name) => {
                        self.median(name, wire, placement, figure).map(|value| (name, value))
                    }
                    None => self.best(vpns, wire, placement, figure),
                };
                let Some((beside, theirs)) = other else { return };
                table.row(vec![
                    name.into(),
                    heading(wire, placement).to_lowercase(),
                    beside.into(),
                    format!("{:.2}", ours / theirs),
                    goals[0].into(),
                    goals[1].into(),
                ]);
            };
        row("TCP, one stream", "tcp1", SuperPackets, CoreEach, Some(TAILSCALE), ["3.3", "4.5"]);
        row("TCP, one stream", "tcp1", SuperPackets, Scheduler, Some(TAILSCALE), ["3.0", "4.5"]);
        row("TCP, one stream", "tcp1", SuperPackets, Scheduler, Some(STRONGSWAN), ["14", "20"]);
        row("TCP, one stream", "tcp1", Packets, Scheduler, None, ["1.5", "2.5"]);
        row("TCP, one stream", "tcp1", Packets, CoreEach, None, ["1.5", "2.5"]);
        row("UDP, 64 octets", "udp64", SuperPackets, Scheduler, None, ["1.6", "3"]);
        row("CPU per octet", "cpu", SuperPackets, Scheduler, Some(TAILSCALE), ["0.33", "0.20"]);
        row("ping, median", "ping-p50", SuperPackets, Scheduler, None, ["1.0", "0.7"]);
        row("ping, p99", "ping-p99", SuperPackets, Scheduler, None, ["1.0", "0.7"]);
        row(
            "ping beside a stream, p99",
            "loaded-p99",
            SuperPackets,
            Scheduler,
            None,
            ["1.0", "0.7"],
        );
        row(
            "AES-128-GCM by NULL",
            "tcp1",
            SuperPackets,
            CoreEach,
            Some(VPND_NULL),
            ["0.75", "0.90"],
        );
        table.note("For CPU and ping, less is better; for the rest, more.");
        table
    }
}

fn heading(wire: Wire, placement: Placement) -> &'static str {
    match (wire, placement) {
        (Wire::SuperPackets, Placement::Scheduler) => {
            "Super-packets on the wire, left to the scheduler"
        }
        (Wire::SuperPackets, Placement::CoreEach) => {
            "Super-packets on the wire, a core for each end"
        }
        (Wire::Packets, Placement::Scheduler) => {
            "Single packets on the wire, left to the scheduler"
        }
        (Wire::Packets, Placement::CoreEach) => "Single packets on the wire, a core for each end",
    }
}
