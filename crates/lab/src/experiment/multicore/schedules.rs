//! The pipeline against run to completion, and why one carries more than the other.

use super::figures::{CLOSELY, Case, Figures, SCHEDULES, STEPS, ns, ratio, workers};
use super::measurement::{COMPLETION, PIPELINE, Row, THREE};
use crate::experiment::sources::octeon;
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::site::Cipher;
use crate::statistics::Spread;
use crate::table::Table;

pub(super) fn write(report: &mut Report, figures: &Figures<'_>) {
    report.section("Pipeline and run to completion");
    report.plot(
        "schedules",
        &Plot {
            title: "Pipeline and run to completion".to_owned(),
            quote: octeon::SCHEDULES.to_string(),
            panels: CLOSELY.into_iter().flat_map(|cipher| panels(figures, cipher)).collect(),
            columns: 3,
        },
    );
    report
        .say("Pipeline by run to completion, in packets per second, for every cipher and length:");
    report.table(&comparison(figures));
    report.section("The reason: cost of each stage for a packet");
    stages(report, figures);
    report.table(&costs(figures));
    report.say(
        "From the counters of `vpnctl workers`: nanoseconds by the clock in both daemons for each packet delivered. Where threads \
         outnumber cores they include the time in which a thread was not on a processor; *CPU* does not. *Wake-ups*: how often \
         a worker slept and was woken for 1,000 packets. *Batch*: packets that are sealed at once.",
    );
    report.say(format!(
        "{} {} The pipeline does additional work on any machine: one thread reads and claims sequence numbers, hands each batch to \
         whichever worker is free, waking it if it sleeps, and puts finished batches back into order before they are sent \
         or written. In the document's processor a unit of hardware hands packets over and keeps their order, which \
         costs the cores nothing. The cause at each size, from the counters:",
        octeon::CAUSES,
        misses(figures),
    ));
    report.table(&causes(figures));
    report.say(conclusion(figures));
}

fn case(cipher: Cipher, schedule: &'static str, workers: usize, length: usize) -> Case {
    Case { cipher: cipher.name, schedule, workers, length }
}

/// Gbit/s, packets per second, and the ratio.
fn panels(figures: &Figures<'_>, cipher: Cipher) -> [Panel; 3] {
    let numbers = figures.fewest_and_most();
    let panel = |label: &str, series: Vec<Series>, mark| Panel {
        caption: cipher.name.to_owned(),
        x: Axis::steps("packet length (octets)", figures.lengths),
        y: Axis::linear(label),
        series,
        mark,
    };
    let rates = |of: fn(&Row) -> f64| {
        let line = |(schedule, is_pipeline): (&'static str, bool), number: usize| {
            let style = Style {
                colour: usize::from(is_pipeline),
                dashed: number == 1 && numbers.len() > 1,
            };
            let at = |length| figures.spread(case(cipher, schedule, number, length), of);
            figures.over_lengths(format!("{schedule}, {}", workers(number)), style, at)
        };
        SCHEDULES.into_iter().flat_map(|s| numbers.iter().map(move |n| line(s, *n))).collect()
    };
    let gain = |number: &usize| {
        let style = Style { colour: 2, dashed: *number == 1 && numbers.len() > 1 };
        let at = |length| figures.pipeline_gain(case(cipher, PIPELINE, *number, length));
        figures.over_lengths(format!("pipeline ÷ completion, {}", workers(*number)), style, at)
    };
    [
        panel("throughput (Gbit/s)", rates(Row::gbits), None),
        panel("packets/s", rates(|row| row.packets_per_second), None),
        panel(
            "pipeline ÷ run to completion",
            numbers.iter().map(gain).collect(),
            Some((1.0, "both the same".to_owned())),
        ),
    ]
}

fn comparison(figures: &Figures<'_>) -> Table {
    let mut heads = vec!["cipher".to_owned(), "workers".to_owned()];
    heads.extend(figures.lengths.iter().map(|length| format!("{length} octets")));
    let mut table = Table::new(heads);
    for cipher in figures.ciphers {
        for &number in figures.workers {
            let mut row = vec![cipher.name.to_owned(), number.to_string()];
            row.extend(figures.lengths.iter().map(|length| {
                let gain = figures.pipeline_gain(case(*cipher, PIPELINE, number, *length));
                gain.map_or_else(|| "–".to_owned(), |spread| spread.show_ratio(2))
            }));
            table.row(row);
        }
    }
    table
}

