//! The predictions of the model from the figures.

use super::figures::{CLOSELY, Case, Figures, SCHEDULES};
use super::measurement::{CBC, COMPLETION, GCM, MIDDLE, PIPELINE, Row, THREE};
use super::model::{Cost, packets_per_second};
use crate::experiment::sources::octeon;

use crate::experiment::lab::Lab;
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::site::Cipher;
use crate::statistics::Spread;
use crate::table::Table;

/// Cores of the machines that the model is asked about; the document's had 16.
const CORES: [usize; 5] = [1, 2, 4, 8, 16];

pub(super) fn write(report: &mut Report, lab: &Lab, figures: &Figures<'_>) {
    report.section("Prediction for more cores");
    let cost = |cipher: Cipher, schedule, length| {
        let case = Case { cipher: cipher.name, schedule, workers: figures.most(), length };
        let serial = if schedule == PIPELINE { figures.median(case, |r| r.reader_ns) } else { 0.0 };
        Cost { packet: figures.median(case, |row| row.cpu_ns), serial }
    };
    let gbits = |cost, cores, length: usize| {
        let value = packets_per_second(cost, cores) * length as f64 * 8.0 / 1e9;
        Spread { low: value, median: value, high: value }
    };
    let panel = |cipher: Cipher| {
        let line = |(colour, length): (usize, usize), (schedule, dashed): (&'static str, bool)| {
            let cost = cost(cipher, schedule, length);
            Series {
                name: format!("{length} octets, {schedule}"),
                style: Style { colour, dashed },
                points: CORES.map(|n| (n as f64, gbits(cost, n, length))).to_vec(),
            }
        };
        let lengths = figures.among(&THREE).into_iter().enumerate();
        Panel {
            caption: cipher.name.to_owned(),
            x: Axis::steps("cores of one gateway", &CORES),
            y: Axis::logarithmic("predicted throughput (Gbit/s)"),
            series: lengths.flat_map(|l| SCHEDULES.map(|s| line(l, s))).collect(),
            // The document's figure is of this cipher.
            mark: (cipher.name == CBC.name)
                .then(|| (octeon::DUPLEX_GBITS, octeon::DUPLEX_WITH.to_owned())),
        }
    };
    report.plot("model", &Plot {
        title: "Predicted throughput with more cores".to_owned(),
        quote: format!(
            "{} Cores and throughput both double from line to line, so that a straight line upwards is linear scaling.",
            octeon::DUPLEX
        ),
        panels: CLOSELY.map(panel).to_vec(),
        columns: 2,
    });
    report.say(
        "The model: in a gateway that has `n` cores to itself, one worker on each and enough flows for all, run to completion \
         carries `2n / c` packets per second in both directions together, `c` being the processor time of sealing a packet and \
         opening it (*CPU ns* above). The pipeline carries the same with its own `c`, but at most `2 / r`, `r` being what its \
         one reader spends on a packet. It assumes that cores do not slow each other down through memory and locks, that the \
         network hands packets over for as little as here, and that generators are elsewhere.",
    );
    let mut table = Table::new([
        "cipher",
        "octets",
        "schedule",
        "c, ns",
        "r, ns",
        "1 core",
        "2",
        "4",
        "8",
        "16 cores, Gbit/s",
    ]);
    for cipher in CLOSELY {
        for &length in figures.lengths {
            for (schedule, _) in SCHEDULES {
                let cost = cost(cipher, schedule, length);
                let mut row = vec![cipher.name.to_owned(), length.to_string(), schedule.to_owned()];
                row.extend([cost.packet, cost.serial].map(|ns| format!("{ns:.0}")));
                row.extend(CORES.map(|n| format!("{:.2}", gbits(cost, n, length).median)));
                table.row(row);
            }
        }
    }
    report.table(&table);
    let case = Case { cipher: GCM.name, schedule: COMPLETION, workers: 1, length: MIDDLE };
    let cores = lab.machine.cores;
    let possible = |row: &Row| cores as f64 * 1e9 / (row.cpu_ns + row.traffic_ns).max(1.0);
    let show = |of: &dyn Fn(&Row) -> f64| {
        figures.spread(case, of).map_or_else(|| "–".to_owned(), |spread| spread.show(0))
    };
    report.say(format!(
        "How far to trust it: with generator and sink included, a packet of {MIDDLE} octets takes {} ns of processor time \
         (AES-128-GCM, one worker), so that {cores} cores could carry {} packets per second; {} were measured, which is {} %. \
         The rest is time in which cores waited for each other.",
        show(&|row| row.cpu_ns + row.traffic_ns),
        show(&possible),
        show(&|row| row.packets_per_second),
        show(&|row| 100.0 * row.packets_per_second / possible(row)),
    ));
}
