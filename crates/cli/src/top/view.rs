//! Puts what is known on a frame.

use super::columns::{Columns, fitted, label};
use super::model::{Model, Row, Sort};
use super::screen::Screen;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row as TableRow, Table};
use std::collections::VecDeque;
use std::time::Duration;
use terminal::report::{Colour, compact, duration, plain, rate};

/// Lines of a frame beside those of the table's tunnels.
pub const OTHER_LINES: u16 = HEAD + 2;

/// Lines above the table, with an empty one.
const HEAD: u16 = 6;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws a frame.
pub fn draw(frame: &mut Frame<'_>, model: &Model, screen: &Screen, colour: Colour) {
    let paint = Paint(colour);
    let [head, table, foot] =
        Layout::vertical([Constraint::Length(HEAD), Constraint::Min(1), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(heading(model, screen, head.width, paint)), head);
    tunnels(frame, table, model, screen, paint);
    frame.render_widget(Paragraph::new(footing(model, screen, foot.width, paint)), foot);
    if screen.shows_help() {
        help(frame, paint);
    }
}

/// Styles, or none.
#[derive(Clone, Copy)]
struct Paint(Colour);

impl Paint {
    fn style(self, style: Style) -> Style {
        if self.0.0 { style } else { Style::new() }
    }

    fn faint(self) -> Style {
        self.style(Style::new().add_modifier(Modifier::DIM))
    }

    fn strong(self) -> Style {
        self.style(Style::new().add_modifier(Modifier::BOLD))
    }

    fn of(self, colour: Color) -> Style {
        self.style(Style::new().fg(colour))
    }

    fn state(self, state: &str) -> Style {
        match state {
            "established" => self.of(Color::Green),
            "negotiating" | "rekeying" | "closing" => self.of(Color::Yellow),
            "blocked" => self.of(Color::Red),
            _ => self.faint(),
        }
    }
}

fn heading(model: &Model, screen: &Screen, width: u16, paint: Paint) -> Vec<Line<'static>> {
    let Some(last) = model.last() else {
        return vec![Line::from("waiting for vpnd")];
    };
    let (up, all) = model.up();
    let tunnels = if screen.shows_all() {
        format!("{up} of {all} tunnels up")
    } else {
        format!("{up} tunnel{} up", if up == 1 { "" } else { "s" })
    };
    let paused = if screen.is_paused() { ", paused" } else { "" };
    let title = vec![
        Span::styled(format!("vpnd {}", plain(&last.version)), paint.strong()),
        Span::raw(format!(
            ", up {}, {tunnels}, every {}{paused}",
            duration(last.up),
            duration(screen.interval())
        )),
    ];
    let total = model.total;
    let [inbound, outbound] = &model.history;
    let flows = [
        ("in", total.bits_in, total.packets_in, inbound),
        ("out", total.bits_out, total.packets_out, outbound),
    ];
    let [inbound, outbound] = flows.map(|(name, bits, packets, history)| {
        let numbers = format!("{:>11}  {:>5} packets/s  ", rate(bits), compact(packets));
        let room = usize::from(width).saturating_sub(7 + numbers.chars().count());
        Line::from(vec![
            Span::styled(format!("{name:<6} "), paint.faint()),
            Span::raw(numbers),
            Span::styled(sparkline(history, room), paint.of(Color::Cyan)),
        ])
    });
    let drops: u64 = model.drops.iter().map(|(_, n)| n).sum();
    let reasons = model.drops.iter().map(|(name, n)| {
        let name = name.split_once('.').map_or(name.as_str(), |(_, name)| name);
        format!("{} {}", plain(name), compact(*n))
    });
    let reasons: Vec<String> = reasons.collect();
    let dropped = match reasons.as_slice() {
        [] => Span::raw("nothing"),
        reasons => {
            let text = format!("{} packets/s: {}", compact(drops), reasons.join(", "));
            Span::styled(text, paint.of(Color::Red))
        }
    };
    let threads: Vec<String> =
        model.threads.iter().map(|(name, share)| format!("{} {share} %", plain(name))).collect();
    let threads = if threads.is_empty() { "idle".to_owned() } else { threads.join(", ") };
    vec![
        Line::from(title),
        inbound,
        outbound,
        Line::from(vec![Span::styled("drops  ", paint.faint()), dropped]),
        Line::from(vec![Span::styled("CPU    ", paint.faint()), Span::raw(threads)]),
    ]
}

