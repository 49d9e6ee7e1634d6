//! A table that fits on a terminal: columns that would make it too wide become lines below each row.

use super::Colour;
use super::terminal::{width, wrapped};
use console::measure_text_width;

/// The indentation of the lines below a row.
const INDENT: &str = "       ";

/// A table with a header. If it were wider than [`width`], groups of columns are moved below their rows, as lines
/// with the name of the column and the value.
pub struct Fitting<const N: usize> {
    header: [&'static str; N],
    /// Groups of columns in the order in which they are moved.
    movable: &'static [&'static [usize]],
    rows: Vec<[String; N]>,
    /// Remarks, each with the number of the row that it stands below.
    remarks: Vec<(usize, String)>,
}

impl<const N: usize> Fitting<N> {
    /// An empty table.
    pub fn new(header: [&'static str; N], movable: &'static [&'static [usize]]) -> Self {
        Self { header, movable, rows: Vec::new(), remarks: Vec::new() }
    }

    /// Adds a row; cells may be coloured.
    pub fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    /// Adds a remark below the last row.
    pub fn remark(&mut self, words: String) {
        self.remarks.push((self.rows.len(), words));
    }

    /// The table as lines, each with its newline and without trailing blanks.
    pub fn render(&self, colour: Colour) -> String {
        self.render_within(width(), colour)
    }

    fn render_within(&self, most: usize, colour: Colour) -> String {
        let widths: [usize; N] = std::array::from_fn(|column| {
            let cells = self.rows.iter().map(|row| measure_text_width(&row[column]));
            cells.chain([self.header[column].len()]).max().unwrap_or(0)
        });
        let moved = self.moved(&widths, most);
        let columns: Vec<usize> =
            (0..N).filter(|column| !moved.iter().any(|group| group.contains(column))).collect();
        let header = self.header.map(|cell| colour.heading(cell));
        let mut text = String::new();
        line(&mut text, &header, &columns, &widths);
        for (number, row) in (1..).zip(&self.rows) {
            line(&mut text, row, &columns, &widths);
            moved.iter().rev().for_each(|group| self.below(&mut text, row, group, most));
            let remarks = self.remarks.iter().filter(|(below, _)| *below == number);
            remarks.for_each(|(_, words)| below(&mut text, words, most));
        }
        text
    }

    /// The first groups, as many as have to go.
    fn moved(&self, widths: &[usize; N], most: usize) -> &'static [&'static [usize]] {
        let mut width = widths.iter().sum::<usize>() + 2 * (N - 1);
        let mut count = 0;
        while let Some(group) = self.movable.get(count).filter(|_| width > most) {
            width -= group.iter().map(|column| widths[*column] + 2).sum::<usize>();
            count += 1;
        }
        &self.movable[..count]
    }

    /// Writes the cells of a group below a row: in one line if they fit, otherwise each in lines of its own.
    fn below(&self, text: &mut String, row: &[String; N], group: &[usize], most: usize) {
        let pairs: Vec<String> = group
            .iter()
            .filter(|column| row[**column] != "-")
            .map(|column| format!("{} {}", self.header[*column].to_lowercase(), row[*column]))
            .collect();
        let together = pairs.join(", ");
        if pairs.is_empty() {
        } else if INDENT.len() + measure_text_width(&together) <= most {
            text.push_str(&format!("{INDENT}{together}\n"));
        } else {
            pairs.iter().for_each(|pair| below(text, pair, most));
        }
    }
}

fn line<const N: usize>(
    text: &mut String,
    cells: &[String; N],
    columns: &[usize],
    widths: &[usize],
) {
    let mut blanks = 0;
    for column in columns {
        text.extend(std::iter::repeat_n(' ', blanks));
        text.push_str(&cells[*column]);
        blanks = widths[*column] - measure_text_width(&cells[*column]) + 2;
    }
    text.push('\n');
}

/// Writes words below a row.
fn below(text: &mut String, words: &str, most: usize) {
    wrapped(text, INDENT, INDENT.len() + 2, words, most);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(cell: &str) -> String {
        let mut table = Fitting::new(["NAME", "LOCAL", "REMOTE", "UP"], &[&[1, 2], &[0]]);
        table.row(["a".to_owned(), cell.to_owned(), cell.to_owned(), "1m".to_owned()]);
        table.row(["b".to_owned(), "-".to_owned(), "-".to_owned(), "2m".to_owned()]);
        table.render(Colour(false))
    }

    #[test]
    fn everything_stands_in_the_row_as_long_as_it_fits() {
        assert_eq!(
            table("10.1.0.0/24"),
            "\
NAME  LOCAL        REMOTE       UP
a     10.1.0.0/24  10.1.0.0/24  1m
b     -            -            2m
"
        );
    }

    #[test]
    fn columns_that_do_not_fit_become_lines() {
        let cell = "2001:db8:1111:2222:3333:4444:5555:6666-2001:db8:1111:2222:3333:4444:5555:7777";
        assert_eq!(
            table(cell),
            format!(
                "\
NAME  UP
a     1m
       local {cell}
       remote {cell}
b     2m
"
            )
        );
        let many = ["2001:db8:1111:2222:3333:4444:5555:6666"; 9].join(", ");
        let text = table(&many);
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        assert_eq!(text.matches("2001:db8:1111:2222:3333:4444:5555:6666").count(), 18, "{text}");
    }

    #[test]
    fn a_narrow_terminal_has_less_columns() {
        let mut table = Fitting::new(["NAME", "LOCAL", "UP"], &[&[1], &[0]]);
        let local = "192.0.2.1, ".repeat(7) + "192.0.2.1";
        table.row(["a".to_owned(), local, "1m".to_owned()]);
        table.remark("down since 11:59:47 UTC (12s): the peer does not answer any more".to_owned());
        let text = table.render_within(60, Colour(false));
        assert!(text.starts_with("NAME  UP\na     1m\n       local 192.0.2.1, "), "{text}");
        assert!(text.lines().all(|line| line.len() <= 60), "{text}");
        assert!(
            text.contains("\n       down since 11:59:47 UTC (12s): the peer does not"),
            "{text}"
        );
        assert!(text.ends_with("\n         answer any more\n"), "{text}");
    }

    #[test]
    fn a_long_name_goes_below_the_row_last() {
        let mut table = Fitting::new(["NAME", "LOCAL", "UP"], &[&[1], &[0]]);
        let name = "n".repeat(90);
        table.row([name.clone(), "10.1.0.0/24".to_owned(), "1m".to_owned()]);
        let text = table.render(Colour(false));
        assert_eq!(
            text,
            format!("NAME  {}UP\n{name}  1m\n       local 10.1.0.0/24\n", " ".repeat(86))
        );
        table.row(["m".repeat(98), "10.1.0.0/24".to_owned(), "1m".to_owned()]);
        let text = table.render(Colour(false));
        let below = format!("UP\n1m\n       name\n         {name}\n       local 10.1.0.0/24\n1m\n");
        assert!(text.starts_with(&below), "{text}");
    }
}
