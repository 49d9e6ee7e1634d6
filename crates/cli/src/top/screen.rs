//! The choices made with the keyboard.

use super::model::Sort;
use clap::ValueEnum;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::Duration;

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program ends.
    Quit,
    /// A sample is taken at once.
    LookNow,
    /// The screen is drawn again.
    Nothing,
}

/// The choices in force.
#[derive(Clone, Debug)]
pub struct Screen {
    sort: Sort,
    reverse: bool,
    filter: String,
    /// Keys go into the filter.
    typing: bool,
    all: bool,
    paused: bool,
    help: bool,
    keys: bool,
    /// Lines of the table above the first one shown.
    offset: usize,
    interval: Duration,
}

/// Lines of a page.
const PAGE: usize = 10;

/// Longest name that makes sense to look for.
const LONGEST_FILTER: usize = 64;

impl Screen {
    /// As the command line says.
    pub fn new(sort: Sort, filter: &str, all: bool, interval: Duration) -> Self {
        Self {
            sort,
            reverse: false,
            filter: filter.to_owned(),
            typing: false,
            all,
            paused: false,
            help: false,
            keys: true,
            offset: 0,
            interval,
        }
    }

    /// Shows no line about keys: there are none.
    pub fn hide_keys(&mut self) {
        self.keys = false;
    }

    /// Takes a key.
    pub fn press(&mut self, key: KeyEvent) -> Outcome {
        // Ctrl-C is tested first, because it ends the program also while a filter is typed and while the help is shown.
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Outcome::Quit;
        }
        if self.typing {
            self.type_in(key.code);
            return Outcome::Nothing;
        }
        if self.help {
            self.help = false;
            return Outcome::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return Outcome::Quit,
            KeyCode::Esc if self.filter.is_empty() => return Outcome::Quit,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('s') => self.sort = neighbour(self.sort, 1),
            KeyCode::Char('S') => {
                self.sort = neighbour(self.sort, Sort::value_variants().len() - 1)
            }
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char(' ' | 'p') => self.paused = !self.paused,
            KeyCode::Char('h' | '?') => self.help = true,
            KeyCode::Char('a') => {
                self.all = !self.all;
                return Outcome::LookNow;
            }
            KeyCode::Char('+') => {
                self.interval = (self.interval * 2).min(Duration::from_secs(3600))
            }
            KeyCode::Char('-') => {
                self.interval = (self.interval / 2).max(Duration::from_millis(250))
            }
            KeyCode::Up | KeyCode::Char('k') => self.offset = self.offset.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.offset += 1,
            KeyCode::PageUp => self.offset = self.offset.saturating_sub(PAGE),
            KeyCode::PageDown => self.offset += PAGE,
            KeyCode::Home => self.offset = 0,
            // `offset()` limits this to the last rows. Half of the maximum, so that Down does not overflow.
            KeyCode::End => self.offset = usize::MAX / 2,
            _ => {}
        }
        Outcome::Nothing
    }

    fn type_in(&mut self, key: KeyCode) {
        self.offset = 0;
        match key {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.typing = false;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.len() < LONGEST_FILTER => self.filter.push(c),
            _ => {}
        }
    }

    /// The column that orders the table, and `true` if the order is reversed.
    pub fn sort(&self) -> (Sort, bool) {
        (self.sort, self.reverse)
    }

    /// The text that the names of the shown tunnels contain.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Returns `true` while the filter is being typed.
    pub fn is_typing(&self) -> bool {
        self.typing
    }

    /// Returns `true` if tunnels that are down are shown.
    pub fn shows_all(&self) -> bool {
        self.all
    }

    /// Returns `true` if no samples are taken.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns `true` if the help is shown.
    pub fn shows_help(&self) -> bool {
        self.help
    }

    /// Returns `true` if a line at the bottom names the keys.
    pub fn shows_keys(&self) -> bool {
        self.keys
    }

    /// Time between two looks.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Lines of the table that are above the first one shown, if there are so many of which so many fit.
    pub fn offset(&self, lines: usize, room: usize) -> usize {
        self.offset.min(lines.saturating_sub(room))
    }
}

fn neighbour(sort: Sort, steps: usize) -> Sort {
    let all = Sort::value_variants();
    let at = all.iter().position(|other| *other == sort).unwrap_or(0);
    all[(at + steps) % all.len()]
}
