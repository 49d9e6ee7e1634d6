//! The table of figures, goals and their ratios.

use std::fmt;
use std::time::Duration;

/// The unit of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    Seconds,
    Octets,
}

impl Unit {
    fn show(self, figure: f64) -> String {
        match self {
            Self::Octets => format!("{:.1} kB", figure / 1e3),
            Self::Seconds if figure >= 1.0 => format!("{figure:.1} s"),
            Self::Seconds if figure >= 1e-3 => format!("{:.1} ms", figure * 1e3),
            Self::Seconds => format!("{:.0} µs", figure * 1e6),
        }
    }
}

struct Row {
    what: String,
    unit: Unit,
    figure: f64,
    goal: Option<f64>,
}

/// Rows of Markdown.
#[derive(Default)]
pub struct Table(Vec<Row>);

impl Table {
    /// Adds a time; its goal is in seconds.
    pub fn row(&mut self, what: &str, time: Duration, goal: Option<f64>) {
        self.add(what, Unit::Seconds, time.as_secs_f64(), goal);
    }

    /// Adds a figure.
    pub fn add(&mut self, what: &str, unit: Unit, figure: f64, goal: Option<f64>) {
        let row = Row { what: what.to_owned(), unit, figure, goal };
        println!("{row}");
        self.0.push(row);
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, unit, figure, goal } = self;
        let shown = unit.show(*figure);
        match goal {
            Some(goal) => {
                write!(f, "| {what} | {shown} | {} | {:.2} |", unit.show(*goal), figure / goal)
            }
            None => write!(f, "| {what} | {shown} | | |"),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| measurement | figure | goal | figure / goal |\n|---|---|---|---|")?;
        self.0.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}
