//! The figures as pictures.

use crate::goals::Standing;
use crate::plan::Part;
use crate::report::Figures;
use crate::vpn::{STRONGSWAN, TAILSCALE, VPND, Vpn, WIRE, with_tunnels};
use benchkit::{Placement, Wire};
use lab::plot::{Axis, Panel, Plot, Series, Style};
use lab::statistics::Spread;

/// Each VPN looks the same in every picture.
const STYLES: [(&str, Style); 8] = [
    (WIRE, Style::solid(6)),
    (VPND, Style::solid(0)),
    (STRONGSWAN, Style::solid(1)),
    ("wireguard-go", Style::dashed(2)),
    (TAILSCALE, Style::solid(2)),
    ("gotatun", Style::solid(3)),
    ("boringtun", Style::solid(4)),
    ("OpenVPN", Style::solid(5)),
];

const HERE: (Wire, Placement) = (Wire::SuperPackets, Placement::Scheduler);

/// A picture: the name of its file without `.svg`, and where in the document it stands.
pub struct Picture {
    pub name: &'static str,
    pub plot: Plot,
}

/// All of which something was measured.
pub fn all(figures: &Figures<'_>, vpns: &[Vpn], standings: &[Standing]) -> Vec<Picture> {
    let whole: Vec<&str> =
        vpns.iter().filter(|vpn| vpn.part == Part::Whole).map(|vpn| vpn.name.as_str()).collect();
    let numbers: Vec<usize> = vpns.iter().filter_map(Vpn::tunnels).map(usize::from).collect();
    let pictures = [
        goals(standings),
        Picture { name: "tunnel-tcp", plot: streams(figures, &whole) },
        Picture { name: "tunnel-cost", plot: cost(figures, &whole) },
        Picture { name: "tunnel-udp", plot: datagrams(figures, &whole) },
        Picture { name: "tunnel-rtt", plot: round_trips(figures, &whole) },
        Picture { name: "tunnel-sas", plot: tunnels(figures, &numbers) },
    ];
    let has_points = |panel: &Panel| panel.series.iter().any(|series| !series.points.is_empty());
    let mut pictures = Vec::from(pictures);
    pictures.iter_mut().for_each(|picture| picture.plot.panels.retain(has_points));
    pictures.retain(|picture| !picture.plot.panels.is_empty());
    pictures
}

/// Each goal's figure divided by the required one: more is always better.
fn goals(standings: &[Standing]) -> Picture {
    let bars = |of: &dyn Fn(&Standing) -> Option<Spread>| {
        let at = standings.iter().enumerate();
        at.filter_map(|(at, standing)| Some((at as f64, of(standing)?))).collect()
    };
    let by_required = |standing: &Standing, ratio: f64| match standing.goal.less {
        true => standing.goal.required / ratio,
        false => ratio / standing.goal.required,
    };
    let measured = |standing: &Standing| {
        let [low, high] = standing.spread;
        Spread::of([low, standing.ratio, high].map(|ratio| by_required(standing, ratio)))
    };
    let aim = |standing: &Standing| Spread::of([by_required(standing, standing.goal.aim?)]);
    let label = |standing: &Standing| match standing.goal.label {
        "" => standing.goal.row.to_owned(),
        label => format!("{} {label}", standing.goal.row),
    };
    let panel = Panel {
        caption: String::new(),
        x: Axis::groups("row of the table", standings.iter().map(label)),
        y: Axis::linear("measured by required (times)"),
        series: vec![
            Series { name: "measured".into(), style: Style::solid(0), points: bars(&measured) },
            Series { name: "aim".into(), style: Style::dashed(4), points: bars(&aim) },
        ],
        mark: Some((1.0, "required".into())),
    };
    let plot = Plot {
        title: "Measured against targets".into(),
        quote: "What is required is 1; where less is better, the inverse is shown.".into(),
        panels: vec![panel],
        columns: 1,
    };
    Picture { name: "tunnel-goals", plot }
}

/// A bar for each VPN.
fn panel(
    figures: &Figures<'_>,
    vpns: &[&str],
    (wire, placement): (Wire, Placement),
    (figure, unit): (&str, f64),
    caption: String,
    y: Axis,
) -> Panel {
    let series =
        STYLES.iter().filter(|(name, _)| vpns.contains(name)).filter_map(|(name, style)| {
            let spread = figures.spread(name, wire, placement, figure)?;
            let points = vec![(0.0, Spread::of(spread)?.times(1.0 / unit))];
            Some(Series { name: (*name).into(), style: *style, points })
        });
    Panel { caption, x: Axis::groups("VPN", [""]), y, series: series.collect(), mark: None }
}

