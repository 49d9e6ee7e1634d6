//! What the person at the keyboard has chosen.

use super::model::Sort;
use clap::ValueEnum;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::Duration;

/// What a key asks of whoever draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To end.
    Quit,
    /// To look at the daemon at once.
    LookNow,
    /// To draw again.
    Nothing,
}

/// What is chosen.
#[derive(Clone, Debug)]
pub struct Screen {
    sort: Sort,
    reverse: bool,
    filter: String,
    /// Whether keys go into the filter.
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

    /// What the table is ordered by, and whether the other way round.
    pub fn sort(&self) -> (Sort, bool) {
        (self.sort, self.reverse)
    }

    /// What names must have in them.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Whether the filter is being typed.
    pub fn is_typing(&self) -> bool {
        self.typing
    }

    /// Whether tunnels that are down are shown.
    pub fn shows_all(&self) -> bool {
        self.all
    }

    /// Whether nothing is looked at.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether the keys are explained.
    pub fn shows_help(&self) -> bool {
        self.help
    }

    /// Whether there is a line about keys.
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