fn stages(report: &mut Report, figures: &Figures<'_>) {
    let most = figures.most();
    let lengths = figures.among(&THREE);
    let panel = |(cipher, length): (Cipher, usize)| Panel {
        caption: format!("{}, {length} octets", cipher.name),
        x: Axis::groups("stage", STEPS.map(|(name, _)| name)),
        y: Axis::linear("time (ns per packet)"),
        series: SCHEDULES
            .into_iter()
            .map(|(schedule, is_pipeline)| {
                let case = case(cipher, schedule, most, length);
                let steps = STEPS.iter().enumerate();
                let points = steps.filter_map(|(n, (_, stages))| {
                    Some((n as f64, figures.spread(case, |row| ns(row, stages))?))
                });
                Series {
                    name: schedule.to_owned(),
                    style: Style::solid(usize::from(is_pipeline)),
                    points: points.collect(),
                }
            })
            .collect(),
        mark: None,
    };
    let panels = CLOSELY.into_iter().flat_map(|c| lengths.iter().map(move |l| (c, *l)));
    report.plot("stages", &Plot {
        title: format!("Time of each stage, {} for each gateway", workers(most)),
        quote: format!(
            "{} Here reading includes lookup and sequence number, and writing the anti-replay window.",
            octeon::STAGES
        ),
        panels: panels.map(panel).collect(),
        columns: lengths.len().max(1),
    });
}

/// The cost of a packet in each stage, for every length.
fn costs(figures: &Figures<'_>) -> Table {
    let mut heads = vec!["cipher", "octets", "schedule"];
    heads.extend(STEPS.map(|(name, _)| name));
    heads.extend(["CPU, ns", "reader's CPU, ns", "batch", "wake-ups"]);
    let mut table = Table::new(heads);
    for (cipher, length) in each(figures) {
        for (schedule, is_pipeline) in SCHEDULES {
            let case = case(cipher, schedule, figures.most(), length);
            let mut row = vec![cipher.name.to_owned(), length.to_string(), schedule.to_owned()];
            row.extend(
                STEPS.map(|(_, stages)| {
                    format!("{:.0}", figures.median(case, |row| ns(row, stages)))
                }),
            );
            row.push(format!("{:.0}", figures.median(case, |r| r.cpu_ns)));
            row.push(match is_pipeline {
                true => format!("{:.0}", figures.median(case, |r| r.reader_ns)),
                false => "–".to_owned(),
            });
            row.push(format!("{:.1}", figures.batch(case)));
            row.push(format!("{:.1}", figures.median(case, |r| r.wakeups)));
            table.row(row);
        }
    }
    table
}

/// Every length with each of the ciphers that are looked at closely.
fn each<'a>(figures: &'a Figures<'_>) -> impl Iterator<Item = (Cipher, usize)> + 'a {
    CLOSELY.into_iter().flat_map(|c| figures.lengths.iter().map(move |l| (c, *l)))
}

/// The reason why one schedule carries more than the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The rounds do not agree which of them does.
    Spread,
    /// The pipeline carries less: a packet costs it more.
    Dearer,
    /// The pipeline carries less although a packet costs it no more.
    Waiting,
    /// The pipeline carries more: a packet costs it less.
    Cheaper,
    /// The pipeline carries more although a packet costs it no less.
    Parallel,
}

impl Cause {
    /// From packets per second, the pipeline's by the other's, and the same of processor time for a packet.
    fn of(gain: Spread, cpu: f64) -> Self {
        match gain {
            g if g.low <= 1.0 && g.high >= 1.0 => Self::Spread,
            g if g.high < 1.0 && cpu > 1.03 => Self::Dearer,
            g if g.high < 1.0 => Self::Waiting,
            _ if cpu < 0.97 => Self::Cheaper,
            _ => Self::Parallel,
        }
    }

    /// In words, with how many more wake-ups and packets of a batch there are in the pipeline.
    fn text(self, wakeups: f64, batch: f64) -> &'static str {
        match self {
            Self::Spread => "none: some rounds say more, some less",
            Self::Dearer => {
                "handing over makes a packet dearer than spreading its cryptography gains"
            }
            Self::Waiting => "a packet is not dearer: threads wait for each other",
            Self::Cheaper if wakeups < 0.0 => {
                "a packet is cheaper: workers sleep and are woken less often"
            }
            Self::Cheaper if batch > 0.0 => "a packet is cheaper: more of them pass at once",
            Self::Cheaper => "a packet is cheaper",
            Self::Parallel => "more cores are at work at once, which pays for handing over",
        }
    }
}

