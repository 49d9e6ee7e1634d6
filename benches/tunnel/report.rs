//! What the figures say: tables, and how far the product is from where it is to be.

use crate::measure::Row;
use crate::table::Table;
use crate::vpn::{STRONGSWAN, TAILSCALE, VPND, VPND_256, VPND_NULL, VPND_PORTABLE, Vpn};
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
        let mut table =
            Table::new(&["figure", "wire and placement", "beside", "ratio", "at least", "aim"]);
        for goal in GOALS {
            let Goal { wire, placement, figure, .. } = goal;
            let Some(ours) = self.median(goal.ours, wire, placement, figure) else { continue };
            let other = match goal.other {
                Some(name) => self.median(name, wire, placement, figure).map(|value| (name, value)),
                None => self.best(vpns, wire, placement, figure),
            };
            let Some((beside, theirs)) = other else { continue };
            table.row(vec![
                goal.name.into(),
                heading(wire, placement).to_lowercase(),
                beside.into(),
                format!("{:.2}", ours / theirs),
                goal.at_least.into(),
                goal.aim.into(),
            ]);
        }
        table.note("For CPU and ping, less is better; for the rest, more.");
        table
    }
}

/// Where the product is to be beside another.
struct Goal {
    name: &'static str,
    figure: &'static str,
    wire: Wire,
    placement: Placement,
    ours: &'static str,
    /// None: the best of the competitors.
    other: Option<&'static str>,
    at_least: &'static str,
    aim: &'static str,
}

/// What most goals have in common.
const GOAL: Goal = Goal {
    name: "TCP, one stream",
    figure: "tcp1",
    wire: Wire::SuperPackets,
    placement: Placement::Scheduler,
    ours: VPND,
    other: None,
    at_least: "1.0",
    aim: "0.7",
};

const GOALS: [Goal; 12] = [
    Goal {
        placement: Placement::CoreEach,
        other: Some(TAILSCALE),
        at_least: "3.3",
        aim: "4.5",
        ..GOAL
    },
    Goal { other: Some(TAILSCALE), at_least: "3.0", aim: "4.5", ..GOAL },
    Goal { other: Some(STRONGSWAN), at_least: "14", aim: "20", ..GOAL },
    Goal { wire: Wire::Packets, at_least: "1.5", aim: "2.5", ..GOAL },
    Goal {
        wire: Wire::Packets,
        placement: Placement::CoreEach,
        at_least: "1.5",
        aim: "2.5",
        ..GOAL
    },
    Goal { name: "UDP, 64 octets", figure: "udp64", at_least: "1.6", aim: "3", ..GOAL },
    Goal {
        name: "CPU per octet",
        figure: "cpu",
        other: Some(TAILSCALE),
        at_least: "0.33",
        aim: "0.20",
        ..GOAL
    },
    Goal { name: "ping, median", figure: "ping-p50", ..GOAL },
    Goal { name: "ping, p99", figure: "ping-p99", ..GOAL },
    Goal { name: "ping beside a stream, p99", figure: "loaded-p99", ..GOAL },
    Goal {
        name: "AES-128-GCM by NULL",
        placement: Placement::CoreEach,
        other: Some(VPND_NULL),
        at_least: "0.75",
        aim: "0.90",
        ..GOAL
    },
    Goal {
        name: "AES-256-GCM, in-core on by off",
        ours: VPND_256,
        other: Some(VPND_PORTABLE),
        at_least: "4.5",
        aim: "–",
        ..GOAL
    },
];

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
