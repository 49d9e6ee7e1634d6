//! Names and values, one pair on a line.

use super::Colour;
use super::terminal::{width, wrapped};
use std::fmt::Write;

/// Lines of a name and a value, the values in one column.
pub struct Fields {
    indent: &'static str,
    lines: Vec<(&'static str, Value)>,
}

enum Value {
    /// It may be coloured, and is not broken into lines.
    Short(String),
    /// A sentence, which is broken into lines.
    Message { words: String, bad: bool },
}

impl Fields {
    /// No lines yet; each will begin with `indent`.
    pub fn new(indent: &'static str) -> Self {
        Self { indent, lines: Vec::new() }
    }

    /// Adds a line.
    pub fn add(&mut self, name: &'static str, value: String) {
        self.lines.push((name, Value::Short(value)));
    }

    /// Adds a message, which may take several lines.
    pub fn tell(&mut self, name: &'static str, words: String) {
        self.lines.push((name, Value::Message { words, bad: false }));
    }

    /// Adds a message about something that is wrong.
    pub fn tell_bad(&mut self, name: &'static str, words: String) {
        self.lines.push((name, Value::Message { words, bad: true }));
    }

    /// Appends the lines to `text`.
    pub fn write(&self, text: &mut String, colour: Colour) {
        let names = self.lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in &self.lines {
            let padded = format!("{name:<names$}");
            let column = self.indent.len() + names + 2;
            let mut lines = String::new();
            let (value, bad) = match value {
                Value::Short(value) => (value.as_str(), false),
                Value::Message { words, bad } => {
                    let blanks = " ".repeat(column);
                    wrapped(&mut lines, &blanks, column, words, width());
                    (lines.trim(), *bad)
                }
            };
            let value = if bad { colour.bad_lines(value) } else { format!("{value}\n") };
            // Writing to a String cannot fail.
            let _ = write!(text, "{}{}  {value}", self.indent, colour.faint(&padded));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_goes_on_in_the_column_of_the_values() {
        let mut fields = Fields::new("  ");
        fields.add("name", "v".repeat(120));
        fields.tell_bad("unanswered", "no answer ".repeat(20));
        let mut text = String::new();
        fields.write(&mut text, Colour(false));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(lines[0], format!("  name        {}", "v".repeat(120)));
        assert!(
            lines[1].starts_with("  unanswered  no answer no") && lines[1].len() <= 100,
            "{text}"
        );
        assert!(lines[2].starts_with("              answer no"), "{text}");
        let mut coloured = String::new();
        fields.write(&mut coloured, Colour(true));
        assert_eq!(console::strip_ansi_codes(&coloured), text);
        assert_eq!(coloured.matches("\u{1b}[31m").count(), 3, "each line: {coloured:?}");
    }
}
