//! The place in which an experiment runs: its effort, its machine, its program, and how it shows progress.

use crate::machine::Machine;
use demo::interrupt::Interrupt;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::time::Duration;

/// The extent of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// As little as shows that it works.
    Rehearsal,
    /// As much as shows the tendency.
    Quick,
    /// As much as a published figure takes.
    Full,
}

impl Effort {
    /// The value for this effort.
    pub fn pick<T>(self, rehearsal: T, quick: T, full: T) -> T {
        match self {
            Self::Rehearsal => rehearsal,
            Self::Quick => quick,
            Self::Full => full,
        }
    }

    /// The option of `vpnctl experiment` that asks for this effort.
    pub(super) fn option(self) -> &'static str {
        self.pick(" --rehearsal", " --quick", "")
    }
}

/// The surroundings of an experiment.
pub struct Lab {
    /// Its extent.
    pub effort: Effort,
    /// The machine on which it runs.
    pub machine: Machine,
    /// The program `vpnd`.
    pub vpnd: PathBuf,
    bar: ProgressBar,
    interrupt: Interrupt,
}

impl Lab {
    /// Looks at the machine and shows progress on the terminal until [`finish`](Self::finish).
    pub(super) fn new(effort: Effort, vpnd: PathBuf, interrupt: Interrupt) -> Self {
        Self { effort, machine: Machine::look(), vpnd, bar: bar(), interrupt }
    }

    /// Removes the progress bar.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Says how many steps there will be.
    pub fn expect(&self, steps: usize) {
        self.bar.set_length(steps as u64);
        self.bar.set_position(0);
    }

    /// Names the next measurement, which says that the one named before is done.
    ///
    /// # Errors
    /// If a signal has come: the caller is to remove everything it has made.
    pub fn step(&self, what: impl Into<String>) -> Result<(), String> {
        if !self.bar.message().is_empty() {
            self.bar.inc(1);
        }
        self.bar.set_message(what.into());
        match self.is_interrupted() {
            true => Err("interrupted".to_owned()),
            false => Ok(()),
        }
    }

    /// Returns `true` after a signal.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.is_set()
    }

    /// Median and spread where there were several rounds, for the text of a report.
    pub fn rounds(&self, rounds: usize, lasting: Duration) -> String {
        let seconds = lasting.as_secs_f64();
        match rounds {
            1 => format!("One round, {seconds} s for each figure."),
            _ => format!(
                "Medians of {rounds} rounds (lowest to highest where they are shown), {seconds} s for each figure in each; \
                 the compared variants take turns."
            ),
        }
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("  {bar:30.green} {pos}/{len}, {eta} left  {msg}");
    ProgressBar::new(1).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
