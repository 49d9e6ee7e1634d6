//! The guide to failures, `docs/operate/troubleshooting.md`: the outputs that it shows, and its table of faults.
//!
//! `TROUBLESHOOTING_WRITE=1` puts outputs into the blocks whose names begin with `host-`, and the measured times into
//! the table, instead of comparing them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lines and columns of a screen.
const SCREEN: [usize; 2] = [24, 100];

/// Returns `true` if the guide is written.
pub fn is_written() -> bool {
    std::env::var_os("TROUBLESHOOTING_WRITE").is_some()
}

/// An output must fit on a screen.
///
/// # Panics
/// Where it does not.
pub fn fits_on_a_screen(printed: &str) {
    let [lines, columns] = SCREEN;
    let widest = printed.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let fits = printed.lines().count() <= lines && widest <= columns;
    assert!(fits, "{} lines of at most {widest} columns:\n{printed}", printed.lines().count());
}

/// Compares an output with a block of the guide. Times and counts differ from one run to the next.
pub fn shown(name: &str, printed: &str) {
    fits_on_a_screen(printed);
    let _one_at_a_time = one_at_a_time();
    let guide = read();
    let head = format!("```text {name}\n");
    let (before, rest) = guide.split_once(&head).unwrap_or_else(|| panic!("no block {name}"));
    let (block, after) = rest.split_once("```\n").expect("the block ends");
    if is_written() {
        write(&[before, &head, printed, "```\n", after].concat());
        return;
    }
    assert_eq!(
        steady(printed),
        steady(block),
        "the guide's block {name:?} is out of date:\n{printed}"
    );
}

/// A row of the table of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Faults that have the same number are of one kind.
    pub number: usize,
    /// The fault.
    pub fault: String,
    /// The command that names it.
    pub command: String,
    /// Words of the output that name the cause.
    pub says: String,
    /// Words of the output that name the cure.
    pub cure: String,
    /// As in `3 s`.
    pub after: String,
    /// The test that plants it.
    pub test: String,
}

impl Row {
    fn of(line: &str) -> Option<Self> {
        let line = line.replace('`', "");
        let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
        let [number, fault, command, says, cure, after, test, ""] = cells[..] else { return None };
        let [fault, command, says, cure, after, test] =
            [fault, command, says, cure, after, test].map(str::to_owned);
        Some(Self { number: number.parse().ok()?, fault, command, says, cure, after, test })
    }

    /// The output fits on a screen, and has the words of the cause and of the cure.
    ///
    /// # Panics
    /// Where it does not.
    pub fn is_said_by(&self, printed: &str) {
        fits_on_a_screen(printed);
        let words = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [&self.says, &self.cure] {
            assert!(words.contains(part.as_str()), "{}: no {part:?} in\n{printed}", self.fault);
        }
    }

    /// Seconds until the fault is named.
    pub fn seconds(&self) -> Option<u64> {
        self.after.strip_suffix(" s")?.parse().ok()
    }
}

/// The table of faults.
pub fn faults() -> Vec<Row> {
    let _one_at_a_time = one_at_a_time();
    read().lines().filter_map(Row::of).collect()
}

/// The row of a fault.
///
/// # Panics
/// Where there is none.
pub fn fault(name: &str) -> Row {
    let row = faults().into_iter().find(|row| row.fault == name);
    row.unwrap_or_else(|| panic!("the table of faults has no {name:?}"))
}

/// Writes into the table how many seconds after a fault the output named it.
pub fn found_after(fault: &str, seconds: u64) {
    let _one_at_a_time = one_at_a_time();
    let line = |line: &str| match Row::of(line) {
        Some(row) if row.fault == fault => {
            let mut cells: Vec<String> = line.split('|').map(str::to_owned).collect();
            cells[6] = format!(" {seconds} s ");
            cells.join("|")
        }
        _ => line.to_owned(),
    };
    write(&read().lines().map(|l| line(l) + "\n").collect::<String>());
}

fn one_at_a_time() -> MutexGuard<'static, ()> {
    static GUIDE: Mutex<()> = Mutex::new(());
    GUIDE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/troubleshooting.md")
}

fn read() -> String {
    fs::read_to_string(path()).expect("the guide is there")
}

fn write(text: &str) {
    fs::write(path(), text).expect("writable");
}

/// The words without the numbers that differ from one run to the next.
fn steady(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_number = |word: &str| {
        let word = word.trim_start_matches('(');
        word.starts_with(|c: char| c.is_ascii_digit())
    };
    let varies = |index: usize| {
        let next = |n: usize| words.get(index + n).copied().unwrap_or_default();
        let before = index.checked_sub(1).map_or("", |before| words[before]);
        next(1).starts_with("packets")
            || next(1).starts_with("octets")
            || next(1) == "s" && next(2) == "ago,"
            || next(1).starts_with("ms")
            || next(1) == "to" && next(3).starts_with("ms")
            || before == "outer_mtu"
            || before == "="
    };
    // As in `1m 2s`, and clock times.
    let is_time = |word: &str| {
        let word = word.trim_end_matches(',');
        if word.split(':').count() == 3 {
            return true;
        }
        let number = word.trim_end_matches(['s', 'm', 'h']);
        number.len() + 1 == word.len() && number.parse::<u32>().is_ok()
    };
    let shown = |(index, word): (usize, &&str)| match is_number(word) && varies(index) {
        _ if is_time(word) => None,
        true => Some("N".to_owned()),
        false => Some((*word).to_owned()),
    };
    words.iter().enumerate().filter_map(shown).collect()
}
