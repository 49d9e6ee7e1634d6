//! `vpnctl top`: the tunnels of a running daemon on one screen, again and again.
//!
//! The contents of the screen are worked out without a terminal and a clock: samples go into a [`model::Model`], keys
//! into a [`screen::Screen`], and [`view::draw`] puts both on a frame.

use control::client::{Client, ClientError};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::terminal as screen_mode;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use terminal::report::Colour;

mod columns;
pub mod model;
pub mod sample;
pub mod screen;
pub mod view;

use model::Model;
use sample::Source;
use screen::{Outcome, Screen};

/// The options of `vpnctl top`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  vpnctl top
  vpnctl top --sort in --filter branch
  vpnctl top --once --interval 5      one frame as text, with the rates of five seconds

Keys: q quits, s and S change the order, r reverses it, / filters by name, a shows tunnels that are down, the blank \
pauses, + and - change the interval, h helps.")]
pub struct Options {
    /// Seconds between two samples
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Column that orders the tunnels
    #[arg(long, value_enum, value_name = "KEY", default_value_t)]
    sort: model::Sort,
    /// Only tunnels whose name or peer address contains TEXT
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Also tunnels that are down
    #[arg(long)]
    all: bool,
    /// Prints one frame as text and ends
    #[arg(long)]
    once: bool,
}

/// Columns of a frame that goes to no terminal.
const PLAIN_WIDTH: u16 = 100;

/// Shows the daemon behind a socket until a key ends it, or one frame.
///
/// # Errors
/// Where nobody answers at the start, or the terminal cannot be used.
pub fn run(options: &Options, socket: &Path, colour: Colour) -> Result<(), TopError> {
    let client = Client::connect(socket)?;
    let mut source = Source::new(socket, client)?;
    let mut model = Model::default();
    let interval = Duration::from_secs(options.interval);
    let mut screen = Screen::new(options.sort, &options.filter, options.all, interval);
    if options.once {
        return once(&mut source, &mut model, &mut screen);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    // It also has a panic put the terminal right before it tells of itself.
    let mut terminal = ratatui::try_init()?;
    let outcome = watch(&mut terminal, &mut source, &mut model, &mut screen, colour);
    ratatui::restore();
    outcome
}

/// The screen cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The daemon.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is nothing to draw on.
    #[error("vpnctl top needs a terminal; for one frame as text: vpnctl top --once")]
    NoTerminal,
    /// The terminal.
    #[error("cannot use the terminal: {0}")]
    Terminal(#[from] io::Error),
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    source: &mut Source,
    model: &mut Model,
    screen: &mut Screen,
    colour: Colour,
) -> Result<(), TopError> {
    let mut next = Instant::now();
    loop {
        if Instant::now() >= next {
            if !screen.is_paused() {
                model.take(source.look(screen.shows_all()));
            }
            next = Instant::now() + screen.interval();
        }
        terminal.draw(|frame| view::draw(frame, model, screen, colour))?;
        if !event::poll(next.saturating_duration_since(Instant::now()))? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            match screen.press(key) {
                Outcome::Quit => return Ok(()),
                Outcome::LookNow => next = Instant::now(),
                Outcome::Nothing => {}
            }
        }
    }
}

fn once(source: &mut Source, model: &mut Model, screen: &mut Screen) -> Result<(), TopError> {
    model.take(source.look(screen.shows_all()));
    thread::sleep(screen.interval());
    model.take(source.look(screen.shows_all()));
    let width = match screen_mode::size() {
        Ok((width, _)) if io::stdout().is_terminal() => width,
        _ => PLAIN_WIDTH,
    };
    let rows = u16::try_from(model.rows(screen.sort(), screen.filter()).len()).unwrap_or(u16::MAX);
    screen.hide_keys();
    let text = frame(model, screen, width, rows.saturating_add(view::OTHER_LINES));
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// A frame as lines of text, without blanks at their ends.
pub fn frame(model: &Model, screen: &Screen, width: u16, height: u16) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| view::draw(frame, model, screen, Colour(false)));
    let buffer = terminal.backend().buffer();
    let lines = (0..buffer.area.height).map(|y| {
        let cells = (0..buffer.area.width).filter_map(|x| buffer.cell((x, y)));
        let line: String = cells.map(|cell| cell.symbol()).collect();
        format!("{}\n", line.trim_end())
    });
    let text: String = lines.collect();
    format!("{}\n", text.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests;
