//! Columns of text. Forty lines of our own, because `console` measures coloured and wide text already and a table
//! crate would bring a second way of doing that.

use super::Colour;
use console::measure_text_width;

/// A table without lines: a header, and columns as wide as their widest cell.
pub struct Table<const N: usize> {
    header: [&'static str; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// An empty table.
    pub fn new(header: [&'static str; N]) -> Self {
        Self { header, rows: Vec::new() }
    }

    /// Adds a row; cells may be coloured.
    pub fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    /// The table as lines, each with its newline and without trailing blanks.
    pub fn render(&self, colour: Colour) -> String {
        let widths: [usize; N] = std::array::from_fn(|column| {
            let cells = self.rows.iter().map(|row| measure_text_width(&row[column]));
            cells.chain([self.header[column].len()]).max().unwrap_or(0)
        });
        let header = self.header.map(|cell| colour.heading(cell));
        let mut text = String::new();
        for row in std::iter::once(&header).chain(&self.rows) {
            let mut blanks = 0;
            for (cell, width) in row.iter().zip(widths) {
                text.extend(std::iter::repeat_n(' ', blanks));
                text.push_str(cell);
                blanks = width - measure_text_width(cell) + 2;
            }
            text.push('\n');
        }
        text
    }
}
