//! Pictures of measurements: panels with lines or bars, titles, units, a legend, and what the document had.

mod axis;
mod draw;

pub use axis::{Axis, Scale};

use crate::statistics::Spread;

/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito), without their yellow, which is
/// too faint for lines.
const COLOURS: [(u8, u8, u8); 7] = [
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (40, 44, 52),
];

/// The style of a series. A state has the same style in every picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The number of one of seven colours.
    pub colour: usize,
    /// The line is broken, and marks and bars are hollow.
    pub dashed: bool,
}

impl Style {
    /// A solid line or bar of one of the seven colours.
    pub const fn solid(colour: usize) -> Self {
        Self { colour, dashed: false }
    }

    /// A broken line or a hollow bar.
    pub const fn dashed(colour: usize) -> Self {
        Self { colour, dashed: true }
    }
}

/// The sign of a series in the legend.
#[derive(Clone, Copy, Debug)]
enum Sign {
    Line(Style),
    Bar(Style),
    Mark,
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// The document's figure: a sentence below the title.
    pub quote: String,
    /// Panels from left to right, then down.
    pub panels: Vec<Panel>,
    /// The number of panels side by side.
    pub columns: usize,
}

/// Part of a picture with axes of its own.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The caption; empty if the title of the picture says it.
    pub caption: String,
    /// The axis to the right.
    pub x: Axis,
    /// The axis upwards.
    pub y: Axis,
    /// The series of values.
    pub series: Vec<Series>,
    /// A line straight across, and what the legend calls it: a limit, a target.
    pub mark: Option<(f64, String)>,
}

/// Values that belong together.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its style.
    pub style: Style,
    /// The position of each value on the horizontal axis, and the value.
    pub points: Vec<(f64, Spread)>,
}

impl Plot {
    /// The picture as SVG.
    ///
    /// # Panics
    /// Never: a string takes every picture.
    pub fn svg(&self) -> String {
        let mut svg = String::new();
        draw::plot(&mut svg, self).expect("a string takes every picture");
        let escaped = self.title.replace('&', "&amp;").replace('<', "&lt;");
        // The title is for readers of the text alone, and for those who point at the picture.
        svg.replacen('>', &format!(" role=\"img\">\n<title>{escaped}</title>"), 1)
    }

    /// Names and signs of all panels' series and then marks, each once.
    fn legend(&self) -> Vec<(&str, Sign)> {
        let series = self.panels.iter().flat_map(|panel| {
            let sign = if panel.x.has_bars() { Sign::Bar } else { Sign::Line };
            panel.series.iter().map(move |series| (series.name.as_str(), sign(series.style)))
        });
        let marks = self.panels.iter().flat_map(|panel| &panel.mark);
        let marks = marks.map(|(_, label)| (label.as_str(), Sign::Mark));
        let mut legend: Vec<(&str, Sign)> = Vec::new();
        for (name, sign) in series.chain(marks) {
            if !legend.iter().any(|(known, _)| *known == name) {
                legend.push((name, sign));
            }
        }
        legend
    }
}

#[cfg(test)]
mod tests;