/// The latest at the right, as high as the highest in sight.
fn sparkline(history: &VecDeque<u64>, room: usize) -> String {
    let shown = history.len().min(room);
    let latest = history.iter().skip(history.len() - shown);
    let highest = latest.clone().copied().max().unwrap_or(0).max(1);
    let bars = latest.map(|value| {
        // Any traffic at all is seen, and the highest fills the line.
        let level = u128::from(*value) * (BARS.len() as u128) / (u128::from(highest) + 1);
        if *value == 0 { ' ' } else { BARS[level as usize] }
    });
    bars.collect()
}

fn tunnels(frame: &mut Frame<'_>, area: Rect, model: &Model, screen: &Screen, paint: Paint) {
    let rows = model.rows(screen.sort(), screen.filter());
    let columns = Columns::of(usize::from(area.width), rows.iter().copied());
    let wide = columns.wide;
    let room = usize::from(area.height.saturating_sub(1));
    let offset = screen.offset(rows.len(), room);
    let (sort, reverse) = screen.sort();
    let title = |text: &'static str, of: Sort, right: bool| {
        let mark = match (sort == of, reverse) {
            (false, _) => text.to_owned(),
            (true, false) => format!("{text}▾"),
            (true, true) => format!("{text}▴"),
        };
        let line = Line::styled(mark, paint.strong());
        if right { line.right_aligned() } else { line }
    };
    let mut header = vec![title("TUNNEL", Sort::Name, false), title("STATE", Sort::State, false)];
    let mut widths = vec![Constraint::Fill(1), Constraint::Length(11)];
    if let Some(peer) = columns.peer {
        header.push(Line::styled("PEER", paint.strong()));
        widths.push(length(peer));
    }
    header.extend([title("IN b/s", Sort::In, true), title("OUT b/s", Sort::Out, true)]);
    widths.extend([Constraint::Length(7), Constraint::Length(8)]);
    if wide {
        let outbound = Line::styled("OUT pkt/s", paint.strong()).right_aligned();
        header.extend([title("IN pkt/s", Sort::Packets, true), outbound]);
        widths.extend([Constraint::Length(9), Constraint::Length(9)]);
    } else if columns.packets {
        header.push(title("PKT/s", Sort::Packets, true));
        widths.push(Constraint::Length(6));
    }
    header.push(title("REFUSED", Sort::Refused, true));
    widths.push(Constraint::Length(8));
    if columns.rekey {
        header.push(title("REKEY", Sort::Rekey, true));
        widths.push(Constraint::Length(7));
    }
    if let Some(last) = columns.last {
        header.push(Line::styled("LAST", paint.strong()));
        widths.push(length(last));
    }

    // Before the first sample, it is not known whether there is a tunnel.
    if rows.is_empty() && model.last().is_some() {
        let [_, below] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        frame.render_widget(Paragraph::new(nothing(screen)), below);
    }
    let shown = rows.iter().skip(offset).take(room).map(|row| tunnel(row, columns, paint));
    let table = Table::new(shown, widths).header(TableRow::new(header)).column_spacing(1);
    frame.render_widget(table, area);
}

/// The words in place of tunnels.
fn nothing(screen: &Screen) -> &'static str {
    match (screen.filter().is_empty(), screen.shows_all()) {
        (false, _) => "no tunnel that is shown has such a name",
        (true, false) => "no tunnel is up; a shows those that are down, too",
        (true, true) => "the policy has no tunnel",
    }
}

