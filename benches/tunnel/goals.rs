//! Where the product is to be beside others, and whether it is there.

use crate::packet::Packet;
use crate::report::{Figures, spread};
use crate::vpn::{
    STRONGSWAN, TAILSCALE, VPND, VPND_256, VPND_NULL, VPND_PORTABLE, VPND_SOFTWARE, Vpn,
    with_tunnels,
};
use benchkit::{Placement, Wire};
use lab::table::Table;

/// A ratio of the product's figure and another's.
pub struct Goal {
    /// The row of the table of requirements.
    pub row: &'static str,
    /// Distinguishes rows of one number in a picture.
    pub label: &'static str,
    pub name: &'static str,
    pub figure: &'static str,
    pub wire: Wire,
    pub placement: Placement,
    pub ours: String,
    pub beside: Beside,
    /// Less is better: the ratio may be this at most. Otherwise it must be this at least.
    pub less: bool,
    pub required: f64,
    pub aim: Option<f64>,
}

/// The divisor of a figure.
pub enum Beside {
    /// The same figure of the best of the competitors.
    Best,
    /// That of this one.
    Vpn(String),
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Aim,
    Reached,
    Missed,
}

/// A goal with what was measured.
pub struct Standing {
    pub goal: Goal,
    /// Name of the other.
    pub beside: String,
    /// Of the medians.
    pub ratio: f64,
    /// Lowest and highest of the rounds' ratios.
    pub spread: [f64; 2],
}

impl Standing {
    pub fn verdict(&self) -> Verdict {
        let meets =
            |bound: f64| if self.goal.less { self.ratio <= bound } else { self.ratio >= bound };
        match self.goal.aim {
            Some(aim) if meets(aim) => Verdict::Aim,
            _ if meets(self.goal.required) => Verdict::Reached,
            _ => Verdict::Missed,
        }
    }
}

/// All goals whose figures were measured, in the order of their rows.
pub fn standings(figures: &Figures<'_>, vpns: &[Vpn], packets: &[Packet]) -> Vec<Standing> {
    let mut all: Vec<Standing> =
        goals().into_iter().filter_map(|goal| standing(goal, figures, vpns)).collect();
    let at = all.iter().position(|s| ["9", "10"].contains(&s.goal.row)).unwrap_or(all.len());
    all.splice(at..at, packets.iter().filter_map(packet));
    all
}

fn standing(goal: Goal, figures: &Figures<'_>, vpns: &[Vpn]) -> Option<Standing> {
    let (wire, placement, figure) = (goal.wire, goal.placement, goal.figure);
    let beside = match &goal.beside {
        Beside::Vpn(name) => name.clone(),
        Beside::Best => figures.best(vpns, wire, placement, figure, goal.less)?,
    };
    let median = |vpn: &str| figures.spread(vpn, wire, placement, figure).map(|[_, m, _]| m);
    let ratio = median(&goal.ours)? / median(&beside)?;
    let theirs = figures.rounds(&beside, wire, placement, figure);
    let ratios = figures
        .rounds(&goal.ours, wire, placement, figure)
        .into_iter()
        .filter_map(|(round, ours)| Some(ours / theirs.iter().find(|(r, _)| *r == round)?.1));
    let spread = ratios.fold([ratio; 2], |[low, high], r| [low.min(r), high.max(r)]);
    Some(Standing { goal, beside, ratio, spread })
}

/// The table of them.
pub fn table(standings: &[Standing]) -> Table {
    let mut table = Table::new([
        "#",
        "figure",
        "wire and placement",
        "compared with",
        "required",
        "aim",
        "measured",
        "rounds",
        "met",
    ]);
    for standing in standings {
        let goal = &standing.goal;
        let bound = if goal.less { "≤" } else { "≥" };
        let place = if goal.in_memory() {
            "in memory".to_owned()
        } else {
            format!("{}, {}", goal.wire, goal.placement)
        };
        table.row(vec![
            goal.row.into(),
            goal.name.into(),
            place,
            standing.beside.clone(),
            format!("{bound} {}", number(goal.required)),
            goal.aim.map_or("–".into(), |aim| format!("{bound} {}", number(aim))),
            number(standing.ratio),
            format!("{}–{}", number(standing.spread[0]), number(standing.spread[1])),
            match standing.verdict() {
                Verdict::Aim => "yes, and the aim".into(),
                Verdict::Reached => "yes".into(),
                Verdict::Missed => "**no**".into(),
            },
        ]);
    }
    table.note(
        "*Measured* is the ratio of the medians of `vpnd` and of the other, *rounds* are the lowest and the highest ratio of a round. \
         Row 8 is from `benches/esp` (packets of a super-packet, processor time of one thread).",
    );
    table
}

