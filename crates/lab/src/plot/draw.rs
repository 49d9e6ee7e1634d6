//! The drawing itself.

use super::axis::{Fitted, brief};
use super::{COLOURS, Panel, Plot, Series, Sign, Style};
use plotters::coord::Shift;
use plotters::prelude::*;

const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(40, 44, 52);
const FAINT: RGBColor = RGBColor(96, 102, 112);
const GRID: RGBColor = RGBColor(228, 230, 234);
/// Width and height of a panel beside others, and of one alone.
const PANEL: (u32, u32) = (460, 350);
const ALONE: (u32, u32) = (860, 430);
const MARGIN: i32 = 24;
/// The width of a panel beside its bars: the axis and its margins.
const ASIDE: f64 = 104.0;
/// Size of the text at ticks.
const TICKS: f64 = 13.0;
/// Height of a line of the heading.
const LINE: i32 = 24;
/// Size of its text.
const TEXT: f64 = 14.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;
type Chart<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<Fitted, Fitted>>;

/// The browser chooses the font: this is what a text is wide in most of them.
fn width(text: &str, size: f64) -> i32 {
    (text.chars().count() as f64 * size * 0.56) as i32
}

fn colour(style: Style) -> RGBColor {
    let (red, green, blue) = COLOURS[style.colour % COLOURS.len()];
    RGBColor(red, green, blue)
}

pub(super) fn plot<'a>(svg: &'a mut String, plot: &Plot) -> Drawn<'a> {
    let columns = plot.columns.clamp(1, plot.panels.len().max(1));
    let rows = plot.panels.len().div_ceil(columns).max(1);
    let panel = if columns == 1 { ALONE } else { PANEL };
    let breadth = panel.0 * columns as u32;
    let room = breadth as i32 - 2 * MARGIN;
    let quote = wrapped(&plot.quote, room);
    let legend = rows_of_legend(plot, room);
    let head = 56 + LINE * (quote.len() + legend.len()) as i32;
    let size = (breadth, head as u32 + panel.1 * rows as u32);
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (top, body) = root.split_vertically(head);
    let text = |size: f64, ink: &RGBColor| (FONT, size).into_font().color(ink);
    top.draw(&Text::new(plot.title.clone(), (MARGIN, 16), text(20.0, &INK)))?;
    let mut y = 50;
    for line in quote {
        top.draw(&Text::new(line, (MARGIN, y), text(TEXT, &FAINT)))?;
        y += LINE;
    }
    for row in legend {
        let mut x = MARGIN;
        for (name, sign) in row {
            sample(&top, (x, y + 7), sign)?;
            top.draw(&Text::new(name.to_owned(), (x + 34, y), text(TEXT, &INK)))?;
            x += entry(name);
        }
        y += LINE;
    }
    for (panel, area) in plot.panels.iter().zip(body.split_evenly((rows, columns))) {
        draw_panel(&area, panel)?;
    }
    root.present()
}

/// The line or bar of a series or a mark in the legend, as it looks in the panels.
fn sample<'a>(area: &Area<'a>, (x, y): (i32, i32), sign: Sign) -> Drawn<'a> {
    let (pieces, line): (&[(i32, i32)], _) = match sign {
        Sign::Line(style) if style.dashed => (&[(0, 8), (18, 26)], colour(style).stroke_width(3)),
        Sign::Line(style) => (&[(0, 26)], colour(style).stroke_width(3)),
        Sign::Mark => (&[(0, 4), (7, 11), (15, 19), (22, 26)], INK.stroke_width(2)),
        Sign::Bar(style) => {
            let corners = [(x + 6, y - 7), (x + 22, y + 7)];
            if !style.dashed {
                area.draw(&Rectangle::new(corners, colour(style).mix(0.85).filled()))?;
            }
            return area.draw(&Rectangle::new(corners, colour(style).stroke_width(2)));
        }
    };
    for (from, to) in pieces {
        area.draw(&PathElement::new([(x + from, y), (x + to, y)], line))?;
    }
    if let Sign::Line(style) = sign {
        let inside = if style.dashed { WHITE } else { colour(style) };
        area.draw(&Circle::new((x + 13, y), 3, inside.filled()))?;
        area.draw(&Circle::new((x + 13, y), 3, colour(style).stroke_width(2)))?;
    }
    Ok(())
}

/// The width of an entry of the legend.
fn entry(name: &str) -> i32 {
    34 + width(name, TEXT) + 26
}

/// Text in lines that are not wider than `room`.
fn wrapped(text: &str, room: i32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, TEXT) + width(word, TEXT) + 8 <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn rows_of_legend(plot: &Plot, room: i32) -> Vec<Vec<(&str, Sign)>> {
    let mut rows: Vec<Vec<(&str, Sign)>> = Vec::new();
    let mut free = 0;
    for (name, sign) in plot.legend() {
        match rows.last_mut() {
            Some(row) if entry(name) <= free => row.push((name, sign)),
            _ => {
                rows.push(vec![(name, sign)]);
                free = room;
            }
        }
        free -= entry(name);
    }
    rows
}