/// The ratio, what differs, and the cause, of a cipher and a length.
fn cause(figures: &Figures<'_>, cipher: Cipher, length: usize) -> Option<(Spread, Cause)> {
    let of = |schedule| case(cipher, schedule, figures.most(), length);
    let gain = figures.pipeline_gain(of(PIPELINE))?;
    let cpu = |schedule| figures.median(of(schedule), |row| row.cpu_ns);
    Some((gain, Cause::of(gain, ratio(cpu(PIPELINE), cpu(COMPLETION)))))
}

fn causes(figures: &Figures<'_>) -> Table {
    let mut table = Table::new([
        "cipher",
        "octets",
        "pipeline ÷ completion",
        "CPU, ns",
        "wake-ups",
        "batch",
        "stages that differ most, ns",
        "cause",
    ]);
    for (cipher, length) in each(figures) {
        let Some((gain, cause)) = cause(figures, cipher, length) else { continue };
        let [completion, pipeline] =
            [COMPLETION, PIPELINE].map(|schedule| case(cipher, schedule, figures.most(), length));
        let more = |of: &dyn Fn(&Row) -> f64| {
            figures.median(pipeline, of) - figures.median(completion, of)
        };
        let mut steps = STEPS.map(|(name, stages)| (name, more(&|row| ns(row, stages))));
        steps.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        let (wakeups, batch) =
            (more(&|row| row.wakeups), figures.batch(pipeline) - figures.batch(completion));
        let steps = steps[..2].iter().map(|(name, ns)| format!("{name} {ns:+.0}"));
        table.row([
            cipher.name.to_owned(),
            length.to_string(),
            gain.show_ratio(2),
            format!("{:+.0}", more(&|row| row.cpu_ns)),
            format!("{wakeups:+.1}"),
            format!("{batch:+.1}"),
            steps.collect::<Vec<_>>().join(", "),
            cause.text(wakeups, batch).to_owned(),
        ]);
    }
    table
}

/// Misses of the caches in a sentence.
fn misses(figures: &Figures<'_>) -> String {
    let of = |schedule| {
        let rows = figures.rows.iter().filter(|row| row.schedule == schedule);
        Spread::of(rows.filter_map(|row| row.cache_misses))
    };
    match (of(COMPLETION), of(PIPELINE)) {
        (Some(completion), Some(pipeline)) => format!(
            "Cache misses for each packet, in the median of all cases: {} in run to completion, {} in the pipeline.",
            completion.show(1),
            pipeline.show(1)
        ),
        _ => "The counters of this machine do not tell the misses of its caches.".to_owned(),
    }
}

/// All sizes in a sentence.
fn conclusion(figures: &Figures<'_>) -> String {
    let found: Vec<(Spread, Cause)> =
        each(figures).filter_map(|(cipher, length)| cause(figures, cipher, length)).collect();
    let count = |of: &dyn Fn(Cause) -> bool| found.iter().filter(|(_, c)| of(*c)).count();
    let less = count(&|c| matches!(c, Cause::Dearer | Cause::Waiting));
    let more = count(&|c| matches!(c, Cause::Cheaper | Cause::Parallel));
    let middle = Spread::of(found.iter().map(|(gain, _)| gain.median));
    format!(
        "Signs are the pipeline's. With {} for each gateway it carries less than run to completion in {less} of {} cases, more in \
         {more}, and in the others the rounds do not agree. The ratio in the median of the cases, with those of the lowest and \
         the highest case: {}. {}",
        workers(figures.most()),
        found.len(),
        middle.map_or_else(|| "–".to_owned(), |spread| spread.show_ratio(2)),
        octeon::SCHEDULES,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_named_only_where_all_rounds_agree() {
        let of = |low, median, high, cpu| Cause::of(Spread { low, median, high }, cpu);
        assert_eq!(of(0.7, 0.8, 1.1, 1.5), Cause::Spread);
        assert_eq!(of(0.7, 0.8, 0.9, 1.5), Cause::Dearer);
        assert_eq!(of(0.7, 0.8, 0.9, 1.0), Cause::Waiting);
        assert_eq!(of(1.1, 1.2, 1.3, 0.9), Cause::Cheaper);
        assert_eq!(of(1.1, 1.2, 1.3, 1.2), Cause::Parallel);
    }
}