fn streams(figures: &Figures<'_>, vpns: &[&str]) -> Plot {
    let mut panels = Vec::new();
    for wire in [Wire::SuperPackets, Wire::Packets] {
        for placement in [Placement::Scheduler, Placement::CoreEach] {
            let caption = format!("{wire}, {placement}");
            let y = Axis::linear("throughput (Gbit/s)");
            panels.push(panel(figures, vpns, (wire, placement), ("tcp1", 1e3), caption, y));
        }
    }
    Plot {
        title: "One stream of TCP".into(),
        quote: "By what passes on the wire, and where both ends run.".into(),
        panels,
        columns: 2,
    }
}

fn cost(figures: &Figures<'_>, vpns: &[&str]) -> Plot {
    let vpns: Vec<&str> = vpns.iter().copied().filter(|name| *name != WIRE).collect();
    let panel = |figure, caption: &str, label: &str| {
        panel(figures, &vpns, HERE, figure, caption.into(), Axis::logarithmic(label))
    };
    Plot {
        title: "What a stream of TCP costs".into(),
        quote: "Both ends' VPN together; super-packets, left to the scheduler.".into(),
        panels: vec![
            panel(("cpu", 1.0), "processor time", "CPU seconds per GB"),
            panel(("memory", 1e3), "resident memory", "memory (MB)"),
        ],
        columns: 2,
    }
}

fn datagrams(figures: &Figures<'_>, vpns: &[&str]) -> Plot {
    let sizes = [(64, "udp64"), (512, "udp512"), (1400, "udp1400")];
    let series = STYLES.iter().filter(|(name, _)| vpns.contains(name)).map(|(name, style)| {
        let point = |(size, figure): &(usize, &str)| {
            let spread = figures.spread(name, HERE.0, HERE.1, figure)?;
            Some((*size as f64, Spread::of(spread)?.times(1e-3)))
        };
        let points = sizes.iter().filter_map(point).collect();
        Series { name: (*name).into(), style: *style, points }
    });
    let panel = Panel {
        caption: String::new(),
        x: Axis::steps("UDP payload (octets)", &sizes.map(|(size, _)| size)),
        y: Axis::linear("thousands of datagrams/s"),
        series: series.collect(),
        mark: None,
    };
    Plot {
        title: "Datagrams with less than 1 % loss".into(),
        quote: "One flow; super-packets, left to the scheduler.".into(),
        panels: vec![panel],
        columns: 1,
    }
}

fn round_trips(figures: &Figures<'_>, vpns: &[&str]) -> Plot {
    let panel = |figure, caption: &str| {
        let y = Axis::logarithmic("round trip (µs)");
        panel(figures, vpns, HERE, (figure, 1.0), caption.into(), y)
    };
    Plot {
        title: "Round trips of echoes".into(),
        quote: "Through an idle tunnel, and beside one stream of TCP.".into(),
        panels: vec![
            panel("ping-p50", "idle, median"),
            panel("ping-p99", "idle, 99th percentile"),
            panel("loaded-p99", "beside a stream, 99th percentile"),
        ],
        columns: 3,
    }
}

fn tunnels(figures: &Figures<'_>, numbers: &[usize]) -> Plot {
    let panel = |figure, unit: f64, caption: &str, label: &str| {
        let point = |number: &usize| {
            let name = with_tunnels(VPND, u16::try_from(*number).ok()?);
            let spread = figures.spread(&name, HERE.0, HERE.1, figure)?;
            Some((*number as f64, Spread::of(spread)?.times(1.0 / unit)))
        };
        let points = numbers.iter().filter_map(point).collect();
        Panel {
            caption: caption.into(),
            x: Axis::steps("SAs", numbers),
            y: Axis::linear(label),
            series: vec![Series { name: VPND.into(), style: Style::solid(0), points }],
            mark: None,
        }
    };
    Plot {
        title: "Very many SAs".into(),
        quote: "Datagrams of 1,400 octets to the same addresses in turn, through one SA or through very many; and a stream \
                of TCP through one beside the others."
            .into(),
        panels: vec![
            panel("spread", 1e3, "datagrams through all", "thousands of datagrams/s"),
            panel("tcp1", 1e3, "TCP through one", "throughput (Gbit/s)"),
        ],
        columns: 2,
    }
}
