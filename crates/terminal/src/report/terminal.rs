//! Text on a terminal: its columns and colours, and the escaping of text that came from a peer or a file.

use console::{Style, measure_text_width};
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Columns of text at most, and on a terminal that has less columns than it needs.
const COLUMNS: [usize; 2] = [100, 60];

static WIDTH: AtomicUsize = AtomicUsize::new(COLUMNS[0]);

/// Columns of text that lines and tables take at most.
pub fn width() -> usize {
    WIDTH.load(Ordering::Relaxed)
}

/// Has lines and tables fit on the terminal, if standard output is one.
pub fn fit_stdout() {
    let terminal = console::Term::stdout();
    if let Some((_, columns)) = terminal.size_checked().filter(|_| terminal.is_term()) {
        let [most, least] = COLUMNS;
        WIDTH.store(usize::from(columns).clamp(least, most), Ordering::Relaxed);
    }
}

/// Appends words as lines of at most so many columns. The first line begins with `first`, which may be coloured; the others
/// are indented by so many columns. A word is never cut.
pub fn wrapped(text: &mut String, first: &str, indent: usize, words: &str, most: usize) {
    let mut line = first.to_owned();
    let mut empty = true;
    for word in words.split(' ') {
        if !empty && measure_text_width(&line) + 1 + measure_text_width(word) > most {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Colours text, or leaves it plain (`false`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub bool);

impl Colour {
    /// Colours where standard output is a terminal and neither `NO_COLOR` nor `TERM=dumb` objects.
    pub fn of_stdout() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self(wanted && console::Term::stdout().features().colors_supported())
    }

    /// Emphasises a heading.
    pub fn heading(self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    /// Marks what is well.
    pub fn good(self, text: &str) -> String {
        self.paint(Style::new().green(), text)
    }

    /// Marks what is under way or deserves attention.
    pub fn notice(self, text: &str) -> String {
        self.paint(Style::new().yellow(), text)
    }

    /// Marks what is wrong.
    pub fn bad(self, text: &str) -> String {
        self.paint(Style::new().red(), text)
    }

    /// Marks what is less important.
    pub fn faint(self, text: &str) -> String {
        self.paint(Style::new().dim(), text)
    }

    /// As [`Colour::bad`], line by line, so that a pager shows them all alike.
    pub(super) fn bad_lines(self, text: &str) -> String {
        let lines = text.lines().map(|line| {
            let (indent, words) = line.split_at(line.len() - line.trim_start().len());
            format!("{indent}{}\n", self.bad(words))
        });
        lines.collect()
    }

    fn paint(self, style: Style, text: &str) -> String {
        style.force_styling(self.0).apply_to(text).to_string()
    }

    /// A state in the colour that it deserves.
    pub(super) fn state(self, state: &str) -> String {
        match state {
            "established" => self.good(state),
            "negotiating" | "rekeying" | "closing" => self.notice(state),
            "blocked" => self.bad(state),
            _ => self.faint(&plain(state)),
        }
    }
}

/// Escapes control characters.
pub fn plain(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        let escaped = text
            .chars()
            .map(|c| if c.is_control() { c.escape_default().collect() } else { String::from(c) });
        Cow::Owned(escaped.collect())
    } else {
        Cow::Borrowed(text)
    }
}
