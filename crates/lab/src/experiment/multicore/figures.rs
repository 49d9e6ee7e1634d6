//! The measurements, and statistics over them.

use super::measurement::{CBC, COMPLETION, GCM, PIPELINE, Row};
use crate::plot::{Series, Style};
use crate::site::Cipher;
use crate::statistics::Spread;
use userspace::Stage;

/// The two ciphers that are looked at closely: the document's best, and what took its place.
pub(super) const CLOSELY: [Cipher; 2] = [GCM, CBC];
/// Both ways of working, as they are drawn.
pub(super) const SCHEDULES: [(&str, bool); 2] = [(COMPLETION, false), (PIPELINE, true)];

/// The stages that are told apart in both schedules: run to completion reads and seals in one go.
pub(super) const STEPS: [(&str, &[Stage]); 5] = [
    ("read, seal", &[Stage::Read, Stage::Seal]),
    ("send", &[Stage::Send]),
    ("receive", &[Stage::Receive]),
    ("open", &[Stage::Open]),
    ("write", &[Stage::Write]),
];

/// All rows, and what they are of.
pub(super) struct Figures<'a> {
    pub rows: &'a [Row],
    pub lengths: &'a [usize],
    pub ciphers: &'a [Cipher],
    pub workers: &'a [usize],
}

/// The conditions of a measurement.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub cipher: &'static str,
    pub schedule: &'static str,
    pub workers: usize,
    pub length: usize,
}

impl Figures<'_> {
    fn of(&self, case: Case) -> impl Iterator<Item = &Row> {
        let Case { cipher, schedule, workers, length } = case;
        self.rows.iter().filter(move |row| {
            row.cipher == cipher
                && row.schedule == schedule
                && row.workers == workers
                && row.length == length
        })
    }

    pub(super) fn spread(&self, case: Case, of: impl Fn(&Row) -> f64) -> Option<Spread> {
        Spread::of(self.of(case).map(of))
    }

    pub(super) fn median(&self, case: Case, of: impl Fn(&Row) -> f64) -> f64 {
        self.spread(case, of).map_or(0.0, |spread| spread.median)
    }

    /// Packets per second by those of another case, round by round.
    pub(super) fn ratio(&self, case: Case, by: Case) -> Option<Spread> {
        let pairs = self.of(case).filter_map(|row| {
            let other = self.of(by).find(|other| other.round == row.round)?;
            Some(row.packets_per_second / other.packets_per_second)
        });
        Spread::of(pairs)
    }

    /// Packets per second in one round.
    pub(super) fn packets_per_second(&self, case: Case, round: usize) -> Option<f64> {
        self.of(case).find(|row| row.round == round).map(|row| row.packets_per_second)
    }

    /// The pipeline by run to completion.
    pub(super) fn pipeline_gain(&self, case: Case) -> Option<Spread> {
        let of = |schedule| Case { schedule, ..case };
        self.ratio(of(PIPELINE), of(COMPLETION))
    }

    /// Packets per second by those of one worker times the number of workers.
    pub(super) fn efficiency(&self, case: Case) -> Option<Spread> {
        let ratio = self.ratio(case, Case { workers: 1, ..case })?;
        Some(ratio.times(1.0 / case.workers as f64))
    }

    /// The largest number of workers.
    pub(super) fn most(&self) -> usize {
        self.workers.last().copied().unwrap_or(1)
    }

    /// One worker, and the most.
    pub(super) fn fewest_and_most(&self) -> Vec<usize> {
        let mut numbers = vec![1, self.most()];
        numbers.dedup();
        numbers
    }

    /// Those of these lengths that were measured.
    pub(super) fn among(&self, lengths: &[usize]) -> Vec<usize> {
        lengths.iter().copied().filter(|length| self.lengths.contains(length)).collect()
    }

    /// A series over packet lengths.
    pub(super) fn over_lengths(
        &self,
        name: impl Into<String>,
        style: Style,
        of: impl Fn(usize) -> Option<Spread>,
    ) -> Series {
        let at = |n: &usize| Some((*n as f64, of(*n)?));
        Series { name: name.into(), style, points: self.lengths.iter().filter_map(at).collect() }
    }

    /// Packets that are sealed at once.
    pub(super) fn batch(&self, case: Case) -> f64 {
        self.median(case, |row| row.stages.get(Stage::Seal.name()).map_or(0.0, |step| step.batch))
    }
}

/// Nanoseconds of these stages for a packet.
pub(super) fn ns(row: &Row, stages: &[Stage]) -> f64 {
    let steps = stages.iter().filter_map(|stage| row.stages.get(stage.name()));
    steps.map(|step| step.ns).sum()
}

/// A number by another that may be missing.
pub(super) fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// The text of a number of workers.
pub(super) fn workers(number: usize) -> String {
    format!("{number} worker{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_compared_with_themselves() {
        let row = |round, schedule, workers, packets_per_second| Row {
            round,
            schedule,
            workers,
            cipher: GCM.name,
            length: 64,
            packets_per_second,
            ..Row::default()
        };
        let rows = [
            row(0, COMPLETION, 1, 100.0),
            row(0, PIPELINE, 1, 80.0),
            row(0, COMPLETION, 2, 150.0),
            row(1, PIPELINE, 1, 270.0),
            row(1, COMPLETION, 1, 300.0),
            row(1, COMPLETION, 2, 600.0),
        ];
        let figures = Figures { rows: &rows, lengths: &[64], ciphers: &[GCM], workers: &[1, 2] };
        let case = Case { cipher: GCM.name, schedule: COMPLETION, workers: 1, length: 64 };
        let gain = figures.pipeline_gain(case).expect("measured");
        assert_eq!([gain.low, gain.high], [0.8, 0.9]);
        let efficiency = figures.efficiency(Case { workers: 2, ..case }).expect("measured");
        assert_eq!([efficiency.low, efficiency.high], [0.75, 1.0]);
        assert!(figures.pipeline_gain(Case { workers: 2, ..case }).is_none());
        assert_eq!(figures.fewest_and_most(), [1, 2]);
    }
}