fn length(columns: usize) -> Constraint {
    Constraint::Length(u16::try_from(columns).unwrap_or(u16::MAX))
}

fn tunnel(row: &Row, columns: Columns, paint: Paint) -> TableRow<'static> {
    let name = fitted(&label(row), columns.name);
    let rates = row.rates;
    let mut cells = vec![
        Line::from(name),
        Line::styled(plain(&row.state).into_owned(), paint.state(&row.state)),
    ];
    if columns.peer.is_some() {
        cells.push(Line::from(row.peer.clone()));
    }
    cells.extend([number(rates.bits_in), number(rates.bits_out)]);
    if columns.wide {
        cells.extend([number(rates.packets_in), number(rates.packets_out)]);
    } else if columns.packets {
        cells.push(number(rates.packets_in + rates.packets_out));
    }
    let refused = number(row.refused_ever);
    cells.push(if row.refused > 0 { refused.style(paint.of(Color::Red)) } else { refused });
    if columns.rekey {
        cells.push(Line::from(row.rekey_in.map_or("-".to_owned(), short)).right_aligned());
    }
    if let Some(last) = columns.last {
        cells.push(Line::styled(sparkline(&row.history, last), paint.of(Color::Cyan)));
    }
    TableRow::new(cells)
}

fn number(n: u64) -> Line<'static> {
    Line::from(compact(n)).right_aligned()
}

/// A length of time in its two largest units without a blank.
fn short(time: Duration) -> String {
    duration(time).replace(' ', "")
}

/// The keys, the most important ones at the ends.
const KEYS: [&str; 7] =
    ["q quit", "s sort", "r reverse", "/ filter", "a all", "blank pause", "h help"];

/// As many keys as there is room for.
fn keys(width: u16) -> String {
    let mut keys = KEYS.to_vec();
    while keys.len() > 2 && keys.join("  ").len() > usize::from(width) {
        keys.remove(keys.len() - 2);
    }
    keys.join("  ")
}

fn footing(model: &Model, screen: &Screen, width: u16, paint: Paint) -> Line<'static> {
    if let Some(trouble) = &model.trouble {
        let first = trouble.lines().next().unwrap_or_default();
        return Line::styled(format!("{}; trying again", plain(first)), paint.of(Color::Red));
    }
    if screen.is_typing() {
        return Line::from(format!("show names with: {}▏", plain(screen.filter())));
    }
    if !screen.shows_keys() {
        return Line::default();
    }
    if screen.filter().is_empty() {
        return Line::styled(keys(width), paint.faint());
    }
    let filter = format!("only names with \"{}\" (Esc: all)  ", plain(screen.filter()));
    let room = width.saturating_sub(u16::try_from(filter.chars().count()).unwrap_or(u16::MAX));
    Line::from(vec![
        Span::styled(filter, paint.of(Color::Yellow)),
        Span::styled(keys(room), paint.faint()),
    ])
}

const HELP: &str = "\
q, Ctrl-C    quit
s, S         order by the next column, or the one before
r            the other way round
/            show only names or addresses with some text
Esc          show all names again, or quit
a            show tunnels that are down, too
blank, p     pause
+, -         look less often, more often
arrows, PageUp, PageDown, Home, End
             move through the tunnels

IN, OUT      bits and packets in a second, received and sent,
             as they are inside of the tunnel
REFUSED      replayed, forged or outside of the selectors, since
             the tunnel came up; red while there are more
REKEY        until the keys are renewed
LAST         bits in a second, both ways, the latest at the right

Any key goes back.";

fn help(frame: &mut Frame<'_>, paint: Paint) {
    let area = frame.area();
    let lines = u16::try_from(HELP.lines().count()).unwrap_or(u16::MAX);
    let (width, height) = (70.min(area.width), lines.saturating_add(2).min(area.height));
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(" vpnctl top ").border_style(paint.faint());
    frame.render_widget(Paragraph::new(HELP).block(block), place);
}