fn draw_panel<'a>(area: &Area<'a>, panel: &Panel) -> Drawn<'a> {
    let values = panel.series.iter().flat_map(|series| &series.points);
    let values = values.flat_map(|(_, spread)| [spread.low, spread.high]);
    let values = values.chain(panel.mark.iter().map(|(value, _)| value * 1.15));
    let (low, high) = values.fold((f64::MAX, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
    // The least bar is to be seen, too.
    let low = if panel.x.has_bars() { low / 2.0 } else { low };
    let (x, mut y) = (panel.x.fit(0.0, 1.0), panel.y.fit(low.min(high), high));
    if panel.x.has_bars() {
        // Room for the numbers above the bars.
        y.range.end += (y.range.end - y.range.start) * 0.06;
    }
    let mut builder = ChartBuilder::on(area);
    if !panel.caption.is_empty() {
        builder.caption(&panel.caption, (FONT, 16).into_font().color(&INK));
    }
    let mut chart = builder
        .margin(12)
        .margin_right(22)
        .x_label_area_size(48)
        .y_label_area_size(66)
        .build_cartesian_2d(x.clone(), y.clone())?;
    let mut mesh = chart.configure_mesh();
    if panel.x.has_bars() {
        mesh.disable_x_mesh();
    }
    mesh.bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(FAINT)
        .label_style((FONT, TICKS).into_font().color(&FAINT))
        .x_label_style((FONT, size_of_ticks(panel, &x, area)).into_font().color(&FAINT))
        .axis_desc_style((FONT, 14).into_font().color(&INK))
        .x_desc(panel.x.label.as_str())
        .y_desc(panel.y.label.as_str())
        .x_label_formatter(&|position| x.label(*position))
        .y_label_formatter(&|position| y.label(*position))
        .draw()?;
    if panel.x.has_bars() {
        bars(&mut chart, &panel.series, &y)?;
        gaps(&mut chart, panel, (&x, &y))?;
    } else {
        panel.series.iter().try_for_each(|series| line(&mut chart, series, (&x, &y)))?;
    }
    // Last, since bars would hide it.
    if let Some((value, _)) = &panel.mark {
        let at = y.place(*value);
        let ends = [(x.range.start, at), (x.range.end, at)];
        chart.draw_series(DashedLineSeries::new(ends, 4, 4, INK.stroke_width(1)))?;
    }
    Ok(())
}

/// The size of text with which the names of groups stand beside each other.
fn size_of_ticks(panel: &Panel, x: &Fitted, area: &Area<'_>) -> f64 {
    let room = (area.dim_in_pixel().0 as f64 - ASIDE) / x.ticks.len().max(1) as f64;
    let widest = x.ticks.iter().map(|tick| width(&x.label(*tick), 1000.0)).max().unwrap_or(0);
    let fitting = room / (f64::from(widest) / 1000.0).max(1.0);
    if panel.x.has_bars() { fitting.clamp(8.0, TICKS) } else { TICKS }
}

fn line<'a>(chart: &mut Chart<'a, '_>, series: &Series, (x, y): (&Fitted, &Fitted)) -> Drawn<'a> {
    let ink = colour(series.style);
    let at = |(where_, spread): &(f64, _)| (x.place(*where_), *spread);
    let spreads: Vec<(f64, super::Spread)> = series.points.iter().map(at).collect();
    let whiskers = spreads.iter().filter(|(_, s)| s.high > s.low).map(|(x, spread)| {
        let ends = [(*x, y.place(spread.low)), (*x, y.place(spread.high))];
        PathElement::new(ends, ink.mix(0.45).stroke_width(2))
    });
    chart.draw_series(whiskers)?;
    let points: Vec<(f64, f64)> = spreads.iter().map(|(x, s)| (*x, y.place(s.median))).collect();
    let mark = match series.style.dashed {
        true => {
            chart.draw_series(DashedLineSeries::new(
                points.iter().copied(),
                6,
                5,
                ink.stroke_width(2),
            ))?;
            WHITE.filled()
        }
        false => {
            chart.draw_series(LineSeries::new(points.iter().copied(), ink.stroke_width(2)))?;
            ink.filled()
        }
    };
    chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, mark)))?;
    chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, ink.stroke_width(2))))?;
    Ok(())
}

/// Bars of all series side by side, with their numbers.
fn bars<'a>(chart: &mut Chart<'a, '_>, series: &[Series], y: &Fitted) -> Drawn<'a> {
    let breadth = 0.8 / series.len().max(1) as f64;
    let floor = y.range.start;
    for (n, series) in series.iter().enumerate() {
        let ink = colour(series.style);
        for (group, spread) in &series.points {
            let left = group - 0.4 + n as f64 * breadth;
            let (from, to) = (left + breadth * 0.06, left + breadth * 0.94);
            let corners = [(from, floor), (to, y.place(spread.median))];
            if !series.style.dashed {
                chart.draw_series([Rectangle::new(corners, ink.mix(0.85).filled())])?;
            }
            chart.draw_series([Rectangle::new(corners, ink.stroke_width(2))])?;
            let middle = f64::midpoint(from, to);
            if spread.high > spread.low {
                let ends = [(middle, y.place(spread.low)), (middle, y.place(spread.high))];
                chart.draw_series([PathElement::new(ends, INK.stroke_width(1))])?;
            }
            let label = brief(spread.median);
            let shift = (-width(&label, 11.0) / 2, -16);
            let label = Text::new(label, shift, (FONT, 11).into_font().color(&INK));
            chart.draw_series([EmptyElement::at((middle, y.place(spread.high))) + label])?;
        }
    }
    Ok(())
}

/// Says of groups without a bar that nothing was measured there.
fn gaps<'a>(chart: &mut Chart<'a, '_>, panel: &Panel, (x, y): (&Fitted, &Fitted)) -> Drawn<'a> {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let is_empty = |tick: &&f64| points().all(|(group, _)| (group - **tick).abs() > 0.5);
    let text = "not measured";
    let label = |tick: &f64| {
        let shift = (-width(text, TICKS) / 2, -22);
        let label = Text::new(text, shift, (FONT, TICKS).into_font().color(&FAINT));
        EmptyElement::at((*tick, y.range.start)) + label
    };
    chart.draw_series(x.ticks.iter().filter(is_empty).map(label))?;
    Ok(())
}
