//! The picture of a bench: a panel for each algorithm, a line for each provider, both axes logarithmic.

use super::bench::Measured;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;

const PANEL: (u32, u32) = (430, 330);
/// Pixels of height that a panel's axes leave to its lines.
const PLOT: u32 = 243;
const TITLE: u32 = 84;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(40, 44, 52);
const FAINT: RGBColor = RGBColor(120, 126, 136);
const GRID: RGBColor = RGBColor(228, 230, 234);

/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito).
const COLOURS: [(&str, RGBColor); 3] = [
    ("aws-lc", RGBColor(0, 114, 178)),
    ("ring", RGBColor(230, 159, 0)),
    ("portable", RGBColor(0, 158, 115)),
];

/// The picture cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the plot {path}: {why}")]
pub struct PlotError {
    path: String,
    why: String,
}

/// Draws what was measured to an SVG file.
///
/// # Errors
/// Where the file cannot be written.
pub fn draw(path: &Path, title: &str, measured: &[Measured]) -> Result<(), PlotError> {
    let mut svg = String::new();
    picture(&mut svg, title, measured)
        .map_err(|error| error.to_string())
        .and_then(|()| std::fs::write(path, &svg).map_err(|error| error.to_string()))
        .map_err(|why| PlotError { path: path.display().to_string(), why })
}

type Failed<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

fn picture<'a>(svg: &'a mut String, title: &str, measured: &[Measured]) -> Result<(), Failed<'a>> {
    let mut algorithms: Vec<&str> = Vec::new();
    for m in measured {
        if !algorithms.contains(&m.algorithm.as_str()) {
            algorithms.push(&m.algorithm);
        }
    }
    let columns = algorithms.len().clamp(1, 3);
    let rows = algorithms.len().div_ceil(columns).max(1);
    let size = (PANEL.0 * columns as u32, TITLE + PANEL.1 * rows as u32);
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (head, body) = root.split_vertically(TITLE);
    heading(&head, title, measured)?;

    let sizes: BTreeSet<usize> = measured.iter().map(|m| m.size).collect();
    let rates = measured.iter().map(Measured::seal_gbits);
    let (low, high) = rates.fold((f64::MAX, 0.0_f64), |(l, h), r| (l.min(r), h.max(r)));
    // The scale is logarithmic and has whole decades: a rate of 0 counts as 1e-6.
    let scale =
        (10_f64.powf(low.max(1e-6).log10().floor()), 10_f64.powf(high.max(1e-6).log10().ceil()));
    for (algorithm, area) in algorithms.iter().zip(body.split_evenly((rows, columns))) {
        let of: Vec<&Measured> = measured.iter().filter(|m| m.algorithm == *algorithm).collect();
        panel(&area, algorithm, &of, &sizes, scale)?;
    }
    root.present()
}

fn heading<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    title: &str,
    measured: &[Measured],
) -> Result<(), Failed<'a>> {
    area.draw(&Text::new(title.to_owned(), (24, 16), (FONT, 21).into_font().color(&INK)))?;
    let mut x = 24;
    for (provider, colour) in COLOURS {
        if !measured.iter().any(|m| m.provider == provider) {
            continue;
        }
        area.draw(&PathElement::new([(x, 62), (x + 26, 62)], colour.stroke_width(3)))?;
        area.draw(&Text::new(provider, (x + 34, 54), (FONT, 15).into_font().color(&INK)))?;
        x += 130;
    }
    let note = "Gbit/s sealed by one core, over octets of a packet";
    area.draw(&Text::new(note, (x + 10, 54), (FONT, 15).into_font().color(&FAINT)))
}

fn panel<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    algorithm: &str,
    measured: &[&Measured],
    sizes: &BTreeSet<usize>,
    (low, high): (f64, f64),
) -> Result<(), Failed<'a>> {
    let first = *sizes.first().unwrap_or(&1) as f64;
    let last = *sizes.last().unwrap_or(&2) as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(algorithm, (FONT, 17).into_font().color(&INK))
        .margin(14)
        .x_label_area_size(34)
        .y_label_area_size(52)
        .build_cartesian_2d(
            (first * 0.8..last.max(first * 2.0) * 3.0).log_scale().base(2.0),
            (low..high).log_scale(),
        )?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(FAINT)
        .label_style((FONT, 12).into_font().color(&FAINT))
        .x_label_formatter(&|octets| octets_label(*octets))
        .y_label_formatter(&|rate| tick_label(*rate))
        .x_labels(8)
        .y_labels(6)
        .draw()?;
    let mut ends = Vec::new();
    for (provider, colour) in COLOURS {
        let points: Vec<(f64, f64)> = measured
            .iter()
            .filter(|m| m.provider == provider)
            .map(|m| (m.size as f64, m.seal_gbits()))
            .collect();
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
        ends.extend(points.last().map(|end| (*end, colour)));
    }
    // Beside the last points, from above to below, so far apart that each can be read.
    ends.sort_by(|(a, _), (b, _)| b.1.total_cmp(&a.1));
    let mut free = f64::MIN;
    for (end, colour) in ends {
        let height = (high / end.1).log10() / (high / low).log10() * f64::from(PLOT);
        let at = height.max(free);
        free = at + 14.0;
        let style = (FONT, 13).into_font().color(&colour);
        let shift = (at - height) as i32;
        let label = Text::new(rate_label(end.1), (9, shift - 8), style);
        chart.draw_series([EmptyElement::at(end) + label])?;
    }
    Ok(())
}

fn octets_label(octets: f64) -> String {
    if octets >= 1024.0 { format!("{:.0}K", octets / 1024.0) } else { format!("{octets:.0}") }
}

/// A power of ten.
fn tick_label(rate: f64) -> String {
    let text = format!("{rate:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn rate_label(rate: f64) -> String {
    match rate {
        r if r >= 10.0 => format!("{r:.0}"),
        r if r >= 1.0 => format!("{r:.1}"),
        r if r >= 0.1 => format!("{r:.2}"),
        r => format!("{r:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_and_provider_is_in_the_picture() {
        let measured = |algorithm: &str, provider: &str, size, seal| Measured {
            algorithm: algorithm.to_owned(),
            provider: provider.to_owned(),
            place: "software".to_owned(),
            size,
            seal,
            open: seal,
        };
        let all = [
            measured("AES-GCM-16-256", "aws-lc", 64, 1e6),
            measured("AES-GCM-16-256", "aws-lc", 8192, 1e5),
            measured("AES-GCM-16-256", "portable", 64, 2e4),
            measured("A<B", "portable", 64, 1e4),
        ];
        for some in [&all[..], &all[..1], &[]] {
            let mut svg = String::new();
            picture(&mut svg, "Ciphers", some).expect("a string takes it");
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            for part in some {
                let shown = part.algorithm.replace('<', "&lt;");
                assert!(svg.contains(&shown) && svg.contains(&part.provider), "{svg}");
            }
        }
        assert_eq!([100.0, 1.0, 0.1, 0.01].map(tick_label), ["100", "1", "0.1", "0.01"]);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let error = draw(Path::new("/proc/none/a.svg"), "", &[]).expect_err("no such directory");
        assert!(error.to_string().starts_with("cannot write the plot /proc/none/a.svg: "));
    }
}