impl Goal {
    /// Whether it is of a single packet, which nothing carries anywhere.
    fn in_memory(&self) -> bool {
        self.row == IN_MEMORY
    }
}

/// The row of single packets in memory.
const IN_MEMORY: &str = "8";

/// Single packets in memory.
fn packet(packet: &Packet) -> Option<Standing> {
    let name = match packet.way.as_str() {
        "seal" => "sealing 1,400 octets in the packet path",
        _ => "opening 1,400 octets in the packet path",
    };
    let label = if packet.way == "seal" { "seal" } else { "open" };
    let median = |times: &[f64]| spread(times.iter().copied()).map(|[_, middle, _]| middle);
    let ratio = median(&packet.path)? / median(&packet.library)?;
    let ratios = packet.path.iter().zip(&packet.library).map(|(path, library)| path / library);
    let [low, _, high] = spread(ratios)?;
    let goal =
        Goal { row: IN_MEMORY, label, name, less: true, required: 1.2, aim: Some(1.1), ..stream() };
    Some(Standing { goal, beside: "the library alone".into(), ratio, spread: [low, high] })
}

/// As many digits as the requirement has.
fn number(value: f64) -> String {
    match value {
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// A goal with the values that most goals have.
fn stream() -> Goal {
    Goal {
        row: "1b",
        label: "",
        name: "TCP, one stream",
        figure: "tcp1",
        wire: Wire::SuperPackets,
        placement: Placement::Scheduler,
        ours: VPND.into(),
        beside: Beside::Best,
        less: false,
        required: 3.0,
        aim: Some(4.5),
    }
}

fn goals() -> Vec<Goal> {
    let tcp = stream;
    let beside = |name: &str| Beside::Vpn(name.into());
    let ping = |label, name, figure| Goal {
        row: "6",
        label,
        name,
        figure,
        less: true,
        required: 1.0,
        aim: Some(0.7),
        ..tcp()
    };
    let single = |label, placement| Goal {
        row: "3",
        label,
        wire: Wire::Packets,
        placement,
        required: 1.5,
        aim: Some(2.5),
        ..tcp()
    };
    let many = |label, name, number, required| Goal {
        row: "9",
        label,
        name,
        figure: "spread",
        ours: with_tunnels(VPND, number),
        beside: Beside::Vpn(with_tunnels(VPND, 1)),
        required,
        aim: Some(0.95),
        ..tcp()
    };
    vec![
        Goal {
            row: "1a",
            placement: Placement::CoreEach,
            beside: beside(TAILSCALE),
            required: 3.3,
            ..tcp()
        },
        Goal { beside: beside(TAILSCALE), ..tcp() },
        Goal { row: "2", beside: beside(STRONGSWAN), required: 14.0, aim: Some(20.0), ..tcp() },
        single("", Placement::Scheduler),
        single("core", Placement::CoreEach),
        Goal {
            row: "4",
            name: "UDP, 64 octets",
            figure: "udp64",
            required: 1.6,
            aim: Some(3.0),
            ..tcp()
        },
        Goal {
            row: "5",
            name: "CPU seconds per GB",
            figure: "cpu",
            beside: beside(TAILSCALE),
            less: true,
            required: 1.0 / 3.0,
            aim: Some(0.2),
            ..tcp()
        },
        ping("p50", "idle ping, median", "ping-p50"),
        ping("p99", "idle ping, 99th percentile", "ping-p99"),
        ping("load", "ping beside a stream, 99th percentile", "loaded-p99"),
        Goal {
            row: "7",
            name: "TCP, one stream, AES-128-GCM relative to NULL",
            placement: Placement::CoreEach,
            beside: beside(VPND_NULL),
            required: 0.75,
            aim: Some(0.9),
            ..tcp()
        },
        many("1k", "datagrams, 1,000 SAs relative to one SA", 1_000, 0.9),
        many("20k", "datagrams, 20,000 SAs relative to one SA", 20_000, 0.8),
        Goal {
            row: "10",
            name: "TCP, one stream, AES-256-GCM, in-core on relative to off",
            ours: VPND_256.into(),
            beside: beside(VPND_PORTABLE),
            required: 4.5,
            aim: None,
            ..tcp()
        },
        // The provider's own software is faster; nothing is required beside it but a gain.
        Goal {
            row: "10",
            label: "library",
            name: "TCP, one stream, AES-256-GCM, in-core on relative to the library's own software",
            ours: VPND_256.into(),
            beside: beside(VPND_SOFTWARE),
            required: 1.0,
            aim: None,
            ..tcp()
        },
    ]
}
