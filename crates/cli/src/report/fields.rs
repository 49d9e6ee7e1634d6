//! Names and values, one pair on a line.

use super::Colour;
use std::fmt::Write;

/// Lines of a name and a value, the values in one column.
pub struct Fields {
    indent: &'static str,
    lines: Vec<(&'static str, String)>,
}

impl Fields {
    /// No lines yet; each will begin with `indent`.
    pub fn new(indent: &'static str) -> Self {
        Self { indent, lines: Vec::new() }
    }

    /// Adds a line.
    pub fn add(&mut self, name: &'static str, value: String) {
        self.lines.push((name, value));
    }

    /// Appends the lines to `text`.
    pub fn write(&self, text: &mut String, colour: Colour) {
        let width = self.lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in &self.lines {
            let padded = format!("{name:<width$}");
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}{}  {value}", self.indent, colour.faint(&padded));
        }
    }
}
